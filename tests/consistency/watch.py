"""A partition under watch: change what the cluster does, take a round, see what is raised.

Not a simulator: a test says every value itself, so that a legal or a broken state is spelt out
where it is judged.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

from tidestaff.consistency.model import (
    Assignment,
    BatchDigest,
    Bracket,
    EpochEntry,
    Lineage,
    PartitionObservation,
    PartitionSettings,
    PartitionState,
    Registration,
    ReplicaReading,
)
from tidestaff.consistency.monitor import step
from tidestaff.consistency.versions import Mode, rules_for

if TYPE_CHECKING:
    from tidestaff.consistency.memory import PartitionMemory
    from tidestaff.consistency.verdict import Verdicts

ROUND_MS = 5_000


def lineage(*entries: tuple[int, int]) -> Lineage:
    return tuple(EpochEntry(epoch, start) for epoch, start in entries)


FROM_THE_START = lineage((0, 0))


@dataclass
class Replica:
    leo: int = 10
    hw: int = 10
    start: int = 0
    epochs: Lineage | None = FROM_THE_START
    up: bool = True
    believes: int | None = None
    leads: bool | None = None
    topic_id: str | None = None
    log_dir_online: bool = True


@dataclass
class Watch:
    """Three replicas of one partition, all in sync, led by the first; time passes by `see`."""

    version: str = "3.9.1"
    mode: Mode = Mode.ZOOKEEPER
    elr_on: bool | None = None
    protocol: str | None = None
    replicas: tuple[int, ...] = (1, 2, 3)
    adding: tuple[int, ...] = ()
    removing: tuple[int, ...] = ()
    leader: int = 1
    epoch: int = 0
    isr: tuple[int, ...] = ()
    elr: tuple[int, ...] = ()
    version_of_state: int = 0
    controller: int | None = 1
    controller_epoch: int | None = 1
    written_by: int | None = 1
    recovering: bool = False
    settings: PartitionSettings = field(default_factory=PartitionSettings)
    topic_id: str | None = "topic-id-0000000000001"
    czxid: int | None = 77
    imbalance: float | None = None
    deleting: bool = False
    authoritative: bool = True
    digests: tuple[BatchDigest, ...] = ()
    now_ms: int = 1_000_000
    bracket: Bracket = Bracket.COHERENT
    logs: dict[int, Replica] = field(default_factory=dict)
    live: dict[int, Registration] = field(default_factory=dict)
    memory: PartitionMemory | None = None
    raised: dict[str, Any] = field(default_factory=dict)
    order_of_readings: tuple[int, ...] = ()
    epochs_named: bool = True

    def __post_init__(self) -> None:
        self.isr = self.isr or self.replicas
        for broker in self.replicas:
            self.logs.setdefault(broker, Replica())
            self.live.setdefault(broker, Registration(broker, 100 + broker))
        if self.mode is Mode.KRAFT:
            self.written_by = None
            self.controller_epoch = None

    def change(self, **fields: Any) -> Watch:
        """The controller writes a new version of the partition state."""
        self.set(**fields)
        self.version_of_state += 1
        return self

    def set(self, **fields: Any) -> Watch:
        for name, value in fields.items():
            assert hasattr(self, name), name
            setattr(self, name, value)
        return self

    def log(self, broker: int, **fields: Any) -> Watch:
        self.logs[broker] = replace(self.logs.get(broker, Replica()), **fields)
        return self

    def all_logs(self, **fields: Any) -> Watch:
        for broker in self.logs:
            self.log(broker, **fields)
        return self

    def stop(self, *brokers: int) -> Watch:
        """Process and registration are gone."""
        for broker in brokers:
            self.live.pop(broker, None)
            self.log(broker, up=False)
        return self

    def start(self, *brokers: int) -> Watch:
        """A new process has registered: a new broker epoch."""
        for broker in brokers:
            self.live[broker] = Registration(broker, 1_000 + self.now_ms + broker)
            self.log(broker, up=True)
        return self

    def register(self, broker: int, **fields: Any) -> Watch:
        self.live[broker] = self.live.get(broker, Registration(broker, 100 + broker))._replace(
            **fields
        )
        return self

    def setting(self, **fields: Any) -> Watch:
        self.settings = replace(self.settings, **fields)
        return self

    def reading(self, broker: int) -> ReplicaReading:
        log = self.logs[broker]
        leads = log.leads if log.leads is not None else broker == self.leader
        believes = log.believes if log.believes is not None else self.epoch
        return ReplicaReading(
            broker=broker,
            log_start_offset=log.start,
            high_watermark=log.hw,
            log_end_offset=log.leo,
            broker_epoch=self.live[broker].broker_epoch if broker in self.live else 100 + broker,
            leader_epoch=believes if self.epochs_named else None,
            leads=leads,
            lineage=log.epochs,
            topic_id=log.topic_id,
            log_dir_online=log.log_dir_online,
        )

    def observation(self) -> PartitionObservation:
        readings = tuple(
            self.reading(broker)
            for broker in (self.order_of_readings or self.logs)
            if self.logs[broker].up
        )
        return PartitionObservation(
            cluster="test",
            topic="t",
            partition=0,
            observed_at_ms=self.now_ms,
            rules=rules_for(self.version, self.mode, elr=self.elr_on, protocol=self.protocol),
            state=self.state(),
            assignment=Assignment(self.replicas, self.adding, self.removing),
            live=tuple(self.live[broker] for broker in sorted(self.live)),
            settings=self.settings,
            replicas=readings,
            leader_again=next((r for r in readings if r.broker == self.leader), None),
            bracket=self.bracket,
            topic_id=self.topic_id,
            state_czxid=self.czxid,
            controller=self.controller,
            cluster_controller_epoch=self.controller_epoch,
            preferred_imbalance=self.imbalance,
            digests=self.digests,
            deleting=self.deleting,
            authoritative=self.authoritative,
        )

    def state(self) -> PartitionState:
        from tidestaff.consistency.model import RecoveryState  # noqa: PLC0415 - next to its use

        return PartitionState(
            leader=self.leader,
            leader_epoch=self.epoch,
            isr=self.isr,
            partition_epoch=self.version_of_state,
            controller_epoch=self.written_by,
            recovery=RecoveryState.RECOVERING if self.recovering else RecoveryState.RECOVERED,
            elr=self.elr,
        )

    def see(self, rounds: int = 1, *, every_ms: int = ROUND_MS) -> Verdicts:
        """Take that many rounds; what they raise is kept in `raised`."""
        verdicts = None
        for _ in range(rounds):
            self.now_ms += every_ms
            self.memory, verdicts = step(self.memory, self.observation())
            for violated in verdicts.violated:
                self.raised.setdefault(violated.code, violated)
        assert verdicts is not None
        return verdicts

    def settle(self) -> Watch:
        """Watch long enough for every grace time of a fault to have started from a known state."""
        self.see(8)
        assert not self.raised, self.raised
        return self

    def append(self, records: int = 1) -> Watch:
        """The leader takes records and everybody in the ISR has them, committed."""
        for broker in self.isr:
            log = self.logs[broker]
            self.log(broker, leo=log.leo + records, hw=log.hw + records)
        return self
