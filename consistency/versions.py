"""Which of Kafka's rules apply: a version and a mode give a rule set.

Every field of `RuleSet` is one switch. Versions are those of the broker software; where a protocol
setting decides (inter.broker.protocol.version, metadata.version) the setting is asked, not the
software.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from enum import Enum
from functools import lru_cache, total_ordering
from typing import Final

from tidestaff.consistency.errors import UnknownVersionError

# Numbers are short: Python refuses to convert very long ones, and no release has more digits.
_RELEASE = re.compile(
    r"v?(\d{1,4})\.(\d{1,4})(?:\.(\d{1,4}))?(?:\.(\d{1,4}))?(?:[-+.]?[A-Za-z][\w.+-]*)?", re.ASCII
)
_PROTOCOL = re.compile(r"(\d{1,4}(?:\.\d{1,4}){1,3})(?:-IV(\d{1,2}))?", re.ASCII)

OLDEST: Final = (0, 8, 2)
NEWEST: Final = (4, 3)


@total_ordering
@dataclass(frozen=True, slots=True, eq=True)
class KafkaVersion:
    """A release of the broker, such as 0.10.2.2, 2.0.1 or 3.9.1."""

    parts: tuple[int, ...]

    @staticmethod
    def parse(text: str) -> KafkaVersion:
        match = _RELEASE.fullmatch(text.strip())
        if match is None:
            raise UnknownVersionError(
                f"{text!r} is not a Kafka version", "write it like 0.10.2.2, 2.8.2 or 3.9"
            )
        numbers = tuple(int(part) for part in match.groups() if part is not None)
        # 0.x releases have four parts (0.10.2.2), later ones three; missing parts count as zero.
        width = 4 if numbers[0] == 0 else 3
        return KafkaVersion((numbers + (0,) * width)[:width])

    def __lt__(self, other: KafkaVersion) -> bool:
        return self.parts < other.parts

    def at_least(self, *parts: int) -> bool:
        return self.parts >= parts

    def __str__(self) -> str:
        return ".".join(map(str, self.parts))


@total_ordering
@dataclass(frozen=True, slots=True, eq=True)
class ProtocolVersion:
    """inter.broker.protocol.version or metadata.version: a release and its internal step (IV)."""

    release: tuple[int, ...]
    step: int

    @staticmethod
    def parse(text: str) -> ProtocolVersion:
        match = _PROTOCOL.fullmatch(text.strip())
        if match is None:
            raise UnknownVersionError(
                f"{text!r} is not a protocol version", "write it like 2.7-IV1, 3.6-IV0 or 3.9"
            )
        numbers = tuple(int(part) for part in match.group(1).split("."))
        # A release without a step means its last step; 2.8.2 and 2.8 name the same protocol.
        width = 3 if numbers[0] == 0 else 2
        release = (numbers + (0,) * width)[:width]
        return ProtocolVersion(release, int(match.group(2)) if match.group(2) else _LAST_STEP)

    @staticmethod
    def of(version: KafkaVersion) -> ProtocolVersion:
        """The protocol a broker of this version speaks unless told otherwise."""
        width = 3 if version.parts[0] == 0 else 2
        return ProtocolVersion(version.parts[:width], _LAST_STEP)

    def __lt__(self, other: ProtocolVersion) -> bool:
        return (self.release, self.step) < (other.release, other.step)

    def __str__(self) -> str:
        release = ".".join(map(str, self.release))
        return release if self.step == _LAST_STEP else f"{release}-IV{self.step}"


_LAST_STEP: Final = 999


class Mode(Enum):
    """Who keeps the cluster's metadata."""

    ZOOKEEPER = "zookeeper"
    KRAFT = "kraft"


class Truncation(Enum):
    """How a follower finds the offset to cut its log to."""

    HIGH_WATERMARK = "high-watermark"
    KIP_101 = "kip-101"
    KIP_279 = "kip-279"
    ON_FETCH = "on-fetch"


class EpochCacheGeneration(Enum):
    """The two rule sets of leader-epoch-checkpoint: up to 2.0.0, and from 2.0.1."""

    FIRST = "0.11.0"
    SECOND = "2.0.1"


