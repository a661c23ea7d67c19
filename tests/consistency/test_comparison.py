"""Contents of copies compared: what is lawful, what is found, who is wrong; and a dumb oracle."""

from __future__ import annotations

import random
from typing import TYPE_CHECKING

import pytest
from tidestaff.consistency.batches import BatchMark, Extent, RangeDigest
from tidestaff.consistency.comparison import Comparison
from tidestaff.consistency.comparison_verdict import Outcome
from tidestaff.consistency.minority import (
    BY_ABSENCE,
    BY_CHECKSUM,
    BY_LEADER,
    BY_LINEAGE,
    BY_MAJORITY,
    BY_NEWEST_LINEAGE,
    CANNOT_TELL,
)
from tidestaff.consistency.model import OffsetRange
from tidestaff.consistency.windows import Window, windows_of

from tests.consistency.copies import Copy, batch, compared, log

if TYPE_CHECKING:
    from typing import Any


def extents(*bounds: tuple[int, int], cleaned: tuple[int | None, ...] = ()) -> list[Extent]:
    points = cleaned or (0,) * len(bounds)
    return [
        Extent(broker, start, end, end, None, point)
        for broker, ((start, end), point) in enumerate(zip(bounds, points, strict=True), 1)
    ]


@pytest.mark.parametrize(
    ("found", "windows"),
    [
        pytest.param(
            extents((0, 9), (0, 9), (0, 9)),
            [Window(OffsetRange(0, 9), (1, 2, 3))],
            id="alike-is-one-window",
        ),
        pytest.param(
            extents((0, 9), (3, 9), (3, 7)),
            [
                Window(OffsetRange(0, 3), ()),
                Window(OffsetRange(3, 7), (1, 2, 3)),
                Window(OffsetRange(7, 9), (1, 2)),
            ][1:],
            id="unequal-log-starts-and-a-copy-that-is-behind",
        ),
        pytest.param(extents((0, 4), (5, 9)), [], id="nothing-in-common"),
        pytest.param(
            extents((0, 9), (0, 9), cleaned=(4, 0)),
            [
                Window(OffsetRange(0, 4), (1, 2), cleaned=True),
                Window(OffsetRange(4, 9), (1, 2)),
            ],
            id="one-cleaner-was-there",
        ),
        pytest.param(
            extents((0, 9), (0, 9), cleaned=(None, 0)),
            [Window(OffsetRange(0, 9), (1, 2), cleaned=True)],
            id="nobody-told-how-far-the-cleaner-came",
        ),
    ],
)
def test_offsets_are_compared_where_copies_hold_committed_ones(
    found: list[Extent], windows: list[Window]
) -> None:
    assert list(windows_of(found)) == windows


def three(**third: object) -> list[Copy]:
    ends = [5, 9, 20, 21, 40]
    return [Copy(1, log(ends)), Copy(2, log(ends)), Copy(3, **{"batches": log(ends), **third})]  # type: ignore[arg-type]


def test_equal_copies_are_settled_by_one_digest_each() -> None:
    copies = three()
    verdict = compared(copies)
    assert verdict.outcome is Outcome.EQUAL
    assert (verdict.equal_up_to, verdict.epoch) == (40, 0)
    assert [len(copy.asked) for copy in copies] == [1, 1, 1]


def test_a_batch_that_differs_is_found_with_what_each_holds_and_the_odd_one_named() -> None:
    other = log([5, 9, 20, 21, 40])
    other[2] = other[2]._replace(crc=99)
    verdict = compared(three(batches=other), marks_at_once=1)
    assert verdict.outcome is Outcome.DIVERGED
    (found,) = verdict.differences
    assert found.offsets == OffsetRange(9, 20)
    assert (found.minority, found.why) == ((3,), BY_MAJORITY)
    assert (found.batches, found.records) == (1, 11)
    held = {broker: mark and mark.crc for broker, mark in found.held.items()}
    assert held == {1: 63, 2: 63, 3: 99}
    assert verdict.equal_up_to == 9


