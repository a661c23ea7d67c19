"""What a check sees: the observation, the memory before it, and what both say together."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from functools import cached_property
from typing import TYPE_CHECKING, Final, TypeAlias

from tidestaff.consistency.checks.lineages import conflicts
from tidestaff.consistency.checks.losses import losses_beside, losses_of_ledger
from tidestaff.consistency.forecast import forecast
from tidestaff.consistency.isr import effective_min_isr
from tidestaff.consistency.model import (
    NO_LEADER,
    UNKNOWN_BROKER_EPOCH,
    UNKNOWN_PARTITION_EPOCH,
    Bracket,
)
from tidestaff.consistency.origins import origins
from tidestaff.consistency.predictions import predicted_cuts
from tidestaff.consistency.verdict import Unknown, Violated
from tidestaff.consistency.versions import Mode

if TYPE_CHECKING:
    from tidestaff.consistency.checks.lineages import Conflict
    from tidestaff.consistency.forecast import PartitionForecast
    from tidestaff.consistency.memory import Lost, PartitionMemory, PredictedCut, ReplicaMemory
    from tidestaff.consistency.model import (
        BrokerId,
        PartitionObservation,
        PartitionState,
        Registration,
        ReplicaReading,
    )
    from tidestaff.consistency.origins import Origins
    from tidestaff.consistency.versions import RuleSet

Finding: TypeAlias = Violated | Unknown

# A ZooKeeper server that falls further behind (syncLimit) is cut off from its clients.
LONGEST_METADATA_LAG_MS: Final = 10_000


class Sight:
    """One observation of a partition beside what is remembered of it. Read only."""

    def __init__(self, memory: PartitionMemory | None, observation: PartitionObservation) -> None:
        self.memory = memory
        self.observation = observation
        self.state: PartitionState = observation.state
        self.rules: RuleSet = observation.rules
        self.now_ms = observation.observed_at_ms
        self.kraft = observation.rules.mode is Mode.KRAFT
        # A directory that is still of another topic of the same name says nothing of this one.
        self.replicas: tuple[ReplicaReading, ...] = tuple(
            reading
            for reading in observation.replicas
            if reading.topic_id is None
            or observation.topic_id is None
            or reading.topic_id == observation.topic_id
        )
        self.readings: dict[BrokerId, ReplicaReading] = {
            reading.broker: reading for reading in self.replicas
        }
        self.registrations: dict[BrokerId, Registration] = {
            registration.broker: registration for registration in observation.live
        }

    @cached_property
    def coherent(self) -> bool:
        """All that was read belongs together: nothing changed within the bracket, and the metadata
        was not old both times, as from a ZooKeeper server or a broker that lags.

        A deposed leader and old metadata agree with each other; whoever has followed the next
        leader gives them away.
        """
        return self.observation.bracket is Bracket.COHERENT and not self.known_to_be_old

    @cached_property
    def known_to_be_old(self) -> bool:
        """A replica has heard of a later leader epoch than the metadata has, or had, and committed
        in it.

        For longer than metadata lags it is the replica that is wrong (EPO003).
        """
        epoch, memory = self.state.leader_epoch, self.memory
        for suspicion in memory.suspicions if memory is not None else ():
            lasted_ms = self.now_ms - suspicion.since_ms
            if suspicion.code == "EPO003" and lasted_ms >= LONGEST_METADATA_LAG_MS:
                return False
        if memory is not None and memory.ledger and memory.ledger[-1].epoch > epoch:
            return True
        return any(
            (reading.leader_epoch is not None and reading.leader_epoch > epoch)
            or (reading.lineage and reading.lineage[-1].epoch > epoch)
            for reading in self.replicas
        )

    @cached_property
    def previous(self) -> PartitionState | None:
        return self.memory.state if self.memory is not None else None

    @cached_property
    def active(self) -> frozenset[BrokerId]:
        """Brokers that may lead: registered, not fenced, not shutting down."""
        return frozenset(
            broker
            for broker, registration in self.registrations.items()
            if not registration.fenced and not registration.shutting_down
        )

    @cached_property
    def present(self) -> frozenset[BrokerId]:
        """Brokers that are registered and not fenced; one that is shutting down still counts."""
        return frozenset(
            b for b, registration in self.registrations.items() if not registration.fenced
        )

    @cached_property
    def identified(self) -> bool:
        """The memory is known to be of the same topic: by topic id, or by the state's czxid."""
        memory, observation = self.memory, self.observation
        if memory is None:
            return True
        if memory.topic_id is not None and observation.topic_id is not None:
            return memory.topic_id == observation.topic_id
        return memory.state_czxid is not None and memory.state_czxid == observation.state_czxid

    @cached_property
    def changed(self) -> bool:
        """The controller wrote the partition's state since the last observation."""
        return self.previous is not None and self.previous != self.state

    @cached_property
    def assignment_changed(self) -> bool:
        return (
            self.memory is not None
            and self.memory.assignment.replicas != self.observation.assignment.replicas
        )

    @cached_property
    def one_version_later(self) -> bool:
        """Exactly one write lies between the remembered state and this one."""
        before, now = self.previous, self.state
        if before is None or UNKNOWN_PARTITION_EPOCH in (
            before.partition_epoch,
            now.partition_epoch,
        ):
            return False
        return now.partition_epoch == before.partition_epoch + 1

    @cached_property
    def compacted(self) -> bool:
        """The topic is compacted, or was while it was watched: what cleaning took stays away."""
        return self.observation.settings.compacted or (
            self.memory is not None and self.memory.was_compacted
        )

    @cached_property
    def leader(self) -> ReplicaReading | None:
        """The leader's own words before the followers were asked: none while it is in another
        epoch.

        Where the reading does not tell its epoch, the bracket vouches for it.
        """
        if self.state.leader < 0:
            return None
        reading = self.readings.get(self.state.leader)
        if reading is None or reading.leads is False:
            return None
        if reading.leader_epoch is not None and reading.leader_epoch != self.state.leader_epoch:
            return None
        return reading

    @cached_property
    def leader_end(self) -> int | None:
        """The largest LEO of the leader in this round: its second reading, after the followers'."""
        first = self.leader.log_end_offset if self.leader is not None else None
        again = self.observation.leader_again
        second = again.log_end_offset if again is not None else None
        if first is None or second is None:
            return second if first is None else first
        return max(first, second)

    @cached_property
    def leader_watermark(self) -> int | None:
        """The leader's HW read before the followers: what every ISR member must hold already."""
        return self.leader.high_watermark if self.leader is not None else None

    @cached_property
    def epoch_start(self) -> int | None:
        """The offset at which the current leader epoch starts, from the leader's own lineage."""
        if self.leader is None or not self.leader.lineage:
            return None
        last = self.leader.lineage[-1]
        return last.start_offset if last.epoch == self.state.leader_epoch else None

    @cached_property
    def effective_min_isr(self) -> int:
        return effective_min_isr(
            min_insync_replicas=self.observation.settings.min_insync_replicas,
            replica_count=len(self.observation.assignment.replicas),
            rules=self.rules,
        )

    @cached_property
    def controller_settled(self) -> bool:
        """A controller is known and has been so for a session timeout: it had time to act."""
        if self.observation.controller is None or self.observation.controller == NO_LEADER:
            return False
        since = self.memory.controller_since_ms if self.memory is not None else self.now_ms
        if self.memory is not None and (
            self.observation.controller != self.memory.controller
            or self.observation.cluster_controller_epoch != self.memory.controller_epoch
        ):
            return False
        return self.now_ms - since >= self.observation.settings.session_timeout_ms

    @cached_property
    def cuts(self) -> dict[BrokerId, PredictedCut]:
        """Where each follower must have cut its log for the current leader epoch, as far as
        known."""
        return predicted_cuts(self)

    @cached_property
    def origins(self) -> Origins | None:
        """Who wrote what, for logs without epochs; None where it cannot be known."""
        return origins(self)

    @cached_property
    def conflicts(self) -> tuple[Conflict, ...]:
        """Every pair of replicas whose lineages disagree, under its gravest name."""
        return conflicts(self)

    @cached_property
    def losses_of_ledger(self) -> tuple[Lost, ...]:
        """What leaves the ledger with its report: without what was committed beside it."""
        return losses_of_ledger(self)

    @cached_property
    def losses(self) -> tuple[Lost, ...]:
        """The committed offsets the current leader does not have, or has from another leader, with
        the epochs of what is gone."""
        return tuple(dict.fromkeys((*self.losses_of_ledger, *losses_beside(self))))

    @cached_property
    def without_the_leader(self) -> PartitionForecast:
        """What comes if the leader's broker stops now."""
        return forecast(self.observation, stopping={self.state.leader})

    @cached_property
    def only_new_epochs(self) -> bool:
        """Every write since the remembered state began a new leader epoch.

        Leaders change the ISR within their epoch, so nobody can have joined it in between.
        """
        before, now = self.previous, self.state
        if before is None or UNKNOWN_PARTITION_EPOCH in (
            before.partition_epoch,
            now.partition_epoch,
        ):
            return False
        writes = now.partition_epoch - before.partition_epoch
        return writes == now.leader_epoch - before.leader_epoch > 0

    def has_fetched(self, broker: BrokerId) -> bool:
        """There is proof that the follower fetched in the current leader epoch.

        Only then has it truncated: its log holds records of this epoch, or it joined the ISR in it.
        A follower that cannot reach its leader lawfully keeps its tail for hours. A log that grows
        proves nothing: a broker takes over the epoch first and ends its fetches from the old leader
        after that, so in between what the old leader sent is still appended.
        """
        reading, remembered = self.readings.get(broker), self.remembered(broker)
        if reading is None or reading.log_end_offset is None or reading.leads:
            return False
        if reading.leader_epoch is not None and reading.leader_epoch != self.state.leader_epoch:
            return False
        if reading.lineage and reading.lineage[-1].epoch == self.state.leader_epoch:
            return reading.lineage[-1].start_offset < reading.log_end_offset
        if remembered is None or remembered.leader_epoch != self.state.leader_epoch:
            return False
        assert self.memory is not None
        return remembered.fetched_in_epoch or broker in self.memory.joined_isr

    def is_following(self, reading: ReplicaReading) -> bool:
        """The replica says itself that it follows in the metadata's leader epoch."""
        return reading.leads is False and reading.leader_epoch == self.state.leader_epoch

    def followers(self) -> Iterable[ReplicaReading]:
        return (r for r in self.replicas if r.broker != self.state.leader)

    def remembered(self, broker: BrokerId) -> ReplicaMemory | None:
        return self.memory.replica(broker) if self.memory is not None else None

    def same_incarnation(self, broker: BrokerId) -> bool:
        """The broker's process is known to be the one that was remembered: it did not restart."""
        remembered = self.remembered(broker)
        if remembered is None or remembered.broker_epoch == UNKNOWN_BROKER_EPOCH:
            return False
        return remembered.broker_epoch == self.broker_epoch(broker)

    def broker_epoch(self, broker: BrokerId) -> int:
        reading = self.readings.get(broker)
        if reading is not None and reading.broker_epoch is not None:
            return reading.broker_epoch
        registration = self.registrations.get(broker)
        return registration.broker_epoch if registration is not None else UNKNOWN_BROKER_EPOCH


Check: TypeAlias = Callable[[Sight], Iterable[Finding]]