class ReassignmentCompletion(Enum):
    """When a reassignment is complete."""

    ADDING_IN_ISR = "adding-in-isr"
    TARGET_IN_ISR = "target-in-isr"
    ADDING_IN_ISR_TARGET_IF_SHRINKING = "adding-in-isr-target-if-shrinking"


class AlterPartitionChecks(Enum):
    """In which order the ZooKeeper-mode controller checks AlterPartition: in 2.7 - 3.1 there is no
    recovery state yet, 3.2 looks at it before the epochs, 3.3 after them and refuses epochs newer
    than its own first."""

    EPOCHS_ONLY = "epochs-only"
    RECOVERY_THEN_EPOCHS = "recovery-then-epochs"
    NEWER_EPOCHS_THEN_RECOVERY = "newer-epochs-then-recovery"


class TruncationTrigger(Enum):
    """On which news a follower goes through truncation."""

    LEADER_DIFFERS = "leader-differs"
    LEADER_DIFFERS_OR_EPOCH_SKIPS = "leader-differs-or-epoch-skips"
    EVERY_EPOCH = "every-epoch"


@dataclass(frozen=True, slots=True)
class RuleSet:
    """Kafka's replication rules for one version and mode, as data."""

    version: KafkaVersion
    mode: Mode
    protocol: ProtocolVersion

    truncation: Truncation
    truncation_trigger: TruncationTrigger
    leader_epoch_checkpoint: bool
    epoch_cache: EpochCacheGeneration
    empty_cache_answers_log_end: bool
    end_offset_answer_has_epoch: bool
    leader_reports_divergence: bool
    leader_writes_epoch_at_once: bool
    follower_drops_newer_epochs: bool
    broker_exits_when_ahead_of_leader: bool

    isr_join_needs_epoch_start: bool
    isr_members_must_be_active: bool
    isr_member_epochs_checked: bool
    isr_change_through_controller: bool
    alter_partition_checks: AlterPartitionChecks
    at_leader_end_never_out_of_sync: bool
    caught_up_by_previous_fetch: bool
    last_fetch_leader_end_never_falls: bool
    lag_by_messages: bool

    watermark_waits_outside_isr: bool
    watermark_ignores_inactive: bool
    watermark_frozen_under_min_isr: bool
    retention_stops_at_watermark: bool
    min_isr_capped_by_replicas: bool

    unclean_election_default: bool
    unclean_election_honoured: bool
    replica_lag_time_max_ms_default: int
    session_timeout_ms_default: int

    controller_writes_fenced: bool
    controller_claim_atomic: bool
    broker_epoch_known: bool
    leader_recovery_state: bool
    isr_may_become_empty_in_zookeeper: bool
    controller_removal_bumps_epoch: bool
    new_controller_removes_dead: bool
    isr_shrink_bumps_epoch: bool
    empty_isr_counts_as_shrink: bool
    log_dir_failures_reach_kraft_controller: bool

    elr: bool
    last_known_leader_must_be_active: bool
    last_known_elr_on_any_leader_loss: bool
    min_isr_change_clears_elr: bool

    topic_id_in_topic_znode: bool
    reassignment_in_topic_znode: bool
    reassignment_completion: ReassignmentCompletion
    rebalance_waits_for_reassignment: bool
    rebalance_checks_preferred_in_isr: bool
    rebalance_has_threshold: bool
    imbalance_metric_spares_added_replica: bool

    @property
    def epochs_name_records(self) -> bool:
        """Whether a leader epoch and an offset stand for one record, on whatever replica.

        Up to 0.10.2 there are no epochs. With ZooKeeper a leader may restart unnoticed: within its
        session up to 2.1, and ever since while the next controller has not read yet who is there.
        It leads on in its epoch, and where its log has lost its end it writes others in that epoch.
        """
        return self.leader_epoch_checkpoint and self.mode is Mode.KRAFT

    def __str__(self) -> str:
        return f"{self.version} {self.mode.value}" + (" elr" if self.elr else "")


def _protocol(text: str) -> ProtocolVersion:
    return ProtocolVersion.parse(text)