def test_batches_that_differ_apart_from_each_other_are_two_findings() -> None:
    other = log([5, 9, 20, 21, 40])
    other[0], other[2] = other[0]._replace(crc=98), other[2]._replace(crc=99)
    found = compared(three(batches=other), marks_at_once=1).differences
    assert [each.offsets for each in found] == [OffsetRange(0, 5), OffsetRange(9, 20)]


def test_a_copy_that_is_behind_has_not_diverged() -> None:
    verdict = compared(three(batches=log([5, 9, 20])))
    assert verdict.outcome is Outcome.BEHIND
    (late,) = verdict.behind
    assert (late.broker, late.offsets) == (3, OffsetRange(20, 40))
    assert verdict.differences == ()


def test_a_member_of_the_isr_is_not_behind_but_read_earlier() -> None:
    verdict = compared(three(batches=log([5, 9, 20]), in_sync=True))
    assert verdict.outcome is Outcome.EQUAL


def test_a_member_of_the_isr_lacks_what_its_leader_committed_before_so_it_is_none() -> None:
    """Whoever told the ISR has not heard of its last change; leaders are read first."""
    verdict = compared(three(batches=log([5, 9, 20]), in_sync=True), leader=1)
    assert verdict.outcome is Outcome.BEHIND
    assert [each.broker for each in verdict.behind] == [3]


def test_what_is_above_the_high_watermark_is_nobodys_fault() -> None:
    other = [*log([5, 9, 20]), batch(20, 5, epoch=3, crc=1)]
    assert compared(three(batches=other, watermark=20)).differences == ()


@pytest.mark.parametrize(
    ("first", "second", "leader", "minority", "why"),
    [
        pytest.param({"epoch": 2}, {"epoch": 1}, 1, (2,), BY_LINEAGE, id="the-leaders-lineage"),
        pytest.param(
            *({"epoch": 2}, {"epoch": 1}, None, (2,), BY_NEWEST_LINEAGE),
            id="the-newest-lineage-of-two",
        ),
        pytest.param({"crc": 1}, {"crc": 2}, 2, (1,), BY_LEADER, id="same-epoch-so-the-leader"),
        pytest.param(
            {"crc": 1}, {"crc": 2, "intact": False}, None, (2,), BY_CHECKSUM, id="rotten-bytes"
        ),
        pytest.param({"crc": 1}, {"crc": 2}, None, (), CANNOT_TELL, id="nothing-tells"),
    ],
)
def test_of_two_copies_the_wrong_one_is_known_by(
    first: dict[str, int], second: dict[str, int], leader: int | None, minority: object, why: str
) -> None:
    copies = [
        Copy(number, [*log([5]), batch(5, **each)])  # type: ignore[arg-type]
        for number, each in enumerate((first, second), 1)
    ]
    (found,) = compared(copies, leader=leader).differences
    assert (found.minority, found.why) == (minority, why)


@pytest.mark.parametrize("leader", [1, None])
def test_a_batch_that_is_missing_is_no_other_epoch(leader: int | None) -> None:
    whole = log([5, 9, 20])
    (found,) = compared([Copy(1, whole), Copy(2, [whole[0], whole[2]])], leader=leader).differences
    assert (found.minority, found.why) == ((2,), BY_ABSENCE)


def test_unequal_cleaning_is_not_divergence() -> None:
    cleaned = [b._replace(records=1, crc=5) for b in log([5, 9])] + log([20, 21, 40], start=9)
    verdict = compared(three(batches=cleaned, cleaned_up_to=9))
    assert verdict.outcome is Outcome.NOT_COMPARABLE
    assert verdict.differences == ()
    (left,) = verdict.uncompared
    assert (left.offsets, left.batches) == (OffsetRange(0, 9), 2)


def test_a_batch_no_cleaner_touched_must_be_alike_also_where_cleaners_went() -> None:
    cleaned = [log([5])[0]._replace(records=1, crc=5), *log([9, 20, 21, 40], start=5)]
    cleaned[1] = cleaned[1]._replace(crc=4)
    verdict = compared(three(batches=cleaned, cleaned_up_to=9))
    assert verdict.outcome is Outcome.DIVERGED
    assert [each.offsets for each in verdict.differences] == [OffsetRange(5, 9)]


