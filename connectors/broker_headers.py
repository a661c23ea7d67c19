"""The epoch lineage of a follower, by bisection over the headers of its batches.

Only a leader says where epochs end, but every replica hands out its batches, and each names the
epoch it was written in. Epochs never fall along a log: between two batches of one epoch there is
nothing to look for, and between two epochs half of the offsets can be left out with every batch
that is read. The leader's own lineage tells where to look first.

A lineage that may miss an epoch is not delivered: batches above the high watermark are not handed
out, and where cleaning has left a hole between two epochs, the start of the later one is lost.
"""

from __future__ import annotations

from itertools import pairwise
from typing import TYPE_CHECKING, NamedTuple

from tidestaff.consistency.model import EpochEntry

if TYPE_CHECKING:
    from collections.abc import Sequence

    from tidestaff.connectors.broker_answers import BatchHeader
    from tidestaff.consistency.model import Lineage


class FollowerLog(NamedTuple):
    """What a follower said of its log in this round. `leader_epoch` is the one it believes in."""

    log_start_offset: int
    high_watermark: int
    log_end_offset: int
    leader_epoch: int
    topic_id: str | None = None

    @property
    def visible_end(self) -> int:
        """Up to here batches are handed out."""
        return min(self.high_watermark, self.log_end_offset)


class _Run(NamedTuple):
    """Batches of one epoch from `first` to `last`. From `free_from` to `first` there is none."""

    epoch: int
    first: int
    last: int
    free_from: int


