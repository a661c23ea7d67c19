"""A bucket comes to the same findings and memories as `step`, however its rows are cut, shuffled
and repeated."""

from __future__ import annotations

import random
from collections import Counter
from typing import TYPE_CHECKING

import pytest
from tidestaff.connectors.wire import MISSING, Row, refused, row_of, signal
from tidestaff.consistency.model import HealthObservation, ProblemKind
from tidestaff.streaming.operator.bucket import Bucket, Limits
from tidestaff.streaming.operator.entries import Hearing
from tidestaff.streaming.operator.events import Active
from tidestaff.streaming.operator.rows import block_of
from tidestaff.streaming.operator.saving import Keeper, restore
from tidestaff.streaming.operator.sequence import MAX_HELD

from tests.streaming.operator.histories import (
    LIMITS,
    Plain,
    canonical,
    disordered,
    rows_of,
    through_a_bucket,
)

if TYPE_CHECKING:
    from collections.abc import Iterable

    from tidestaff.streaming.operator.events import Event

PRESETS = ["0.10.2.2", "2.8.2", "3.9.1", "4.1.1-kraft"]


@pytest.mark.parametrize("preset", PRESETS)
@pytest.mark.parametrize("seed", [1, 2])
def test_batches_and_restarts_change_nothing(preset: str, seed: int) -> None:
    rows = rows_of(preset, seed)
    plain = Plain().see(rows)
    for cut in range(3):
        bucket, found, _ = through_a_bucket(rows, 10 * seed + cut)
        assert canonical(found) == canonical(plain.findings)
        for key, partition in bucket.partitions.items():
            bucket.catch_up(partition)
            assert partition.memory == plain.memories.get(("partition", *key))
    assert plain.findings


@pytest.mark.parametrize("preset", PRESETS)
def test_late_repeated_and_reordered_rows_change_nothing(preset: str) -> None:
    rows = rows_of(preset, 3)
    plain = Plain().see(rows)
    for cut in range(3):
        _, found, _ = through_a_bucket(disordered(rows, cut, 3_000), cut)
        assert canonical(found) == canonical(plain.findings)


def test_a_quiet_cluster_is_screened_not_judged() -> None:
    rows = rows_of("3.9.1", 5, faults=False)
    bucket, found, quiet = through_a_bucket(rows, 1)
    partitions = sum(row.kind == "partition" for row in rows)
    assert canonical(found) == canonical(Plain().see(rows).findings)
    assert quiet > 0.8 * partitions
    assert bucket.slots.numbers.armed[: bucket.slots.count].all()


def _partition_rows(count: int) -> list[Row]:
    return [
        r for r in rows_of("3.9.1", 5, faults=False, lasting_ms=count * 500) if r.subject == "a-0"
    ]


def test_a_lost_row_is_waited_for_and_then_done_without() -> None:
    rows = _partition_rows(30)
    without = rows[:10] + rows[11:]
    bucket = Bucket(LIMITS)
    for row in without[:11]:
        bucket.process(block_of([row]))
    entry = bucket.partitions["simulated", "a-0"]
    assert [held.observed_at_ms for held in entry.sequence.held] == [rows[11].observed_at_ms]
    for row in without[11:]:
        bucket.process(block_of([row]))
    bucket.catch_up(entry)
    assert entry.memory is not None
    assert entry.memory.observed_at_ms == rows[-1].observed_at_ms
    assert not entry.sequence.held


def test_rows_of_a_second_source_are_used_only_when_the_first_falls_silent() -> None:
    rows = _partition_rows(40)
    other = [r._replace(source="standby", observed_at_ms=r.observed_at_ms + 10) for r in rows]
    bucket = Bucket(LIMITS)
    for one, two in zip(rows[:20], other[:20], strict=True):
        bucket.process(block_of([one, two]))
    entry = bucket.partitions["simulated", "a-0"]
    assert entry.sequence.source == "simulator"
    for row in other[20:]:
        bucket.process(block_of([row]))
    assert entry.sequence.source == "standby"


def test_a_row_that_is_late_by_less_than_the_lateness_is_put_in_order() -> None:
    """Rounds of 500 ms and the default lateness: the rows that overtake it all wait for it."""
    rows = _partition_rows(60)
    assert rows[21].observed_at_ms - rows[20].observed_at_ms == 500
    in_order, other = Bucket(Limits()), Bucket(Limits())
    in_order.process(block_of(rows))
    other.process(block_of([*rows[:20], *rows[21:39]]))
    then = other.process(block_of([rows[20], *rows[39:]]))
    assert then.counts["late"] == 0
    key = "simulated", "a-0"
    assert other.partitions[key].sequence.at_ms == in_order.partitions[key].sequence.at_ms


def test_what_waits_is_bounded() -> None:
    rows = _partition_rows(60)
    more = [rows[-1]._replace(observed_at_ms=rows[-1].observed_at_ms + n) for n in range(1, 300)]
    bucket = Bucket(Limits(lateness_ms=3_600_000))
    bucket.process(block_of(rows[:1]))
    bucket.process(block_of([row._replace(previous_at_ms=1) for row in [*rows[2:], *more]]))
    held = bucket.partitions["simulated", "a-0"].sequence.held
    assert len(held) == MAX_HELD


