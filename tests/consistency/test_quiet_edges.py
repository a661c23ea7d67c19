"""The short cut is taken for growth alone: each thing that may not be waved through, by itself."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

import pytest
from tidestaff.consistency.model import Assignment, BatchDigest, Bracket, OffsetRange
from tidestaff.consistency.monitor import judge_partition
from tidestaff.consistency.quiet import quiet_step
from tidestaff.consistency.versions import rules_for

from tests.consistency.watch import Watch, lineage

if TYPE_CHECKING:
    from collections.abc import Callable

    from tidestaff.consistency.model import PartitionObservation

TOPIC_ID = "topic-id-0000000000009"


def calm_watch(version: str = "3.9.1") -> Watch:
    """Leader and followers at 20, all committed, nothing suspected."""
    watch = Watch(version=version).settle()
    watch.append(10).see(2)
    assert watch.memory is not None
    assert watch.memory.calm is not None
    return watch


def busy_watch() -> Watch:
    """The leader is ahead of its HW, followers are lawfully one fetch behind."""
    watch = calm_watch()
    watch.log(1, leo=30, hw=25).log(2, leo=28, hw=20).log(3, leo=28, hw=20).see()
    assert watch.memory is not None
    assert watch.memory.calm is not None
    return watch


def is_quiet(watch: Watch, **changes: Any) -> bool:
    """Whether the next round, with these fields of the observation changed, is waved through."""
    watch.now_ms += 5_000
    assert watch.memory is not None
    return quiet_step(watch.memory, replace(watch.observation(), **changes)) is not None


def test_plain_growth_is_quiet() -> None:
    assert is_quiet(calm_watch().append(5))
    busy = busy_watch().log(1, leo=40, hw=32).log(2, leo=35, hw=25).log(3, leo=35, hw=25)
    assert is_quiet(busy)


def _state(seen: PartitionObservation) -> dict[str, Any]:
    return {"state": seen.state._replace(partition_epoch=1)}


def _live(seen: PartitionObservation) -> dict[str, Any]:
    return {"live": (*seen.live[:2], seen.live[2]._replace(shutting_down=True))}


def _order(seen: PartitionObservation) -> dict[str, Any]:
    return {"replicas": seen.replicas[::-1]}


def _digest(_: PartitionObservation) -> dict[str, Any]:
    return {"digests": (BatchDigest(3, OffsetRange(0, 10), crc=1),)}


@pytest.mark.parametrize(
    "changes",
    [
        pytest.param(lambda _: {"bracket": Bracket.NONE}, id="no-bracket"),
        pytest.param(lambda _: {"bracket": Bracket.STRADDLED}, id="straddled-bracket"),
        pytest.param(lambda o: {"observed_at_ms": o.observed_at_ms - 5_000}, id="not-newer"),
        pytest.param(_state, id="state-written"),
        pytest.param(_live, id="broker-is-going"),
        pytest.param(lambda _: {"assignment": Assignment((1, 3, 2))}, id="another-assignment"),
        pytest.param(lambda _: {"topic_id": TOPIC_ID}, id="another-topic"),
        pytest.param(lambda _: {"state_czxid": 78}, id="another-znode"),
        pytest.param(lambda _: {"controller": 2}, id="another-controller"),
        pytest.param(lambda _: {"cluster_controller_epoch": 2}, id="another-controller-epoch"),
        pytest.param(lambda _: {"rules": rules_for("3.9.0")}, id="another-version"),
        pytest.param(
            lambda o: {"settings": replace(o.settings, min_insync_replicas=2)}, id="other-settings"
        ),
        pytest.param(_digest, id="checksums-to-compare"),
        pytest.param(lambda _: {"deleting": True}, id="topic-is-being-deleted"),
        pytest.param(_order, id="replicas-in-another-order"),
        pytest.param(lambda o: {"replicas": o.replicas[:2]}, id="a-replica-was-not-read"),
    ],
)
def test_other_surroundings_are_judged_in_full(
    changes: Callable[[PartitionObservation], dict[str, Any]],
) -> None:
    watch = calm_watch().append(5)
    watch.now_ms += 5_000
    changed = changes(watch.observation())
    watch.now_ms -= 5_000
    assert not is_quiet(watch, **changed)


def test_a_follower_below_the_leaders_watermark_is_judged() -> None:
    assert not is_quiet(calm_watch().append(5).log(3, leo=22, hw=20))


def test_a_follower_beyond_its_leader_is_judged() -> None:
    assert not is_quiet(calm_watch().append(5).log(3, leo=30))


def test_a_follower_that_does_not_learn_the_watermark_is_judged() -> None:
    watch = busy_watch().log(1, leo=40, hw=32).log(2, leo=35, hw=25)
    assert not is_quiet(watch.log(3, leo=35, hw=20))


def test_a_follower_that_falls_behind_is_judged() -> None:
    watch = busy_watch().log(1, leo=40, hw=29).log(2, leo=35, hw=25)
    assert not is_quiet(watch.log(3, leo=29, hw=25))


def test_a_log_start_of_the_leader_that_moves_is_judged() -> None:
    assert not is_quiet(calm_watch().append(5).log(1, start=5))


def test_a_watermark_that_stands_still_below_the_end_is_judged() -> None:
    assert not is_quiet(calm_watch().all_logs(leo=25))


@pytest.mark.parametrize(
    "fields",
    [
        pytest.param({"start": 3}, id="log-start-fell"),
        pytest.param({"hw": 26}, id="watermark-above-the-end"),
        pytest.param({"start": 26, "hw": 25}, id="log-start-above-the-watermark"),
        pytest.param({"epochs": lineage((0, 5))}, id="another-lineage"),
        pytest.param({"believes": 1}, id="in-another-leader-epoch"),
        pytest.param({"leads": True}, id="believes-it-leads"),
        pytest.param({"log_dir_online": False}, id="log-directory-offline"),
        pytest.param({"topic_id": TOPIC_ID}, id="directory-of-another-topic"),
    ],
)
def test_a_follower_that_did_more_than_grow_is_judged(fields: dict[str, Any]) -> None:
    watch = Watch().log(3, start=5).settle()
    watch.append(10).see(2)
    assert not is_quiet(watch.append(5).log(3, **fields))


def test_a_restarted_broker_is_judged_even_if_its_registration_was_not_read_yet() -> None:
    watch = calm_watch().append(5)
    replicas = watch.observation().replicas
    assert not is_quiet(watch, replicas=(*replicas[:2], replicas[2]._replace(broker_epoch=7)))


def test_a_leader_whose_log_got_shorter_is_judged() -> None:
    watch = busy_watch().log(2, leo=29, hw=25).log(3, leo=29, hw=25)
    assert not is_quiet(watch.log(1, leo=29, hw=28))


def test_a_follower_whose_watermark_falls_is_judged() -> None:
    watch = calm_watch()
    watch.log(1, leo=40, hw=22).log(2, leo=40, hw=20).log(3, leo=40, hw=30).see()
    assert watch.memory is not None
    assert watch.memory.calm is not None
    watch.log(1, hw=24).log(2, hw=22).log(3, hw=28)
    assert not is_quiet(watch)


def test_a_log_that_grows_is_not_taken_to_have_fetched() -> None:
    """It may have grown by what the old leader had sent."""
    watch = Watch().all_logs(epochs=None).settle()
    watch.append(5)
    watch.now_ms += 5_000
    assert watch.memory is not None
    quiet = quiet_step(watch.memory, watch.observation())
    assert quiet is not None
    judged, _ = judge_partition(watch.memory, watch.observation())
    assert [r.fetched_in_epoch for r in quiet[0].replicas] == [False, False, False]
    assert quiet[0].replicas == judged.replicas


def test_each_reading_is_held_against_its_own_replica_though_no_epoch_tells_them_apart() -> None:
    watch = calm_watch().append(5)
    replicas = tuple(r._replace(broker_epoch=None) for r in watch.observation().replicas)
    assert is_quiet(watch, replicas=replicas)
    assert not is_quiet(watch, replicas=replicas[::-1])


def test_the_first_committed_record_of_an_epoch_is_judged_so_that_the_ledger_learns_it() -> None:
    watch = Watch(replicas=(1,)).settle()
    watch.change(epoch=1).log(1, epochs=lineage((0, 0), (1, 10))).see(3)
    assert watch.memory is not None
    assert watch.memory.calm is not None
    watch.append(2).see()
    assert watch.memory.ledger[-1] == (1, 10)


def test_a_replica_below_what_another_showed_to_be_committed_is_judged_in_full() -> None:
    """The leader wrote on while the followers were read; the second one had heard of the commit."""
    watch = Watch().settle()
    watch.all_logs(leo=20, hw=20).log(2, leo=25, hw=23)

    def seen() -> PartitionObservation:
        watch.now_ms += 5_000
        again = watch.reading(1)._replace(log_end_offset=25)
        return replace(watch.observation(), leader_again=again)

    watch.memory, _ = judge_partition(watch.memory, seen())
    assert watch.memory.calm is not None
    assert watch.memory.committed_end == 23
    # Beyond the leader's own HW, so that nothing but the commit gives it away.
    watch.log(1, leo=25, hw=21).log(3, leo=22)
    later = seen()
    assert quiet_step(watch.memory, later) is None
    _, verdicts = judge_partition(watch.memory, later)
    assert [(v.code, v.broker) for v in verdicts.violated] == [("HWM004", 3)]
