"""Edges of the epoch cache's rules that only a seeded fault showed to be untested."""

from __future__ import annotations

from tidestaff.consistency.epochs import next_agreement

from tests.consistency.watch import lineage


def test_the_first_offset_of_several_where_two_lineages_agree_again() -> None:
    one = lineage((0, 0), (1, 5), (2, 8), (4, 12))
    other = lineage((0, 0), (2, 8), (4, 12))
    assert next_agreement(one, other, start=5, end=20) == 8
    assert next_agreement(one, other, start=5, end=8) is None
