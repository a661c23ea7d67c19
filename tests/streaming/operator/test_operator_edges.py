"""Where an adversary found the operator wrong: silence, two sources, damaged rows, kept state."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
from tidestaff.connectors.wire import MISSING, Row, observation_of, row_of, signal
from tidestaff.consistency.model import (
    HealthObservation,
    OffsetRange,
    PartitionObservation,
    ProblemKind,
    SettingSource,
)
from tidestaff.consistency.monitor import step
from tidestaff.consistency.verdict import Scope, Verdicts, Violated
from tidestaff.streaming.operator import saving
from tidestaff.streaming.operator.bucket import Bucket, Limits
from tidestaff.streaming.operator.events import Active, changes
from tidestaff.streaming.operator.forgetting import REMEMBER_GONE_MS
from tidestaff.streaming.operator.rows import block_of
from tidestaff.streaming.operator.saving import Keeper, UnreadableStateError, restore
from tidestaff.streaming.operator.screen import quiet, take_over
from tidestaff.streaming.operator.slots import Slots, can_be_screened

from tests.consistency.watch import Watch
from tests.streaming.operator.histories import LIMITS, canonical, rows_of

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from tidestaff.streaming.operator.events import Event

SHORT = Limits(lateness_ms=2_000, silence_ms=5_000)


def _calm(lasting_ms: int) -> list[Row]:
    """Rounds at 0, 500, 1000 and so on."""
    rows = rows_of("3.9.1", 5, faults=False, lasting_ms=lasting_ms)
    first = rows[0].observed_at_ms
    return [
        row._replace(
            observed_at_ms=row.observed_at_ms - first,
            previous_at_ms=max(MISSING, row.previous_at_ms - first),
        )
        for row in rows
    ]


def _each(bucket: Bucket, rows: Iterable[Row]) -> list[Event]:
    return [event for row in rows for event in bucket.process(block_of([row])).findings]


def _reopened(keeper: Keeper) -> Keeper:
    return restore(keeper.save(), SHORT)


def _told(found: Iterable[Event]) -> list[tuple[str, str, int]]:
    return [(e["event"], e["place"] or "", e["at_ms"]) for e in found]


def _but(rows: Sequence[Row], subject: str, start_ms: int, end_ms: int) -> list[Row]:
    return [r for r in rows if r.subject != subject or not start_ms < r.observed_at_ms < end_ms]


def _ticks(*times: int) -> list[Row]:
    return [signal("tick", cluster="", source="job", subject="", at_ms=at) for at in times]


def test_a_partition_that_falls_silent_after_a_restart_keeps_its_memory() -> None:
    rows = _but(_calm(40_000), "a-0", 10_000, 30_000)
    before = [r for r in rows if r.observed_at_ms <= 10_000]
    during = [r for r in rows if 10_000 < r.observed_at_ms < 25_000]
    after = [r for r in rows if r.observed_at_ms >= 25_000]
    without = Bucket(SHORT)
    wanted = _each(without, rows)

    keeper = Keeper(Bucket(SHORT))
    found = _each(keeper.bucket, before)
    keeper = _reopened(keeper)
    found += _each(keeper.bucket, during)
    bucket = _reopened(keeper).bucket
    entry = bucket.partitions["simulated", "a-0"]
    bucket.catch_up(entry)
    assert entry.memory is not None
    assert entry.memory.observed_at_ms == 10_000
    found += _each(bucket, after)
    assert canonical(found) == canonical(wanted)


def test_rows_that_come_after_all_end_the_silence() -> None:
    """Later than the bound, but linked: nothing was lost, so the alarm has to end."""
    rows = _calm(40_000)
    slow = [r for r in rows if r.subject == "a-0" and r.observed_at_ms > 10_000]
    bucket = Bucket(SHORT)
    found = _each(bucket, _but(rows, "a-0", 10_000, 99_000))
    assert [e["event"] for e in found] == ["raised"]
    assert [e["event"] for e in bucket.process(block_of(slow)).findings] == ["cleared"]


def test_silences_are_told_in_the_order_of_their_time_in_one_batch_too() -> None:
    rows = _but(_calm(60_000), "a-0", 10_000, 20_000)
    rows = _but(rows, "a-0", 30_000, 99_000)
    at_once = Bucket(SHORT).process(block_of(rows)).findings
    assert [(e["event"], e["at_ms"]) for e in at_once] == [
        ("raised", 15_000),
        ("cleared", 20_000),
        ("raised", 35_000),
    ]
    assert at_once == _each(Bucket(SHORT), rows)


def test_a_silence_is_found_however_many_reports_follow_it_in_the_batch() -> None:
    rows = _but(_calm(200_000), "a-0", 10_000, 20_000)
    one = Bucket(SHORT).process(block_of(rows)).findings
    assert canonical(one) == canonical(_each(Bucket(SHORT), rows))
    assert len(one) == 2


def test_a_partition_that_was_silent_and_then_gone_is_told_of_in_any_batches() -> None:
    rows = [r for r in _calm(40_000) if r.subject != "a-0" or r.observed_at_ms <= 10_000]
    gone = signal(
        "gone",
        cluster="simulated",
        source="simulator",
        subject="a-0",
        at_ms=20_000,
        previous_ms=10_000,
    )
    later = [r for r in rows if r.observed_at_ms > 20_000]
    rows = [*[r for r in rows if r.observed_at_ms <= 20_000], gone, *later]
    one = Bucket(SHORT).process(block_of(rows)).findings
    assert canonical(one) == canonical(_each(Bucket(SHORT), rows))
    assert [(e["event"], e["at_ms"]) for e in one] == [("raised", 15_000), ("cleared", 20_000)]


def test_metadata_that_lags_is_not_silence() -> None:
    """Brokers' caches may lag for a minute and more: the partition is reported on all along."""
    rows = _calm(30_000)
    lagging: list[Row] = []
    for row in rows:
        if row.subject == "a-0":
            seen = observation_of(row)
            assert isinstance(seen, PartitionObservation)
            later = seen.observed_at_ms > 10_000
            state = seen.state._replace(leader_epoch=5 - later, partition_epoch=5 - later)
            seen = replace(seen, authoritative=False, state=state)
            lagging.append(row_of(seen, row.previous_at_ms))
        else:
            lagging.append(row)
    found = _each(Bucket(SHORT), lagging)
    assert [e for e in found if e["code"].startswith("SRC")] == []


