"""Faults by chance, reproducibly: what is possible now, in a sorted list, and one seed to choose.

The scheduler has its own generator, so that replaying the actions it took needs no generator.
"""

from __future__ import annotations

import random
from typing import TYPE_CHECKING, Any, Final

from tidestaff.connectors.simulator.network import CONTROLLER, ZOOKEEPER

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Mapping

    from tidestaff.connectors.simulator.broker import Broker
    from tidestaff.connectors.simulator.cluster import SimulatedCluster
    from tidestaff.connectors.simulator.coordination import PartitionMetadata
    from tidestaff.consistency.model import TopicPartition

    Action = dict[str, Any]
    Chooser = Callable[["RandomFaults"], list[Action]]

WEIGHTS: Final[dict[str, int]] = {
    "produce": 40,
    "produce_to_zombie": 6,
    "crash": 4,
    "bounce": 3,
    "clean_stop": 4,
    "start": 12,
    "session_expiry": 3,
    "pause": 4,
    "resume": 8,
    "slow_follower": 2,
    "usual_speed": 4,
    "hold_fetches": 3,
    "release_fetches": 6,
    "cut": 4,
    "heal": 8,
    "controller_failover": 2,
    "preferred_election": 3,
    "reassign": 2,
    "retention": 2,
    "delete_records": 1,
    "change_min_isr": 1,
    "recreate_topic": 1,
    "power_loss": 3,
    "wipe_disk": 1,
    "unclean_election": 2,
    "unclean_setting": 1,
}

# Beside the others only where somebody asks for it: who asks for "all" gets the histories that
# these seeds have always made.
ON_REQUEST: Final[dict[str, int]] = {
    "slow_fetcher_removal": 6,
    "usual_fetcher_removal": 2,
}

# What takes committed records away although every rule of the protocol is kept. A reassignment
# does, too, where it replaces one whose new replicas alone are in sync: it may beside the others.
MAY_LOSE: Final = frozenset({"power_loss", "wipe_disk", "unclean_election", "unclean_setting"})
NEVER_LOSE: Final = frozenset(WEIGHTS) - MAY_LOSE

_REPAIRS: Final = frozenset(
    {
        *("start", "resume", "heal", "release_fetches", "usual_speed", "produce"),
        "usual_fetcher_removal",
    }
)


class RandomFaults:
    """Acts on a cluster from inside its event loop every `every_ms`, for as long as it is told."""

    def __init__(
        self,
        cluster: SimulatedCluster,
        seed: int,
        kinds: Collection[str] = NEVER_LOSE,
        weights: Mapping[str, int] | None = None,
        every_ms: tuple[int, int] = (50, 400),
    ) -> None:
        self.cluster = cluster
        self.kinds = sorted(kinds)
        self.may_lose = not MAY_LOSE.isdisjoint(kinds)
        self.weights = {**WEIGHTS, **ON_REQUEST, **(weights or {})}
        self.every_ms = every_ms
        self.chance = random.Random(seed)  # noqa: S311 - reproducible on purpose
        self._until_ms = 0
        self.happened: set[str] = set()

    def run(self, duration_ms: int) -> None:
        """Let the cluster live through faults for that long."""
        self.schedule(duration_ms)
        self.cluster.advance(duration_ms)

    def schedule(self, duration_ms: int) -> None:
        """The same, while somebody else lets the time pass."""
        self._until_ms = self.cluster.now_ms + duration_ms
        self._later()

    def _later(self) -> None:
        due = self.cluster.now_ms + self.chance.randint(*self.every_ms)
        if due <= self._until_ms:
            self.cluster.loop.at(due, self._act, outside=True)

    def _act(self) -> None:
        kinds = self.kinds
        ill = sum(not b.answers for b in self.cluster.brokers.values())
        if 2 * ill >= len(self.cluster.brokers) and self.chance.random() < 0.5:
            kinds = [kind for kind in kinds if kind in _REPAIRS]
        kind = self.chance.choices(kinds, [self.weights[kind] for kind in kinds])[0]
        options = _OPTIONS[kind](self)
        if options and self.cluster.apply(self.chance.choice(options)):
            self.happened.add(kind)
        self._later()

    def heal(self, quiet_ms: int | None = None) -> None:
        """End every fault, bring every broker back and wait until the cluster has settled."""
        cluster = self.cluster
        self._until_ms = 0
        settings = cluster.settings
        wait = quiet_ms or settings.session_ms + 2 * settings.lag_ms
        cluster.apply({"do": "heal"})
        cluster.apply({"do": "change_settings", "settings": {"loss": 0.0}})
        for broker in cluster.sorted_brokers():
            cluster.on("release_fetches", broker.id)
            cluster.on("slow_follower", broker.id)
            if broker.fetcher_removal_ms:
                cluster.on("slow_fetcher_removal", broker.id)
            cluster.on("resume", broker.id)
        cluster.advance(4 * settings.request_timeout_ms + settings.session_ms + 1)
        while self.down():
            for broker in self.down():
                cluster.on("start", broker.id)
            cluster.advance(settings.start_ms + settings.session_ms)
        cluster.advance(wait)

    # -- what is possible

    def up(self) -> list[Broker]:
        return [b for b in self.cluster.sorted_brokers() if b.answers and not b.stopping]

    def down(self) -> list[Broker]:
        return [b for b in self.cluster.sorted_brokers() if not b.up]

    def partitions(self) -> list[TopicPartition]:
        return self.cluster.mode.partitions()