def test_a_tombstone_that_has_its_horizon_is_rewritten_and_no_divergence() -> None:
    cleaned = log([5, 9, 20, 21, 40])
    cleaned[0] = cleaned[0]._replace(crc=5, attributes=0x40)
    verdict = compared(three(batches=cleaned, cleaned_up_to=9))
    assert verdict.differences == ()
    assert verdict.outcome is Outcome.NOT_COMPARABLE


def test_a_log_start_that_moves_meanwhile_only_shortens_the_comparison() -> None:
    copies = three()
    comparison = Comparison([copy.extent for copy in copies])
    question = comparison.question()
    assert question is not None
    copies[1].log_start = 9
    comparison.digests(question, {c.broker: c.digest(question.offsets) for c in copies})
    again = comparison.question()
    assert again is not None
    assert again.offsets == OffsetRange(9, 40)
    comparison.digests(again, {c.broker: c.digest(again.offsets) for c in copies})
    assert comparison.verdict().outcome is Outcome.EQUAL


def test_a_copy_that_cannot_be_read_is_named_and_the_rest_is_compared() -> None:
    verdict = compared(three(broken_from=9), span=10)
    assert verdict.outcome is Outcome.CORRUPT
    assert [(each.broker, each.offset) for each in verdict.corrupt] == [(3, 9)]
    assert verdict.unread == ((3, "from offset 9 on: no header"),)
    assert verdict.uncompared == ()


@pytest.mark.parametrize("span", [1 << 62, 3], ids=["in-one-question", "in-many"])
def test_what_differs_below_the_place_where_a_copy_breaks_is_told_too(span: int) -> None:
    copies = three(broken_from=9)
    copies[2].batches[0] = copies[2].batches[0]._replace(crc=77)
    verdict = compared(copies, span=span)
    assert verdict.outcome is Outcome.DIVERGED
    assert [(each.offsets, each.minority) for each in verdict.differences] == [((0, 5), (3,))]
    assert [(each.broker, each.offset) for each in verdict.corrupt] == [(3, 9)]
    assert verdict.equal_up_to == 0


def test_a_payload_that_rots_and_a_place_without_a_header_are_told_each_by_its_reason() -> None:
    copies = three(broken_from=9)
    copies[2].batches[0] = copies[2].batches[0]._replace(intact=False)
    verdict = compared(copies)
    (found,) = verdict.corrupt
    assert (found.offset, found.why) == (0, "its checksum does not match its bytes")
    assert verdict.unread == ((3, "from offset 9 on: no header"),)


def test_a_copy_that_fails_while_it_is_read_accuses_nobody_of_holding_something_else() -> None:
    found = Comparison([copy.extent for copy in three()])
    question = found.question()
    assert question is not None
    whole = RangeDigest(question.offsets, 7, batches=3)
    failed = RangeDigest(question.offsets, unreadable_at=20, reason="Input/output error")
    found.digests(question, {1: whole, 2: whole, 3: failed})
    assert found.question() is None
    assert found.verdict().differences == ()
    assert found.verdict().unread == ((3, "from offset 0 on: Input/output error"),)


def test_rot_that_all_copies_share_is_corrupt_and_not_diverged() -> None:
    rotten = log([5, 9, 20])
    rotten[1] = rotten[1]._replace(intact=False)
    verdict = compared([Copy(1, rotten), Copy(2, list(rotten))])
    assert verdict.outcome is Outcome.CORRUPT
    assert {each.offset for each in verdict.corrupt} == {5}


def test_directories_of_another_topic_of_that_name_are_not_compared() -> None:
    found = [e._replace(topic_id=f"id{e.broker}") for e in extents((0, 9), (0, 9))]
    verdict = Comparison(found).verdict()
    assert verdict.outcome is Outcome.NOT_COMPARABLE
    assert "different topics" in verdict.why


def test_a_difference_too_large_to_follow_is_told_as_not_all() -> None:
    copies = [Copy(1, log(range(1, 300))), Copy(2, log(range(1, 300), epoch=1))]
    verdict = compared(copies, marks_at_once=8, most_marks=30)
    assert verdict.outcome is Outcome.DIVERGED
    assert not verdict.complete
    assert verdict.differences[0].offsets.start == 0


