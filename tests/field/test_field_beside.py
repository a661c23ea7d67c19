"""Who found what, and when: the clocks of the field test, without a cluster."""

from __future__ import annotations

import sys
import time
from typing import TYPE_CHECKING

import pytest
from tidestaff.consistency.catalogue import BY_CODE

from tests.field.field_beside import (
    UNDER_REPLICATED,
    VERIFICATION,
    Asked,
    _Asking,
    _Question,
    figures,
    new_partition,
    verified,
)
from tests.field.field_inject import TIMING, Times
from tests.field.field_lawful import LAWFUL, Since
from tests.field.field_report import FIGURES, Row, page

if TYPE_CHECKING:
    from pathlib import Path

SAYS = "import time; print('all is well', flush=True); time.sleep({}); print('{}', flush=True)"


def question(code: str, *, for_s: float = 20.0, stays: bool = False) -> _Question:
    command = [sys.executable, "-c", code]
    return _Question("a tool", command, lambda line: "differs" in line, for_s, stays=stays)


def asked(each: _Question, folder: Path, *, until_found: bool) -> Asked:
    asking = _Asking([each], 0.2, str(folder))
    asking.start()
    until = time.monotonic() + (20 if until_found else 1.5)
    while time.monotonic() < until and not asking.all_found:
        time.sleep(0.02)
    (told,) = asking.end()
    assert not asking.is_alive()
    return told


def test_a_finding_has_the_time_at_which_it_was_said_though_the_tool_goes_on(
    tmp_path: Path,
) -> None:
    code = SAYS.format(0.3, "it differs") + "; time.sleep(60)"
    told = asked(question(code, stays=True), tmp_path, until_found=True)
    assert told.first_s is not None
    assert 0.3 <= told.first_s < 15
    assert told.said == "it differs"
    assert told.asked == 1
    assert told.when == f"{told.first_s:.1f} s"


def test_a_tool_that_finds_nothing_is_asked_again_and_its_failures_are_counted(
    tmp_path: Path,
) -> None:
    told = asked(question("raise SystemExit(3)"), tmp_path, until_found=False)
    assert told.first_s is None
    assert told.asked > 1
    assert told.failed >= told.asked - 1
    assert told.when.startswith("no answer in ")
    assert told.failed + told.unanswered == told.asked


def test_a_tool_that_never_ends_is_ended_after_its_time(tmp_path: Path) -> None:
    told = asked(question("import time; time.sleep(60)", for_s=0.3), tmp_path, until_found=False)
    assert told.asked > 1
    assert told.failed


LINE = "\tTopic: {}\tPartition: 0\tLeader: 1\tReplicas: 1,2,3\tIsr: 1,2"


@pytest.mark.parametrize(
    ("line", "found"),
    [
        pytest.param(LINE.format("mine"), True, id="a-partition-of-the-case"),
        pytest.param(LINE.format("before"), False, id="was-short-before"),
        pytest.param(LINE.format("another"), False, id="of-another-topic"),
        pytest.param("Error while executing topic command", False, id="no-partition"),
    ],
)
def test_what_kafka_topics_finds(line: str, *, found: bool) -> None:
    assert new_partition({("before", 0)}, ["mine", "before"])(line) == found


@pytest.mark.parametrize(
    ("line", "differs", "or_lags"),
    [
        ("t-0 has unmatched checksum at offset 14; replica 1's checksum 1", True, True),
        ("partition t-2: replica 1's offset 50939 doesn't match replica 3's offset 3", True, True),
        ("max lag is 4 for partition t-0 at offset 0 among 1 partitions", False, True),
        ("max lag is 0 for partition t-0 at offset 20 among 1 partitions", False, False),
        ("verification process is started", False, False),
    ],
)
def test_what_replica_verification_finds(line: str, *, differs: bool, or_lags: bool) -> None:
    assert verified(lag_counts=False)(line) == differs
    assert verified(lag_counts=True)(line) == or_lags


def test_the_columns_are_those_of_the_table_and_older_rows_say_that_nothing_was_measured() -> None:
    tools = [
        Asked(UNDER_REPLICATED, 3.14, "Topic: t", 1, 0, 25.0),
        Asked(f"{VERIFICATION} on a", None, "", 2, 0, 25.2),
        Asked(f"{VERIFICATION} on b", 2.0, "differs", 1, 0, 25.2),
    ]
    found = figures("1.0 s", tools)
    assert found["ReplicaVerificationTool"] == "a: nothing in 25 s (2 asked); b: 2.0 s"
    assert set(found) <= set(FIGURES["tools"])
    new = Row("tools", "x", "c", "e", "s", holds=True, seconds=0, of="1", figures=found)
    old = Row("tools", "y", "c", "e", "s", holds=True, seconds=0, of="1")
    text = page([new, old], "2026-01-01")
    assert "| x | c | e | s | 1.0 s | 3.1 s | not measured | a: nothing" in text
    assert f"| y | c | e | s |{' not measured |' * 4} 0 | 1 | yes |" in text


@pytest.mark.parametrize(
    ("took_s", "lawful_s", "rounds", "told"),
    [
        pytest.param(1.2, 0.0, 1, "yes", id="no-grace"),
        pytest.param(4.2, 0.0, 4, "**no**", id="a-round-too-late"),
        pytest.param(61.0, 60.0, 2, "yes", id="after-its-grace"),
        pytest.param(58.0, 60.0, -2, "**too early**", id="within-its-grace"),
    ],
)
def test_an_alert_is_due_within_two_rounds_and_a_batch_after_the_lawful_time(
    took_s: float, lawful_s: float, rounds: int, told: str
) -> None:
    times = Times(took_s, lawful_s, rounds)
    assert times.figures()["within 2 rounds and a batch"] == told
    assert times.in_time == (told == "yes")


def test_what_is_not_found_is_not_in_time() -> None:
    times = Times(80.0, 21.0, 1, found=False)
    assert not times.in_time
    assert times.figures()["s from the injection"] == "not found"


def test_a_grace_without_words_for_its_legal_state_is_not_in_the_table() -> None:
    """Whichever code gets a fault here next and has a time to wait, the page says for what."""
    injected = {"LOG001", "LOG002", "TRN001", "EPO001", "EPO003", "EPO004", "LOG004", "LOG005"}
    injected |= {"ELE002", "CTL004", "REG001", "REG002", "SRC001", "SRC002"}
    assert {code for code in injected if BY_CODE[code].grace.ms(TIMING)} == set(LAWFUL)


def test_the_clock_of_a_state_starts_when_it_is_there() -> None:
    began = time.monotonic()
    with Since(lambda: time.monotonic() - began > 0.3) as since:
        while since.at_s is None and time.monotonic() - began < 10:
            time.sleep(0.02)
    assert since.at_s is not None
    assert since.at_s >= 0.2
    with Since(lambda: False) as never:
        pass
    assert never.at_s is None
