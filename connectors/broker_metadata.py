"""Metadata as the brokers' caches have it: not authoritative, and without partition epochs.

Reassignments, the quorum and ELR come from other requests than the rest, so they may be about
another moment.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, NamedTuple, TypeVar

from tidestaff.connectors.broker_bracket import (
    agrees,
    assignment_of,
    imbalance_of,
    may_have_elr,
    registrations_of,
    state_of,
)
from tidestaff.connectors.broker_health import problem_of, voter_problems
from tidestaff.connectors.cluster_view import ClusterView, KnownPartition
from tidestaff.connectors.errors import ConnectorError, UnsupportedRequestError
from tidestaff.consistency.model import LEADER_DURING_DELETION, NO_LEADER, ProblemKind
from tidestaff.consistency.versions import Mode

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from tidestaff.connectors.broker_answers import (
        BrokerReader,
        ClusterMetadata,
        Eligible,
        Moving,
    )
    from tidestaff.connectors.broker_options import BrokerOptions
    from tidestaff.connectors.cluster_view import Problems, Refresh
    from tidestaff.consistency.model import BrokerId, Registration, TopicPartition
    from tidestaff.consistency.versions import RuleSet

T = TypeVar("T")

SOURCE: Final = "brokers"


class _Controller(NamedTuple):
    """Who is controller, in which epoch; None where it is not told."""

    broker: BrokerId | None = None
    epoch: int | None = None
    voters: tuple[BrokerId, ...] = ()


class BrokerMetadata:
    """Implements MetadataSource."""

    name = SOURCE
    authoritative = False

    def __init__(self, reader: BrokerReader, options: BrokerOptions) -> None:
        self._reader, self._options = reader, options
        self._rules: RuleSet | None = None
        self._before: ClusterMetadata | None = None
        self._moving: Mapping[TopicPartition, Moving] = {}

    def before(self, turn: int, refresh: Refresh, problems: Problems) -> ClusterView:
        metadata = self._before = self._reader.metadata(turn)
        topics = {
            partition.topic: known.topic_id
            for partition, known in metadata.partitions.items()
            if self._options.wants(partition.topic)
        }
        rules = self._rules = refresh(metadata.brokers.keys(), topics, None)
        controller = self._controller(metadata, problems)
        moving = self._moving = self._reassignments(metadata, problems)
        eligible = (
            self._optional("eligible leader replicas", self._reader.eligible, problems)
            if rules.elr
            else None
        )
        held = rules.rebalance_waits_for_reassignment and moving
        # Before 1.0 brokers keep a partition's replicas as a set, and tell them in the order of
        # their ids: the first of them need not be the preferred one. ZooKeeper tells which is.
        unordered = not rules.version.at_least(1, 0)
        return ClusterView(
            self._registrations(metadata, problems),
            self._partitions(metadata, moving, eligible or {}, with_elr=rules.elr),
            {} if held or unordered else imbalance_of(metadata),
            controller.broker,
            controller.epoch,
            controller.epoch,
            controller.voters,
        )

    def after(self, turn: int, problems: Problems) -> ClusterView | None:
        """Reassignments and ELR are not asked again: they agreed with the first answer or not."""
        assert self._before is not None
        try:
            metadata = self._reader.metadata(turn)
        except ConnectorError:
            return None
        controller = self._controller(metadata, problems)
        return ClusterView(
            {each.broker: each for each in registrations_of(metadata)},
            self._partitions(metadata, {}, {}),
            {},
            controller.broker,
            controller.epoch,
        )

    def close(self) -> None:
        """The reader belongs to whoever reads replicas with it."""

    def _partitions(
        self,
        metadata: ClusterMetadata,
        moving: Mapping[TopicPartition, Moving],
        eligible: Mapping[TopicPartition, Eligible],
        *,
        with_elr: bool = False,
    ) -> dict[TopicPartition, KnownPartition]:
        return {
            partition: KnownPartition(
                state_of(known, eligible.get(partition)),
                assignment_of(known, moving.get(partition)),
                version=known,
                topic_id=known.topic_id,
                deleting=known.leader == LEADER_DURING_DELETION,
                agreed=agrees(known, moving.get(partition), eligible.get(partition))
                and not (with_elr and partition not in eligible and may_have_elr(known)),
            )
            for partition, known in metadata.partitions.items()
            if self._options.wants(partition.topic)
        }

    def _registrations(
        self, metadata: ClusterMetadata, problems: Problems
    ) -> dict[BrokerId, Registration]:
        """Brokers that the metadata lists are live; KRaft controllers keep fenced ones, too, which
        brokers tell from 4.0 on. Broker epochs are told to nobody but brokers.

        An older one is asked every time: from what it told of its versions it is known here that it
        cannot answer, so nothing is sent, and after an upgrade it can."""
        found = {each.broker: each for each in registrations_of(metadata)}
        assert self._rules is not None
        if self._rules.mode is Mode.ZOOKEEPER:
            return found
        try:
            registered = self._reader.registered()
        except UnsupportedRequestError:
            return found
        except ConnectorError as error:
            place = "registrations"
            problems[place] = problem_of(place, error, ProblemKind.UNREADABLE)
            return found
        fenced = {each.broker: each for each in registered if each.fenced}
        return {**fenced, **found}

    def _controller(self, metadata: ClusterMetadata, problems: Problems) -> _Controller:
        """In KRaft mode brokers' metadata names any of them, so the quorum is asked."""
        assert self._rules is not None
        if self._rules.mode is Mode.ZOOKEEPER:
            return _Controller(metadata.controller)
        if _controller_is_away(problems):
            return _Controller()
        quorum = self._optional("quorum", self._reader.quorum, problems)
        if quorum is None:
            return _Controller()
        for problem in voter_problems(quorum):
            problems[problem.place] = problem
        return _Controller(quorum.leader, quorum.epoch, tuple(v.node for v in quorum.voters))

    def _reassignments(
        self, metadata: ClusterMetadata, problems: Problems
    ) -> Mapping[TopicPartition, Moving]:
        """In ZooKeeper mode the controller knows them, in KRaft mode any broker passes it on. While
        they cannot be read, those known before count where the replicas are still the same."""
        assert self._rules is not None
        kraft = self._rules.mode is Mode.KRAFT
        found = None
        if not _controller_is_away(problems):
            found = self._optional(
                "reassignments",
                lambda: self._reader.reassignments(NO_LEADER if kraft else metadata.controller),
                problems,
            )
        if found is None:
            known = metadata.partitions
            found = {
                partition: moving
                for partition, moving in self._moving.items()
                if partition in known and agrees(known[partition], moving, None)
            }
        return found

    def _optional(self, place: str, ask: Callable[[], T], problems: Problems) -> T | None:
        try:
            return ask()
        except UnsupportedRequestError:
            return None  # a broker of that age has nothing to tell
        except ConnectorError as error:
            problems[place] = problem_of(place, error, ProblemKind.UNREADABLE)
            return None


def _controller_is_away(problems: Problems) -> bool:
    """It was asked in this round and did not answer: asking again would cost another timeout."""
    quorum = problems.get("quorum")
    return quorum is not None and not quorum.at_once