def test_another_source_does_not_end_the_silence_of_the_one_that_is_missed() -> None:
    rows = [r for r in _calm(40_000) if r.kind == "cluster"]
    first = [r for r in rows if r.observed_at_ms <= 10_000]
    second = [
        row_of(replace(observation_of(r), source="other"), None)
        for r in rows
        if r.observed_at_ms > 20_000
    ]
    unnoticed = _each(Bucket(SHORT), [*first, *second])
    assert _told(unnoticed) == [("raised", "source simulator", 15_000)]
    noticed = _each(Bucket(SHORT), [*first, *_ticks(10_000, 14_000, 18_000, 19_000), *second])
    assert canonical(noticed) == canonical(unnoticed)


def test_a_backlog_is_not_silence() -> None:
    """After a pause the job's clock is far ahead of the rows it still has to read."""
    rows = _calm(60_000)
    keeper = Keeper(Bucket(SHORT))
    keeper.bucket.process(block_of([*rows[:40], *_ticks(10_000)]))
    found: list[Event] = []
    for at in range(40, len(rows), 40):
        batch = [*rows[at : at + 40], *_ticks(7_200_000 + 1_000 * at)]
        found += keeper.bucket.process(block_of(batch)).findings
        keeper = _reopened(keeper)
    assert found == []
    found = _each(keeper.bucket, _ticks(*range(7_700_000, 7_720_000, 2_000)))
    assert [(e["event"], e["place"]) for e in found] == [("raised", "source simulator")]


def test_two_sources_may_see_the_same_moment() -> None:
    rows = [r for r in _calm(20_000) if r.subject == "a-0"]
    other = [row_of(replace(observation_of(r), source="b"), r.previous_at_ms) for r in rows]
    heads = [rows[0], other[0]]
    for order in ([*rows[1:], *other[1:]], [*other[1:], *rows[1:]]):
        bucket = Bucket(LIMITS)
        _each(bucket, heads)
        _each(bucket, sorted(order, key=lambda r: r.observed_at_ms))
        assert bucket.partitions["simulated", "a-0"].sequence.source == "simulator"