def test_what_was_cleaned_leaves_its_budget_to_what_was_not_and_the_rest_is_named() -> None:
    """Hundreds of batches are missing on one copy or the other; then one differs."""
    tail = log(range(401, 411), start=400)
    other = [*tail[:5], tail[5]._replace(crc=1), *tail[6:]]
    cleaned = [[batch(n) for n in range(400) if n % 2 == odd] for odd in (0, 1)]
    copies = [
        Copy(1, [*cleaned[0], *tail], cleaned_up_to=400),
        Copy(2, [*cleaned[1], *other], cleaned_up_to=400),
    ]
    verdict = compared(copies, marks_at_once=8, most_marks=30)
    assert verdict.outcome is Outcome.DIVERGED
    assert [each.offsets for each in verdict.differences] == [OffsetRange(405, 406)]
    assert not verdict.complete
    one, other_one = verdict.uncompared
    assert (one.offsets.start, one.offsets.end, other_one.offsets.end) == (
        *(0, other_one.offsets.start),
        400,
    )
    assert "too much to be looked at" in other_one.why


def test_what_differs_and_is_too_much_to_look_at_is_named() -> None:
    copies = [Copy(1, log(range(1, 300))), Copy(2, log(range(1, 300), epoch=1))]
    verdict = compared(copies, marks_at_once=8, most_marks=30)
    told = {o for each in verdict.differences for o in range(*each.offsets)}
    told |= {o for each in verdict.uncompared for o in range(*each.offsets)}
    assert told == set(range(299))


@pytest.mark.parametrize("span", [1 << 62, 3], ids=["in-one-question", "in-many"])
@pytest.mark.parametrize("rotten", [0, 2, 4])
def test_scrubbing_reads_what_one_copy_holds_alone(span: int, rotten: int) -> None:
    """Below the log start of the other, in common, and above its end."""
    whole = log([5, 9, 20, 21, 40])
    whole[rotten] = whole[rotten]._replace(intact=False)
    copies = [Copy(1, whole), Copy(2, whole[1:4], log_start=5)]
    if rotten != 2:
        assert compared(copies, span=span).corrupt == ()
    verdict = compared(copies, span=span, scrub=True)
    assert verdict.outcome is Outcome.CORRUPT
    assert {each.offset for each in verdict.corrupt} == {whole[rotten].first_offset}


def test_scrubbing_says_equal_up_to_where_copies_were_compared() -> None:
    copies = [Copy(1, log([5, 9, 20])), Copy(2, log([5, 9]))]
    verdict = compared(copies, scrub=True)
    assert (verdict.outcome, verdict.equal_up_to) == (Outcome.BEHIND, 9)
    assert [copy.asked for copy in copies] == [
        [OffsetRange(0, 9), OffsetRange(9, 20)],
        [OffsetRange(0, 9)],
    ]


def test_scrubbing_goes_on_in_the_one_copy_that_can_be_read() -> None:
    copies = [Copy(1, log([5, 9, 20])), Copy(2, log([5, 9, 20]), broken_from=9)]
    copies[0].batches[2] = copies[0].batches[2]._replace(intact=False)
    verdict = compared(copies, scrub=True, span=10)
    assert {(each.broker, each.offset) for each in verdict.corrupt} == {(1, 9), (2, 9)}
    assert [each.offsets for each in verdict.uncompared] == [OffsetRange(9, 20)]


def test_scrubbing_reads_copies_that_have_nothing_in_common() -> None:
    rotten = [log([5])[0]._replace(intact=False)]
    verdict = compared([Copy(1, rotten), Copy(2, log([9], start=5), log_start=5)], scrub=True)
    assert (verdict.outcome, verdict.why[:18]) == (Outcome.CORRUPT, "no two copies hold")
    assert [each.broker for each in verdict.corrupt] == [1]


