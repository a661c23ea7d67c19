"""Formal states as the monitor would see them: one state of a trace becomes one observation.

The model has no clock, no sessions and no retention, and elects any member of the ISR. What it says
exactly is the partition state, every replica's log, HW and belief: that is all a sample carries.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from itertools import pairwise
from typing import TYPE_CHECKING, Any, Final

from tidestaff.connectors.simulator.kernel import rules as kernel
from tidestaff.connectors.simulator.kernel.actions import is_true_leader
from tidestaff.connectors.simulator.kernel.state import LeaderAndIsr, Record, Replica, State
from tidestaff.connectors.simulator.kernel.traces import epoch_starts
from tidestaff.consistency.model import (
    NO_LEADER,
    UNDEFINED_EPOCH,
    Assignment,
    Bracket,
    EpochEntry,
    LineageSource,
    PartitionObservation,
    PartitionSettings,
    PartitionState,
    Registration,
    ReplicaReading,
)
from tidestaff.consistency.monitor import step
from tidestaff.consistency.versions import Mode, RuleSet, rules_for

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence

    from tidestaff.connectors.simulator.kernel.enabled import Action
    from tidestaff.consistency.memory import PartitionMemory
    from tidestaff.consistency.model import BrokerId
    from tidestaff.consistency.verdict import Violated

INTERVAL_MS: Final = 10_000
ROUNDS: Final = 2
NEVER_MS: Final = 1_000_000_000

# Lag, sessions and fetch waits are measured in a time the model does not have: they never pass.
SETTINGS: Final = PartitionSettings(
    replica_lag_time_max_ms=NEVER_MS,
    session_timeout_ms=NEVER_MS,
    replica_fetch_wait_max_ms=NEVER_MS,
    leader_imbalance_check_interval_ms=NEVER_MS,
    auto_leader_rebalance_enable=False,
)


@dataclass(frozen=True, slots=True)
class Sample:
    """One state of a trace, with what the state itself does not tell.

    `partition_epoch` counts the writes of the partition state; `unread` are the brokers that do not
    run, which answer nobody.
    """

    state: State
    partition_epoch: int
    live: tuple[Registration, ...]
    unread: frozenset[BrokerId] = frozenset()
    elr: tuple[BrokerId, ...] = ()

    @property
    def leader(self) -> Replica | None:
        """The replica that the partition state names, if it leads in that epoch and answers."""
        found = self.state.replica(self.state.quorum.leader)
        if found is None or found.broker in self.unread or not is_true_leader(self.state, found):
            return None
        return found

    @property
    def coherent(self) -> bool:
        """A bracketed sample is usable only if the leader itself is in the partition's epoch."""
        return self.leader is not None

    @property
    def read(self) -> tuple[Replica, ...]:
        return tuple(r for r in self.state.replicas if r.broker not in self.unread)


def monitor_rules(rules: kernel.RuleSet) -> RuleSet:
    """The Kafka version whose rules the model's rule set has.

    `local_hw` is 0.10.2.2 although its brokers keep no epochs: the traces do, as batch headers of a
    later format would, and no rule of the monitor asks the version before it reads a lineage. The
    rule for joining the ISR is a choice of its own in the model, hence also here.
    """
    fenced = rules.fetch_fence is not kernel.Fence.NONE
    version = {
        kernel.Truncation.LOCAL_HW: "0.10.2.2",
        kernel.Truncation.LEADER_EPOCH_LOOKUP: "1.1.1",
        kernel.Truncation.KNOWN_EPOCH_LOOKUP: "1.1.1",
        kernel.Truncation.LEADER_EPOCH_ROUNDS: "2.4.1" if fenced else "2.0.1",
        kernel.Truncation.LAST_MATCHING_RECORD: "2.8.2" if fenced else "2.0.1",
        kernel.Truncation.NONE_TRUNCATE_ON_TAIL_MISMATCH: "2.8.2",
    }[rules.truncate_on_become_follower]
    needs_start = rules.isr_expand is not kernel.IsrExpand.LEO_REACHED_HW
    return replace(rules_for(version), isr_join_needs_epoch_start=needs_start)


def zookeeper_samples(states: Sequence[State], actions: Sequence[Action]) -> Iterator[Sample]:
    """The states of a run from the initial one on; a crash is a new process: a new broker epoch."""
    assert len(states) == len(actions) + 1
    broker_epochs = {r.broker: 100 + r.broker for r in states[0].replicas}
    version = 0
    yield _zookeeper_sample(states[0], version, broker_epochs)
    for number, ((before, after), action) in enumerate(
        zip(pairwise(states), actions, strict=True), start=1
    ):
        if action.name == "crash":
            broker_epochs[action.params["replica"]] = 1_000 * number
        version += before.quorum != after.quorum
        yield _zookeeper_sample(after, version, broker_epochs)


