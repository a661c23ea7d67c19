"""A simulated Kafka cluster: deterministic, with logical time, that lives through faults.

A run is determined by its configuration and the list of its actions; `replay` repeats it.
"""

from __future__ import annotations

import base64
import hashlib
import random
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from tidestaff.connectors.simulator.actions import Commands, perform
from tidestaff.connectors.simulator.broker import Broker
from tidestaff.connectors.simulator.clock import EventLoop
from tidestaff.connectors.simulator.kraft_mode import KRaftMode
from tidestaff.connectors.simulator.network import Network
from tidestaff.connectors.simulator.presets import preset_named
from tidestaff.connectors.simulator.settings import ClusterConfig, Settings
from tidestaff.connectors.simulator.truth import Truth
from tidestaff.connectors.simulator.zk_mode import ZooKeeperMode
from tidestaff.consistency.model import ConsistencyError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping, Sequence

    from tidestaff.connectors.simulator.coordination import Coordination
    from tidestaff.connectors.simulator.replica import Replica
    from tidestaff.consistency.model import BrokerId, PartitionState, TopicPartition

_LONGEST_START_MS = 60_000
_STEP_MS = 10
_KEEP_FROM_STARTING = (
    *("loss", "start_ms", "session_timeout_ms", "controller_pause_ms", "request_timeout_ms"),
)


class NeverStartedError(ConsistencyError):
    """Settings with which the brokers do not come up."""

    def __init__(self, settings: Settings) -> None:
        given = ", ".join(
            f"{name.replace('_', '.')} {getattr(settings, name)}" for name in _KEEP_FROM_STARTING
        )
        super().__init__(
            f"the brokers did not come up within {_LONGEST_START_MS // 1_000} s of simulated time "
            f"with {given}: lose less, let a start take less, or let sessions and requests last "
            "longer (`set` in the head of the scenario)"
        )
        self.settings = settings


