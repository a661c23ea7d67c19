"""Offsets can be lost more than once: other records are written there, committed, and gone again.

Each story was found by the random search (`python -m tests.proof.search`) and made short.
"""

from __future__ import annotations

from dataclasses import replace

import pytest
from tidestaff.consistency.memory import UNKNOWN_EPOCH, Lost
from tidestaff.consistency.model import Bracket, Lineage, OffsetRange
from tidestaff.consistency.monitor import step

from tests.consistency.watch import Watch, lineage


def epochs_of(version: str, *entries: tuple[int, int]) -> Lineage | None:
    return None if version == "0.10.2.2" else lineage(*entries)


def lost_once(version: str) -> Watch:
    """Broker 1 had committed 20; 2 is elected with 10, then 3, and 2 does not know of it."""
    watch = Watch(version=version).all_logs(epochs=epochs_of(version, (0, 0))).settle()
    watch.append(10).see()
    watch.stop(1).change(leader=2, epoch=1, isr=(2,))
    watch.all_logs(leo=10, hw=10).log(2, epochs=epochs_of(version, (0, 0), (1, 10))).see()
    assert watch.raised["TRN001"].offsets == OffsetRange(10, 20)
    watch.change(leader=3, epoch=2, isr=(3,)).log(2, believes=1, leads=True)
    watch.log(3, epochs=epochs_of(version, (0, 0), (2, 10))).see()
    watch.raised.clear()
    return watch


@pytest.mark.parametrize("version", ["3.9.1", "0.10.2.2"])
def test_what_a_deposed_leader_commits_at_offsets_that_were_lost_is_lost_anew(version: str) -> None:
    """While it does so, nobody in office answers; with their first word the loss is known."""
    watch = lost_once(version)
    watch.log(3, up=False).log(2, leo=15, hw=15).see(2)
    assert "TRN001" not in watch.raised
    watch.log(3, up=True).see()
    assert watch.raised.pop("TRN001").offsets == OffsetRange(10, 15)
    watch.see(3)
    assert "TRN001" not in watch.raised, "the deposed leader goes on showing the same records"


def test_records_of_another_epoch_are_other_records() -> None:
    """Nobody saw the deposed leader write them: it was silent until then."""
    watch = lost_once("3.9.1")
    watch.log(2, up=False).see(2)
    watch.log(2, up=True, leo=15, hw=15).see()
    assert watch.raised["TRN001"].offsets == OffsetRange(10, 15)


def test_records_of_another_epoch_are_other_records_also_after_a_restart() -> None:
    """The deposed leader committed them unseen, and comes back as a follower with its HW."""
    watch = lost_once("3.9.1")
    watch.stop(2).see(2)
    watch.start(2).log(2, leo=15, hw=15, leads=False).see()
    assert watch.raised["TRN001"].offsets == OffsetRange(10, 15)


def test_lost_records_that_somebody_still_shows_are_not_lost_anew() -> None:
    """Broker 1 returns with all that was lost, and with an HW over it."""
    watch = lost_once("3.9.1")
    watch.start(1).log(1, leo=20, hw=20, leads=False, believes=0).see(3)
    assert "TRN001" not in watch.raised


def test_what_the_leader_writes_where_others_were_lost_leaves_them_reported() -> None:
    """Its new records are first seen in a round in which the metadata changed."""
    watch = lost_once("3.9.1")
    watch.start(1).log(1, leo=20, hw=20, leads=False, believes=0, epochs=lineage((0, 0))).see()
    watch.log(3, leo=15, hw=15).set(bracket=Bracket.STRADDLED).see()
    watch.set(bracket=Bracket.COHERENT).see(3)
    assert "TRN001" not in watch.raised


def test_an_unseen_commit_beyond_the_ledger_is_taken_over_from_other_records() -> None:
    """The deposed leader is gone before anybody in office answers: the ledger knows its commit."""
    watch = lost_once("3.9.1")
    watch.log(3, up=False).log(2, leo=15, hw=15).see()
    watch.stop(2).log(3, up=True).see()
    assert watch.raised["TRN001"].offsets == OffsetRange(10, 15)


def test_a_leader_that_writes_on_within_the_round_has_lost_what_its_first_word_lacks() -> None:
    watch = Watch(version="0.10.2.2").all_logs(epochs=None).settle()
    watch.stop(1).change(leader=2, epoch=1, isr=(2, 3)).all_logs(leo=8, hw=8)
    watch.now_ms += 5_000
    seen = watch.observation()
    again = watch.reading(2)._replace(log_end_offset=14)
    _, verdicts = step(watch.memory, replace(seen, leader_again=again))
    [lost] = [v for v in verdicts.violated if v.code == "TRN001"]
    assert (lost.offsets, lost.broker) == (OffsetRange(8, 10), 2)


def test_state_that_was_kept_without_epochs_knows_none() -> None:
    watch = lost_once("3.9.1")
    assert watch.memory is not None
    assert watch.memory.losses == (Lost(OffsetRange(10, 20), 0),)
    old = watch.memory._replace(lost_epochs=())
    assert old.losses == (Lost(OffsetRange(10, 20), UNKNOWN_EPOCH),)