def test_cluster_reports_of_one_batch_are_taken_in_the_order_of_their_time() -> None:
    rows = [r for r in _calm(5_000) if r.kind == "cluster"]
    other = [
        row_of(replace(observation_of(r), source="b", observed_at_ms=r.observed_at_ms + 10))
        for r in rows[:1]
    ]
    for batch in ([*rows, *other], [*other, *rows]):
        bucket = Bucket(LIMITS)
        bucket.process(block_of(batch))
        assert bucket.subjects["cluster", "simulated", ""].sequence.source == "simulator"


def test_damaged_rows_are_neither_silent_nor_kept_for_ever() -> None:
    rows = _calm(5_000)
    cluster = next(r for r in rows if r.kind == "cluster")
    torn = [
        rows[1]._replace(subject="a-00"),
        cluster._replace(cluster="nobody", body=b"?"),
        cluster._replace(kind="strange", subject="x"),
    ]
    bucket = Bucket(SHORT)
    bucket.process(block_of([*rows, *torn]))
    assert ("simulated", "a-00") in bucket.partitions
    found: list[Event] = []
    later = [r for r in _calm(40_000) if r.observed_at_ms >= 5_000]
    for at in range(0, len(later), 40):
        end = later[at : at + 40][-1].observed_at_ms
        found += bucket.process(block_of([*later[at : at + 40], *_ticks(end)])).findings
    assert found == []
    last = max(r.observed_at_ms for r in later if r.kind == "cluster")
    much_later = last + REMEMBER_GONE_MS + 10_000
    bucket.process(block_of([cluster._replace(observed_at_ms=much_later, previous_at_ms=last)]))
    assert ("simulated", "a-00") not in bucket.partitions
    assert ("strange", "simulated", "x") not in bucket.subjects
    assert ("simulated", "a-0") in bucket.partitions


def test_damaged_reports_do_not_make_the_batches_matter() -> None:
    rows = [r for r in _calm(30_000) if r.kind == "cluster"]
    torn = [r._replace(body=b"?") if 10_000 < r.observed_at_ms < 20_000 else r for r in rows]
    one = Bucket(SHORT).process(block_of(torn)).findings
    assert one == _each(Bucket(SHORT), torn) == []


def test_the_room_of_what_is_gone_is_used_again() -> None:
    bucket = Bucket(SHORT)
    row = next(r for r in _calm(1_000) if r.subject == "a-0")
    cluster = next(r for r in _calm(1_000) if r.kind == "cluster")
    for turn in range(300):
        at_ms = (turn + 1) * 2 * REMEMBER_GONE_MS
        name = f"made-and-gone-{turn}"
        gone = signal("gone", cluster="simulated", source="simulator", subject=name, at_ms=at_ms)
        bucket.process(block_of([gone, cluster._replace(observed_at_ms=at_ms)]))
    assert len(bucket.partitions) < 5
    assert bucket.slots.count < 10
    assert len(bucket.by_slot) == bucket.slots.count
    assert row.subject == "a-0"


def _with_topic_id(row: Row, topic_id: str | None) -> Row:
    seen = observation_of(row)
    assert isinstance(seen, PartitionObservation)
    bare = tuple(r._replace(topic_id=None) for r in seen.replicas)
    again = None if seen.leader_again is None else seen.leader_again._replace(topic_id=None)
    seen = replace(seen, topic_id=topic_id, replicas=bare, leader_again=again)
    return row_of(seen, row.previous_at_ms)


@pytest.mark.parametrize(
    ("first", "then", "cleared_as"),
    [
        pytest.param(None, "id", None, id="the-cluster-gets-topic-ids"),
        pytest.param("id", None, "id", id="a-source-that-does-not-know-them"),
        pytest.param("id", "other", "id", id="a-topic-made-again"),
    ],
)
def test_a_finding_ends_under_the_topic_id_it_began_under(
    first: str | None, then: str | None, cleared_as: str | None
) -> None:
    rows = [r for r in _calm(5_000) if r.subject == "a-0"]
    bucket = Bucket(LIMITS)
    _each(bucket, [_with_topic_id(r, first) for r in rows[:5]])
    entry = bucket.partitions["simulated", "a-0"]
    bucket.catch_up(entry)
    bucket.slots.numbers.armed[entry.slot] = False
    entry.active[("ISR008", -1)] = Active(raised=True)
    found = _each(bucket, [_with_topic_id(r, then) for r in rows[5:]])
    ended = [(e["code"], e["topic_id"]) for e in found if e["event"] == "cleared"]
    assert ended == [("ISR008", cleared_as)]