def _codes(found: Iterable[Event]) -> Counter[str]:
    return Counter(f"{event['code']} {event['event']}" for event in found)


def _feed(bucket: Bucket, rows: list[Row]) -> list[Event]:
    return [event for row in rows for event in bucket.process(block_of([row])).findings]


def test_a_partition_that_falls_silent_while_its_source_reports_is_a_finding() -> None:
    rows = rows_of("3.9.1", 5, faults=False, lasting_ms=30_000)
    limits = Limits(lateness_ms=2_000, silence_ms=5_000)
    heard = [r for r in rows if r.subject != "a-0" or not 10_000 < r.observed_at_ms < 20_000]
    last = max(r.observed_at_ms for r in heard if r.subject == "a-0" and r.observed_at_ms <= 10_000)
    back = min(r.observed_at_ms for r in heard if r.subject == "a-0" and r.observed_at_ms >= 20_000)
    for way in (heard, disordered(heard, 1, 1_500)):
        found = [e for e in _feed(Bucket(limits), way) if e["code"] == "SRC006"]
        told = [(e["event"], e["at_ms"], e["topic"], e["partition"]) for e in found]
        assert told == [("raised", last + 5_000, "a", 0), ("cleared", back, "a", 0)]
    at_once = Bucket(limits).process(block_of(heard)).findings
    assert canonical(at_once) == canonical(_feed(Bucket(limits), heard))


def test_a_source_that_falls_silent_is_one_finding_not_one_a_partition() -> None:
    rows = rows_of("3.9.1", 5, faults=False, lasting_ms=40_000)
    limits = Limits(lateness_ms=2_000, silence_ms=5_000)
    heard = [r for r in rows if not 10_000 < r.observed_at_ms < 25_000]
    found = _feed(Bucket(limits), heard)
    assert _codes(e for e in found if e["code"] == "SRC001") == Counter(
        ["SRC001 raised", "SRC001 cleared"]
    )
    assert next(e for e in found if e["code"] == "SRC001")["place"] == "source simulator"
    assert canonical(Bucket(limits).process(block_of(heard)).findings) == canonical(found)


def test_one_of_two_sources_that_falls_silent_is_named_while_the_other_goes_on() -> None:
    rows = rows_of("3.9.1", 5, faults=False, lasting_ms=40_000)
    limits = Limits(lateness_ms=2_000, silence_ms=5_000)
    other = [
        r._replace(
            source="other",
            observed_at_ms=r.observed_at_ms + 7,
            previous_at_ms=r.previous_at_ms + (7 if r.previous_at_ms != MISSING else 0),
        )
        for r in rows
        if not 10_000 < r.observed_at_ms < 25_000
    ]
    both = sorted([*rows, *other], key=lambda r: r.observed_at_ms)
    spoke = [r.observed_at_ms for r in other if r.kind == "cluster"]
    last, back = max(t for t in spoke if t < 12_000), min(t for t in spoke if t > 20_000)
    for way in (both, disordered(both, 1, 1_500)):
        found = [e for e in _feed(Bucket(limits), way) if e["code"].startswith("SRC")]
        assert [(e["event"], e["place"], e["at_ms"]) for e in found] == [
            ("raised", "source other", last + 5_000),
            ("cleared", "source other", back),
        ]
    bucket = Bucket(limits)
    early = [r for r in both if r.observed_at_ms < 18_000]
    bucket.process(block_of(early))
    again = restore(Keeper(bucket).save(), limits).bucket
    assert again.subjects.keys() == bucket.subjects.keys()
    for key, subject in bucket.subjects.items():
        kept = again.subjects[key].sources
        for source, hearing in subject.sources.items():
            for name in Hearing.__slots__:
                assert getattr(kept[source], name) == getattr(hearing, name)
    late = again.process(block_of(both[len(early) :])).findings
    assert [e["event"] for e in late if e["code"] == "SRC001"] == ["cleared"]


def test_total_silence_is_noticed_by_the_jobs_own_clock() -> None:
    rows = rows_of("3.9.1", 5, faults=False, lasting_ms=10_000)
    limits = Limits(lateness_ms=2_000, silence_ms=5_000)
    bucket = Bucket(limits)
    _feed(bucket, rows)
    ticks = [
        signal("tick", cluster="", source="job", subject="", at_ms=at_ms)
        for at_ms in (12_000, 16_000, 20_000, 24_000)
    ]
    found = _feed(bucket, ticks)
    last = max(row.observed_at_ms for row in rows)
    assert [(e["event"], e["at_ms"]) for e in found] == [("raised", last + 5_000)]


