"""Edges of the truncation rules that only a seeded fault showed to be untested."""

from __future__ import annotations

import pytest
from tidestaff.consistency.truncation import (
    NONE,
    EpochAnswer,
    OutOfRangeAction,
    OutOfRangeStep,
    on_out_of_range,
    truncation_point,
)
from tidestaff.consistency.versions import Truncation, rules_for


@pytest.mark.parametrize(
    ("protocol", "answer", "watermark"),
    [
        pytest.param(Truncation.KIP_101, EpochAnswer(NONE, -1, 20), 5, id="leader-is-longer"),
        pytest.param(Truncation.HIGH_WATERMARK, None, 20, id="watermark-above-the-own-end"),
    ],
)
def test_nothing_is_cut_above_the_own_end(
    protocol: Truncation, answer: EpochAnswer | None, watermark: int
) -> None:
    step = truncation_point(
        protocol=protocol, answer=answer, log_end_offset=10, initial_fetch_offset=watermark
    )
    assert step.truncate_to == 10


def test_a_follower_that_ends_where_its_leader_starts_goes_on_from_there() -> None:
    step = on_out_of_range(
        log_end_offset=10,
        leader_log_start_offset=10,
        leader_log_end_offset=20,
        rules=rules_for("3.9"),
        unclean_allowed=False,
    )
    assert step == OutOfRangeStep(OutOfRangeAction.KEEP, 10)
