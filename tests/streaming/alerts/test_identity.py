"""What names an alert is a contract: silences and tickets hold these names."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from tidestaff.consistency.catalogue import BY_CODE
from tidestaff.streaming.alerts.advice import NEXT_STEP
from tidestaff.streaming.alerts.identity import Kind, fingerprint_of, kind_of

from tests.streaming.alerts.lives import GROUPED, LATCHED, PLAIN, event

ROOT = Path(__file__).resolve().parents[3]


@pytest.mark.parametrize(
    ("code", "fields", "fingerprint"),
    [
        pytest.param(PLAIN, {"broker": 2}, "12a33dee2d1ceb5a", id="plain"),
        pytest.param(GROUPED, {"broker": 2}, "4b088397e919d6de", id="grouped"),
        pytest.param(LATCHED, {"broker": 2, "offsets": (8, 10)}, "d13c976df5ebf861", id="latched"),
    ],
)
def test_fingerprints_never_change(code: str, fields: dict[str, object], fingerprint: str) -> None:
    assert fingerprint_of(event("raised", 1, code, **fields)) == fingerprint


@pytest.mark.parametrize(
    ("code", "change", "same"),
    [
        pytest.param(PLAIN, {"observed": "other", "at_ms": 9}, True, id="words-are-not-identity"),
        pytest.param(
            PLAIN, {"offsets": (1, 2), "leader_epoch": 9}, True, id="plain-keeps-offsets-out"
        ),
        pytest.param(PLAIN, {"partition": 1}, False, id="plain-is-of-a-partition"),
        pytest.param(PLAIN, {"topic_id": "x"}, False, id="a-topic-made-again-is-another"),
        pytest.param(PLAIN, {"broker": 9}, False, id="plain-is-of-a-broker"),
        pytest.param(GROUPED, {"partition": 1, "topic": "u", "topic_id": "x"}, True, id="group"),
        pytest.param(GROUPED, {"broker": 9}, False, id="a-group-has-one-cause"),
        pytest.param(LATCHED, {"offsets": (1, 3)}, False, id="every-loss-is-a-fact"),
        pytest.param(LATCHED, {"leader_epoch": 9}, True, id="offsets-say-more-than-the-epoch"),
    ],
)
def test_identity(code: str, change: dict[str, object], same: bool) -> None:
    one = event("raised", 1, code, offsets=(1, 2), broker=1)
    assert (fingerprint_of(one) == fingerprint_of(one._replace(**change))) is same


def test_without_offsets_a_loss_is_named_by_its_leader_epoch() -> None:
    one = event("raised", 1, LATCHED, leader_epoch=1)
    assert fingerprint_of(one) != fingerprint_of(one._replace(leader_epoch=2))


def test_proven_losses_are_latched() -> None:
    latched = {code for code in BY_CODE if kind_of(code) is Kind.LATCHED}
    assert latched == {"TRN001", "TRN002", "ELE009", "HWM002", "LOG003"}


def test_what_one_cause_does_to_many_partitions_is_grouped() -> None:
    grouped = {code for code in BY_CODE if kind_of(code) is Kind.GROUPED}
    assert {
        "ELE004",
        "ELE012",
        "ISR002",
        "ISR007",
        "ISR008",
        "FCT001",
        "LOG005",
        "SRC006",
    } <= grouped
    assert grouped.isdisjoint({"CTL001", "REG001", "SRC001", "EPO004", "TRN004", "ELE001"})


@pytest.mark.parametrize("code", sorted(BY_CODE))
def test_every_code_has_a_next_step_in_one_sentence(code: str) -> None:
    step = NEXT_STEP[code]
    assert step.endswith(".")
    assert len(step) <= 200
    assert not re.search(r"[.!?] [A-Z]", step)
    page = (ROOT / "docs" / "runbooks" / f"{code}.md").read_text(encoding="utf-8")
    todo = page.split("## What to do")[1].split("## ")[0]
    words = set(re.findall(r"[a-z]{5,}", step.lower()))
    assert words & set(re.findall(r"[a-z]{5,}", todo.lower())), "it is taken from the runbook"


def test_no_next_step_is_left_over() -> None:
    assert set(NEXT_STEP) == set(BY_CODE)
