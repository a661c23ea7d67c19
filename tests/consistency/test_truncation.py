"""Truncation: every protocol, the exhaustive table, the seeds' stories, and what always holds."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tidestaff.consistency import truncation
from tidestaff.consistency.epochs import EndOffset, assign, lineage_from_epochs
from tidestaff.consistency.model import EpochEntry, Lineage
from tidestaff.consistency.truncation import (
    EpochAnswer,
    OutOfRangeAction,
    ReplicaLog,
    TruncationPrediction,
    predict_truncation,
)
from tidestaff.consistency.versions import (
    EpochCacheGeneration,
    Mode,
    RuleSet,
    Truncation,
    rules_for,
)

HW_RULE, KIP_101, KIP_279 = rules_for("0.10.2.2"), rules_for("1.1.1"), rules_for("2.7.2")
ON_FETCH = rules_for("4.3", Mode.KRAFT)
TABLE = json.loads(
    (Path(__file__).parents[1] / "conformance" / "truncation_table.json").read_text()
)["rows"]


def replica(*records: int, hw: int = 0, leads_in: int | None = None, start: int = 0) -> ReplicaLog:
    """A log given as the epoch of each record; a leader from 2.0.1 also notes its own epoch."""
    lineage = lineage_from_epochs(records, start)
    end = start + len(records)
    if leads_in is not None:
        lineage = assign(lineage, leads_in, end, generation=EpochCacheGeneration.SECOND)
    return ReplicaLog(start, hw, end, lineage)


def with_entries(*entries: tuple[int, int], end: int, hw: int = 0) -> ReplicaLog:
    return ReplicaLog(0, hw, end, tuple(EpochEntry(*entry) for entry in entries))


def predict(follower: ReplicaLog, leader: ReplicaLog, rules: RuleSet) -> TruncationPrediction:
    return predict_truncation(follower=follower, leader=leader, rules=rules)


def row_id(row: dict[str, Any]) -> str:
    def name(log: list[int]) -> str:
        return "".join(map(str, log)) or "empty"

    leader, follower = name(row["leader_epochs"]), name(row["follower_epochs"])
    return f"leader-{leader}-in-{row['leader_epoch']}-follower-{follower}"


@pytest.mark.parametrize("row", TABLE, ids=row_id)
def test_table_truncation_on_fetch_goes_these_rounds(row: dict[str, Any]) -> None:
    follower = replica(*row["follower_epochs"])
    leader = replica(*row["leader_epochs"], leads_in=row["leader_epoch"])
    got = predict(follower, leader, ON_FETCH)
    assert got.rounds == tuple(cut["truncate_to"] for cut in row["rounds"])
    assert got.final_offset == row["final_leo"]
    if row["histories_consistent"]:
        assert got.final_offset == row["longest_common_prefix"]
        assert predict(follower, leader, KIP_279).final_offset == row["longest_common_prefix"]


@pytest.mark.parametrize("row", TABLE, ids=row_id)
def test_table_fetch_answers_of_the_leader(row: dict[str, Any]) -> None:
    leader = replica(*row["leader_epochs"], leads_in=row["leader_epoch"])
    for cut in row["rounds"]:
        answer = truncation.answer_fetch(
            leader=leader,
            fetch_offset=cut["fetch_offset"],
            last_fetched_epoch=cut["last_fetched_epoch"],
            rules=ON_FETCH,
        )
        assert answer.diverging == EndOffset(**cut["diverging"])


@pytest.mark.parametrize("row", TABLE, ids=row_id)
def test_table_single_lookup_of_kip_101(row: dict[str, Any]) -> None:
    # The table places an epoch older than the leader's first, as brokers do from 2.0.1.
    rules = replace(KIP_101, epoch_cache=EpochCacheGeneration.SECOND)
    records = row["follower_epochs"]
    leader = replica(*row["leader_epochs"])
    for high_watermark in {0, len(records)}:
        wanted = row["kip101_single_lookup"]
        wanted = high_watermark if wanted == "local_hw" else wanted
        # A fall-back to the own high watermark may end above the leader: the next fetch cuts that.
        got = predict(replica(*records, hw=high_watermark), leader, rules)
        assert got.final_offset == min(wanted, leader.log_end_offset)


def test_1_1_falls_back_to_its_high_watermark_where_the_table_places_an_older_epoch() -> None:
    follower, leader = replica(1, 1, hw=1), replica(2, 2)
    assert predict(follower, leader, KIP_101).final_offset == 1
    second = replace(KIP_101, epoch_cache=EpochCacheGeneration.SECOND)
    assert predict(follower, leader, second).final_offset == 0


@pytest.mark.parametrize(
    ("rules", "follower", "leader", "rounds", "final"),
    [
        pytest.param(HW_RULE, replica(0, 0, hw=1), replica(0, 0, hw=2), (1,), 1, id="S-23-A-cuts"),
        pytest.param(
            HW_RULE, replica(0, 0, hw=2), replica(0, hw=1), (1,), 1, id="S-23-B-cut-by-range"
        ),
        pytest.param(
            KIP_101, replica(0, 0, hw=1), replica(0, 0, hw=2), (), 2, id="S-23-epoch-rule-keeps-M1"
        ),
        pytest.param(
            HW_RULE, replica(0, 0, hw=2), replica(0, 1, hw=2), (), 2, id="S-24-B-cuts-nothing"
        ),
        pytest.param(
            KIP_101,
            replica(0, 0, hw=2),
            replica(0, 1, hw=2),
            (1,),
            1,
            id="S-24-epoch-rule-cuts-at-1",
        ),
        pytest.param(HW_RULE, replica(0, hw=0), replica(0, hw=1), (0,), 0, id="S-25-record-is-cut"),
        pytest.param(ON_FETCH, replica(0, hw=0), replica(0, hw=1), (), 1, id="S-25-epoch-rule-not"),
        pytest.param(HW_RULE, replica(0, hw=1), replica(1, hw=1), (), 1, id="S-26-nothing-cut"),
        pytest.param(
            ON_FETCH, replica(0, hw=1), replica(1, hw=1, leads_in=1), (0,), 0, id="S-26-cut-at-0"
        ),
        pytest.param(
            ON_FETCH, replica(0, 0, hw=1), replica(0, 0, hw=2), (), 2, id="S-27-same-epoch-keeps"
        ),
        pytest.param(
            ON_FETCH,
            replica(0, 0, hw=2),
            replica(0, 0, hw=1, leads_in=1),
            (),
            2,
            id="S-27-end-of-epoch-0-is-2",
        ),
        pytest.param(
            ON_FETCH,
            replica(0, 0, hw=2),
            replica(0, 1, hw=2, leads_in=1),
            (1,),
            1,
            id="S-28-M1-is-dropped",
        ),
        pytest.param(
            ON_FETCH,
            replica(0, 0, hw=2),
            replica(0, 0, 1, hw=2),
            (),
            2,
            id="S-28-variant-A-kept-M1",
        ),
        pytest.param(
            HW_RULE, replica(*[0] * 6, hw=4), replica(*[0] * 10, hw=10), (4,), 4, id="S-35"
        ),
        pytest.param(
            ON_FETCH,
            replica(*[0] * 6, hw=4),
            replica(*[0] * 10, hw=10),
            (),
            6,
            id="S-35-epoch-rule-keeps-6",
        ),
        *(
            pytest.param(
                rules,
                replica(*[0] * length, hw=4),
                replica(*[0] * 4, hw=4, leads_in=1),
                (4,),
                4,
                id=f"S-36-{length}-cut-to-4-by-{rules.truncation.value}",
            )
            for rules in (HW_RULE, KIP_279, ON_FETCH)
            for length in (6, 8)
        ),
        pytest.param(
            ON_FETCH,
            replica(*[0] * 8, hw=4),
            replica(*[0] * 6, hw=4, leads_in=1),
            (6,),
            6,
            id="S-36-variant-2-leads",
        ),
        pytest.param(
            HW_RULE,
            replica(*[0] * 8, hw=4),
            replica(*[0] * 6, hw=4),
            (4,),
            4,
            id="S-36-variant-HW-rule-cuts-to-4-then-fetches",
        ),
    ],
)
def test_stories_of_the_seeds(
    rules: RuleSet, follower: ReplicaLog, leader: ReplicaLog, rounds: tuple[int, ...], final: int
) -> None:
    got = predict(follower, leader, rules)
    assert (got.rounds, got.final_offset) == (rounds, final)


LEADER = with_entries((0, 0), (1, 10), end=15)


@pytest.mark.parametrize("rules", [KIP_101, KIP_279, ON_FETCH], ids=lambda r: r.truncation.value)
@pytest.mark.parametrize(
    ("follower", "final", "left"),
    [
        pytest.param(with_entries((0, 0), end=8), 8, 1, id="S-33-older-epoch-shorter-keeps"),
        pytest.param(with_entries((0, 0), (1, 10), end=12), 12, 2, id="S-33-same-epoch-shorter"),
        pytest.param(with_entries((0, 0), end=13), 10, 1, id="S-33-older-epoch-longer-cuts-to-10"),
        pytest.param(with_entries((0, 0), (1, 10), end=17), 15, 2, id="S-33-same-epoch-longer"),
        pytest.param(with_entries((0, 0), end=120), 10, 1, id="S-34-b-later-epoch-on-the-leader"),
        pytest.param(with_entries((0, 0), (1, 10), end=15), 15, 2, id="S-34-a-same-epoch-no-cut"),
    ],
)
def test_the_four_cases_of_an_epoch_answer(
    rules: RuleSet, follower: ReplicaLog, final: int, left: int
) -> None:
    got = predict(follower, LEADER, rules)
    assert got.final_offset == final == min(got.final_offset, follower.log_end_offset)
    assert got.exact
    assert len([e for e in follower.lineage if e.start_offset < final]) == left


@pytest.mark.parametrize(
    ("end", "final"),
    [
        pytest.param(120, 100, id="S-30-follower-in-epoch-0-with-120-cuts-to-100"),
        pytest.param(80, 80, id="S-30-follower-in-epoch-0-with-80-keeps-80"),
    ],
)
def test_end_of_the_epoch_bounds_the_follower(end: int, final: int) -> None:
    leader = with_entries((0, 0), (1, 100), end=130)
    assert predict(with_entries((0, 0), end=end), leader, KIP_101).final_offset == final


def test_s34_c_a_follower_that_becomes_leader_cuts_nothing_and_notes_its_epoch() -> None:
    follower = replica(0, 0, hw=1)
    leads = replica(0, 0, hw=1, leads_in=1)
    assert leads.log_end_offset == follower.log_end_offset
    assert leads.lineage == (EpochEntry(0, 0), EpochEntry(1, 2))


@pytest.mark.parametrize(
    ("local", "current", "leads", "required", "known", "error"),
    [
        pytest.param(5, None, True, True, True, "NONE", id="no-epoch-no-fencing"),
        pytest.param(5, -1, True, True, True, "NONE", id="minus-one-is-no-epoch"),
        pytest.param(
            5, 4, False, True, True, "FENCED_LEADER_EPOCH", id="fencing-before-leadership"
        ),
        pytest.param(5, 6, False, True, True, "UNKNOWN_LEADER_EPOCH", id="newer-epoch-is-unknown"),
        pytest.param(5, 5, False, True, True, "NOT_LEADER_OR_FOLLOWER", id="only-the-leader"),
        pytest.param(5, 5, False, False, True, "NONE", id="a-follower-may-answer-if-asked-so"),
        pytest.param(5, 4, True, True, False, "UNKNOWN_TOPIC_OR_PARTITION", id="not-here-at-all"),
    ],
)
def test_check_leader_epoch(
    *, local: int, current: int | None, leads: bool, required: bool, known: bool, error: str
) -> None:
    got = truncation.check_leader_epoch(
        local_leader_epoch=local,
        current_leader_epoch=current,
        leads=leads,
        leader_required=required,
        partition_known=known,
    )
    assert got == error


@pytest.mark.parametrize(
    ("follower", "current", "error"),
    [
        pytest.param(2, 8, "NONE", id="assigned"),
        pytest.param(4, None, "NOT_LEADER_OR_FOLLOWER", id="stranger-without-epoch"),
        pytest.param(4, 8, "UNKNOWN_LEADER_EPOCH", id="stranger-of-a-newer-assignment"),
        pytest.param(4, 7, "FENCED_LEADER_EPOCH", id="stranger-of-an-older-epoch"),
    ],
)
def test_check_follower_fetch(follower: int, current: int | None, error: str) -> None:
    got = truncation.check_follower_fetch(
        assignment=[1, 2], follower=follower, local_leader_epoch=8, current_leader_epoch=current
    )
    assert got == error


def test_an_error_is_answered_without_looking_at_the_cache() -> None:
    answer = truncation.answer_end_offset(
        lineage=LEADER.lineage,
        log_end_offset=15,
        requested_epoch=0,
        rules=ON_FETCH,
        error="NOT_LEADER_OR_FOLLOWER",
    )
    assert answer == EpochAnswer("NOT_LEADER_OR_FOLLOWER", -1, -1)


@pytest.mark.parametrize(
    ("version", "offset", "epoch", "error", "diverging"),
    [
        pytest.param("2.7", 13, 0, "NONE", EndOffset(0, 10), id="2.7-reports-divergence"),
        pytest.param("2.6.3", 13, 0, "NONE", None, id="2.6-sends-data"),
        pytest.param("2.7", 13, 2, "OFFSET_OUT_OF_RANGE", None, id="epoch-it-cannot-place"),
        pytest.param("2.7", 15, 1, "NONE", None, id="at-its-end"),
        pytest.param("2.6.3", 16, None, "OFFSET_OUT_OF_RANGE", None, id="beyond-its-end"),
        pytest.param("2.7", 13, None, "NONE", None, id="no-epoch-no-check"),
    ],
)
def test_answer_fetch(
    version: str, offset: int, epoch: int | None, error: str, diverging: EndOffset | None
) -> None:
    got = truncation.answer_fetch(
        leader=LEADER, fetch_offset=offset, last_fetched_epoch=epoch, rules=rules_for(version)
    )
    assert got == (error, diverging)


@pytest.mark.parametrize(
    ("version", "old_leader", "old_epoch", "new_epoch", "expected"),
    [
        pytest.param("2.0.0", 1, 3, 5, False, id="2.0.0-same-leader-never"),
        pytest.param("2.0.1", 1, 3, 4, False, id="2.0.1-same-leader-next-epoch-not"),
        pytest.param("2.0.1", 1, 3, 5, True, id="2.0.1-same-leader-skipped-epoch"),
        pytest.param("2.1", 1, 3, 4, True, id="2.1-every-epoch"),
        pytest.param("2.1", 1, 4, 4, False, id="same-epoch-never"),
        pytest.param("0.10.2.2", 2, 3, 4, True, id="another-leader-always"),
        pytest.param("0.10.2.2", None, None, 4, True, id="start-up-always"),
    ],
)
def test_must_truncate(
    version: str, old_leader: int | None, old_epoch: int | None, new_epoch: int, expected: bool
) -> None:
    got = truncation.must_truncate(
        rules=rules_for(version),
        old_leader=old_leader,
        new_leader=1,
        old_leader_epoch=old_epoch,
        new_leader_epoch=new_epoch,
    )
    assert got is expected


@pytest.mark.parametrize(
    ("answer", "truncate_to", "complete"),
    [
        pytest.param(EpochAnswer("FENCED_LEADER_EPOCH", -1, -1), None, False, id="fenced-waits"),
        pytest.param(EpochAnswer("UNKNOWN_LEADER_EPOCH", -1, -1), None, False, id="error-retries"),
        pytest.param(EpochAnswer("NONE", -1, -1), 100, True, id="undefined-own-high-watermark"),
        pytest.param(EpochAnswer("NONE", -1, 155), 155, True, id="old-peer-one-round"),
        pytest.param(EpochAnswer("NONE", 4, 155), 120, False, id="unknown-epoch-another-round"),
        pytest.param(EpochAnswer("NONE", 3, 101), 101, True, id="common-epoch-smaller-end"),
        pytest.param(EpochAnswer("NONE", 1, 50), 50, True, id="older-than-all-of-its-own"),
        pytest.param(None, 100, True, id="no-epoch-does-not-ask"),
    ],
)
def test_truncation_point_of_kip_279(
    answer: EpochAnswer | None, truncate_to: int | None, complete: bool
) -> None:
    own = {4: EndOffset(3, 120), 3: EndOffset(3, 120)}
    got = truncation.truncation_point(
        protocol=Truncation.KIP_279,
        answer=answer,
        log_end_offset=200,
        initial_fetch_offset=100,
        own_end_offset_for=lambda epoch: own.get(epoch, EndOffset(-1, -1)),
    )
    assert (got.truncate_to, got.complete) == (truncate_to, complete)


@pytest.mark.parametrize(
    ("version", "end", "leader_start", "leader_end", "unclean", "action", "fetch"),
    [
        pytest.param("0.10.2.2", 9, 0, 5, False, OutOfRangeAction.EXIT, 9, id="0.10-broker-exits"),
        pytest.param(
            "0.10.2.2", 9, 0, 5, True, OutOfRangeAction.TRUNCATE, 5, id="0.10-unclean-cut"
        ),
        pytest.param("2.0.0", 9, 0, 5, False, OutOfRangeAction.EXIT, 9, id="2.0.0-still-exits"),
        pytest.param("2.0.1", 9, 0, 5, False, OutOfRangeAction.TRUNCATE, 5, id="2.0.1-cuts"),
        pytest.param("3.9", 3, 5, 9, False, OutOfRangeAction.RESTART, 5, id="behind-its-start"),
        pytest.param("3.9", 7, 5, 9, False, OutOfRangeAction.KEEP, 7, id="inside-keeps"),
    ],
)
def test_on_out_of_range(
    *,
    version: str,
    end: int,
    leader_start: int,
    leader_end: int,
    unclean: bool,
    action: OutOfRangeAction,
    fetch: int,
) -> None:
    got = truncation.on_out_of_range(
        log_end_offset=end,
        leader_log_start_offset=leader_start,
        leader_log_end_offset=leader_end,
        rules=rules_for(version),
        unclean_allowed=unclean,
    )
    assert (got.action, got.fetch_offset) == (action, fetch)


def test_tiered_log_restarts_at_the_local_start_and_keeps_the_remote_log_start() -> None:
    got = truncation.on_moved_to_tiered_storage(
        leader_log_start_offset=3, leader_local_log_start_offset=40
    )
    assert (got.action, got.fetch_offset, got.log_start_offset) == (OutOfRangeAction.RESTART, 40, 3)


def test_a_follower_behind_the_leaders_start_begins_anew() -> None:
    got = predict(replica(0, hw=1), replica(4, 4, start=5, leads_in=4), ON_FETCH)
    assert (got.final_offset, got.restart_at, got.exact) == (1, 5, False)


def test_a_broker_of_0_10_ahead_of_its_leader_exits_if_unclean_is_forbidden() -> None:
    got = predict_truncation(
        follower=replica(0, 0, hw=2), leader=replica(0), rules=HW_RULE, unclean_allowed=False
    )
    assert (got.final_offset, got.exact) == (2, False)
    assert "exits" in got.because


def test_a_leader_that_did_not_note_its_epoch_turns_a_newer_epoch_away_for_ever() -> None:
    got = predict(replica(0, 2), replica(0, 0), ON_FETCH)
    assert (got.final_offset, got.exact) == (2, False)


def test_without_epochs_the_own_high_watermark_is_only_a_bound() -> None:
    log = ReplicaLog(0, 2, 5, ())
    got = predict(log, replica(*[0] * 6, leads_in=1), ON_FETCH)
    assert (got.rounds, got.final_offset, got.exact) == ((2,), 2, False)


def test_a_trailing_empty_epoch_is_dropped_in_a_round_that_cuts_no_record() -> None:
    led_once = replica(0, 0, leads_in=1)
    got = predict(led_once, replica(0, 0, leads_in=2), ON_FETCH)
    assert (got.rounds, got.final_offset) == ((2,), 2)


@st.composite
def one_history(draw: st.DrawFn) -> tuple[list[tuple[int, int]], list[tuple[int, int]], int]:
    """Two logs of one history: in each epoch one of the two leads, the other may copy from it."""
    logs: tuple[list[tuple[int, int]], ...] = ([], [])
    record = 0
    epoch = 0
    for _ in range(draw(st.integers(1, 6))):
        epoch += draw(st.integers(1, 2))
        leader = draw(st.integers(0, 1))
        mine, other = logs[leader], logs[1 - leader]
        for _ in range(draw(st.integers(0, 3))):
            mine.append((epoch, record))
            record += 1
        if draw(st.booleans()):
            common = prefix(mine, other)
            other[common:] = mine[common : draw(st.integers(common, len(mine)))]
        lose = draw(st.sampled_from([0, 0, 1]))
        del other[max(0, len(other) - lose) :]
    return logs[0], logs[1], epoch + 1


def prefix(one: list[tuple[int, int]], two: list[tuple[int, int]]) -> int:
    same = 0
    while same < min(len(one), len(two)) and one[same] == two[same]:
        same += 1
    return same


@given(one_history())
def test_on_one_history_truncation_ends_at_the_longest_common_prefix(
    history: tuple[list[tuple[int, int]], list[tuple[int, int]], int],
) -> None:
    one, two, epoch = history
    follower = replica(*(e for e, _ in one), hw=0)
    leader = replica(*(e for e, _ in two), leads_in=epoch)
    for rules in (ON_FETCH, KIP_279):
        assert predict(follower, leader, rules).final_offset == prefix(one, two)


offsets = st.integers(0, 9)
entries = st.lists(st.tuples(st.integers(-1, 5), st.integers(-1, 9)), max_size=4)


def as_lineage(pairs: list[tuple[int, int]]) -> Lineage:
    return tuple(EpochEntry(*pair) for pair in pairs)


@given(st.tuples(offsets, offsets, offsets, entries), st.tuples(offsets, offsets, offsets, entries))
def test_any_two_logs_end_in_a_prediction_within_the_followers_log(
    one: tuple[int, int, int, list[tuple[int, int]]],
    two: tuple[int, int, int, list[tuple[int, int]]],
) -> None:
    follower = ReplicaLog(*one[:3], as_lineage(one[3]))
    leader = ReplicaLog(*two[:3], as_lineage(two[3]))
    for version in ("0.9", "0.11.0.0", "1.1.1", "2.0.0", "2.0.1", "2.6", "2.8", "3.9"):
        got = predict(follower, leader, rules_for(version))
        assert 0 <= got.final_offset <= follower.log_end_offset
        assert all(0 <= cut <= follower.log_end_offset for cut in got.rounds)
        assert list(got.rounds) == sorted(got.rounds, reverse=True)
