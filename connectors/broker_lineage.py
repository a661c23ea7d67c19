"""The epoch lineage of a leader, from its own answers on where epochs end.

The answer for epoch x names the largest epoch not above x that has an entry, and the start of the
next entry. So from the newest epoch downwards every answer gives the start of one entry and the
epoch of the one before it. A lineage that may miss an entry is not delivered.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, NamedTuple

from tidestaff.connectors.broker_answers import NO_ERROR, EpochQuestion
from tidestaff.consistency.model import EpochEntry

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from tidestaff.connectors.broker_answers import EpochEnd
    from tidestaff.consistency.model import BrokerId, Lineage, TopicPartition

LONGEST: Final = 2_000
"""Entries of one lineage: each costs a request. A longer one is not delivered, and that is told."""


Office = tuple["BrokerId", int, str | None]
"""Who leads, in which epoch, which topic id: under it a lineage changes at its beginning only."""


class Leading(NamedTuple):
    """A replica that says it leads: in which epoch, the newest epoch of its log, its log start."""

    leader_epoch: int
    newest: int
    log_start_offset: int


class _Walk:
    """One lineage on its way down. `above` is the start of the lowest entry known so far."""

    def __init__(self, leading: Leading) -> None:
        self.leading = leading
        self.entries: list[EpochEntry] = []
        self.candidate = leading.newest
        # An answer names the epoch asked for also where nothing below it has an entry.
        self.certain = True
        self.above: int | None = None
        self.failed = False
        self.too_long = False
        self.done = False
        self._finish_at_epoch_zero()

    @property
    def asks_for(self) -> int:
        return self.candidate - 1

    def take(self, answer: EpochEnd) -> None:
        asked = self.asks_for
        start = answer.end_offset
        if answer.error != NO_ERROR or answer.epoch < 0 or start < 0 or answer.epoch > asked:
            self.failed = True
        elif self.above is not None and start == self.above and not self.certain:
            self.done = True  # the same entry again: there is none below
        elif self.above is not None and start >= self.above:
            self.failed = True  # the log was cut while we asked
        else:
            self.entries.append(EpochEntry(self.candidate, start))
            self.above = start
            self.candidate, self.certain = answer.epoch, answer.epoch < asked
            self._finish_at_epoch_zero()
        self.too_long = len(self.entries) > LONGEST
        self.failed = self.failed or self.too_long

    def _finish_at_epoch_zero(self) -> None:
        """Nobody can be asked for what ends before epoch 0; its entry starts where the log does."""
        if self.candidate > 0:
            return
        self.done = True
        start = self.leading.log_start_offset
        if self.above is None or start < self.above:
            self.entries.append(EpochEntry(0, start))

    def lineage(self) -> Lineage | None:
        return None if self.failed else tuple(reversed(self.entries))


class Walked(NamedTuple):
    """Complete lineages, and those that have too many entries. What is in neither was cut or
    refused while it was asked for: it may be found the next time."""

    found: dict[TopicPartition, Lineage]
    too_long: list[TopicPartition]


def walk(
    leading: Mapping[TopicPartition, Leading],
    ask: Callable[[Sequence[EpochQuestion]], Sequence[EpochEnd]],
) -> Walked:
    """The lineages of these leaders; all of them go down together, in few requests."""
    walks = {partition: _Walk(each) for partition, each in leading.items()}
    while open_walks := [(p, w) for p, w in walks.items() if not (w.done or w.failed)]:
        questions = [
            EpochQuestion(partition, each.leading.leader_epoch, each.asks_for)
            for partition, each in open_walks
        ]
        for (_, each), answer in zip(open_walks, ask(questions), strict=True):
            each.take(answer)
    found = {partition: each.lineage() for partition, each in walks.items()}
    return Walked(
        {partition: lineage for partition, lineage in found.items() if lineage is not None},
        [partition for partition, each in walks.items() if each.too_long],
    )


def from_log_start(lineage: Lineage, log_start_offset: int) -> Lineage:
    """What the leader's own list is once its log starts there: older entries become one."""
    older = [entry for entry in lineage if entry.start_offset <= log_start_offset]
    if not older:
        return lineage
    first = EpochEntry(older[-1].epoch, log_start_offset)
    return (first, *lineage[len(older) :])


class Lineages:
    """Lineages by leader: within one leader epoch a leader's list changes at its beginning only."""

    def __init__(self) -> None:
        self._known: dict[TopicPartition, tuple[Office, Lineage]] = {}
        self._too_long: dict[TopicPartition, Office] = {}

    def known(self, partition: TopicPartition, office: Office) -> Lineage | None:
        held = self._known.get(partition)
        return held[1] if held is not None and held[0] == office else None

    def latest(self, partition: TopicPartition) -> Lineage:
        """Of whoever led last; where a follower's epochs are looked for first."""
        return self._known[partition][1] if partition in self._known else ()

    def keep(
        self,
        partition: TopicPartition,
        office: Office,
        lineage: Lineage,
    ) -> None:
        self._known[partition] = (office, lineage)

    def is_too_long(self, partition: TopicPartition, office: Office) -> bool:
        """It was found to be so: asking again would cost as many requests, and show the same."""
        return self._too_long.get(partition) == office

    def keep_too_long(self, partition: TopicPartition, office: Office) -> None:
        self._too_long[partition] = office

    def forget(self) -> None:
        """Now and then everything is asked anew."""
        self._known.clear()
        self._too_long.clear()