@lru_cache(maxsize=512)
def rules_for(
    version: str,
    mode: Mode = Mode.ZOOKEEPER,
    *,
    protocol: str | None = None,
    elr: bool | None = None,
    migrating: bool = False,
) -> RuleSet:
    """The rule set of a Kafka version. `protocol` is inter.broker.protocol.version in ZooKeeper
    mode and metadata.version in KRaft mode; without it the version's own. `elr` is whether the
    feature eligible.leader.replicas.version is 1; without it what a new cluster of that version
    has. `migrating` is a cluster on its way from ZooKeeper to KRaft (3.4 - 3.9)."""
    software = KafkaVersion.parse(version)
    speaks = ProtocolVersion.parse(protocol) if protocol else ProtocolVersion.of(software)
    _refuse_uncovered(software, mode, speaks)
    kraft = mode is Mode.KRAFT
    at_least = software.at_least
    alter_partition = kraft or (at_least(2, 7) and speaks >= _protocol("2.7-IV2"))
    return RuleSet(
        version=software,
        mode=mode,
        protocol=speaks,
        truncation=_truncation(software, speaks, kraft=kraft),
        truncation_trigger=_truncation_trigger(software),
        leader_epoch_checkpoint=_has_epochs(software, speaks),
        epoch_cache=EpochCacheGeneration.SECOND
        if at_least(2, 0, 1)
        else EpochCacheGeneration.FIRST,
        empty_cache_answers_log_end=_empty_cache_answers_log_end(software),
        end_offset_answer_has_epoch=at_least(2, 0) and speaks >= _protocol("2.0-IV0"),
        leader_reports_divergence=at_least(2, 7),
        leader_writes_epoch_at_once=at_least(2, 0, 1),
        follower_drops_newer_epochs=at_least(4, 1) or (at_least(3, 9, 1) and not at_least(4, 0)),
        broker_exits_when_ahead_of_leader=not at_least(2, 0, 1),
        isr_join_needs_epoch_start=at_least(2, 0, 1),
        isr_members_must_be_active=at_least(3, 3),
        isr_member_epochs_checked=kraft and at_least(3, 5),
        isr_change_through_controller=alter_partition,
        alter_partition_checks=_alter_partition_checks(software),
        at_leader_end_never_out_of_sync=at_least(2, 1),
        caught_up_by_previous_fetch=at_least(0, 10, 2),
        last_fetch_leader_end_never_falls=at_least(3, 3),
        lag_by_messages=not at_least(0, 9),
        watermark_waits_outside_isr=at_least(0, 10, 2),
        watermark_ignores_inactive=at_least(3, 6),
        watermark_frozen_under_min_isr=at_least(3, 7),
        retention_stops_at_watermark=at_least(0, 11, 0, 1),
        min_isr_capped_by_replicas=at_least(3, 7),
        unclean_election_default=not at_least(0, 11),
        unclean_election_honoured=not kraft or at_least(3, 9),
        replica_lag_time_max_ms_default=30_000 if at_least(2, 5) else 10_000,
        session_timeout_ms_default=9_000 if kraft else 18_000 if at_least(2, 5) else 6_000,
        controller_writes_fenced=not kraft and at_least(2, 1),
        controller_claim_atomic=not kraft and at_least(2, 1),
        broker_epoch_known=kraft or at_least(2, 2),
        leader_recovery_state=at_least(3, 2) and speaks >= _protocol("3.2-IV0"),
        isr_may_become_empty_in_zookeeper=not kraft and not at_least(1, 1),
        controller_removal_bumps_epoch=not kraft,
        new_controller_removes_dead=not kraft and at_least(2, 4),
        isr_shrink_bumps_epoch=kraft
        and (speaks < _protocol("3.6-IV0") or (migrating and not at_least(4, 0))),
        empty_isr_counts_as_shrink=kraft and not at_least(3, 8),
        log_dir_failures_reach_kraft_controller=kraft and speaks >= _protocol("3.7-IV2"),
        elr=_elr(software, speaks, kraft=kraft, asked=elr),
        last_known_leader_must_be_active=at_least(4, 1),
        last_known_elr_on_any_leader_loss=at_least(4, 1, 1),
        min_isr_change_clears_elr=kraft and at_least(4, 0),
        topic_id_in_topic_znode=not kraft and at_least(2, 8) and speaks >= _protocol("2.8-IV0"),
        reassignment_in_topic_znode=not kraft and at_least(2, 4),
        reassignment_completion=_reassignment_completion(software, kraft=kraft),
        rebalance_waits_for_reassignment=not kraft and not at_least(3, 4),
        rebalance_checks_preferred_in_isr=kraft or at_least(2, 6),
        rebalance_has_threshold=not kraft,
        imbalance_metric_spares_added_replica=at_least(2, 7),
    )