class SimulatedCluster(Commands):
    """Brokers, their metadata, the network between them, and the ledger of what is true."""

    def __init__(
        self,
        preset: str,
        brokers: Sequence[BrokerId],
        topics: Mapping[str, Sequence[Sequence[BrokerId]]],
        settings: Settings | None = None,
        seed: int = 0,
        *,
        cluster: str = "simulated",
    ) -> None:
        self.config = ClusterConfig(
            preset=preset,
            brokers=tuple(brokers),
            topics={t: tuple(tuple(r) for r in partitions) for t, partitions in topics.items()},
            settings=settings or Settings(),
            seed=seed,
            cluster=cluster,
        )
        self.preset = preset_named(preset)
        self.settings = self.config.settings.effective(self.preset)
        self.topic_settings: dict[str, dict[str, Any]] = {}
        self.chance = random.Random(seed)  # noqa: S311 - reproducible on purpose
        self.loop = EventLoop()
        self.network = Network(self.loop, self.chance, lambda: self.settings)
        self.actions: list[dict[str, Any]] = []
        self.notes: list[dict[str, Any]] = []
        self.touched: set[TopicPartition] = set()
        self._changes = 0
        self.names: dict[TopicPartition, dict[tuple[int, int, int], str]] = {}
        self._incarnations = 0
        self._topics_made = 0
        self.brokers = {broker: Broker(self, broker) for broker in self.config.brokers}
        self.mode: Coordination = KRaftMode(self) if self.preset.kraft else ZooKeeperMode(self)
        self.truth = Truth(self)
        self.after_event: Callable[[Sequence[TopicPartition]], None] | None = None
        self.after_write: Callable[[TopicPartition], None] | None = None
        self._begin()

    def _begin(self) -> None:
        for broker in self.brokers.values():
            broker.boot()
            self.mode.started(broker)
        while len(self.mode.registrations()) < len(self.brokers) or not self._all_usable():
            if self.now_ms >= _LONGEST_START_MS:
                raise NeverStartedError(self.settings)
            self.advance(_STEP_MS)
        self.advance(2 * self.settings.controller_pause_ms + 4 * self.settings.delay_ms[1])
        for topic, partitions in self.config.topics.items():
            self.mode.create_topic(topic, self.new_topic_id(topic), partitions)
        self.advance(4 * self.settings.delay_ms[1] + 2 * _STEP_MS)

    def _all_usable(self) -> bool:
        fenced = any(r.fenced for r in self.mode.registrations())
        return self.mode.controller() is not None and not fenced

    # -- time and actions

    @property
    def now_ms(self) -> int:
        return self.loop.now_ms

    def advance(self, duration_ms: int) -> None:
        """Let time pass; how it is cut into pieces makes no difference."""
        self.loop.run_until(self.now_ms + duration_ms, self._examine)

    def apply(self, action: Mapping[str, Any]) -> bool:
        """Do one thing from outside and record it; False if it is not possible now."""
        self.loop.settle(self._examine)
        done = perform(self, action)
        plain = {key: value for key, value in action.items() if key not in {"at_ms", "applied"}}
        self.actions.append({"at_ms": self.now_ms, **plain, "applied": done})
        self._examine()
        return done

    def _examine(self) -> None:
        touched: Sequence[TopicPartition] = ()
        if self.touched:
            touched = sorted(self.touched)
            self.touched.clear()
            self._changes += 1
            for partition in touched:
                self.truth.examine(partition)
        if self.after_event is not None:
            self.after_event(touched)

    def wrote(self, partition: TopicPartition, state: PartitionState) -> None:
        """A state node was written: one event may write several times, and each is there to see."""
        self.truth.written(partition, state)
        if self.after_write is not None:
            self.after_write(partition)

    def note(self, kind: str, **details: Any) -> None:
        """Something an operator would find in a broker's log."""
        self.notes.append({"at_ms": self.now_ms, "note": kind, **details})

    # -- for the parts

    @property
    def changes(self) -> int | None:
        """Differs from an earlier one if anything was touched since; None in the midst of it."""
        return None if self.touched else self._changes

    @property
    def mode_zk(self) -> ZooKeeperMode:
        assert isinstance(self.mode, ZooKeeperMode)
        return self.mode

    def sorted_brokers(self) -> list[Broker]:
        return [self.brokers[broker] for broker in sorted(self.brokers)]

    def next_incarnation(self) -> int:
        self._incarnations += 1
        return self._incarnations

    def new_topic_id(self, topic: str) -> str:
        self._topics_made += 1
        text = f"{self.config.seed}/{topic}/{self._topics_made}"
        return base64.urlsafe_b64encode(hashlib.sha256(text.encode()).digest())[:22].decode()

    def touch_all(self, partitions: Iterable[TopicPartition]) -> None:
        self.touched.update(partitions)

    def setting_of(self, topic: str, name: str) -> Any:
        return self.topic_settings.get(topic, {}).get(name, getattr(self.settings, name))

    def min_isr(self, topic: str) -> int:
        return int(self.setting_of(topic, "min_insync_replicas"))

    def unclean_allowed(self, topic: str) -> bool:
        allowed = bool(self.setting_of(topic, "unclean_leader_election_enable"))
        return allowed and self.preset.unclean_honoured

    def change_cluster_settings(self, changes: Mapping[str, Any]) -> None:
        self.settings = replace(self.settings, **changes)

    # -- looking at it

    def replica(self, broker: BrokerId, partition: TopicPartition) -> Replica | None:
        return self.brokers[broker].replicas.get(partition)

    def believed_leader(self, partition: TopicPartition) -> Broker | None:
        """Where clients end up: of the brokers that answer as leader, the one of the largest
        epoch."""
        found = [
            (replica.leader_epoch, broker.id)
            for broker in self.brokers.values()
            if broker.answers and (replica := broker.replicas.get(partition)) and replica.leads
        ]
        return self.brokers[max(found)[1]] if found else None


def replay(
    config: ClusterConfig | Mapping[str, Any],
    actions: Sequence[Mapping[str, Any]],
    until_ms: int | None = None,
) -> SimulatedCluster:
    """The run that these actions make, applied at their times; shorter lists are valid runs too."""
    if not isinstance(config, ClusterConfig):
        config = ClusterConfig.of_value(dict(config))
    cluster = SimulatedCluster(
        config.preset,
        config.brokers,
        config.topics,
        config.settings,
        config.seed,
        cluster=config.cluster,
    )
    for action in actions:
        cluster.advance(max(0, int(action["at_ms"]) - cluster.now_ms))
        cluster.apply(action)
    if until_ms is not None:
        cluster.advance(max(0, until_ms - cluster.now_ms))
    return cluster
