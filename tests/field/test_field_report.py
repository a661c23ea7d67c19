"""The table of the field test: what a new run replaces, and what stays."""

from __future__ import annotations

import pytest

from tests.field.field_report import BROKE_OFF, Row, merge


def row(experiment: str, cluster: str, section: str = "injected", seen: str = "") -> Row:
    return Row(section, experiment, cluster, "", seen, holds=True, seconds=0)


def test_an_experiment_that_is_run_anew_replaces_its_row_alone() -> None:
    old = [row("torn", "a"), row("torn", "b"), row("cut", "a")]
    new = [row("torn", "a", seen="anew")]
    assert {(r.experiment, r.cluster, r.seen) for r in merge(old, new)} == {
        ("torn", "a", "anew"),
        ("torn", "b", ""),
        ("cut", "a", ""),
    }


@pytest.mark.parametrize(
    ("where", "ran", "stays"),
    [
        pytest.param("a", row("torn", "a"), False, id="this-cluster-ran"),
        pytest.param("b,a", row("torn", "a"), False, id="one-of-those-that-were-asked-for-ran"),
        pytest.param("-", row("torn", "a"), False, id="any-cluster-will-do"),
        pytest.param("b", row("torn", "a"), True, id="another-cluster-ran"),
        pytest.param("a", row("load", "a", "lively"), True, id="another-section-ran"),
    ],
)
def test_that_a_section_broke_off_stays_until_it_runs_again(
    where: str, ran: Row, *, stays: bool
) -> None:
    found = merge([row(BROKE_OFF, where)], [ran])
    assert (BROKE_OFF in {each.experiment for each in found}) is stays
