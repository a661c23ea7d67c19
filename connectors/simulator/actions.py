"""Everything that can be done to a cluster from outside, as plain values.

An action that is not possible now does nothing and says so; a list of actions can therefore be cut
short anywhere. Only an action nobody has heard of is an error.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import TYPE_CHECKING, Any, Final

from tidestaff.connectors.simulator import following, leading
from tidestaff.connectors.simulator.settings import Settings
from tidestaff.consistency.model import ConsistencyError, TopicPartition

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from tidestaff.connectors.simulator.broker import Broker
    from tidestaff.connectors.simulator.cluster import SimulatedCluster
    from tidestaff.consistency.model import BrokerId

    Action = Mapping[str, Any]

TOPIC_SETTINGS: Final = frozenset({"unclean_leader_election_enable", "min_insync_replicas"})


class UnknownActionError(ConsistencyError):
    """An action nobody has heard of."""

    def __init__(self, name: str) -> None:
        super().__init__(f"unknown action {name!r}: known are {', '.join(sorted(ACTIONS))}")
        self.name = name


def perform(cluster: SimulatedCluster, action: Action) -> bool:
    name = str(action["do"])
    if name not in ACTIONS:
        raise UnknownActionError(name)
    return ACTIONS[name](cluster, action)


def _broker(cluster: SimulatedCluster, action: Action) -> Broker | None:
    return cluster.brokers.get(action["broker"])


def _partition(action: Action) -> TopicPartition:
    return TopicPartition(action["topic"], action["partition"])


def _crash(cluster: SimulatedCluster, action: Action) -> bool:
    """kill -9: the page cache outlives the process, memory does not."""
    broker = _broker(cluster, action)
    if broker is None or not broker.up:
        return False
    broker.die()
    return True


def _power_loss(cluster: SimulatedCluster, action: Action) -> bool:
    """The machine goes: what was not flushed is lost with it."""
    broker = _broker(cluster, action)
    if broker is None or not broker.up:
        return False
    broker.die()
    for replica in broker.replicas.values():
        end = replica.log.end
        replica.lose_unflushed()
        if replica.log.end < end:
            cluster.truth.torn(replica, end)
    return True


def _bounce(cluster: SimulatedCluster, action: Action) -> bool:
    broker = _broker(cluster, action)
    return broker is not None and broker.answers and cluster.mode.bounce(broker)


def _clean_stop(cluster: SimulatedCluster, action: Action) -> bool:
    broker = _broker(cluster, action)
    if broker is None or not broker.answers or broker.stopping:
        return False
    cluster.mode.stop(broker)
    return True


def _start(cluster: SimulatedCluster, action: Action) -> bool:
    broker = _broker(cluster, action)
    if broker is None or broker.up:
        return False
    broker.boot()
    cluster.mode.started(broker)
    return True


def _session_expiry(cluster: SimulatedCluster, action: Action) -> bool:
    """The process lives on as a zombie until it notices."""
    broker = _broker(cluster, action)
    return broker is not None and cluster.mode.expire(broker)


def _pause(cluster: SimulatedCluster, action: Action) -> bool:
    broker = _broker(cluster, action)
    if broker is None or not broker.answers:
        return False
    broker.paused = True
    return True


def _resume(cluster: SimulatedCluster, action: Action) -> bool:
    broker = _broker(cluster, action)
    if broker is None or not broker.paused:
        return False
    broker.resume()
    return True


def _slow_follower(cluster: SimulatedCluster, action: Action) -> bool:
    """At most `records` a fetch and `pause_ms` between fetches; None and 0 undo it."""
    broker = _broker(cluster, action)
    if broker is None:
        return False
    broker.fetch_cap, broker.fetch_pause_ms = action.get("records"), action.get("pause_ms", 0)
    return True


def _slow_fetcher_removal(cluster: SimulatedCluster, action: Action) -> bool:
    """Told to follow in a new leader epoch, it ends its fetches from the old leader `removal_ms`
    after it has taken over the epoch; 0 undoes it."""
    broker = _broker(cluster, action)
    if broker is None:
        return False
    broker.fetcher_removal_ms = action.get("removal_ms", 0)
    return True


def _hold_fetches(cluster: SimulatedCluster, action: Action) -> bool:
    broker = _broker(cluster, action)
    if broker is None:
        return False
    broker.held.add(_partition(action) if "topic" in action else None)
    return True


def _release_fetches(cluster: SimulatedCluster, action: Action) -> bool:
    broker = _broker(cluster, action)
    if broker is None or not broker.held:
        return False
    if "topic" in action:
        broker.held.discard(_partition(action))
    else:
        broker.held.clear()
    broker.mailbox.clear()
    broker.wake_fetchers()
    return True


def _fetch_request(cluster: SimulatedCluster, action: Action) -> bool:
    """A held follower's request reaches its leader at once; the answer waits in its mailbox."""
    broker, partition = _broker(cluster, action), _partition(action)
    if broker is None or not broker.answers:
        return False
    replica = broker.replicas.get(partition)
    leader = cluster.brokers.get(replica.leader) if replica is not None else None
    if replica is None or replica.leads or leader is None or not leader.answers:
        return False
    ask = following.ask(replica, broker.now_ms, broker.fetch_limit)
    if ask is None:
        return False
    found = leading.answer(leader, broker.id, ask)
    if not found.error and not found.diverging and not ask.epoch_question:
        leading.note_progress(leader, broker.id, broker.broker_epoch, ask, found.log_end)
        if not found.runs:
            found = leading.answer(leader, broker.id, ask)
    broker.mailbox[partition] = found
    return True


