"""`tidestaff predict election`: every event in both modes, every exit code, and the reasons."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import pytest
from tidestaff.streaming.cli import main

if TYPE_CHECKING:
    from pathlib import Path

ZK, OLD_KRAFT, ELR = ["3.9"], ["3.9", "--mode", "kraft"], ["4.1"]
KEYS = [
    *("prediction", "rule_set", "event", "before", "after", "unclean", "offline", "under_min_isr"),
    *("answer", "because", "rule", "passed_over", "writes", "notes", "result", "exit_code"),
]


def question(event: object, **changes: Any) -> dict[str, Any]:
    """Three replicas, all in sync and live, 1 leads in epoch 4; changes go to their place."""
    partition = {"replicas": [1, 2, 3], "isr": [1, 2, 3], "leader": 1, "leader_epoch": 4}
    settings = {}
    live = changes.pop("live", [1, 2, 3])
    for name in ("unclean_leader_election_enable", "min_insync_replicas"):
        if name in changes:
            settings[name] = changes.pop(name)
    partition.update(changes)
    return {"partition": partition, "live": live, "event": event, "settings": settings}


def typed(kind: str, **fields: object) -> dict[str, object]:
    return {"type": kind, **fields}


FAILS_1_2 = typed("broker-failure", dead=[1, 2])
FAILS_ALL = typed("broker-failure", dead=[1, 2, 3])
STOPS_1 = typed("controlled-shutdown", broker=1)
RETURNS_2 = typed("broker-return", broker=2)
NOBODY = {"leader": -1, "isr": [3]}
UNCLEAN = {"unclean_leader_election_enable": True}
ONLY_ELR = {"leader": -1, "isr": [], "elr": [2, 3], "min_insync_replicas": 2}


def predicted(
    tmp_path: Path, asked: object, version: list[str], capsys: pytest.CaptureFixture[str]
) -> tuple[int, dict[str, Any]]:
    file = tmp_path / "input.json"
    file.write_text(json.dumps(asked), encoding="utf-8")
    code = main(["predict", "election", "--version", *version, "--input", str(file), "--json"])
    return code, json.loads(capsys.readouterr().out)


@pytest.mark.parametrize(
    ("version", "asked", "leader", "isr", "epoch", "code"),
    [
        pytest.param(
            ZK,
            question("leader-failure", replicas=[1, 5, 9], isr=[1, 9, 5], live=[5, 9]),
            *(5, [9, 5], 5, 0),
            id="S-18-assignment-order-not-isr-order",
        ),
        pytest.param(
            ELR,
            question("leader-failure", replicas=[1, 5, 9], isr=[1, 9, 5], live=[5, 9]),
            *(5, [9, 5], 5, 0),
            id="S-18-kraft-too",
        ),
        pytest.param(ZK, question(FAILS_1_2), 3, [3], 5, 0, id="zk-takes-all-dead-in-one-write"),
        pytest.param(ELR, question(FAILS_1_2), 3, [3], 6, 0, id="kraft-fences-one-by-one"),
        pytest.param(
            ZK,
            question(typed("broker-failure", dead=[3])),
            *(1, [1, 2], 5, 0),
            id="S-09-zk-epoch-rises-though-the-leader-stays",
        ),
        pytest.param(
            ELR,
            question(typed("broker-failure", dead=[3])),
            *(1, [1, 2], 4, 0),
            id="kraft-epoch-stays-when-a-follower-fails",
        ),
        pytest.param(
            ZK,
            question(typed("broker-failure", dead=[7])),
            *(1, [1, 2, 3], 4, 0),
            id="a-stranger-fails-nothing-happens",
        ),
        pytest.param(
            ZK,
            question("leader-failure", isr=[1], live=[2, 3]),
            *(-1, [1], 5, 2),
            id="S-39-isr-dead-stays-offline",
        ),
        pytest.param(
            ZK,
            question("leader-failure", isr=[1], live=[2, 3], **UNCLEAN),
            *(2, [2], 5, 1),
            id="S-39-unclean-first-live-of-the-assignment",
        ),
        pytest.param(
            ["0.10.2"],
            question("leader-failure", isr=[1], live=[2, 3]),
            *(2, [2], 5, 1),
            id="unclean-is-the-default-before-0.11",
        ),
        pytest.param(
            ["3.8", "--mode", "kraft"],
            question("leader-failure", isr=[1], **UNCLEAN),
            *(-1, [1], 5, 2),
            id="kraft-honours-unclean-from-3.9-only",
        ),
        pytest.param(
            ZK,
            question("leader-failure", min_insync_replicas=3),
            *(2, [2, 3], 5, 1),
            id="under-min-isr-is-a-warning",
        ),
        pytest.param(ZK, question(STOPS_1), 2, [2, 3], 5, 0, id="zk-controlled-shutdown"),
        pytest.param(ELR, question(STOPS_1), 2, [2, 3], 5, 0, id="kraft-controlled-shutdown"),
        pytest.param(
            ZK,
            question(STOPS_1, isr=[1]),
            *(-1, [1], 5, 2),
            id="a-shutdown-that-cannot-hand-over-ends-offline",
        ),
        pytest.param(
            ZK,
            question(typed("controlled-shutdown", broker=3)),
            *(1, [1, 2], 5, 0),
            id="a-follower-that-stops-leaves-the-isr",
        ),
        pytest.param(
            ZK,
            question("preferred", leader=2),
            *(1, [1, 2, 3], 5, 0),
            id="S-11-preferred-keeps-the-isr",
        ),
        pytest.param(ELR, question("preferred", leader=2), 1, [1, 2, 3], 5, 0, id="kraft-pref"),
        pytest.param(ZK, question("preferred"), 1, [1, 2, 3], 4, 0, id="preferred-not-needed"),
        pytest.param(
            ZK,
            question("preferred", leader=2, isr=[2, 3]),
            *(2, [2, 3], 4, 1),
            id="S-18-preferred-out-of-sync-is-refused",
        ),
        pytest.param(ZK, question("unclean"), 1, [1, 2, 3], 4, 0, id="unclean-not-needed"),
        pytest.param(
            ZK, question("unclean", live=[1, 2], **NOBODY), 1, [1], 5, 1, id="zk-unclean-asked-for"
        ),
        pytest.param(
            ELR, question("unclean", live=[1, 2], **NOBODY), 1, [1], 5, 1, id="kraft-unclean"
        ),
        pytest.param(
            ZK, question(RETURNS_2, leader=1, isr=[1, 3]), 1, [1, 3], 4, 0, id="S-10-leader-stays"
        ),
        pytest.param(
            ZK, question(RETURNS_2, live=[], **NOBODY), -1, [3], 4, 2, id="a-stale-one-may-not-lead"
        ),
        pytest.param(
            ZK,
            question(RETURNS_2, live=[], **NOBODY, **UNCLEAN),
            *(2, [2], 5, 1),
            id="S-32-a-stale-one-leads-uncleanly",
        ),
        pytest.param(
            ELR, question(RETURNS_2, live=[], **ONLY_ELR), 2, [2], 5, 1, id="elr-leads-cleanly"
        ),
        pytest.param(
            ELR,
            question({**RETURNS_2, "restarted": "clean"}, live=[], **ONLY_ELR),
            *(2, [2], 5, 1),
            id="a-clean-restart-keeps-the-elr",
        ),
        pytest.param(
            ELR,
            question({**RETURNS_2, "restarted": "unclean"}, live=[], **ONLY_ELR),
            *(-1, [], 4, 2),
            id="an-unclean-restart-costs-the-elr",
        ),
        pytest.param(
            ZK,
            question(typed("reassign", target=[2, 3])),
            *(2, [2, 3], 6, 0),
            id="zk-reassignment-completes-at-once",
        ),
        pytest.param(
            ZK,
            question(typed("reassign", target=[2, 4]), live=[1, 2, 3, 4]),
            *(1, [1, 2, 3], 5, 0),
            id="zk-reassignment-begins-with-an-epoch",
        ),
        pytest.param(
            ELR,
            question(typed("reassign", target=[2, 3])),
            *(2, [2, 3], 5, 0),
            id="kraft-reassignment-completes-at-once",
        ),
    ],
)
def test_the_prediction(
    version: list[str],
    asked: dict[str, Any],
    leader: int,
    isr: list[int],
    epoch: int,
    code: int,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:
    found, content = predicted(tmp_path, asked, version, capsys)
    after = content["after"]
    assert (after["leader"], after["isr"], after["leader_epoch"]) == (leader, isr, epoch)
    assert found == content["exit_code"] == code
    assert list(content) == KEYS
    if content["writes"]:
        last = {key: value for key, value in content["writes"][-1].items() if key != "occasion"}
        assert last == after


@pytest.mark.parametrize("version", [ZK, ELR])
@pytest.mark.parametrize(
    ("live", "code", "leader"),
    [
        pytest.param([2, 3], 0, 2, id="the-first-live-replica-leads"),
        pytest.param([], 2, None, id="without-a-live-replica-nothing-is-created"),
    ],
)
def test_a_new_partition(
    version: list[str],
    live: list[int],
    code: int,
    leader: int | None,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:
    asked = {"partition": {"replicas": [1, 2, 3]}, "live": live, "event": "new-partition"}
    found, content = predicted(tmp_path, asked, version, capsys)
    assert found == code
    assert content["before"] is None
    assert (content["after"] or {}).get("leader") == leader


@pytest.mark.parametrize(
    ("version", "asked", "reasons"),
    [
        pytest.param(
            ZK,
            question("leader-failure", isr=[1, 3], live=[2, 3]),
            {1: "fails", 2: "not in the ISR"},
            id="failed-and-out-of-sync",
        ),
        pytest.param(
            ZK, question(STOPS_1, live=[1, 2]), {1: "shuts down", 3: "not live"}, id="not-live"
        ),
        pytest.param(ZK, question("leader-failure"), {3: "stands after 2"}, id="later-in-order"),
        pytest.param(
            ZK, question(RETURNS_2, isr=[1, 3]), {3: "1 leads already"}, id="a-leader-stays"
        ),
        pytest.param(
            ELR,
            question("leader-failure", isr=[1, 3], elr=[2], live=[2, 3], min_insync_replicas=3),
            {2: "in the ELR, which counts only"},
            id="elr-waits-for-an-empty-isr",
        ),
        pytest.param(
            ELR,
            question(
                "leader-failure", leader=3, isr=[3], elr=[1, 2], live=[1, 2], min_insync_replicas=2
            ),
            {2: "stands after 1"},
            id="an-emptied-isr-makes-the-elr-count",
        ),
        pytest.param(
            ELR,
            question({**RETURNS_2, "restarted": "unclean"}, live=[], **ONLY_ELR),
            {2: "lost its place in the ELR"},
            id="an-unclean-restart",
        ),
        pytest.param(
            ZK,
            question("leader-failure", isr=[1], live=[2, 3], **UNCLEAN),
            {3: "stands after 2"},
            id="among-stale-ones-the-order-counts-too",
        ),
    ],
)
def test_why_the_others_do_not_lead(
    version: list[str],
    asked: dict[str, Any],
    reasons: dict[int, str],
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:
    _, content = predicted(tmp_path, asked, version, capsys)
    told = {each["broker"]: each["because"] for each in content["passed_over"]}
    assert all(reason in told[broker] for broker, reason in reasons.items()), told
    assert content["after"]["leader"] not in told


def test_the_text_names_rule_set_rule_and_result(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = tmp_path / "input.json"
    file.write_text(json.dumps(question("leader-failure")), encoding="utf-8")
    assert main(["predict", "election", "--version", "3.9", "--input", str(file)]) == 0
    out = capsys.readouterr().out
    assert out.startswith("Kafka 3.9.0, ZooKeeper mode\n")
    for told in ("1 -> 2", "4 -> 5", "(exit 0)", "first of AR", "rule  The first assigned"):
        assert told in out


@pytest.mark.parametrize(
    ("arguments", "name"),
    [
        pytest.param(["3.9"], "Kafka 3.9.0, ZooKeeper mode", id="zookeeper-up-to-3.9"),
        pytest.param(["4.0"], "Kafka 4.0.0, KRaft mode", id="kraft-from-4.0"),
        pytest.param(["4.1"], "Kafka 4.1.0, KRaft mode with ELR", id="elr-is-new-in-4.1"),
        pytest.param(["4.1", "--elr", "off"], "Kafka 4.1.0, KRaft mode", id="elr-switched-off"),
        pytest.param(
            ["3.9", "--mode", "KRAFT", "--protocol", "3.5"],
            "Kafka 3.9.0, KRaft mode, protocol 3.5",
            id="an-older-protocol-is-named",
        ),
    ],
)
def test_the_rule_set_is_named(
    arguments: list[str], name: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    _, content = predicted(tmp_path, question("leader-failure"), arguments, capsys)
    assert content["rule_set"]["name"] == name


@pytest.mark.parametrize(
    ("arguments", "told"),
    [
        pytest.param(["9.9"], "9.9", id="unknown-version"),
        pytest.param(["abc"], "not a Kafka version", id="no-version"),
        pytest.param(["4.0", "--mode", "zookeeper"], "no ZooKeeper mode", id="no-such-mode"),
        pytest.param(["3.9", "--elr", "on"], "ELR needs KRaft", id="no-elr-there"),
        pytest.param(["3.9", "--protocol", "x"], "not a protocol version", id="no-protocol"),
    ],
)
def test_rules_that_do_not_exist_are_exit_3(
    arguments: list[str], told: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = tmp_path / "input.json"
    file.write_text(json.dumps(question("leader-failure")), encoding="utf-8")
    assert main(["predict", "election", "--version", *arguments, "--input", str(file)]) == 3
    assert told in capsys.readouterr().err