def test_a_deleted_topic_is_not_silent_and_its_findings_end() -> None:
    rows = rows_of("3.9.1", 5, faults=False, lasting_ms=60_000)
    limits = Limits(lateness_ms=2_000, silence_ms=5_000)
    kept = [r for r in rows if r.subject != "a-0" or r.observed_at_ms < 10_000]
    last = max(r.observed_at_ms for r in kept if r.subject == "a-0")
    gone = signal(
        "gone",
        cluster="simulated",
        source="simulator",
        subject="a-0",
        at_ms=last + 500,
        previous_ms=last,
    )
    bucket = Bucket(limits)
    _feed(bucket, [r for r in kept if r.observed_at_ms <= last])
    bucket.partitions["simulated", "a-0"].active[("ISR008", -1)] = Active(raised=False)
    found = _feed(bucket, [gone, *(r for r in kept if r.observed_at_ms > last)])
    assert _codes(found) == Counter(["ISR008 cleared"])
    late = next(r for r in kept if r.subject == "a-0" and r.observed_at_ms == last)
    assert _feed(bucket, [late]) == []
    assert bucket.partitions["simulated", "a-0"].memory is None


def test_bad_rows_go_to_quarantine_and_the_rest_goes_on() -> None:
    rows = _partition_rows(20)
    torn = rows[10]._replace(body=rows[10].body[:-3])
    stranger = rows[10]._replace(subject="no partition", body=b"")
    newer = rows[10]._replace(schema_version=7, subject="b-9", previous_at_ms=MISSING)
    file = refused("half a file", "remove it", cluster="c", source="/r", subject="f", at_ms=0)
    bucket = Bucket(LIMITS)
    said = bucket.process(block_of([*rows[:10], torn, stranger, newer, file, *rows[11:]]))
    reasons = sorted(record["reason"] for record in said.quarantine)
    assert len(reasons) == 4
    assert "half a file" in reasons
    reasons.remove("half a file")
    assert "'no partition' is no partition" in reasons[0]
    assert "schema version 7" in reasons[1] + reasons[2]
    keeper = restore(Keeper(bucket).save(), LIMITS)
    entry = keeper.bucket.partitions["simulated", "a-0"]
    keeper.bucket.catch_up(entry)
    assert entry.memory is not None
    assert entry.memory.observed_at_ms == rows[-1].observed_at_ms


def test_a_row_of_a_newer_version_is_refused_though_nothing_else_about_it_is_new() -> None:
    """Of a partition that is screened, with the body that was judged before; or without a body."""
    rows = _partition_rows(20)
    bucket = Bucket(LIMITS)
    _feed(bucket, rows[:10])
    assert bucket.slots.numbers.armed[0]
    last = rows[9]
    follows = {"schema_version": 7, "previous_at_ms": last.observed_at_ms}
    newer = last._replace(observed_at_ms=last.observed_at_ms + 500, **follows)
    gone = signal(
        "gone",
        cluster=last.cluster,
        source=last.source,
        subject=last.subject,
        at_ms=newer.observed_at_ms + 500,
        previous_ms=newer.observed_at_ms,
    )._replace(schema_version=7)
    said = bucket.process(block_of([newer, gone]))
    assert ["schema version 7" in record["reason"] for record in said.quarantine] == [True, True]
    assert said.counts["quiet"] == 0
    entry = bucket.partitions["simulated", "a-0"]
    bucket.catch_up(entry)
    assert entry.memory is not None
    assert entry.memory.observed_at_ms == last.observed_at_ms


@pytest.mark.parametrize("name", ["a\tb-0", "a\nb-0", 'a"\\b-0', "ä-0", "<b>-0"])
def test_names_from_outside_do_not_break_the_saved_state(name: str) -> None:
    row = _partition_rows(3)[0]._replace(subject=name)
    bucket = Bucket(LIMITS)
    bucket.process(block_of([row]))
    kept = restore(Keeper(bucket).save(), LIMITS).bucket
    assert list(kept.partitions) == [("simulated", name)]


def test_health_reports_are_judged_place_by_place() -> None:
    def report(at_ms: int, problem: ProblemKind, previous: int | None) -> Row:
        seen = HealthObservation("c", at_ms, "agent", problem, place="disk 1", reason="denied")
        return row_of(seen, previous)

    bucket = Bucket(LIMITS)
    found = _feed(
        bucket,
        [
            report(1_000, ProblemKind.UNREADABLE, None),
            report(2_000, ProblemKind.UNREADABLE, 1_000),
            report(3_000, ProblemKind.OK, 2_000),
        ],
    )
    assert [(e["code"], e["event"], e["place"]) for e in found] == [
        ("SRC002", "pending", "disk 1"),
        ("SRC002", "raised", "disk 1"),
        ("SRC002", "cleared", "disk 1"),
    ]


@pytest.mark.slow
@pytest.mark.parametrize("preset", PRESETS)
def test_many_histories_in_many_splittings(preset: str) -> None:
    chance = random.Random(preset)  # noqa: S311 - a seed on purpose
    for _ in range(6):
        seed = chance.randrange(10_000)
        rows = rows_of(preset, seed)
        wanted = canonical(Plain().see(rows).findings)
        for cut in range(3):
            _, found, _ = through_a_bucket(rows, cut)
            assert canonical(found) == wanted, seed
            _, found, _ = through_a_bucket(disordered(rows, cut, 3_500), cut)
            assert canonical(found) == wanted, seed
