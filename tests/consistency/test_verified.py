"""How far contents were compared: what digests show holds until something is written anew."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest
from tidestaff.consistency.memory import Verified
from tidestaff.consistency.model import BatchDigest, OffsetRange

from tests.consistency.watch import Watch, lineage

if TYPE_CHECKING:
    from collections.abc import Callable


def digests(start: int, end: int, *odd: int, **fields: Any) -> tuple[BatchDigest, ...]:
    """Of brokers 1 to 3; those that are `odd` hold something else."""
    return tuple(
        BatchDigest(
            broker,
            OffsetRange(start, end),
            8 if broker in odd else 7,
            **{"leader_epoch": 0} | fields,
        )
        for broker in (1, 2, 3)
    )


def compared(*ranges: tuple[int, int], **fields: Any) -> Watch:
    """A partition of ten records whose ranges were compared, one in each round."""
    watch = Watch(**fields).settle()
    for start, end in ranges:
        watch.set(digests=digests(start, end)).see()
    return watch.set(digests=())


def known(watch: Watch) -> Verified | None:
    assert watch.memory is not None
    return watch.memory.verified


def span(watch: Watch) -> tuple[int, int] | None:
    found = known(watch)
    return None if found is None else (found.start, found.end)


def test_nothing_is_verified_before_anything_was_compared() -> None:
    assert known(Watch().settle()) is None


def test_one_range_after_the_other_is_one_pass() -> None:
    watch = compared((0, 4))
    first = known(watch)
    assert first == Verified(0, 4, 0, 0, watch.now_ms, watch.now_ms)
    watch.set(digests=digests(4, 9)).see()
    assert known(watch) == Verified(0, 9, 0, 0, first.began_ms, watch.now_ms)


def test_quiet_rounds_keep_it() -> None:
    watch = compared((0, 9))
    before = known(watch)
    watch.see(3)
    watch.append(5).see(3)
    assert known(watch) == before


@pytest.mark.parametrize(
    ("again", "left"),
    [
        pytest.param((0, 3), (0, 3), id="from-the-start"),
        pytest.param((2, 3), (2, 3), id="from-the-middle"),
        pytest.param((8, 10), (8, 10), id="after-a-gap"),
    ],
)
def test_a_pass_that_begins_anew_shows_nothing_of_the_old_one(
    again: tuple[int, int], left: tuple[int, int]
) -> None:
    watch = compared((0, 7), again)
    assert span(watch) == left
    found = known(watch)
    assert found is not None
    assert found.began_ms == watch.now_ms


@pytest.mark.parametrize(
    "told",
    [
        pytest.param(digests(4, 9, 3), id="a-copy-that-differs"),
        pytest.param(digests(4, 9, invalid_at=5), id="a-batch-that-is-corrupt"),
        pytest.param(digests(4, 9, gap_at=5), id="a-gap"),
        pytest.param(digests(4, 9)[:2], id="a-copy-that-was-not-read"),
        pytest.param(digests(4, 90), id="more-than-is-committed"),
    ],
)
def test_what_was_not_found_equal_is_not_verified(told: tuple[BatchDigest, ...]) -> None:
    watch = compared((0, 4))
    watch.set(digests=told).see()
    assert span(watch) == (0, 4)


def test_a_difference_below_takes_back_what_was_found_equal_above_it() -> None:
    watch = compared((0, 9))
    watch.set(digests=digests(2, 5, 3)).see()
    assert span(watch) == (0, 2)


def cut_below(watch: Watch) -> None:
    watch.change(isr=(1, 2)).log(3, leo=4, hw=4)


def gone_from_a_disk(watch: Watch) -> None:
    watch.change(isr=(1, 2)).log(3, leo=0, hw=0, epochs=None)


def a_leader_that_had_less(watch: Watch) -> None:
    """Unclean, and by the time it is seen it has written as much as was there before."""
    watch.setting(unclean_leader_election_enable=True).stop(1, 3)
    watch.change(leader=2, epoch=1, isr=(2,))
    watch.log(2, leo=30, hw=30, epochs=lineage((0, 0), (1, 4)))


def another_copy(watch: Watch) -> None:
    """Made between two rounds, so that it was never seen to be shorter."""
    watch.log(4).register(4).change(replicas=(1, 2, 4), isr=(1, 2, 4))
    del watch.logs[3]


def made_again(watch: Watch) -> None:
    watch.set(topic_id="topic-id-0000000000002", czxid=99)


def made_again_before_ids(watch: Watch) -> None:
    watch.set(czxid=99)


def cleaned(watch: Watch) -> None:
    watch.setting(compacted=True)


@pytest.mark.parametrize(
    ("happens", "left", "fields"),
    [
        pytest.param(cut_below, (0, 4), {}, id="a-follower-is-cut"),
        pytest.param(gone_from_a_disk, None, {}, id="a-disk-is-replaced"),
        pytest.param(
            a_leader_that_had_less, (0, 4), {}, id="an-unclean-leader-writes-other-records"
        ),
        pytest.param(another_copy, None, {}, id="a-replica-is-added"),
        pytest.param(made_again, None, {}, id="the-topic-is-made-again"),
        pytest.param(
            made_again_before_ids,
            None,
            {"topic_id": None},
            id="the-topic-is-made-again-without-ids",
        ),
        pytest.param(cleaned, None, {}, id="the-topic-is-compacted-now"),
    ],
)
def test_old_coverage_is_not_shown_when(
    happens: Callable[[Watch], None], left: tuple[int, int] | None, fields: dict[str, Any]
) -> None:
    watch = compared((0, 9), **fields)
    happens(watch)
    watch.see()
    assert span(watch) == left
    watch.see(2)
    assert span(watch) == left, "it does not come back"


def test_a_clean_change_of_leader_keeps_it() -> None:
    watch = compared((0, 9))
    watch.stop(1).change(leader=2, epoch=1, isr=(2, 3))
    watch.log(2, leo=12, hw=12, epochs=lineage((0, 0), (1, 10)))
    watch.log(3, leo=12, hw=12, epochs=lineage((0, 0), (1, 10))).see(2)
    assert span(watch) == (0, 9)


def test_a_change_of_leader_without_epochs_keeps_it() -> None:
    """Before 0.11 nobody can say which epoch wrote what; batches have none either."""
    watch = Watch(version="0.10.2.2").all_logs(epochs=None).settle()
    watch.set(digests=digests(0, 9, leader_epoch=None)).see()
    assert known(watch) == Verified(0, 9, -1, 0, watch.now_ms, watch.now_ms)
    watch.set(digests=()).stop(1).change(leader=2, epoch=1, isr=(2, 3)).see(2)
    assert span(watch) == (0, 9)