def _one(**action: Any) -> Action:
    return action


def _of(partition: TopicPartition) -> dict[str, Any]:
    return {"topic": partition.topic, "partition": partition.partition}


def _on_up(verb: str, **more: Any) -> Chooser:
    return lambda faults: [_one(do=verb, broker=b.id, **more) for b in faults.up()]


def _on_partitions(verb: str) -> Chooser:
    return lambda faults: [_one(do=verb, **_of(p)) for p in faults.partitions()]


def _produce(faults: RandomFaults) -> list[Action]:
    records = faults.chance.randint(1, 20)
    return [_one(do="produce", **_of(p), records=records) for p in faults.partitions()]


def _produce_to_zombie(faults: RandomFaults) -> list[Action]:
    found = []
    for broker in faults.up():
        for partition, replica in sorted(broker.replicas.items()):
            known = faults.cluster.mode.partition(partition)
            if replica.leads and known is not None and known.state.leader != broker.id:
                found.append(_one(do="produce", **_of(partition), records=3, broker=broker.id))
    return found


def _slow_removal(faults: RandomFaults) -> list[Action]:
    """From a moment to longer than a round of the monitor and than a member may lag."""
    removal_ms = faults.chance.choice((50, 500, 2_000, 4_000))
    return [
        _one(do="slow_fetcher_removal", broker=b.id, removal_ms=removal_ms) for b in faults.up()
    ]


def _hold(faults: RandomFaults) -> list[Action]:
    found = []
    for broker in faults.up():
        found.append(_one(do="hold_fetches", broker=broker.id))
        found += [
            _one(do="hold_fetches", broker=broker.id, **_of(p)) for p in sorted(broker.replicas)
        ]
    return found


def _release(faults: RandomFaults) -> list[Action]:
    held = [b for b in faults.cluster.sorted_brokers() if b.held]
    return [_one(do="release_fetches", broker=b.id) for b in held]


def _cut(faults: RandomFaults) -> list[Action]:
    places = [b.place for b in faults.cluster.sorted_brokers()]
    boss = CONTROLLER if faults.cluster.preset.kraft else ZOOKEEPER
    one_way = faults.chance.random() < 0.3
    pairs = [(a, b) for a in places for b in [*places, boss] if a < b]
    return [_one(do="cut", source=a, target=b, one_way=one_way) for a, b in pairs]


def _heal(faults: RandomFaults) -> list[Action]:
    cuts = sorted(faults.cluster.network.cuts)
    return [_one(do="heal", source=a, target=b) for a, b in cuts]


def _reassign(faults: RandomFaults) -> list[Action]:
    brokers = sorted(faults.cluster.brokers)
    found = []
    for partition in faults.partitions():
        known = faults.cluster.mode.partition(partition)
        assert known is not None
        size = len(known.assignment.target)
        target = faults.chance.sample(brokers, min(size, len(brokers)))
        if faults.may_lose or not _strands(known, target):
            found.append(_one(do="reassign", **_of(partition), replicas=target))
    return found


