"""Bad input of `predict`: every mistake is told with its path, together, and never a traceback."""

from __future__ import annotations

import io
import json
from types import SimpleNamespace
from typing import TYPE_CHECKING

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from tidestaff.streaming.cli import main
from tidestaff.streaming.commands.exits import CommandError
from tidestaff.streaming.commands.predict import KINDS, _module, rule_set
from tidestaff.streaming.commands.reader import InputReader

if TYPE_CHECKING:
    from pathlib import Path

GOOD = {
    "election": {
        "partition": {"replicas": [1, 2], "isr": [1, 2], "leader": 1, "leader_epoch": 4},
        "live": [1, 2],
        "event": "leader-failure",
    },
    "truncation": {
        "leader": {"log_end_offset": 15, "epochs": [[0, 0], [1, 10]]},
        "follower": {"log_end_offset": 13, "high_watermark": 9, "epochs": [[0, 0]]},
    },
    "watermark": {
        "leader": {"log_end_offset": 8, "high_watermark": 4},
        "followers": {"2": {"log_end_offset": 6}},
        "isr": [1, 2],
    },
}


def changed(what: str, path: str, value: object) -> object:
    """The good input with one value set, or removed for `...`."""
    asked = json.loads(json.dumps(GOOD[what]))
    *parents, last = path.split(".")
    place = asked
    for parent in parents:
        place = place.setdefault(parent, {})
    if value is ...:
        del place[last]
    else:
        place[last] = value
    return asked


def run(what: str, text: bytes | str, tmp_path: Path, version: str = "3.9") -> int:
    file = tmp_path / "input.json"
    file.write_bytes(text if isinstance(text, bytes) else text.encode())
    return main(["predict", what, "--version", version, "--input", str(file)])


E, T, W = "election", "truncation", "watermark"


