"""Guards of the checks, one by one: a lawful state that would accuse without the guard, or a fault
that would be missed with a guard too many. Each was found by a seeded fault (`make mutants`)."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

from tidestaff.consistency.model import LineageSource
from tidestaff.consistency.monitor import step
from tidestaff.consistency.verdict import Unknown

from tests.consistency.watch import Watch, lineage

if TYPE_CHECKING:
    from tidestaff.consistency.model import ReplicaReading
    from tidestaff.consistency.verdict import Verdicts


def look(watch: Watch, **changes: Any) -> Verdicts:
    """One round whose observation differs in these fields from what the watch would see."""
    watch.now_ms += 5_000
    watch.memory, verdicts = step(watch.memory, replace(watch.observation(), **changes))
    for violated in verdicts.violated:
        watch.raised.setdefault(violated.code, violated)
    return verdicts


def again(watch: Watch, **fields: Any) -> ReplicaReading:
    """The leader's second reading, after its followers were read."""
    return watch.reading(watch.leader)._replace(**fields)


def retold(watch: Watch, broker: int, **fields: Any) -> dict[str, Any]:
    """The readings with one replica's words changed, the leader's second reading likewise."""
    seen = watch.observation()
    replicas = tuple(r._replace(**fields) if r.broker == broker else r for r in seen.replicas)
    leader = next((r for r in replicas if r.broker == watch.leader), None)
    return {"replicas": replicas, "leader_again": leader}


# --- what the leader says -----------------------------------------------------------------------


def test_a_leader_that_does_not_know_yet_that_it_leads_proves_no_loss() -> None:
    watch = Watch().settle()
    watch.stop(1).change(leader=2, epoch=1, isr=(2, 3))
    watch.log(2, leo=3, hw=3, leads=False, epochs=lineage((0, 0), (1, 3)))
    assert isinstance(watch.see().of("TRN001"), Unknown)
    assert "TRN001" not in watch.raised


def test_a_follower_may_hold_what_its_leader_took_between_two_readings() -> None:
    watch = Watch().settle()
    watch.log(2, leo=15).log(3, leo=15)
    look(watch, leader_again=again(watch, log_end_offset=15))
    assert not watch.raised


def test_a_follower_longer_than_a_leader_that_was_read_once_may_have_been_read_later() -> None:
    watch = Watch().settle()
    watch.log(3, leo=15)
    look(watch, leader_again=None)
    assert not watch.raised


def test_the_watermark_of_the_second_reading_is_younger_than_the_followers() -> None:
    watch = Watch().settle()
    look(watch, leader_again=again(watch, log_end_offset=15, high_watermark=15))
    assert not watch.raised


def test_what_the_leader_took_after_a_follower_was_read_is_no_lag() -> None:
    watch = Watch().settle()
    for _ in range(30):
        watch.append()
        end = watch.logs[1].leo
        look(watch, leader_again=again(watch, log_end_offset=end + 5))
    assert not watch.raised


def test_batch_headers_do_not_show_an_epoch_without_records() -> None:
    watch = Watch().settle()
    watch.stop(1).change(leader=2, epoch=1, isr=(2, 3))
    for _ in range(4):
        look(watch, **retold(watch, 2, lineage_source=LineageSource.BATCH_HEADERS))
    assert not watch.raised


def test_a_leader_that_does_not_tell_its_epoch_need_not_have_begun_it() -> None:
    watch = Watch().settle()
    watch.stop(1).change(leader=2, epoch=1, isr=(2, 3))
    for _ in range(4):
        look(watch, **retold(watch, 2, leader_epoch=None))
    assert not watch.raised


# --- who is there -------------------------------------------------------------------------------


def test_a_broker_that_is_shutting_down_is_still_there() -> None:
    watch = Watch().settle()
    watch.register(3, shutting_down=True).register(1, shutting_down=True).see(15)
    assert not watch.raised