class HeaderSearch:
    """One follower's lineage on its way, over several rounds.

    A follower cuts its log when it hears of a new leader epoch, at a moment nobody is told. What it
    has of the epoch it believes in was fetched after the cut, so whatever was read before that is
    seen is forgotten, and the end of the log is read first. Where it has nothing of that epoch yet,
    the search begins a round later and the end is read once more in another round; and as long as
    the log is not the beginning of its leader's, it may still be cut, so in every round.
    """

    def __init__(self, log: FollowerLog) -> None:
        self._log = log
        self._runs: list[_Run] = []
        self._rounds = 0
        self._whole_since: int | None = None
        self._confirmed_in: int | None = None
        self._failed = False
        self._contradicted = False
        self.alone = False
        """The batch that is looked for did not fit beside those of other partitions."""

    def is_of(self, log: FollowerLog) -> bool:
        """Whether what is known counts for this log: of the same epoch, and not cut since."""
        mine = (self._log.topic_id, self._log.leader_epoch)
        cut = log.log_end_offset < self._log.log_end_offset
        return mine == (log.topic_id, log.leader_epoch) and not cut and not self._contradicted

    def begin_round(self, log: FollowerLog) -> None:
        assert self.is_of(log)
        self._log = log
        self._rounds += 1
        self._runs = [run for run in self._runs if run.last >= log.log_start_offset]
        if self._whole_since is not None and not self._is_whole():
            self._whole_since, self._confirmed_in = None, None

    def next_position(self, hints: Lineage) -> int | None:
        """Where to read a batch next; None where nothing is left to do in this round. `hints` is
        the lineage of the leader."""
        log = self._log
        if self._failed or self._rounds < 2 or log.log_start_offset >= log.visible_end:
            return None
        if self._is_whole():
            # To look again in the round in which it was found would prove nothing.
            new = self._whole_since == self._rounds
            return None if new or self._is_certain(hints) else self._end()
        if not self._runs or self._tail_is_open():
            # Without a batch that is not visible yet nothing more can be known.
            known = bool(self._runs) and self._runs[-1].last >= self._end()
            return None if known else self._end()
        if self._runs[0].free_from > log.log_start_offset:
            return log.log_start_offset
        return self._between(hints)

    def take(self, position: int, headers: Sequence[BatchHeader]) -> None:
        """The batches from a position on, as they stand one after the other."""
        if not headers:
            self._failed = self.alone
            self.alone = True
            return
        self.alone = False
        confirming = self._is_whole()
        if any(h.leader_epoch == self._log.leader_epoch for h in headers) and not self._is_after():
            self._runs = []
        free_from = position
        for header in headers:
            if header.leader_epoch is None or header.leader_epoch < 0:
                self._failed = True
                return
            free = min(free_from, header.first_offset)
            self._runs.append(
                _Run(header.leader_epoch, header.first_offset, header.last_offset, free)
            )
            free_from = header.last_offset + 1
        self._merge()
        if self._is_whole():
            self._whole_since = self._whole_since or self._rounds
            if confirming:
                self._confirmed_in = self._rounds

    def is_over(self, hints: Lineage) -> bool:
        """Found, or given up."""
        return self._failed or (self._is_whole() and self._is_certain(hints))

    def lineage(self, hints: Lineage) -> Lineage | None:
        """Complete from the log start to the log end, or None."""
        if self._failed or not self._is_whole() or not self._is_certain(hints):
            return None
        return self._entries()

    # -- the inside

    def _end(self) -> int:
        return self._log.visible_end - 1

    def _tail_is_open(self) -> bool:
        """Whether a newer epoch may begin after the last batch that is known."""
        last, log = self._runs[-1], self._log
        return last.epoch < log.leader_epoch and last.last + 1 < log.log_end_offset

    def _is_whole(self) -> bool:
        log = self._log
        return (
            bool(self._runs)
            and self._runs[0].free_from <= log.log_start_offset
            and not self._tail_is_open()
            and all(a.last + 1 >= b.free_from for a, b in pairwise(self._runs))
        )

    def _is_after(self) -> bool:
        """Whether the follower has fetched in the epoch it believes in, as far as is known."""
        return bool(self._runs) and self._runs[-1].epoch == self._log.leader_epoch

    def _is_certain(self, hints: Lineage) -> bool:
        if self._is_after() or self._confirmed_in == self._rounds:
            return True
        return self._confirmed_in is not None and self._entries() == self._part_of(hints)

    def _entries(self) -> Lineage:
        start = self._log.log_start_offset
        return tuple(EpochEntry(run.epoch, max(run.first, start)) for run in self._runs)

    def _part_of(self, lineage: Lineage) -> Lineage:
        """Of another lineage what this log would have, if it were the beginning of the other."""
        start, end = self._log.log_start_offset, self._log.log_end_offset
        ends = [*(entry.start_offset for entry in lineage[1:]), end]
        return tuple(
            EpochEntry(entry.epoch, max(entry.start_offset, start))
            for entry, entry_end in zip(lineage, ends, strict=False)
            if entry.start_offset < min(entry_end, end) and entry_end > start
        )

    def _between(self, hints: Lineage) -> int:
        """Where the first epoch that is not bounded yet may end: where the leader has an end, or in
        the middle."""
        for a, b in pairwise(self._runs):
            if a.last + 1 < b.free_from:
                for _, start in hints:
                    for offset in (start, start - 1):
                        if a.last < offset < b.free_from:
                            return offset
                return (a.last + b.free_from) // 2
        raise AssertionError("a search that is not whole has an open end")

    def _merge(self) -> None:
        """Runs of one epoch become one. What no log can be like was read while it was cut; a hole
        where an epoch begins was left by cleaning."""
        merged: list[_Run] = []
        for run in sorted(self._runs, key=lambda each: (each.first, each.last)):
            before = merged[-1] if merged else None
            if before is not None and before.epoch == run.epoch:
                last = max(before.last, run.last)
                merged[-1] = before._replace(
                    last=last, free_from=min(before.free_from, run.free_from)
                )
            else:
                merged.append(run)
        self._runs = merged
        start = self._log.log_start_offset
        self._contradicted = any(
            b.epoch < a.epoch or b.first <= a.last for a, b in pairwise(merged)
        )
        hole = merged[0].free_from <= start < merged[0].first or any(
            a.last + 1 >= b.free_from < b.first for a, b in pairwise(merged)
        )
        self._failed = self._contradicted or hole