@pytest.mark.parametrize(
    ("what", "path", "value", "told"),
    [
        (E, "partition", ..., "partition: found nothing, expected an object"),
        (E, "partition", [], "partition: found [], expected an object"),
        (E, "partition.isr", ..., "partition.isr: found nothing, expected a list of broker ids"),
        (E, "partition.isr", [1, "2"], 'partition.isr: found [1, "2"], expected a list of broker'),
        (E, "partition.isr", [1, 1], "partition.isr: found [1, 1], expected every broker once"),
        (E, "partition.isr", [1, 7], "partition.isr: found [7], expected only members of replicas"),
        (E, "partition.replicas", [], "partition.replicas: found [], expected at least one"),
        (E, "partition.leader", True, "partition.leader: found true, expected a whole number"),
        (E, "partition.leader", 1.5, "partition.leader: found 1.5, expected a whole number"),
        (E, "partition.leader", -2, "partition.leader: found -2, expected a whole number from -1"),
        (E, "partition.leader", 3, "partition.leader: found 3, expected a member of the ISR"),
        (E, "partition.leader", -1, 'event: found "leader-failure", expected a partition with'),
        (E, "partition.leader_epoch", 2**31, "partition.leader_epoch: found 2147483648, expected"),
        (E, "partition.elr", [2], "partition.elr: found [2], expected nothing: only KRaft"),
        (E, "partition.recovery", "recoverd", "did you mean recovered?"),
        (E, "partition.isrs", [1], "partition.isrs: found an unknown key, expected one of"),
        (E, "setings", {}, "did you mean settings?"),
        (E, "settings.min_insync_replicas", 0, "settings.min_insync_replicas: found 0"),
        (E, "settings.unclean_leader_election_enable", "yes", "expected true or false"),
        (E, "live", ..., "live: found nothing, expected a list of broker ids"),
        (E, "event", ..., "event: found nothing, expected one of leader-failure"),
        (E, "event", "leader-fail", "did you mean leader-failure?"),
        (E, "event", 5, "event: found 5, expected an object"),
        (E, "event", {"type": "broker-failure"}, "event.dead: found nothing"),
        (E, "event", {"type": "broker-failure", "dead": []}, "event.dead: found []"),
        (E, "event", {"type": "preferred", "broker": 1}, "event.broker: found an unknown key"),
        (E, "event", {"type": "controlled-shutdown", "broker": 9}, "expected one of the live"),
        (
            *(E, "event", {"type": "broker-return", "broker": 1, "restarted": "clean"}),
            "event.restarted: found",
        ),
        (T, "follower", ..., "follower: found nothing, expected an object"),
        (T, "follower.high_watermark", ..., "follower.high_watermark: found nothing"),
        (T, "follower.high_watermark", 14, "follower.high_watermark: found 14, expected from 0 to"),
        (T, "follower.log_start_offset", 14, "follower.log_start_offset: found 14, expected at"),
        (T, "follower.epochs", ..., "follower.epochs: found nothing"),
        (T, "follower.epochs", [[0]], "follower.epochs: found [[0]], expected a list of [epoch"),
        (T, "follower.epochs", [[1, 0], [0, 5]], "expected epochs and start offsets that rise"),
        (T, "follower.epochs", [[0, 0], [1, 0]], "expected epochs and start offsets that rise"),
        (T, "follower.epochs", [[0, 14]], "expected starts up to the log end offset 13"),
        (T, "committed", 3, "committed: found 3, expected at least the follower's high watermark"),
        (W, "leader.high_watermark", 9, "leader.high_watermark: found 9, expected at most"),
        (W, "followers", [], "followers: found [], expected an object"),
        (W, "followers.x", {"log_end_offset": 1}, "followers.x: found this key, expected a broker"),
        (W, "followers.2", 6, "followers.2: found 6, expected an object"),
        (W, "followers.2.log_end_offset", -2, "followers.2.log_end_offset: found -2"),
        (W, "followers.2.caught", True, "did you mean caught_up?"),
        (W, "isr", [2], "isr: found [2], expected one member, the leader, that is not among"),
        (W, "isr", [1, 5], "isr: found [1, 5], expected one member, the leader"),
        (W, "maximal_isr", [1], "maximal_isr: found [1], expected every member of the ISR"),
    ],
)
def test_a_mistake_is_told_with_its_path(
    what: str,
    path: str,
    value: object,
    told: str,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:
    assert run(what, json.dumps(changed(what, path, value)), tmp_path) == 3
    out, err = capsys.readouterr()
    assert told in err
    assert out == ""


@pytest.mark.parametrize("what", sorted(KINDS))
def test_the_good_inputs_are_good(what: str, tmp_path: Path) -> None:
    assert run(what, json.dumps(GOOD[what]), tmp_path) in (0, 1)


def test_one_mistake_is_told_once(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    run(E, json.dumps(changed(E, "partition.leader", "x")), tmp_path)
    assert "1 problem\n" in capsys.readouterr().err


def test_all_mistakes_are_told_at_once(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    asked = {"partition": {"replicas": 1, "lader": 1}, "live": None, "evnt": "preferred"}
    assert run(E, json.dumps(asked), tmp_path) == 3
    err = capsys.readouterr().err
    for told in ("partition.replicas", "partition.leader:", "partition.lader", "live", "evnt"):
        assert told in err


@pytest.mark.parametrize(
    ("text", "told"),
    [
        pytest.param('{"a": 1,\n "b": }', "line 2, column 7: broken JSON", id="where-it-breaks"),
        pytest.param("", "is empty, expected a JSON object", id="empty"),
        pytest.param("  \n", "is empty, expected a JSON object", id="blank"),
        pytest.param("[]", "the input: found [], expected an object", id="a-list"),
        pytest.param("null", "the input: found null, expected an object", id="null"),
        pytest.param('{"a": NaN}', "found NaN", id="not-a-number"),
        pytest.param('{"a": 1, "a": 2}', "key 'a' stands twice", id="a-key-twice"),
        pytest.param("[" * 100_000, "nested too deeply", id="deep"),
        pytest.param('{"a": ' + "9" * 5000 + "}", "5000 digits", id="a-number-without-end"),
        pytest.param(b"\xff\xfe{}", "byte 0 is not UTF-8", id="not-utf-8"),
    ],
)
def test_what_is_no_json_is_told_with_its_place(
    text: str | bytes, told: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(E, text, tmp_path) == 3
    assert told in capsys.readouterr().err


def test_the_broken_place_is_pointed_at(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    run(E, '{"live": [1,}', tmp_path)
    lines = capsys.readouterr().err.splitlines()
    assert lines[1].index("}") == lines[2].index("^")


@pytest.mark.parametrize(
    ("path", "told"),
    [
        pytest.param("nowhere.json", "No such file", id="missing"),
        pytest.param(".", "Is a directory", id="a-folder"),
    ],
)
def test_a_file_that_cannot_be_read(
    path: str, told: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["predict", E, "--version", "3.9", "--input", str(tmp_path / path)]) == 3
    assert told in capsys.readouterr().err


def test_the_input_of_another_prediction_is_told_as_such(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(T, json.dumps(GOOD[E]), tmp_path) == 3
    assert "'tidestaff predict election'" in capsys.readouterr().err


def test_stdin_is_read_for_a_dash(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    raw = b"\xef\xbb\xbf" + json.dumps(GOOD[E]).encode()
    monkeypatch.setattr("sys.stdin", SimpleNamespace(buffer=io.BytesIO(raw)))
    assert main(["predict", E, "--version", "3.9", "--input", "-"]) == 0
    assert "1 -> 2" in capsys.readouterr().out


def test_up_to_0_10_2_epochs_may_be_left_out(tmp_path: Path) -> None:
    asked = {
        "leader": {"log_end_offset": 5},
        "follower": {"log_end_offset": 5, "high_watermark": 5},
    }
    assert run(T, json.dumps(asked), tmp_path, "0.10.2") == 0


numbers = st.integers(-2, 6)
broker_lists = st.lists(st.integers(0, 4), max_size=4, unique=True)
scalars = st.none() | st.booleans() | numbers | st.text(max_size=3) | st.floats(allow_nan=False)
junk = st.recursive(
    scalars,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=3), inner),
    max_leaves=6,
)
events = st.sampled_from(["leader-failure", "preferred", "unclean", "new-partition"]) | st.one_of(
    st.fixed_dictionaries({"type": st.just("broker-failure"), "dead": broker_lists}),
    st.fixed_dictionaries({"type": st.just("reassign"), "target": broker_lists}),
    st.fixed_dictionaries({"type": st.just("controlled-shutdown"), "broker": st.integers(0, 4)}),
    st.fixed_dictionaries(
        {"type": st.just("broker-return"), "broker": st.integers(0, 4)},
        optional={"restarted": st.sampled_from(["clean", "unclean"])},
    ),
)


@st.composite
def elections(draw: st.DrawFn) -> dict[str, object]:
    """Elections that can be: most are judged, the rest refused for their ELR or their event."""
    replicas = draw(st.permutations(range(5)).map(lambda all_: all_[:3]))
    isr = draw(st.lists(st.sampled_from(replicas), unique=True, max_size=3))
    outside = [replica for replica in replicas if replica not in isr]
    partition = {
        "replicas": replicas,
        "isr": isr,
        "leader": draw(st.sampled_from([-1, *isr])),
        "leader_epoch": draw(st.integers(0, 6)),
        "elr": draw(st.just([]) | st.just(outside)),
        "last_known_elr": draw(st.just([]) | st.just(replicas[:1])),
        "adding": draw(st.just([]) | st.just(replicas[:1])),
        "removing": draw(st.just([]) | st.just(replicas[2:])),
    }
    event = draw(events)
    if event == "new-partition":
        partition = {"replicas": replicas}
    elif draw(st.booleans()):
        partition["elr"] = partition["last_known_elr"] = []
    minimum, unclean = draw(st.integers(1, 3)), draw(st.booleans())
    return {
        "partition": partition,
        "live": draw(broker_lists),
        "event": event,
        "settings": {"min_insync_replicas": minimum, "unclean_leader_election_enable": unclean},
    }


plausible = {
    E: elections(),
    T: st.fixed_dictionaries(
        dict.fromkeys(
            ("leader", "follower"),
            st.fixed_dictionaries(
                {
                    "log_end_offset": st.integers(0, 9),
                    "high_watermark": st.integers(0, 4),
                    "epochs": st.lists(
                        st.tuples(st.integers(0, 4), st.integers(0, 6)).map(list),
                        max_size=3,
                    ).map(sorted),
                },
                optional={"log_start_offset": st.integers(0, 4)},
            ),
        ),
        optional={"committed": st.integers(0, 9)},
    ),
    W: st.fixed_dictionaries(
        {
            "leader": st.fixed_dictionaries(
                {"log_end_offset": st.integers(0, 9), "high_watermark": st.integers(0, 9)}
            ),
            "followers": st.dictionaries(
                st.integers(2, 4).map(str),
                st.fixed_dictionaries({"log_end_offset": st.integers(-1, 9)}),
            ),
            "isr": broker_lists.map(lambda members: [1, *(m for m in members if m > 1)]),
        },
        optional={"min_insync_replicas": st.integers(1, 4)},
    ),
}


@pytest.mark.parametrize("what", sorted(KINDS))
@settings(max_examples=300, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(data=st.data(), version=st.sampled_from(["0.10.2", "1.1", "2.0", "3.9", "4.0", "4.1"]))
def test_whatever_comes_in_is_judged_or_refused(
    what: str, data: st.DataObject, version: str
) -> None:
    """Nothing but a refusal is ever raised, and both forms of a prediction can be written."""
    value = json.loads(json.dumps(data.draw(plausible[what] | junk)))
    rules = rule_set(version, None, None, None)
    try:
        prediction = _module(what).predict(InputReader("-"), value, rules)
    except CommandError:
        return
    assert prediction.exit_code in (0, 1, 2)
    assert json.dumps(prediction.content)
    assert prediction.text
