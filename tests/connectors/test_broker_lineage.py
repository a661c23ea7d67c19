"""A follower's lineage from batch headers: what is delivered is the truth, for any log whatever;
and how much is asked for it."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tidestaff.connectors.broker_answers import BatchHeader
from tidestaff.connectors.broker_following import AT_ONCE, FollowerLineages
from tidestaff.connectors.broker_headers import FollowerLog, HeaderSearch
from tidestaff.consistency.model import EpochEntry, TopicPartition

from tests.connectors.fake_brokers import FakeCluster, FakeReplica

if TYPE_CHECKING:
    from tidestaff.consistency.model import Lineage

Batches = list[BatchHeader]


def batches_of(*epochs: tuple[int, int], size: int = 1) -> Batches:
    """(epoch, number of batches) one after the other."""
    found: Batches = []
    at = 0
    for epoch, count in epochs:
        for _ in range(count):
            found.append(BatchHeader(at, at + size - 1, epoch))
            at += size
    return found


def truth(batches: Batches, start: int = 0) -> Lineage:
    firsts: dict[int, int] = {}
    for each in batches:
        if each.last_offset >= start:
            assert each.leader_epoch is not None
            firsts.setdefault(each.leader_epoch, max(each.first_offset, start))
    return tuple(EpochEntry(epoch, first) for epoch, first in sorted(firsts.items()))


def read(batches: Batches, position: int, visible_end: int, count: int = 1) -> Batches:
    """As a broker answers: the batch that holds the position, or the next one."""
    found = [b for b in batches if b.last_offset >= position and b.last_offset < visible_end]
    return found[:count]


def search_through(
    batches: Batches,
    log: FollowerLog,
    hints: Lineage = (),
    *,
    rounds: int = 4,
    count: int = 1,
) -> tuple[Lineage | None, int]:
    """What is delivered in the end, and how many batches were asked for."""
    search, asked = HeaderSearch(log), 0
    for _ in range(rounds):
        search.begin_round(log)
        while (position := search.next_position(hints)) is not None:
            assert log.log_start_offset <= position < log.visible_end
            asked += 1
            assert asked < 10_000
            search.take(position, read(batches, position, log.visible_end, count))
    return search.lineage(hints), asked


@st.composite
def logs(draw: st.DrawFn, *, holes: bool) -> Batches:
    found: Batches = []
    at = draw(st.integers(0, 5))
    epoch = draw(st.integers(0, 3))
    for _ in range(draw(st.integers(1, 40))):
        epoch += draw(st.sampled_from((0, 0, 0, 0, 1, 3)))
        at += draw(st.sampled_from((0, 0, 0, 1, 5))) if holes else 0
        size = draw(st.integers(1, 6))
        found.append(BatchHeader(at, at + size - 1, epoch))
        at += size
    return found


lineages = st.lists(st.tuples(st.integers(0, 20), st.integers(0, 200)), max_size=5).map(
    lambda found: tuple(EpochEntry(*each) for each in sorted(found))
)


@settings(deadline=None)
@given(logs(holes=False), lineages, st.integers(1, 4), st.data())
def test_a_log_without_holes_is_found_out_whatever_the_hints(
    batches: Batches, hints: Lineage, count: int, data: st.DataObject
) -> None:
    end = batches[-1].last_offset + 1
    start = data.draw(st.integers(batches[0].first_offset, end - 1))
    newest = batches[-1].leader_epoch
    assert newest is not None
    believes = newest + data.draw(st.integers(0, 2))
    log = FollowerLog(start, end, end, believes)
    found, _ = search_through(batches, log, hints, count=count)
    assert found == truth(batches, start)


@settings(deadline=None)
@given(logs(holes=True), lineages, st.data())
def test_with_holes_and_a_low_watermark_it_is_the_truth_or_nothing(
    batches: Batches, hints: Lineage, data: st.DataObject
) -> None:
    end = batches[-1].last_offset + 1
    start = data.draw(st.integers(0, end))
    watermark = data.draw(st.integers(0, end))
    believes = (batches[-1].leader_epoch or 0) + data.draw(st.integers(0, 2))
    log = FollowerLog(start, watermark, end, believes)
    found, _ = search_through(batches, log, hints)
    if found is not None:
        assert found == truth(batches, start)


def test_the_leaders_lineage_makes_it_cheap() -> None:
    batches = batches_of((0, 10_000), (1, 10_000), (4, 10_000))
    log = FollowerLog(0, 30_000, 30_000, 4)
    hints = truth(batches)
    found, asked = search_through(batches, log, hints)
    assert found == hints
    # The start, the end, and the two sides of each of two borders.
    assert asked == 6
    without, dear = search_through(batches, log)
    assert without == hints
    assert dear < 40


def test_what_is_above_the_watermark_may_hide_an_epoch() -> None:
    batches = batches_of((0, 10), (1, 5))
    assert search_through(batches, FollowerLog(0, 10, 15, 1))[0] is None
    assert search_through(batches, FollowerLog(0, 12, 15, 1))[0] == truth(batches)


def test_a_hole_where_an_epoch_begins_leaves_its_start_unknown() -> None:
    batches = [*batches_of((0, 10)), BatchHeader(14, 14, 1), BatchHeader(15, 15, 1)]
    assert search_through(batches, FollowerLog(0, 16, 16, 1))[0] is None
    within = [*batches_of((0, 10)), BatchHeader(14, 14, 0), BatchHeader(15, 15, 1)]
    assert search_through(within, FollowerLog(0, 16, 16, 1))[0] == truth(within)


def test_a_hole_at_the_log_start_may_have_held_another_epoch() -> None:
    batches = [BatchHeader(7, 9, 1)]
    assert search_through(batches, FollowerLog(5, 10, 10, 1))[0] is None
    assert search_through(batches, FollowerLog(8, 10, 10, 1))[0] == ((1, 8),)


def test_formats_without_epochs_are_given_up() -> None:
    batches = [BatchHeader(0, 9, None)]
    assert search_through(batches, FollowerLog(0, 10, 10, 0)) == (None, 1)


def test_nothing_is_delivered_in_the_round_in_which_an_epoch_is_new() -> None:
    """The follower may be about to cut its log."""
    log = FollowerLog(0, 10, 10, 5)
    search = HeaderSearch(log)
    search.begin_round(log)
    assert search.next_position(()) is None


def test_without_records_of_the_new_epoch_the_end_is_looked_at_in_another_round() -> None:
    batches, log = batches_of((0, 10)), FollowerLog(0, 10, 10, 5)
    assert search_through(batches, log, rounds=2)[0] is None
    assert search_through(batches, log, rounds=3)[0] == ((0, 0),)
    same = FollowerLog(0, 10, 10, 0)
    assert search_through(batches, same, rounds=2)[0] == ((0, 0),)


def test_while_a_log_may_still_be_cut_its_end_is_looked_at_in_every_round() -> None:
    batches, log = batches_of((0, 10), (3, 5)), FollowerLog(0, 15, 15, 5)
    other, same = (EpochEntry(0, 0), EpochEntry(4, 10)), (EpochEntry(0, 0), EpochEntry(3, 10))
    for leader, later in ((other, 2), (same, 0)):
        search, asked = HeaderSearch(log), []
        for _ in range(5):
            search.begin_round(log)
            asked.append(0)
            while (position := search.next_position(leader)) is not None:
                asked[-1] += 1
                search.take(position, read(batches, position, 15))
        assert search.lineage(leader) == ((0, 0), (3, 10))
        assert sum(asked[3:]) == later


def test_a_tail_that_was_cut_before_more_was_fetched_leaves_nothing_behind() -> None:
    """The log grew, so nobody could see that it was shorter in between."""
    old, new = batches_of((0, 90), (3, 10)), batches_of((0, 90), (5, 30))
    search = HeaderSearch(FollowerLog(0, 100, 100, 5))
    hints = (EpochEntry(0, 0), EpochEntry(5, 90))
    for batches, end in ((old, 100), (old, 100), (old, 100), (new, 120), (new, 120)):
        search.begin_round(FollowerLog(0, end, end, 5))
        while (position := search.next_position(hints)) is not None:
            search.take(position, read(batches, position, end))
    assert search.lineage(hints) == ((0, 0), (5, 90))


def test_a_log_that_was_cut_and_filled_again_meanwhile_is_begun_anew() -> None:
    old, new = batches_of((0, 10)), batches_of((0, 6), (3, 4))
    log = FollowerLog(0, 10, 10, 5)
    search = HeaderSearch(log)
    for _ in range(2):
        search.begin_round(log)
        while (position := search.next_position(())) is not None:
            search.take(position, read(old, position, 10))
    search.begin_round(log)
    position = search.next_position(())
    assert position == 9
    search.take(position, read(new, position, 10))
    assert search.lineage(()) is None
    assert not search.is_of(log)


@pytest.mark.parametrize(
    "later",
    [
        pytest.param(FollowerLog(0, 10, 10, 1), id="another-epoch"),
        pytest.param(FollowerLog(0, 10, 10, 0, "another"), id="another-topic"),
        pytest.param(FollowerLog(0, 5, 5, 0), id="shorter"),
    ],
)
def test_what_was_read_of_another_log_does_not_count(later: FollowerLog) -> None:
    batches, log = batches_of((0, 10)), FollowerLog(0, 10, 10, 0)
    search = HeaderSearch(log)
    for _ in range(2):
        search.begin_round(log)
        while (position := search.next_position(())) is not None:
            search.take(position, read(batches, position, 10))
    assert search.lineage(()) == ((0, 0),)
    assert search.is_of(log)
    assert not search.is_of(later)


def test_a_log_start_that_moves_on_moves_the_first_entry() -> None:
    batches = batches_of((0, 10), (1, 10))
    search = HeaderSearch(FollowerLog(0, 20, 20, 1))
    for log in (FollowerLog(0, 20, 20, 1), FollowerLog(0, 20, 20, 1)):
        search.begin_round(log)
        while (position := search.next_position(())) is not None:
            search.take(position, read(batches, position, 20))
    search.begin_round(FollowerLog(4, 25, 25, 1))
    assert search.lineage(()) == ((0, 4), (1, 10))
    search.begin_round(FollowerLog(12, 25, 25, 1))
    assert search.lineage(()) == ((1, 12),)


def test_new_records_of_the_new_epoch_are_found_at_the_old_end() -> None:
    search = HeaderSearch(FollowerLog(0, 10, 10, 1))
    batches = batches_of((0, 10), (1, 30))
    for end in (10, 10, 10, 40):
        search.begin_round(FollowerLog(0, end, end, 1))
        while (position := search.next_position((EpochEntry(0, 0), EpochEntry(1, 10)))) is not None:
            search.take(position, read(batches, position, end))
    assert search.lineage(()) == ((0, 0), (1, 10))


# -- how much is asked of a broker in a round


def followers_of(cluster: FakeCluster, fetches: int) -> FollowerLineages:
    return FollowerLineages(cluster, fetches)


def test_a_round_asks_no_more_than_its_limit_and_the_next_one_goes_on() -> None:
    cluster = FakeCluster()
    partitions = [TopicPartition("orders", number) for number in range(3 * AT_ONCE)]
    for partition in partitions:
        cluster.replicas[2, partition] = FakeReplica(leo=64, hw=64, lineage=((0, 0), (1, 20)))
    logs = {partition: FollowerLog(0, 64, 64, 1) for partition in partitions}
    followers = followers_of(cluster, 3)
    rounds = 0
    while len(followers.of_broker(2, logs, {}, {})) < len(partitions):
        rounds += 1
        assert cluster.asked["batches"] <= 3 * rounds
        assert rounds < 40
    assert cluster.asked["batches"] > 10
    # Once known, nothing more is asked.
    before = cluster.asked["batches"]
    found = followers.of_broker(2, logs, {}, {})
    assert set(found.values()) == {((0, 0), (1, 20))}
    assert cluster.asked["batches"] == before


def test_while_it_is_read_anew_what_was_found_before_counts() -> None:
    cluster = FakeCluster()
    partition = TopicPartition("orders", 0)
    cluster.replicas[2, partition] = FakeReplica(leo=64, hw=64, lineage=((0, 0), (1, 20)))
    logs = {partition: FollowerLog(0, 64, 64, 1)}
    followers = followers_of(cluster, 20)
    for _ in range(2):
        found = followers.of_broker(2, logs, {}, {})
    assert found[partition] == ((0, 0), (1, 20))
    # Somebody has changed the log under our eyes; nobody can tell before it is read again.
    cluster.replicas[2, partition] = FakeReplica(leo=64, hw=64, lineage=((0, 0), (1, 30)))
    followers.forget()
    assert followers.of_broker(2, logs, {}, {})[partition] == ((0, 0), (1, 20))
    for _ in range(2):
        assert followers.of_broker(2, logs, {}, {})[partition] == ((0, 0), (1, 30))


def test_what_was_found_before_does_not_count_for_a_log_that_was_cut() -> None:
    cluster = FakeCluster()
    partition = TopicPartition("orders", 0)
    cluster.replicas[2, partition] = FakeReplica(leo=64, hw=64, lineage=((0, 0), (1, 20)))
    followers = followers_of(cluster, 20)
    for _ in range(2):
        followers.of_broker(2, {partition: FollowerLog(0, 64, 64, 1)}, {}, {})
    followers.forget()
    assert followers.of_broker(2, {partition: FollowerLog(0, 40, 40, 1)}, {}, {}) == {}


def test_without_fetches_nothing_is_asked() -> None:
    cluster = FakeCluster()
    assert followers_of(cluster, 0).of_broker(2, {}, {}, {}) == {}
    assert cluster.asked["batches"] == 0


def test_a_batch_that_does_not_fit_is_fetched_alone() -> None:
    log = FollowerLog(0, 10, 10, 0)
    search = HeaderSearch(log)
    search.begin_round(log)
    search.begin_round(log)
    search.take(9, [])
    assert search.alone
    assert search.next_position(()) == 9
    search.take(9, [BatchHeader(0, 9, 0)])
    assert not search.alone
    assert search.lineage(()) == ((0, 0),)


def test_a_batch_that_does_not_come_even_alone_is_given_up() -> None:
    log = FollowerLog(0, 10, 10, 0)
    search = HeaderSearch(log)
    for _ in range(2):
        search.begin_round(log)
    search.take(0, [])
    search.take(0, [])
    assert search.next_position(()) is None
    assert search.lineage(()) is None