@pytest.mark.parametrize(
    "third",
    [
        pytest.param({"batches": [], "log_start": 40}, id="emptied-before-the-others"),
        pytest.param({"watermark": 0, "in_sync": True}, id="no-high-watermark-yet"),
    ],
)
def test_a_copy_that_has_nothing_in_common_is_not_counted_as_equal(third: dict[str, Any]) -> None:
    verdict = compared(three(**third))
    assert verdict.outcome is Outcome.NOT_COMPARABLE
    assert [each.broker for each in verdict.apart] == [3]
    assert verdict.equal_up_to == 40


def test_what_nobody_committed_is_not_compared_and_told() -> None:
    verdict = compared([Copy(1, log([5]), watermark=0), Copy(2, log([5], epoch=1), watermark=0)])
    assert (verdict.outcome, verdict.compared) == (Outcome.EQUAL, False)
    assert [(each.broker, each.offsets) for each in verdict.above] == [(1, (0, 5)), (2, (0, 5))]


def test_a_comparison_goes_on_where_an_earlier_one_ended() -> None:
    copies = three()
    verdict = compared(copies, done_to=20)
    assert [copy.asked for copy in copies] == [[OffsetRange(20, 40)]] * 3
    assert verdict.equal_up_to == 40


# -- a second, dumb implementation


def random_log(chance: random.Random, begin: int, end: int, epoch: int) -> list[BatchMark]:
    found, at = [], begin
    while at < end:
        records = min(chance.randint(1, 6), end - at)
        found.append(batch(at, records, epoch=epoch, crc=chance.getrandbits(32)))
        at += records
        epoch += chance.random() < 0.1
    return found


def random_copies(chance: random.Random) -> list[Copy]:
    true = random_log(chance, 0, chance.randint(1, 120), 0)
    copies = []
    for broker in range(1, chance.randint(2, 4) + 1):
        held = list(true)
        if chance.random() < 0.4 and held:  # another history from some point on
            cut = chance.randrange(len(held))
            begin = held[cut].first_offset
            held = held[:cut] + random_log(chance, begin, chance.randint(begin, 140), 9)
        if chance.random() < 0.3 and held:  # one odd batch
            odd = chance.randrange(len(held))
            held[odd] = held[odd]._replace(crc=chance.getrandbits(32))
        end = held[-1].last_offset + 1 if held else 0
        start = chance.choice([0, chance.randint(0, end)])
        copies.append(
            Copy(
                broker,
                [b for b in held if b.last_offset >= start],
                log_start=start,
                watermark=chance.choice([end, chance.randint(start, end)]),
            )
        )
    return copies


def oracle(copies: list[Copy]) -> set[int]:
    """Last offsets at which two copies that both may speak there do not hold the same batch."""
    wrong = set()
    for one in copies:
        for other in copies:
            low = max(one.log_start, other.log_start)
            high = min(one.extent.end, other.extent.end)
            for last in range(low, high):
                mine = [b.identity for b in one.batches if b.last_offset == last]
                theirs = [b.identity for b in other.batches if b.last_offset == last]
                if mine != theirs:
                    wrong.add(last)
    return wrong


@pytest.mark.parametrize("seed", range(150))
def test_it_finds_what_a_comparison_of_everything_with_everything_finds(seed: int) -> None:
    chance = random.Random(seed)  # noqa: S311 - tests
    copies = random_copies(chance)
    verdict = compared(
        copies, marks_at_once=chance.choice([1, 4, 64]), span=chance.choice([3, 17, 1 << 40])
    )
    wrong = oracle(copies)
    assert (verdict.outcome is Outcome.DIVERGED) == bool(wrong)
    told = {o for each in verdict.differences for o in range(*each.offsets)}
    assert wrong <= told
    if wrong:
        # Down to the batch: nothing before the first batch that differs is accused.
        firsts = [
            b.first_offset
            for c in copies
            for b in c.batches
            if b.last_offset in wrong and c.log_start <= b.last_offset < c.extent.end
        ]
        assert verdict.equal_up_to == min(firsts)
        assert min(told) == verdict.equal_up_to
    lasts = {b.last_offset for c in copies for b in c.batches if b.last_offset < c.extent.end}
    assert sum(each.batches for each in verdict.differences) == len(wrong & lasts)