def _refuse_uncovered(software: KafkaVersion, mode: Mode, speaks: ProtocolVersion) -> None:
    if not software.at_least(*OLDEST):
        raise UnknownVersionError(
            f"Kafka {software} is too old",
            f"rules are known from {'.'.join(map(str, OLDEST))}: name that one if it behaves alike",
        )
    if software.parts[:2] > NEWEST:
        raise UnknownVersionError(
            f"Kafka {software} is too new",
            f"rules are known up to {'.'.join(map(str, NEWEST))}: name the newest version that "
            "behaves alike, and Kafka's own number where a distribution has another",
        )
    if mode is Mode.ZOOKEEPER and software.at_least(4, 0):
        raise UnknownVersionError(
            f"Kafka {software} has no ZooKeeper mode",
            "4.0 and later are KRaft only: use mode kraft",
        )
    if mode is Mode.KRAFT and not software.at_least(3, 3):
        raise UnknownVersionError(
            f"Kafka {software} has no production KRaft mode",
            "KRaft is covered from 3.3: use mode zookeeper",
        )
    if speaks.release > ProtocolVersion.of(software).release:
        raise UnknownVersionError(
            f"Kafka {software} cannot speak protocol {speaks}",
            "a protocol version is never newer than the software: correct one of the two",
        )


def _has_epochs(software: KafkaVersion, speaks: ProtocolVersion) -> bool:
    return software.at_least(0, 11) and speaks >= _protocol("0.11.0-IV2")


def _truncation(software: KafkaVersion, speaks: ProtocolVersion, *, kraft: bool) -> Truncation:
    if not _has_epochs(software, speaks):
        return Truncation.HIGH_WATERMARK
    if software.at_least(2, 8) and (kraft or speaks >= _protocol("2.7-IV1")):
        return Truncation.ON_FETCH
    return Truncation.KIP_279 if software.at_least(2, 0) else Truncation.KIP_101


def _alter_partition_checks(software: KafkaVersion) -> AlterPartitionChecks:
    if software.at_least(3, 3):
        return AlterPartitionChecks.NEWER_EPOCHS_THEN_RECOVERY
    if software.at_least(3, 2):
        return AlterPartitionChecks.RECOVERY_THEN_EPOCHS
    return AlterPartitionChecks.EPOCHS_ONLY


def _truncation_trigger(software: KafkaVersion) -> TruncationTrigger:
    if software.at_least(2, 1):
        return TruncationTrigger.EVERY_EPOCH
    if software.at_least(2, 0, 1):
        return TruncationTrigger.LEADER_DIFFERS_OR_EPOCH_SKIPS
    return TruncationTrigger.LEADER_DIFFERS


def _empty_cache_answers_log_end(software: KafkaVersion) -> bool:
    """In 0.11.0.0-2, 1.0.0-1 and 1.1.0 an undefined epoch asked of an empty cache gave the LEO."""
    return any(
        first <= software.parts <= last
        for first, last in (
            ((0, 11, 0, 0), (0, 11, 0, 2)),
            ((1, 0, 0), (1, 0, 1)),
            ((1, 1, 0), (1, 1, 0)),
        )
    )


def _elr(
    software: KafkaVersion, speaks: ProtocolVersion, *, kraft: bool, asked: bool | None
) -> bool:
    possible = kraft and software.at_least(4, 0) and speaks >= _protocol("4.0-IV1")
    if asked and not possible:
        raise UnknownVersionError(
            f"Kafka {software} at {speaks} has no eligible leader replicas",
            "ELR needs KRaft, 4.0 and metadata.version 4.0-IV1: leave it off, or correct those",
        )
    return possible and (speaks >= _protocol("4.1-IV0") if asked is None else asked)


def _reassignment_completion(software: KafkaVersion, *, kraft: bool) -> ReassignmentCompletion:
    if not kraft:
        return ReassignmentCompletion.TARGET_IN_ISR
    if software.at_least(4, 3):
        return ReassignmentCompletion.ADDING_IN_ISR_TARGET_IF_SHRINKING
    if software.at_least(3, 8):
        return ReassignmentCompletion.TARGET_IN_ISR
    return ReassignmentCompletion.ADDING_IN_ISR