def _strands(known: PartitionMetadata, target: list[int]) -> bool:
    """Whether all that are in sync were only being added, and would be added no more: replacing a
    reassignment deletes these at once."""
    in_sync = set(known.state.isr)
    return bool(in_sync) and in_sync.isdisjoint((*target, *known.assignment.origin))


def _retention(faults: RandomFaults) -> list[Action]:
    found = []
    for broker in faults.up():
        for partition, replica in sorted(broker.replicas.items()):
            watermark, stops = replica.high_watermark, replica.preset.retention_stops_at_hw
            offsets = [(replica.log.start + watermark) // 2]
            if not stops and watermark < replica.log_end:
                # Seldom so, and what those versions do differently: all that is there may be old.
                offsets.append(replica.log_end)
            found += [
                _one(do="retention", broker=broker.id, **_of(partition), offset=offset)
                for offset in offsets
            ]
    return found


def _delete_records(faults: RandomFaults) -> list[Action]:
    found = []
    for partition in faults.partitions():
        leader = faults.cluster.believed_leader(partition)
        if leader is not None:
            replica = leader.replicas[partition]
            offset = (replica.log.start + replica.high_watermark) // 2
            found.append(_one(do="delete_records", **_of(partition), offset=offset))
    return found


def _recreate(faults: RandomFaults) -> list[Action]:
    """Delete a topic, or make one again that is gone."""
    there = {partition.topic for partition in faults.partitions()}
    found = []
    for topic, partitions in sorted(faults.cluster.config.topics.items()):
        if topic in there:
            found.append(_one(do="delete_topic", topic=topic))
        else:
            again = [list(replicas) for replicas in partitions]
            found.append(_one(do="create_topic", topic=topic, partitions=again))
    return found


def _settings(name: str, values: tuple[Any, ...]) -> Chooser:
    return lambda faults: [
        _one(do="change_settings", topic=topic, settings={name: value})
        for topic in sorted(faults.cluster.config.topics)
        for value in values
    ]


_OPTIONS: Final[dict[str, Chooser]] = {
    "produce": _produce,
    "produce_to_zombie": _produce_to_zombie,
    "crash": _on_up("crash"),
    "bounce": _on_up("bounce"),
    "clean_stop": _on_up("clean_stop"),
    "start": lambda faults: [_one(do="start", broker=b.id) for b in faults.down()],
    "session_expiry": _on_up("session_expiry"),
    "pause": _on_up("pause"),
    "resume": lambda faults: [
        _one(do="resume", broker=b.id) for b in faults.cluster.sorted_brokers() if b.paused
    ],
    "slow_follower": _on_up("slow_follower", records=1, pause_ms=100),
    "usual_speed": lambda faults: [
        _one(do="slow_follower", broker=b.id)
        for b in faults.cluster.sorted_brokers()
        if b.fetch_cap is not None
    ],
    "slow_fetcher_removal": _slow_removal,
    "usual_fetcher_removal": lambda faults: [
        _one(do="slow_fetcher_removal", broker=b.id)
        for b in faults.cluster.sorted_brokers()
        if b.fetcher_removal_ms
    ],
    "hold_fetches": _hold,
    "release_fetches": _release,
    "cut": _cut,
    "heal": _heal,
    "controller_failover": lambda _: [_one(do="controller_failover")],
    "preferred_election": _on_partitions("preferred_election"),
    "reassign": _reassign,
    "retention": _retention,
    "delete_records": _delete_records,
    "change_min_isr": _settings("min_insync_replicas", (1, 2)),
    "recreate_topic": _recreate,
    "power_loss": _on_up("power_loss"),
    "wipe_disk": lambda faults: [_one(do="wipe_disk", broker=b.id) for b in faults.down()],
    "unclean_election": _on_partitions("unclean_election"),
    "unclean_setting": _settings("unclean_leader_election_enable", (True, False)),
}


def random_faults(
    cluster: SimulatedCluster,
    seed: int,
    kinds: Collection[str] = NEVER_LOSE,
    weights: Mapping[str, int] | None = None,
    *,
    duration_ms: int,
    every_ms: tuple[int, int] = (50, 400),
    heal: bool = True,
) -> RandomFaults:
    """Live through faults for `duration_ms`, then heal."""
    faults = RandomFaults(cluster, seed, kinds, weights, every_ms)
    faults.run(duration_ms)
    if heal:
        faults.heal()
    return faults
