"""ZooKeeper as the source of metadata: what the controller itself reads and writes.

A partition's epoch is the version of its state node, a broker's epoch the transaction that made its
registration. What is not understood keeps the last value that was, and is never called coherent.
"""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Final

from tidestaff.connectors.broker_health import Problem, problem_of
from tidestaff.connectors.cluster_view import ChangedValues, ClusterView, KnownPartition
from tidestaff.connectors.errors import ConnectorError
from tidestaff.connectors.pacing import Pace
from tidestaff.connectors.zookeeper_answers import MovedToKraftError, TwoClustersError
from tidestaff.connectors.zookeeper_tree import ZookeeperTree
from tidestaff.consistency.model import (
    NO_LEADER,
    Assignment,
    ProblemKind,
    Registration,
    TopicPartition,
)
from tidestaff.consistency.znodes import MIGRATION, NO_KRAFT_CONTROLLER, TOPICS

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from tidestaff.connectors.broker_answers import ClusterMetadata
    from tidestaff.connectors.cluster_view import Problems, Refresh
    from tidestaff.connectors.zookeeper_answers import ZnodeReader
    from tidestaff.connectors.zookeeper_nodes import StateNode, Tree
    from tidestaff.connectors.zookeeper_options import ZookeeperOptions
    from tidestaff.consistency.model import BrokerId
    from tidestaff.consistency.versions import RuleSet
    from tidestaff.consistency.znodes import Migration

SOURCE: Final = "zookeeper"


class ZookeeperMetadata:
    """Implements MetadataSource. `locate` tells those who read replicas where the brokers are, and
    us which cluster they are of."""

    name = SOURCE
    authoritative = True

    def __init__(
        self,
        tree: ZookeeperTree,
        reader: ZnodeReader,
        wants: Callable[[str], bool],
        locate: Callable[[int], ClusterMetadata] | None = None,
    ) -> None:
        self._tree, self._reader, self._wants, self._locate = tree, reader, wants, locate
        self._before: tuple[Tree, ClusterView] | None = None
        self._rules: RuleSet | None = None
        self._partitions: Mapping[TopicPartition, KnownPartition] = {}
        self._quiet: dict[TopicPartition, Assignment] = {}
        self._brokers_cluster: str | None = None

    def before(self, turn: int, refresh: Refresh, problems: Problems) -> ClusterView:
        earlier = self._partitions
        tree = self._look(turn)
        if self._locate is not None:
            try:
                told = self._locate(turn).cluster_id
            except ConnectorError as error:
                problems["brokers"] = problem_of("brokers", error, ProblemKind.SILENT)
            else:
                self._brokers_cluster = told or self._brokers_cluster
        self._check_cluster(tree)
        topics: dict[str, object] = {p.topic: None for p in earlier if self._wants(p.topic)}
        topics |= {topic: _making(tree, topic) for topic in tree.topics if self._wants(topic)}
        changed = ChangedValues(tree.topic_configs, tree.broker_configs)
        self._rules = refresh(tree.brokers.keys(), topics, changed)
        for problem in (*tree.problems, *_without_state(tree), *_left_behind(tree)):
            if problem.topic is None or self._wants(problem.topic):
                problems[problem.place] = problem
        view = self._view(tree, earlier)
        self._before, self._partitions = (tree, view), view.partitions
        self._quiet = {p: known for p, known in self._quiet.items() if p in tree.states}
        return view

    def after(self, turn: int, problems: Problems) -> ClusterView | None:
        assert self._before is not None
        tree_before, view = self._before
        try:
            tree = self._look(turn)
        except ConnectorError as error:
            problems["zookeeper"] = problem_of("zookeeper", error, ProblemKind.SILENT)
            return None
        if tree.moment[0] != tree_before.moment[0]:
            problems["zookeeper"] = Problem(
                "zookeeper",
                ProblemKind.SILENT,
                f"the session with ZooKeeper at {self._reader.servers} was lost during a round",
                "what was read in this round is not called coherent; the next one is whole",
            )
            return None
        if tree.moment == tree_before.moment:
            return view._replace(
                controller_epoch=tree.epoch, controller_epoch_before=tree.epoch_before
            )
        return self._view(tree, self._partitions)

    def close(self) -> None:
        self._reader.close()

    def _look(self, turn: int) -> Tree:
        tree = self._tree.look(turn)
        if (controller := _kraft_controller(tree)) is not None:
            raise MovedToKraftError(self._reader.servers, controller)
        return tree

    def _check_cluster(self, tree: Tree) -> None:
        """Brokers that cannot be asked now are still those that were asked before."""
        mine, theirs = tree.about.cluster_id, self._brokers_cluster
        if mine is not None and theirs is not None and mine != theirs:
            raise TwoClustersError(self._reader.servers, mine, theirs)

    def _view(self, tree: Tree, earlier: Mapping[TopicPartition, KnownPartition]) -> ClusterView:
        assert self._rules is not None
        registrations = {
            broker: Registration(broker, each.czxid, rack=each.node.rack)
            for broker, each in sorted(tree.brokers.items())
        }
        partitions = {
            partition: self._known(tree, partition, state, registrations, earlier)
            for partition, state in tree.states.items()
            if self._wants(partition.topic)
        }
        for partition, known in earlier.items():
            if str(partition) in tree.unreadable or partition.topic in tree.unreadable:
                partitions[partition] = known._replace(agreed=False)
        moving = bool(tree.reassigning) or any(
            assignment.being_reassigned
            for topic in tree.topics.values()
            for assignment in topic.assignment.values()
        )
        held = self._rules.rebalance_waits_for_reassignment and moving
        return ClusterView(
            registrations,
            partitions,
            {} if held else _imbalance(tree),
            tree.controller.broker if tree.controller is not None else NO_LEADER,
            tree.epoch,
            tree.epoch_before,
            log_dir_events=tree.about.log_dir_events,
        )

    def _known(
        self,
        tree: Tree,
        partition: TopicPartition,
        state: StateNode,
        registrations: Mapping[BrokerId, Registration],
        earlier: Mapping[TopicPartition, KnownPartition],
    ) -> KnownPartition:
        topic = tree.topics[partition.topic]
        assignment = self._assignment(tree, partition, state)
        live = tuple(registrations.get(broker) for broker in assignment.replicas)
        version = (state, assignment, topic.topic_id, live, partition.topic in tree.deleting)
        known = earlier.get(partition)
        return KnownPartition(
            state.state,
            assignment,
            version=version,
            topic_id=topic.topic_id,
            state_czxid=state.czxid,
            deleting=partition.topic in tree.deleting,
            settled=known is not None and known.version == version,
        )

    def _assignment(self, tree: Tree, partition: TopicPartition, state: StateNode) -> Assignment:
        """Up to 2.3 a running reassignment is told by its request and the union in the topic node.

        Who is new in the union is known if the partition was seen before; else it is whoever is
        not in the ISR yet.
        """
        assert self._rules is not None
        written = tree.topics[partition.topic].assignment[partition.partition]
        if self._rules.reassignment_in_topic_znode:
            return written
        target = tree.reassigning.get(partition)
        if target is None or not set(target) <= set(written.replicas):
            self._quiet[partition] = written
            return written
        before = self._quiet.get(partition)
        old = before.replicas if before is not None else state.state.isr
        adding = tuple(b for b in written.replicas if b in target and b not in old)
        removing = tuple(b for b in written.replicas if b not in target)
        return Assignment(written.replicas, adding, removing)


