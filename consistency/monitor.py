"""The monitor: `step(memory, observation) -> (memory, verdicts)`.

Pure, and the only way observations are judged: scenarios, replays, the simulator and the streaming
job all run it. Event time only; an observation that is not newer than the memory changes nothing.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, overload

from tidestaff.consistency.catalogue import (
    CATALOGUE,
    CLUSTER_RULES,
    HEALTH_RULES,
    PARTITION_RULES,
)
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
    UNKNOWN_PARTITION_EPOCH,
    Bracket,
    ClusterObservation,
    HealthObservation,
    Observation,
    PartitionObservation,
)
from tidestaff.consistency.quiet import quiet_step
from tidestaff.consistency.remember import remember_cluster, remember_partition
from tidestaff.consistency.rules import Sampling, Timing
from tidestaff.consistency.verdict import Scope, Unknown, Verdicts

if TYPE_CHECKING:
    from tidestaff.consistency.memory import Suspicion

LONGEST_LAG_MS: Final = 120_000


def _all_unknown(scope: Scope, missing: str) -> Verdicts:
    codes = [rule.code for rule in CATALOGUE if rule.scope is scope]
    return Verdicts(scope, unknown=tuple(Unknown(code, missing) for code in codes))


# An observation that is not newer proves nothing, not even that all is well.
_LATE: Final = {
    scope: _all_unknown(scope, "an observation that is newer than the last") for scope in Scope
}
_STALE_METADATA: Final = _all_unknown(Scope.PARTITION, "metadata as new as what was seen before")


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
            return memory, _LATE[Scope.PARTITION]
        if _is_another_topic(memory, observation) or _is_stale_for_long(memory, observation):
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
    missing = {sampling: _missing(sampling, sight) for sampling in Sampling}
    judgement = judge(
        PARTITION_RULES,
        sight,
        may_judge=lambda rule: missing[rule.sampling],
        suspicions=_suspected_before(sight),
        now_ms=observation.observed_at_ms,
        interval_ms=memory.interval_ms if memory is not None else 0,
        lagging_ms=_metadata_lag_ms(observation),
        timing=Timing(
            settings.session_timeout_ms,
            settings.replica_lag_time_max_ms,
            settings.replica_fetch_wait_max_ms,
            settings.leader_imbalance_check_interval_ms,
        ),
    )
    verdicts = Verdicts(Scope.PARTITION, judgement.violated, judgement.unknown)
    if memory is not None and _contradicts(memory, observation) and not verdicts.violated:
        # Once may be an old answer, as of a ZooKeeper server that lags: it is not taken over.
        return (
            memory._replace(
                observed_at_ms=observation.observed_at_ms,
                suspicions=judgement.suspicions,
                calm=None,
            ),
            verdicts,
        )
    return remember_partition(sight, judgement, verdicts), verdicts


def _contradicts(memory: PartitionMemory, observation: PartitionObservation) -> bool:
    """The state is older than the remembered one, or differs from it under the same version."""
    now, known = observation.state, memory.state
    if now.leader_epoch < known.leader_epoch:
        return True
    if UNKNOWN_PARTITION_EPOCH in (now.partition_epoch, known.partition_epoch):
        return False
    return now.partition_epoch < known.partition_epoch or (
        now.partition_epoch == known.partition_epoch
        and (now.leader, now.leader_epoch, now.isr) != (known.leader, known.leader_epoch, known.isr)
    )


def _metadata_lag_ms(observation: PartitionObservation) -> int:
    """How far behind the metadata may be: nothing where it is the store's own.

    Before 2.7 brokers learn of an ISR change that the leader wrote up to a minute later.
    """
    if observation.authoritative:
        return 0
    return 10_000 if observation.rules.isr_change_through_controller else 70_000


def _missing(sampling: Sampling, sight: Sight) -> str | None:
    """What is missing for such rules in an observation of this coherence; None if nothing is."""
    observation = sight.observation
    if observation.deleting:
        return "a topic that is not being deleted: the controller leaves its state alone"
    if sampling is Sampling.BRACKETED and not sight.coherent:
        if observation.bracket is Bracket.COHERENT:
            return "metadata as new as what the replicas have heard of"
        return "a coherent bracket: metadata, leader, followers, leader, metadata without a change"
    if sampling is Sampling.UNSTRADDLED and observation.bracket is Bracket.STRADDLED:
        return "metadata that does not change while it is read"
    return None


def _is_another_topic(memory: PartitionMemory, observation: PartitionObservation) -> bool:
    """Guard G1: a topic deleted and made again under its old name is another topic."""
    if memory.topic_id is not None and observation.topic_id is not None:
        return memory.topic_id != observation.topic_id
    if memory.state_czxid is not None and observation.state_czxid is not None:
        return memory.state_czxid != observation.state_czxid
    return False


def _suspected_before(sight: Sight) -> tuple[Suspicion, ...]:
    """Metadata behind a replica's epoch (EPO003) are wrong if they stand still. Where they move,
    they were late, whether the rule may judge the sample that shows it or not."""
    if sight.memory is None:
        return ()
    if sight.changed:
        return tuple(each for each in sight.memory.suspicions if each.code != "EPO003")
    return sight.memory.suspicions


def _is_stale(memory: PartitionMemory, observation: PartitionObservation) -> bool:
    """Brokers' metadata caches lag: the largest epoch seen counts, an older one says nothing."""
    if observation.authoritative:
        return False
    now, known = observation.state, memory.state
    return (now.leader_epoch, now.partition_epoch) < (known.leader_epoch, known.partition_epoch)


def _is_stale_for_long(memory: PartitionMemory, observation: PartitionObservation) -> bool:
    """Without topic id and czxid a topic made again looks like a lagging cache, but for ever."""
    identified = memory.topic_id is not None or memory.state_czxid is not None
    waited_ms = observation.observed_at_ms - memory.observed_at_ms
    return not identified and _is_stale(memory, observation) and waited_ms > LONGEST_LAG_MS


def _step_cluster(
    memory: ClusterMemory | None, observation: ClusterObservation
) -> tuple[ClusterMemory, Verdicts]:
    if memory is not None and observation.observed_at_ms <= memory.observed_at_ms:
        return memory, _LATE[Scope.CLUSTER]
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
        return memory, _LATE[Scope.HEALTH]
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