def _fetch_response(cluster: SimulatedCluster, action: Action) -> bool:
    broker, partition = _broker(cluster, action), _partition(action)
    if broker is None or not broker.answers or partition not in broker.mailbox:
        return False
    answer = broker.mailbox.pop(partition)
    following.take(broker, broker.replicas[partition], answer)
    for fetcher in broker.fetchers.values():
        fetcher.start_anew()
    return True


def _cut(cluster: SimulatedCluster, action: Action) -> bool:
    """Both directions unless `one_way`: then only from `source` to `target`."""
    source, target = str(action["source"]), str(action["target"])
    cluster.network.cuts.add((source, target))
    if not action.get("one_way"):
        cluster.network.cuts.add((target, source))
    return True


def _heal(cluster: SimulatedCluster, action: Action) -> bool:
    """One link, or with no source given all of them."""
    before = len(cluster.network.cuts)
    if "source" in action:
        source, target = str(action["source"]), str(action["target"])
        cluster.network.cuts -= {(source, target), (target, source)}
    else:
        cluster.network.cuts.clear()
    cluster.mode.links_changed()
    return len(cluster.network.cuts) < before


def _controller_failover(cluster: SimulatedCluster, action: Action) -> bool:
    del action
    return cluster.mode.fail_over()


def _preferred_election(cluster: SimulatedCluster, action: Action) -> bool:
    return cluster.mode.elect_preferred(_partition(action))


def _unclean_election(cluster: SimulatedCluster, action: Action) -> bool:
    return cluster.mode.elect_unclean(_partition(action))


def _wipe_disk(cluster: SimulatedCluster, action: Action) -> bool:
    """The broker is down and comes back with empty log directories."""
    broker = _broker(cluster, action)
    if broker is None or broker.up:
        return False
    cluster.touch_all(broker.replicas)
    cluster.truth.wiped(broker.id, list(broker.replicas))
    broker.replicas.clear()
    broker.clean_shutdown_epoch = -1
    return True


def _delete_topic(cluster: SimulatedCluster, action: Action) -> bool:
    return cluster.mode.delete_topic(action["topic"])


def _create_topic(cluster: SimulatedCluster, action: Action) -> bool:
    partitions = tuple(tuple(replicas) for replicas in action["partitions"])
    known = all(b in cluster.brokers for replicas in partitions for b in replicas)
    if not known or not all(partitions):
        return False
    topic = action["topic"]
    if any(partition.topic == topic for partition in cluster.mode.partitions()):
        return False
    return cluster.mode.create_topic(topic, cluster.new_topic_id(topic), partitions)


def _reassign(cluster: SimulatedCluster, action: Action) -> bool:
    target = tuple(action["replicas"])
    if not cluster.preset.reassignment or not all(b in cluster.brokers for b in target):
        return False
    if cluster.mode.partition(_partition(action)) is None or not target:
        return False
    return cluster.mode.reassign(_partition(action), target)