def _zookeeper_sample(state: State, version: int, epochs: Mapping[BrokerId, int]) -> Sample:
    live = tuple(Registration(r.broker, epochs[r.broker]) for r in state.replicas)
    return Sample(state, version, live)


def kraft_rules(raw: Mapping[str, Any]) -> RuleSet:
    """3.5, the version that was modelled; a trace with an ELR is of KIP-966, hence 4.0."""
    if "elr" in raw["initial"]["quorum"]:
        return rules_for("4.0", Mode.KRAFT, elr=True)
    return rules_for("3.5", Mode.KRAFT)


def kraft_samples(raw: Mapping[str, Any]) -> Iterator[Sample]:
    """The states of a KRaft trace: metadata, logs and beliefs, without messages and truth."""
    states = [raw["initial"], *(step["state"] for step in raw["steps"])]
    names = {name: number for number, name in enumerate(sorted(states[0]["replicas"]), start=1)}
    for state in states:
        yield _kraft_sample(state, names)


def _kraft_sample(raw: Mapping[str, Any], names: Mapping[str, BrokerId]) -> Sample:
    quorum = raw["quorum"]
    replicas = {names[name]: values for name, values in raw["replicas"].items()}
    return Sample(
        State(
            LeaderAndIsr(
                names.get(quorum["leader"], NO_LEADER),
                quorum["leader_epoch"],
                tuple(sorted(names[name] for name in quorum["isr"])),
            ),
            tuple(_kraft_replica(b, replicas[b], names) for b in sorted(replicas)),
        ),
        quorum["partition_epoch"],
        tuple(
            Registration(b, replicas[b]["registered_epoch"], fenced=replicas[b]["fenced"])
            for b in sorted(replicas)
        ),
        frozenset(b for b, values in replicas.items() if values["broker_status"] != "RUNNING"),
        tuple(sorted(names[name] for name in quorum.get("elr") or ())),
    )


def _kraft_replica(
    broker: BrokerId, raw: Mapping[str, Any], names: Mapping[str, BrokerId]
) -> Replica:
    """The model keeps a HW above the LEO after a truncation; brokers lower it, and so do we."""
    log = tuple(Record(r["epoch"], ord(str(r["id"])[:1])) for r in raw["log"])
    leads = raw["role"] == "leader"
    leader = broker if leads else names.get(raw["leader"], NO_LEADER)
    if leader == broker and not leads:
        leader = NO_LEADER
    epoch = UNDEFINED_EPOCH if raw["leader_epoch"] is None else raw["leader_epoch"]
    isr = tuple(sorted(names[name] for name in raw["isr"] or ()))
    return Replica(broker, log, min(raw["hw"], len(log)), LeaderAndIsr(leader, epoch, isr))


def observation(sample: Sample, rules: RuleSet, observed_at_ms: int) -> PartitionObservation:
    """The sample as one round of a source that reads everything at one moment."""
    quorum = sample.state.quorum
    epochs = {registration.broker: registration.broker_epoch for registration in sample.live}
    readings = tuple(_reading(r, epochs[r.broker]) for r in sample.read)
    return PartitionObservation(
        cluster="trace",
        topic="trace",
        partition=0,
        observed_at_ms=observed_at_ms,
        rules=rules,
        state=PartitionState(
            quorum.leader, quorum.leader_epoch, quorum.isr, sample.partition_epoch, elr=sample.elr
        ),
        assignment=Assignment(tuple(r.broker for r in sample.state.replicas)),
        live=sample.live,
        settings=SETTINGS,
        replicas=readings,
        leader_again=next((r for r in readings if r.broker == quorum.leader), None),
        bracket=Bracket.COHERENT if sample.coherent else Bracket.STRADDLED,
        topic_id="trace-0000000000000000",
        state_czxid=1,
        source="trace",
    )


def _reading(replica: Replica, broker_epoch: int) -> ReplicaReading:
    """Lineages come from the records, as a source that reads batch headers gives them: a leader
    that has written nothing has no entry of its own epoch."""
    return ReplicaReading(
        broker=replica.broker,
        log_start_offset=0,
        high_watermark=replica.high_watermark,
        log_end_offset=replica.log_end_offset,
        broker_epoch=broker_epoch,
        leader_epoch=replica.belief.leader_epoch,
        leads=replica.believes_it_leads,
        lineage=tuple(EpochEntry(*entry) for entry in epoch_starts(replica.log)),
        lineage_source=LineageSource.BATCH_HEADERS,
    )


def watch(
    samples: Iterable[Sample], rules: RuleSet, rounds: int = ROUNDS
) -> Iterator[tuple[Violated, ...]]:
    """What the monitor raises on each sample, seen that many times in a row."""
    memory: PartitionMemory | None = None
    now_ms = 0
    for sample in samples:
        raised: list[Violated] = []
        for _ in range(rounds):
            now_ms += INTERVAL_MS
            memory, verdicts = step(memory, observation(sample, rules, now_ms))
            raised.extend(v for v in verdicts.violated if v not in raised)
        yield tuple(raised)
