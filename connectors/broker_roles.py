"""Who leads, by the replicas' own word.

Only a leader answers where an epoch ends; a follower refuses. Kafka gives nobody another role
within an epoch, so a follower that said so is asked again with a new epoch, and now and then: one
that took office in the epoch of another is found a few rounds later.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, NamedTuple

from tidestaff.connectors.broker_answers import (
    NO_ERROR,
    NOT_LEADER_OR_FOLLOWER,
    UNSUPPORTED_VERSION,
    EpochEnd,
    EpochQuestion,
)
from tidestaff.connectors.errors import UnsupportedRequestError

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from tidestaff.connectors.broker_answers import BrokerReader, ListedOffset
    from tidestaff.consistency.model import BrokerId, TopicPartition

ASKED_EVERY: Final = 4
"""Readings of a follower whose epoch stays the same."""


class _Follower(NamedTuple):
    """In which epoch it said that it does not lead, and how many readings took its word since."""

    leader_epoch: int
    believed: int


class Claims(NamedTuple):
    """Who says it leads and who says it does not, and the newest epoch of those that lead."""

    leads: dict[TopicPartition, bool]
    newest: dict[TopicPartition, int]


class Roles:
    """Keeps which followers have said that they are."""

    def __init__(self, reader: BrokerReader) -> None:
        self._reader = reader
        self._followers: dict[BrokerId, dict[TopicPartition, _Follower]] = {}

    def forget(self) -> None:
        self._followers = {}

    def claims(
        self, broker: BrokerId, ends: Mapping[TopicPartition, ListedOffset], *, as_leader: bool
    ) -> Claims:
        """In the very epoch that each replica named with its log end. A replica that has moved on
        meanwhile refuses the epoch and is neither. Whoever the metadata calls a leader is asked
        every time."""
        known = self._followers.setdefault(broker, {})
        found = Claims({}, {})
        asked = []
        for partition, end in ends.items():
            if end.error != NO_ERROR or end.leader_epoch is None:
                continue
            follower = known.pop(partition, None)
            if as_leader or not _is_believed(follower, end.leader_epoch):
                asked.append(EpochQuestion(partition, end.leader_epoch, end.leader_epoch))
            elif follower is not None:
                found.leads[partition] = False
                known[partition] = follower._replace(believed=follower.believed + 1)
        for question, answer in zip(asked, self.epoch_ends(broker, asked), strict=True):
            if answer.error == NO_ERROR:
                found.leads[question.partition] = True
                found.newest[question.partition] = answer.epoch
            elif answer.error == NOT_LEADER_OR_FOLLOWER:
                found.leads[question.partition] = False
                known[question.partition] = _Follower(question.epoch, 0)
        # Before 2.1 a replica does not name its epoch, but it knows whether it leads.
        silent = [
            partition
            for partition, end in ends.items()
            if end.error == NO_ERROR and end.leader_epoch is None
        ]
        if silent:
            found.leads.update(self._reader.leading(broker, silent))
        return found

    def epoch_ends(self, broker: BrokerId, asked: Sequence[EpochQuestion]) -> Sequence[EpochEnd]:
        if not asked:
            return []
        try:
            return self._reader.epoch_ends(broker, asked)
        except UnsupportedRequestError:
            # Before 0.11 there are no epochs to ask for.
            return [EpochEnd(UNSUPPORTED_VERSION) for _ in asked]


def _is_believed(follower: _Follower | None, leader_epoch: int) -> bool:
    return (
        follower is not None
        and follower.leader_epoch == leader_epoch
        and follower.believed < ASKED_EVERY - 1
    )
