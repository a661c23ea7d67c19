"""The table of the field test: what a new run replaces, and what stays."""

from __future__ import annotations

import json

import pytest

from tests.field.field_report import BROKE_OFF, PAGE, ROWS, Row, load, machine, merge, page
from tests.field.lab import CLUSTERS


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


def _ran(section: str) -> set[tuple[str, str]]:
    return {(row.experiment, row.cluster) for row in load() if row.section == section}


def test_every_form_of_kip_101_was_run_on_every_version_the_page_compares() -> None:
    forms = (
        "C's watermark was checkpointed",
        "C is killed at once",
        "S-24 both crash, and A's disk has not kept its tail",
    )
    versions = ("0.10.2.2", "1.1.1", "3.9.1")
    assert {(form, f"{v}-zookeeper") for form in forms for v in versions} == _ran("kip101")


@pytest.mark.parametrize("section", ["truncation", "lively", "injected"])
def test_a_section_has_rows_of_every_cluster(section: str) -> None:
    assert {cluster for _, cluster in _ran(section)} == set(map(str, CLUSTERS))


def test_the_page_is_what_its_rows_make_of_it() -> None:
    """But for the machine it is made on."""
    held = json.loads(ROWS.read_text(encoding="utf-8"))
    mine = page(load(), held["day"]).replace(machine(), held["machine"])
    assert mine == PAGE.read_text(encoding="utf-8")


def test_the_page_says_what_the_figures_of_a_producer_are_worth() -> None:
    text = page([row("a producer", "a", "cost")], "2026-01-01")
    assert "idle priority" in text
