"""Two independent readings of Kafka meet: the monitor judges faithful samples of simulated
histories and may raise of loss, divergence and broken protocol only what the ledger knows."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

import pytest
from tidestaff.connectors.simulator.cluster import SimulatedCluster
from tidestaff.connectors.simulator.faults import NEVER_LOSE, WEIGHTS, RandomFaults
from tidestaff.connectors.simulator.sampler import Sampler
from tidestaff.connectors.simulator.settings import QUICK, Settings
from tidestaff.consistency.catalogue import CATALOGUE
from tidestaff.consistency.model import (
    ClusterObservation,
    Observation,
    OffsetRange,
    PartitionObservation,
    TopicPartition,
)
from tidestaff.consistency.monitor import step
from tidestaff.consistency.verdict import FindingClass, Violated
from tidestaff.consistency.versions import Mode, rules_for

if TYPE_CHECKING:
    from tidestaff.consistency.memory import ClusterMemory, HealthMemory, PartitionMemory

pytestmark = pytest.mark.slow  # hundreds of histories: make test runs them

SAFE_PRESETS = ["2.8.2", "3.9.1", "3.9.1-kraft", "4.1.1-kraft"]
GRAVE = {FindingClass.LOSS, FindingClass.DIVERGENCE, FindingClass.PROTOCOL}
# TRN005 says of itself that what was dropped had never been committed.
JUDGED = {rule.code for rule in CATALOGUE if rule.finding in GRAVE} - {"TRN005"}
TOPICS = {"a": [[1, 2, 3]], "b": [[2, 3]]}
UNHURRIED = Settings(unclean_leader_election_enable=False)


class Alarm(NamedTuple):
    at_ms: int
    partition: TopicPartition | None
    violated: Violated


class Watcher:
    """Keeps one memory for each partition, cluster and place."""

    def __init__(self) -> None:
        self.memories: dict[object, PartitionMemory | ClusterMemory | HealthMemory] = {}
        self.alarms: list[Alarm] = []

    def see(self, observation: Observation) -> None:
        key: object = ()
        partition = None
        if isinstance(observation, PartitionObservation):
            partition = TopicPartition(observation.topic, observation.partition)
            key = (partition, observation.topic_id or observation.state_czxid)
        elif not isinstance(observation, ClusterObservation):
            key = observation.place
        self.memories[key], verdicts = step(self.memories.get(key), observation)
        self.alarms += [
            Alarm(observation.observed_at_ms, partition, violated)
            for violated in verdicts.violated
            if violated.code in JUDGED
        ]


def watched(
    preset: str, seed: int, kinds: frozenset[str], every_ms: int, settings: Settings = QUICK
) -> tuple[SimulatedCluster, list[Alarm]]:
    """A history, sampled all along, and a while after it has healed."""
    mode = Mode.KRAFT if preset.endswith("-kraft") else Mode.ZOOKEEPER
    rules = rules_for(preset.removesuffix("-kraft"), mode)
    cluster = SimulatedCluster(preset, [1, 2, 3], TOPICS, settings, seed)
    scale = 40 if settings is UNHURRIED else 1
    faults = RandomFaults(cluster, seed, kinds, every_ms=(50 * scale, 400 * scale))
    watcher, sampler = Watcher(), Sampler(cluster, rules, every_ms)
    faults.schedule(10_000 * scale)
    for observation in sampler.run(10_200 * scale):
        watcher.see(observation)
    faults.heal()
    for observation in sampler.run(1_000 * scale):
        watcher.see(observation)
    return cluster, watcher.alarms


def unexplained(cluster: SimulatedCluster, alarms: list[Alarm]) -> list[Alarm]:
    """What the ledger knows nothing of: a loss must lie in a range lost before, an unclean election
    must have happened. From 4.1 the last known leader is elected uncleanly without being asked."""

    def known(alarm: Alarm) -> bool:
        code, offsets = alarm.violated.code, alarm.violated.offsets
        if code == "ELE009":
            return any(
                e.partition == alarm.partition and e.at_ms <= alarm.at_ms
                for e in cluster.truth.unclean_elections
            )
        return code == "TRN001" and any(
            loss.partition == alarm.partition
            and loss.at_ms <= alarm.at_ms
            and within(offsets, loss.offsets)
            for loss in cluster.truth.losses
        )

    return [alarm for alarm in alarms if not known(alarm)]


def within(part: OffsetRange | None, whole: OffsetRange) -> bool:
    return part is not None and whole.start <= part.start and part.end <= whole.end


def kinds_for(preset: str, kinds: frozenset[str]) -> frozenset[str]:
    """In KRaft mode a broker that has not replayed a deletion is read with the old topic's
    replica; that encounter is kept apart."""
    return kinds - {"recreate_topic"} if preset.endswith("-kraft") else kinds


@pytest.mark.parametrize("preset", SAFE_PRESETS)
def test_no_alarm_where_nothing_was_lost(preset: str) -> None:
    for seed in range(300, 306):
        cluster, alarms = watched(preset, seed, kinds_for(preset, NEVER_LOSE), every_ms=200)
        assert (cluster.truth.losses, cluster.truth.divergences) == ([], [])
        assert unexplained(cluster, alarms) == [], seed


@pytest.mark.parametrize("preset", SAFE_PRESETS)
@pytest.mark.parametrize("every_ms", [1_000, 5_000])
def test_no_alarm_with_the_timeouts_of_real_clusters(preset: str, every_ms: int) -> None:
    kinds = kinds_for(preset, NEVER_LOSE)
    for seed in range(2):
        cluster, alarms = watched(preset, seed, kinds, every_ms, UNHURRIED)
        assert unexplained(cluster, alarms) == [], seed


@pytest.mark.parametrize("preset", SAFE_PRESETS)
def test_every_loss_is_raised_with_its_range_and_nothing_else(preset: str) -> None:
    """Sampled often enough to see every high watermark, the monitor names the ledger's ranges."""
    kinds = frozenset(WEIGHTS) - {"recreate_topic"}
    lost = named = 0
    for seed in range(10):
        cluster, alarms = watched(preset, seed, kinds, every_ms=50)
        assert unexplained(cluster, alarms) == [], seed
        raised = {
            (alarm.partition, alarm.violated.offsets)
            for alarm in alarms
            if alarm.violated.code == "TRN001"
        }
        for loss in cluster.truth.losses:
            assert any(
                partition == loss.partition and within(offsets, loss.offsets)
                for partition, offsets in raised
            ), (seed, loss)
            lost += 1
            named += (loss.partition, loss.offsets) in raised
    assert lost > 0
    assert named >= 0.8 * lost, (named, lost)


def test_the_monitor_sees_the_loss_of_the_high_watermark_protocol() -> None:
    found = 0
    for seed in range(40):
        kinds = NEVER_LOSE - {"recreate_topic"}
        cluster = SimulatedCluster("0.10.2.2", [1, 2, 3], TOPICS, QUICK, seed)
        faults = RandomFaults(cluster, seed, kinds)
        faults.run(10_000)
        if not cluster.truth.losses:
            continue
        again, alarms = watched("0.10.2.2", seed, kinds, every_ms=50)
        assert again.truth.losses[0] == cluster.truth.losses[0]
        assert unexplained(again, alarms) == [], seed
        found += any(alarm.violated.code == "TRN001" for alarm in alarms)
    assert found > 0
