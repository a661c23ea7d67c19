"""Edges of the forecast that only a seeded fault showed to be untested."""

from __future__ import annotations

from tidestaff.consistency.forecast import forecast
from tidestaff.consistency.model import OffsetRange

from tests.consistency.watch import Watch, lineage


def test_what_retention_removed_cannot_be_lost() -> None:
    watch = Watch(isr=(1,)).setting(unclean_leader_election_enable=True)
    watch.log(1, start=5).log(2, leo=3, hw=3).log(3, leo=3, hw=3)
    outcome = forecast(watch.observation(), stopping={1})
    assert (outcome.leader, outcome.lost) == (2, OffsetRange(5, 10))


def test_a_broker_that_is_leaving_is_not_the_next_leader() -> None:
    watch = Watch(controller=9).register(2, shutting_down=True)
    assert forecast(watch.observation(), stopping={1}).leader == 3


def test_a_new_controller_has_forgotten_who_is_leaving() -> None:
    watch = Watch(controller=1).register(2, shutting_down=True)
    assert forecast(watch.observation(), stopping={1}).leader == 2


def test_the_next_leader_writes_its_epoch_before_it_is_asked() -> None:
    """Without that entry it could not tell where the old leader's epoch ended here."""
    watch = Watch(epoch=1).log(1, leo=8, hw=6, epochs=lineage((0, 0), (1, 6)))
    watch.log(2, leo=7, hw=6).log(3, leo=6, hw=6)
    outcome = forecast(watch.observation(), stopping={1})
    assert {cut.broker: cut.offsets for cut in outcome.cuts} == {1: OffsetRange(6, 8)}


def test_at_the_minimum_writes_go_on() -> None:
    watch = Watch().setting(min_insync_replicas=2)
    assert not forecast(watch.observation(), stopping={3}).under_min_isr


def test_brokers_that_stop_together_are_not_elected_one_after_the_other() -> None:
    outcome = forecast(Watch().observation(), stopping={1, 2}, controlled=True)
    assert (outcome.leader, outcome.isr, outcome.leader_epoch) == (3, (3,), 1)


def test_a_log_end_that_its_source_does_not_know_is_missing() -> None:
    watch = Watch().log(2, leo=-1)
    outcome = forecast(watch.observation(), stopping={1})
    assert outcome.leader == 2
    assert "the log of broker 2, the next leader" in outcome.missing
