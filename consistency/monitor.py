"""The monitor: `step(memory, observation) -> (memory, verdicts)`.

Pure, and the only way observations are judged: scenarios, replays, the simulator and the streaming
job all run it. Event time only; an observation that is not newer than the memory changes nothing.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, overload

from tidestaff.consistency.catalogue import CLUSTER_RULES, HEALTH_RULES, PARTITION_RULES
from tidestaff.consistency.checks.cluster_sight import ClusterSight
from tidestaff.consistency.checks.sight import Sight
from tidestaff.consistency.judge import Judgement, judge
from tidestaff.consistency.memory import (
    ClusterMemory,
    HealthMemory,
    Memory,
    PartitionMemory,
)
from tidestaff.consistency.model import (
    Bracket,
    ClusterObservation,
    HealthObservation,
    Observation,
    PartitionObservation,
)
from tidestaff.consistency.quiet import quiet_step
from tidestaff.consistency.remember import remember_cluster, remember_partition
from tidestaff.consistency.rules import Sampling, Timing
from tidestaff.consistency.verdict import NOTHING_NEW, Scope, Unknown, Verdicts

if TYPE_CHECKING:
    from tidestaff.consistency.rules import Rule

_NOTHING_NEW_OF: Final = {scope: Verdicts(scope) for scope in Scope}
_STALE_METADATA: Final = Verdicts(
    Scope.PARTITION,
    unknown=tuple(
        Unknown(rule.code, "metadata as new as what was seen before") for rule in PARTITION_RULES
    ),
)


@overload
def step(
    memory: PartitionMemory | None, observation: PartitionObservation
) -> tuple[PartitionMemory, Verdicts]: ...
@overload
def step(
    memory: ClusterMemory | None, observation: ClusterObservation
) -> tuple[ClusterMemory, Verdicts]: ...
@overload
def step(
    memory: HealthMemory | None, observation: HealthObservation
) -> tuple[HealthMemory, Verdicts]: ...
@overload
def step(memory: Memory | None, observation: Observation) -> tuple[Memory, Verdicts]: ...


def step(memory: Memory | None, observation: Observation) -> tuple[Memory, Verdicts]:
    """Judge one observation against the memory of its partition, cluster or source.

    The memory belongs to one partition (topic id and partition), one cluster, or one place of one
    source; whoever calls keeps them apart.
    """
    if isinstance(observation, PartitionObservation):
        assert memory is None or isinstance(memory, PartitionMemory)
        return _step_partition(memory, observation)
    if isinstance(observation, ClusterObservation):
        assert memory is None or isinstance(memory, ClusterMemory)
        return _step_cluster(memory, observation)
    assert memory is None or isinstance(memory, HealthMemory)
    return _step_health(memory, observation)


def _step_partition(
    memory: PartitionMemory | None, observation: PartitionObservation
) -> tuple[PartitionMemory, Verdicts]:
    if memory is not None:
        quiet = quiet_step(memory, observation)
        if quiet is not None:
            return quiet
        if observation.observed_at_ms <= memory.observed_at_ms:
            return memory, NOTHING_NEW
        if _is_another_topic(memory, observation):
            memory = None
        elif _is_stale(memory, observation):
            return memory, _STALE_METADATA
    return judge_partition(memory, observation)


def judge_partition(
    memory: PartitionMemory | None, observation: PartitionObservation
) -> tuple[PartitionMemory, Verdicts]:
    """Judge every rule, without the short cut for what plainly holds (see quiet.py)."""
    sight = Sight(memory, observation)
    settings = observation.settings
    judgement = judge(
        PARTITION_RULES,
        sight,
        may_judge=lambda rule: _may_judge(rule, observation),
        suspicions=memory.suspicions if memory is not None else (),
        now_ms=observation.observed_at_ms,
        timing=Timing(
            settings.session_timeout_ms,
            settings.replica_lag_time_max_ms,
            settings.replica_fetch_wait_max_ms,
            settings.leader_imbalance_check_interval_ms,
        ),
    )
    verdicts = Verdicts(Scope.PARTITION, judgement.violated, judgement.unknown)
    return remember_partition(sight, judgement, verdicts), verdicts


def _may_judge(rule: Rule[Sight], observation: PartitionObservation) -> str | None:
    """What is missing for this rule in an observation of this coherence; None if nothing is."""
    if rule.sampling is Sampling.BRACKETED and observation.bracket is not Bracket.COHERENT:
        return "a coherent bracket: metadata, leader, followers, leader, metadata without a change"
    if rule.sampling is Sampling.UNSTRADDLED and observation.bracket is Bracket.STRADDLED:
        return "metadata that does not change while it is read"
    return None


def _is_another_topic(memory: PartitionMemory, observation: PartitionObservation) -> bool:
    """Guard G1: a topic deleted and made again under its old name is another topic."""
    if memory.topic_id is not None and observation.topic_id is not None:
        return memory.topic_id != observation.topic_id
    if memory.state_czxid is not None and observation.state_czxid is not None:
        return memory.state_czxid != observation.state_czxid
    return False


def _is_stale(memory: PartitionMemory, observation: PartitionObservation) -> bool:
    """Brokers' metadata caches lag: the largest epoch seen counts, an older one says nothing."""
    if observation.authoritative:
        return False
    now, known = observation.state, memory.state
    return (now.leader_epoch, now.partition_epoch) < (known.leader_epoch, known.partition_epoch)


def _step_cluster(
    memory: ClusterMemory | None, observation: ClusterObservation
) -> tuple[ClusterMemory, Verdicts]:
    if memory is not None and observation.observed_at_ms <= memory.observed_at_ms:
        return memory, _NOTHING_NEW_OF[Scope.CLUSTER]
    if memory is not None and memory.mode is not observation.rules.mode:
        # A cluster that moved from ZooKeeper to KRaft counts its epochs anew.
        memory = None
    judgement: Judgement = judge(
        CLUSTER_RULES,
        ClusterSight(memory, observation),
        may_judge=lambda _: None,
        suspicions=memory.suspicions if memory is not None else (),
        now_ms=observation.observed_at_ms,
        timing=Timing(session_timeout_ms=observation.session_timeout_ms),
    )
    verdicts = Verdicts(Scope.CLUSTER, judgement.violated, judgement.unknown)
    return remember_cluster(memory, observation, judgement.suspicions), verdicts


def _step_health(
    memory: HealthMemory | None, observation: HealthObservation
) -> tuple[HealthMemory, Verdicts]:
    if memory is not None and observation.observed_at_ms <= memory.observed_at_ms:
        return memory, _NOTHING_NEW_OF[Scope.HEALTH]
    judgement: Judgement = judge(
        HEALTH_RULES,
        observation,
        may_judge=lambda _: None,
        suspicions=memory.suspicions if memory is not None else (),
        now_ms=observation.observed_at_ms,
        timing=Timing(),
    )
    verdicts = Verdicts(Scope.HEALTH, judgement.violated, judgement.unknown)
    return HealthMemory(observation.observed_at_ms, judgement.suspicions), verdicts