def _making(tree: Tree, topic: str) -> int | None:
    """The state of a topic's first partition is made once; topics have ids from 2.8 on only."""
    state = tree.states.get(TopicPartition(topic, 0))
    return None if state is None else state.czxid


def _imbalance(tree: Tree) -> dict[BrokerId, float]:
    """As the controller reckons it: topics that are being deleted do not count, and a partition
    without a leader is not led by the one it prefers."""
    mine: dict[BrokerId, list[bool]] = {}
    for partition, state in tree.states.items():
        replicas = tree.topics[partition.topic].assignment[partition.partition].replicas
        if replicas and partition.topic not in tree.deleting:
            mine.setdefault(replicas[0], []).append(state.state.leader != replicas[0])
    return {broker: sum(wrong) / len(wrong) for broker, wrong in mine.items()}


def _without_state(tree: Tree) -> list[Problem]:
    """One for each topic. A topic that is being made or deleted has some such partitions for a
    moment, so this is told only where it lasts."""
    topics: dict[str, int] = {}
    for partition in tree.without_state:
        if partition.topic not in tree.deleting:
            topics[partition.topic] = topics.get(partition.topic, 0) + 1
    return [
        Problem(
            f"{TOPICS}/{topic}/partitions",
            ProblemKind.UNREADABLE,
            f"{count} partitions of topic {topic} have no state",
            "the controller writes it once a replica of the partition is live: start one of its "
            "brokers, or look for errors in the controller's log",
            topic=topic,
        )
        for topic, count in topics.items()
    ]


def _kraft_controller(tree: Tree) -> BrokerId | None:
    """The KRaft controller that is in charge. /migration alone does not say so: it is left behind
    where a migration was rolled back and a broker is controller again."""
    if tree.controller is not None:
        kraft = tree.controller.kraft_controller_epoch != NO_KRAFT_CONTROLLER
        return tree.controller.broker if kraft else None
    migration = tree.about.migration
    return migration.kraft_controller_id if migration is not None and _begun(migration) else None


def _begun(migration: Migration) -> bool:
    return migration.kraft_controller_id != NO_KRAFT_CONTROLLER


def _left_behind(tree: Tree) -> list[Problem]:
    migration = tree.about.migration
    if migration is None or not _begun(migration):
        return []
    return [
        Problem(
            MIGRATION,
            ProblemKind.UNREADABLE,
            f"KRaft controller {migration.kraft_controller_id} was in charge of this cluster, and "
            "a broker is controller again: the states count again",
            "if the migration was rolled back, delete /migration as Kafka's guide says; if it goes "
            "on, watch the cluster through its brokers, without zookeeper_connect",
            at_once=True,
        )
    ]


def zookeeper_source(
    options: ZookeeperOptions,
    wants: Callable[[str], bool],
    locate: Callable[[int], ClusterMetadata] | None = None,
) -> ZookeeperMetadata:
    """A real ZooKeeper as a source, not yet connected."""
    from tidestaff.connectors.kazoo_reader import KazooReader  # noqa: PLC0415 - slow

    pace = Pace(options.reads_per_second, lambda: time.monotonic() * 1_000, time.sleep)
    reader = KazooReader(options, pace=pace.wait)
    tree = ZookeeperTree(reader, reread_rounds=options.reread_rounds)
    return ZookeeperMetadata(tree, reader, wants, locate)