def _change_settings(cluster: SimulatedCluster, action: Action) -> bool:
    """Of one topic, or of all brokers."""
    changes = dict(action["settings"])
    topic = action.get("topic")
    allowed = TOPIC_SETTINGS if topic is not None else set(Settings.__slots__)
    if not set(changes) <= allowed:
        return False
    if topic is not None:
        cluster.topic_settings.setdefault(topic, {}).update(changes)
    else:
        if "delay_ms" in changes:
            changes["delay_ms"] = tuple(changes["delay_ms"])
        cluster.change_cluster_settings(changes)
    cluster.mode.settings_changed(topic, tuple(sorted(changes)))
    return True


def _retention(cluster: SimulatedCluster, action: Action) -> bool:
    """One broker deletes old segments by itself, up to `offset` or where its version stops."""
    broker = _broker(cluster, action)
    replica = broker.replicas.get(_partition(action)) if broker is not None else None
    if broker is None or not broker.answers or replica is None or not replica.known:
        return False
    replica.remove_old_segments(action["offset"])
    return True


def _delete_records(cluster: SimulatedCluster, action: Action) -> bool:
    """DeleteRecords (0.11+) goes to the leader; followers learn the new log start with their
    fetches."""
    partition = _partition(action)
    leader = cluster.believed_leader(partition)
    if leader is None or not cluster.preset.delete_records:
        return False
    leader.replicas[partition].raise_log_start(action["offset"])
    return True


def _produce(cluster: SimulatedCluster, action: Action) -> bool:
    """To the leader clients believe in, or to a named broker that still believes to lead."""
    partition, named = _partition(action), action.get("broker")
    broker = cluster.believed_leader(partition) if named is None else cluster.brokers.get(named)
    if broker is None or not broker.answers:
        return False
    replica = broker.replicas.get(partition)
    if replica is None or not replica.leads:
        return False
    short = len(replica.isr) < cluster.min_isr(partition.topic)
    if action.get("acks") == "all" and short:
        return False
    first = replica.log_end
    broker.append(partition, int(action["records"]))
    known = cluster.names.setdefault(partition, {})
    for number, name in enumerate(action.get("names") or ()):
        known[replica.leader_epoch, broker.incarnation, first + number] = name
    return True


ACTIONS: Final[dict[str, Callable[[SimulatedCluster, Action], bool]]] = {
    "crash": _crash,
    "power_loss": _power_loss,
    "bounce": _bounce,
    "clean_stop": _clean_stop,
    "start": _start,
    "session_expiry": _session_expiry,
    "pause": _pause,
    "resume": _resume,
    "slow_follower": _slow_follower,
    "slow_fetcher_removal": _slow_fetcher_removal,
    "hold_fetches": _hold_fetches,
    "release_fetches": _release_fetches,
    "fetch_request": _fetch_request,
    "fetch_response": _fetch_response,
    "cut": _cut,
    "heal": _heal,
    "controller_failover": _controller_failover,
    "preferred_election": _preferred_election,
    "unclean_election": _unclean_election,
    "wipe_disk": _wipe_disk,
    "delete_topic": _delete_topic,
    "create_topic": _create_topic,
    "reassign": _reassign,
    "change_settings": _change_settings,
    "retention": _retention,
    "delete_records": _delete_records,
    "produce": _produce,
}


class Commands(ABC):
    """The actions as calls."""

    @abstractmethod
    def apply(self, action: Mapping[str, Any]) -> bool: ...

    def on(self, verb: str, broker: BrokerId, **more: Any) -> bool:
        """An action on one broker."""
        return self.apply({"do": verb, "broker": broker, **more})

    def at(self, verb: str, partition: TopicPartition, **more: Any) -> bool:
        """An action on one partition."""
        return self.apply(
            {"do": verb, "topic": partition.topic, "partition": partition.partition, **more}
        )

    def produce(
        self,
        topic: str,
        partition: int,
        records: int = 1,
        names: Sequence[str] | None = None,
        broker: BrokerId | None = None,
    ) -> bool:
        more: dict[str, Any] = {"records": records}
        if names is not None:
            more["names"] = list(names)
        if broker is not None:
            more["broker"] = broker
        return self.at("produce", TopicPartition(topic, partition), **more)
