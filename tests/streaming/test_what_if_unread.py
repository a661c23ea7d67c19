"""What was not read makes an answer a guess, unless it lawfully has no weight."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import pytest
from tidestaff.connectors.linking import Linker
from tidestaff.consistency.model import HealthObservation, ProblemKind
from tidestaff.consistency.versions import Mode
from tidestaff.streaming.cli import main
from tidestaff.streaming.sources.row_files import file_name, write

from tests.consistency.watch import Watch

if TYPE_CHECKING:
    from pathlib import Path

    from tidestaff.consistency.model import Observation, PartitionObservation

UNREADABLE, OFFLINE = ProblemKind.UNREADABLE, ProblemKind.LOG_DIR_OFFLINE
MALFORMED, SILENT = ProblemKind.MALFORMED, ProblemKind.SILENT


def watch(**fields: Any) -> Watch:
    return Watch(version="4.1.1", mode=Mode.KRAFT, **fields)


def answer(
    folder: Path,
    capsys: pytest.CaptureFixture[str],
    seen: PartitionObservation,
    *problems: HealthObservation,
    words: tuple[str, ...] = ("stop", "3"),
) -> tuple[int, str]:
    told: list[Observation] = [seen, *problems]
    write(folder / file_name(seen.observed_at_ms, 1, "parquet"), Linker().link(told))
    code = main(["what-if", *words, "--recording", str(folder), "--json"])
    verdict: str = json.loads(capsys.readouterr().out)["verdict"]
    assert verdict.startswith("CANNOT TELL") == (code == 3)
    return code, verdict


def problem(kind: ProblemKind, place: str, **about: Any) -> HealthObservation:
    now_ms = watch().observation().observed_at_ms
    return HealthObservation("test", now_ms, "brokers", kind, place, "no answer", **about)


@pytest.mark.parametrize(
    ("found", "code"),
    [
        pytest.param(problem(UNREADABLE, "topic secret", topic="secret"), 3, id="a-hidden-topic"),
        pytest.param(problem(UNREADABLE, "topics that are hidden"), 3, id="hidden-topics"),
        pytest.param(problem(UNREADABLE, "log directories"), 3, id="who-knows-what-is-hidden"),
        pytest.param(problem(UNREADABLE, "settings of topics"), 3, id="settings"),
        pytest.param(
            problem(MALFORMED, "settings of broker 2", broker=2), 3, id="a-brokers-settings"
        ),
        pytest.param(problem(UNREADABLE, "quorum"), 3, id="who-votes"),
        pytest.param(problem(SILENT, "cluster"), 3, id="a-blind-round"),
        pytest.param(
            problem(MALFORMED, "/brokers/topics/u", topic="u"), 3, id="an-assignment-that-is-none"
        ),
        pytest.param(problem(MALFORMED, "/brokers/ids/2", broker=2), 3, id="a-registration"),
        pytest.param(
            problem(SILENT, "broker 2", broker=2), 3, id="one-in-sync-that-does-not-answer"
        ),
        pytest.param(problem(SILENT, "broker 3", broker=3), 0, id="who-stops-need-not-answer"),
        pytest.param(problem(SILENT, "broker 9", broker=9), 0, id="one-that-holds-nothing-of-it"),
        pytest.param(
            problem(UNREADABLE, "topic t on broker 2", topic="t", broker=2),
            *(0,),
            id="a-replica-that-is-read-after-all",
        ),
        pytest.param(problem(OFFLINE, "log directory /d of broker 2", broker=2), 0, id="a-disk"),
        pytest.param(problem(SILENT, "agent of broker 2", broker=2), 0, id="an-agent"),
        pytest.param(problem(MALFORMED, "broker 2: /d/meta.properties", broker=2), 0, id="a-file"),
        pytest.param(problem(ProblemKind.CLOCK_SKEW, "clock"), 0, id="a-clock"),
        pytest.param(problem(UNREADABLE, "registrations"), 0, id="who-is-fenced"),
        pytest.param(problem(ProblemKind.OK, "topic secret", topic="secret"), 0, id="it-is-over"),
    ],
)
def test_safe_is_what_was_read_and_no_more(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], found: HealthObservation, code: int
) -> None:
    assert answer(tmp_path, capsys, watch().observation(), found)[0] == code


def test_the_verdict_names_what_was_not_read(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    hidden = problem(UNREADABLE, "topic secret", topic="secret")
    _, verdict = answer(tmp_path, capsys, watch().observation(), hidden)
    assert verdict == "CANNOT TELL: topic secret was not read: no answer"


def test_what_is_over_is_not_told_as_not_read(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    seen, over = watch().observation(), problem(ProblemKind.OK, "settings of topic t", topic="t")
    write(tmp_path / file_name(seen.observed_at_ms, 1, "parquet"), Linker().link([seen, over]))
    assert main(["what-if", "stop", "3", "--recording", str(tmp_path)]) == 0
    assert "not read" not in capsys.readouterr().out


def without(seen: PartitionObservation, broker: int) -> PartitionObservation:
    return replace(seen, replicas=tuple(r for r in seen.replicas if r.broker != broker))


def test_who_is_in_sync_and_says_nothing_may_be_dead_before_that_is_a_problem(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    code, verdict = answer(tmp_path, capsys, without(watch().observation(), 2))
    assert (code, verdict[-43:]) == (3, "broker 2 is in the ISR of t-0 and was not read"[-43:])


def test_a_broker_that_is_known_to_be_away_is_reckoned_with(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Nobody counts on it: what is left without it is told."""
    away = without(watch(isr=(1, 3)).stop(2).observation(), 2)
    code, verdict = answer(tmp_path, capsys, away, problem(SILENT, "broker 2", broker=2))
    assert (code, verdict[:5]) == (1, "RISKY")


def test_a_directory_that_is_gone_counts_while_its_replica_counts_as_in_sync(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    gone = problem(OFFLINE, "topic t on broker 2", topic="t", broker=2)
    assert answer(tmp_path, capsys, without(watch().observation(), 2), gone)[0] == 3


def test_what_nobody_asks_about_has_no_weight(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    hidden = problem(UNREADABLE, "topic secret", topic="secret")
    words = ("stop", "3", "--topics-exclude", "sec.*")
    assert answer(tmp_path, capsys, watch().observation(), hidden, words=words)[0] == 0


@pytest.mark.parametrize(
    ("found", "code"),
    [
        (problem(UNREADABLE, "topic secret", topic="secret"), 0),
        (problem(UNREADABLE, "log directories"), 0),
        (problem(UNREADABLE, "settings of topic t", topic="t"), 3),
        (problem(UNREADABLE, "reassignments"), 3),
        (problem(SILENT, "broker 2", broker=2), 3),
    ],
)
def test_a_plan_is_about_the_topics_and_brokers_it_names(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], found: HealthObservation, code: int
) -> None:
    plan = tmp_path / "plan.json"
    plan.write_text('{"partitions": [{"topic": "t", "partition": 0, "replicas": [2, 3, 1]}]}')
    (tmp_path / "kept").mkdir()
    seen, words = watch().observation(), ("reassign", str(plan))
    assert answer(tmp_path / "kept", capsys, seen, found, words=words)[0] == code


def test_in_a_rolling_restart_the_others_must_answer(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    silent = problem(SILENT, "broker 2", broker=2)
    seen = watch().observation()
    assert answer(tmp_path, capsys, seen, silent, words=("restart", "all"))[0] == 3
    assert answer(tmp_path, capsys, seen, silent, words=("restart", "2"))[0] == 0
