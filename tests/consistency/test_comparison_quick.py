"""The quick comparison: lineages only."""

from __future__ import annotations

import pytest
from tidestaff.consistency.comparison_quick import compare_lineages
from tidestaff.consistency.comparison_verdict import Outcome
from tidestaff.consistency.minority import BY_LINEAGE, BY_MAJORITY

from tests.consistency.copies import Copy, log


def copy(broker: int, *epochs: tuple[int, int], **more: object) -> Copy:
    """Batches of one record: so many of each epoch."""
    found, start = [], 0
    for epoch, count in epochs:
        found += log(range(start + 1, start + count + 1), epoch=epoch, start=start)
        start += count
    return Copy(broker, found, **more)  # type: ignore[arg-type]


def test_lineages_that_agree_are_equal_up_to_what_is_committed() -> None:
    copies = [copy(b, (0, 5), (2, 4)) for b in (1, 2, 3)]
    verdict = compare_lineages([c.extent for c in copies])
    assert verdict.outcome is Outcome.EQUAL
    assert (verdict.equal_up_to, verdict.epoch) == (9, 2)


def test_the_first_offset_with_two_epochs_is_where_copies_diverged() -> None:
    copies = [copy(1, (0, 5), (2, 4)), copy(2, (0, 5), (2, 4)), copy(3, (0, 6), (1, 3))]
    verdict = compare_lineages([c.extent for c in copies])
    assert verdict.outcome is Outcome.DIVERGED
    (found,) = verdict.differences
    assert (found.offsets.start, found.minority, found.why) == (5, (3,), BY_MAJORITY)


def test_of_two_the_leaders_lineage_counts() -> None:
    copies = [copy(1, (0, 5), (2, 4)), copy(2, (0, 9))]
    (found,) = compare_lineages([c.extent for c in copies], leader=1).differences
    assert (found.minority, found.why) == ((2,), BY_LINEAGE)


def test_where_a_cleaner_was_a_missing_epoch_is_lawful() -> None:
    copies = [copy(1, (0, 5), (2, 4)), copy(2, (0, 9), cleaned_up_to=9)]
    verdict = compare_lineages([c.extent for c in copies])
    assert verdict.outcome is Outcome.NOT_COMPARABLE
    assert verdict.differences == ()


@pytest.mark.parametrize("cleaned_up_to", [9, 3, None], ids=["all", "some", "nobody-told"])
def test_where_a_cleaner_was_lineages_that_agree_are_equal(cleaned_up_to: int | None) -> None:
    copies = [copy(b, (0, 5), (2, 4), cleaned_up_to=cleaned_up_to) for b in (1, 2, 3)]
    verdict = compare_lineages([c.extent for c in copies])
    assert verdict.outcome is Outcome.EQUAL
    assert (verdict.equal_up_to, verdict.epoch) == (9, 2)


def test_above_the_cleaner_point_copies_still_diverge() -> None:
    copies = [copy(b, (0, 5), (2, 4), cleaned_up_to=3) for b in (1, 2)]
    copies.append(copy(3, (0, 6), (1, 3), cleaned_up_to=3))
    verdict = compare_lineages([c.extent for c in copies])
    assert verdict.outcome is Outcome.DIVERGED
    assert verdict.differences[0].offsets.start == 5


def test_without_lineages_nothing_is_said() -> None:
    extents = [c.extent._replace(lineage=None) for c in (copy(1, (0, 5)), copy(2, (0, 5)))]
    assert compare_lineages(extents).outcome is Outcome.NOT_COMPARABLE