def test_an_end_below_what_was_committed_is_never_passed_over() -> None:
    """A follower read after its leader shows a commit; another one must have it as well."""
    watch = Watch(version="3.9.1").settle()
    watch.append(10).see(2)
    last, memory = watch.observation(), watch.memory
    assert memory is not None
    leader = next(r for r in last.replicas if r.broker == last.state.leader)
    again = leader._replace(log_end_offset=(leader.log_end_offset or 0) + 6)
    last = replace(last, observed_at_ms=last.observed_at_ms + 5_000, leader_again=again)
    memory, _ = step(memory, last)
    assert can_be_screened(memory, last)
    slots = Slots()
    slots.arm(slots.add(), memory, has_lineage=bool(leader.lineage))
    end = leader.log_end_offset or 0

    def seen(after: PartitionObservation, ends: Sequence[tuple[int, int]]) -> PartitionObservation:
        readings = tuple(
            r._replace(high_watermark=end + watermark, log_end_offset=end + own)
            for r, (watermark, own) in zip(after.replicas, ends, strict=True)
        )
        return replace(
            after,
            observed_at_ms=after.observed_at_ms + 5_000,
            replicas=readings,
            leader_again=readings[0]._replace(log_end_offset=end + 20),
        )

    assert last.replicas[0].broker == last.state.leader
    first = seen(last, [(2, 6), (6, 6), (2, 6)])
    then = seen(first, [(6, 8), (6, 8), (4, 8)])
    assert_screen_is_sound(slots, memory, last, [first, then])
    slots = Slots()
    slots.arm(slots.add(), memory, has_lineage=bool(leader.lineage))
    first = seen(last, [(2, 4), (9, 9), (2, 4)])
    then = seen(first, [(6, 8), (9, 9), (4, 8)])
    assert_screen_is_sound(slots, memory, last, [first, then])


def assert_screen_is_sound(
    slots: Slots, memory: Any, last: PartitionObservation, rounds: Sequence[PartitionObservation]
) -> None:
    for each in rounds:
        moved = block_of([row_of(each, last.observed_at_ms)]).moved
        after, verdicts = step(memory, each)
        if not quiet(slots.numbers, np.array([0]), moved)[0]:
            return
        assert verdicts is memory.calm
        take_over(slots.numbers, np.array([0]), moved)
        assert slots.memory(0, memory) == after
        memory, last = after, each


def test_a_source_whose_clock_was_set_back_is_silent_though_rows_come() -> None:
    """All it says is older than what it said before, and is not judged."""
    rows = [r for r in _calm(25_000) if r.kind == "cluster"]
    bucket = Bucket(SHORT)
    _each(bucket, [r for r in rows if r.observed_at_ms <= 20_000])
    bucket.process(block_of(_ticks(20_000)))
    found: list[Event] = []
    for at_ms in range(21_000, 40_000, 1_000):
        late = rows[-1]._replace(observed_at_ms=at_ms - 20_000, previous_at_ms=MISSING)
        found += bucket.process(block_of([late, *_ticks(at_ms)])).findings
    assert [(e["event"], e["code"]) for e in found] == [("raised", "SRC001")]


def test_state_of_another_layout_can_be_read_saved_and_read_again() -> None:
    """What partitions share is written anew as well, not as the older release wrote it."""
    bucket = Bucket(LIMITS)
    bucket.process(block_of(_calm(5_000)))
    saved = Keeper(bucket).save()
    rest = json.loads(saving._unpacked(saved.rest))
    names = rest["layout"]["Registration"]
    rest["layout"]["Registration"] = names[:-1]
    rest["shared"] = [
        [kind, [each[:-1] for each in value] if kind == 3 else value]
        for kind, value in rest["shared"]
    ]
    older = saved._replace(rest=saving._packed(saving._json(rest)))
    again = restore(restore(older, LIMITS).save(), LIMITS)
    for partition in again.bucket.partitions.values():
        again.bucket.catch_up(partition)
        assert partition.memory is not None


def test_a_setting_that_has_a_default_may_be_new() -> None:
    bucket = Bucket(LIMITS)
    bucket.process(block_of(_calm(5_000)))
    saved = Keeper(bucket).save()
    rest = json.loads(saving._unpacked(saved.rest))
    new = 3
    assert rest["layout"]["PartitionSettings"][-new:] == [
        *("unclean_leader_election_enable_source", "min_insync_replicas_source"),
        "replica_lag_time_max_ms_source",
    ]
    del rest["layout"]["PartitionSettings"][-new:]
    rest["shared"] = [
        [kind, value[:-new] if kind == 1 else value] for kind, value in rest["shared"]
    ]
    older = saved._replace(rest=saving._packed(saving._json(rest)))
    again = restore(older, LIMITS).bucket
    entry = again.partitions["simulated", "a-0"]
    again.catch_up(entry)
    assert entry.memory is not None
    assert entry.memory.settings == replace(
        observation_of(_calm(1_000)[1]).settings,  # type: ignore[union-attr]
        unclean_leader_election_enable_source=SettingSource.UNKNOWN,
        min_insync_replicas_source=SettingSource.UNKNOWN,
        replica_lag_time_max_ms_source=SettingSource.UNKNOWN,
    )


def test_silence_since_the_very_beginning_is_kept() -> None:
    rows = [r for r in _calm(20_000) if r.subject != "a-0" or r.observed_at_ms <= 0]
    bucket = Bucket(SHORT)
    found = _each(bucket, rows)
    first = min(r.observed_at_ms for r in rows)
    assert [e["at_ms"] for e in found] == [first + 5_000]
    bucket = _reopened(Keeper(bucket)).bucket
    assert bucket.partitions["simulated", "a-0"].silent_since == first


def test_health_reports_that_are_over_are_forgotten() -> None:
    def report(place: str, at_ms: int, problem: ProblemKind, previous: int | None) -> Row:
        seen = HealthObservation("simulated", at_ms, "agent", problem, place=place, reason="no")
        return row_of(seen, previous)

    bucket = Bucket(SHORT)
    found = _each(
        bucket,
        [
            report("disk 1", 1_000, ProblemKind.UNREADABLE, None),
            report("disk 2", 1_000, ProblemKind.UNREADABLE, None),
            report("disk 2", 2_000, ProblemKind.OK, 1_000),
        ],
    )
    assert found
    cluster = next(r for r in _calm(1_000) if r.kind == "cluster")
    bucket.process(block_of([cluster._replace(observed_at_ms=REMEMBER_GONE_MS + 9_000)]))
    assert [name for kind, _, name in bucket.subjects if kind == "health"] == ["agent/disk 1"]


def test_every_range_of_a_loss_is_told_once() -> None:
    watch = Watch(version="3.9.1").settle()
    seen = watch.observation()

    def losses(*ranges: tuple[int, int]) -> Verdicts:
        found = [
            Violated("TRN001", "kept", "lost", "because", offsets=OffsetRange(*each))
            for each in ranges
        ]
        return Verdicts(Scope.PARTITION, tuple(found))

    active, told = changes({}, losses((5, 8), (20, 30)), seen, None)
    assert [(e["event"], e["offsets"]) for e in told] == [("raised", [5, 8]), ("raised", [20, 30])]
    active = saving._findings_of(json.loads(saving._json(saving._findings(active))))
    active, told = changes(active, losses((5, 8), (20, 30)), seen, None)
    assert told == []
    active, told = changes(active, losses((5, 8), (20, 30), (40, 41)), seen, None)
    assert [(e["event"], e["offsets"]) for e in told] == [("raised", [40, 41])]
    assert [e["event"] for e in changes(active, losses(), seen, None)[1]] == ["cleared"]


def test_state_of_another_number_of_buckets_is_not_taken_over() -> None:
    """Its partitions are judged in other buckets now: here all of them would fall silent."""
    bucket = Bucket(Limits(buckets=32))
    bucket.process(block_of(_calm(5_000)))
    saved = Keeper(bucket).save()
    assert restore(saved, Limits(buckets=32)).bucket.partitions
    with pytest.raises(UnreadableStateError, match="that of 32 buckets, not of 16"):
        restore(saved, Limits(buckets=16))
