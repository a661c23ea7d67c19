"""leader-epoch-checkpoint as a replica keeps it (kafka.server.epoch.LeaderEpochFileCache)."""

from __future__ import annotations

from tidestaff.consistency.model import UNDEFINED_EPOCH, UNDEFINED_OFFSET, EpochEntry, Lineage


class EpochFile:
    """(epoch, start offset) entries; the first generation (0.11 - 2.0.0) ignores what goes back,
    the second (2.0.1+) drops the entries that a new one contradicts. Entries are a tuple, so that
    whoever reads them need not copy them."""

    __slots__ = ("entries", "generation")

    def __init__(self, generation: int) -> None:
        self.generation = generation
        self.entries: Lineage = ()

    @property
    def latest(self) -> int:
        return self.entries[-1].epoch if self.entries else UNDEFINED_EPOCH

    def assign(self, epoch: int, start: int) -> None:
        entries = self.entries
        last = entries[-1] if entries else None
        if self.generation == 1:
            if last is None or (epoch > last.epoch and start >= last.start_offset):
                self.entries = (*entries, EpochEntry(epoch, start))
            return
        if last is not None and last.epoch == epoch and start >= last.start_offset:
            return
        kept = len(entries)
        while kept and (
            entries[kept - 1].epoch >= epoch or entries[kept - 1].start_offset >= start
        ):
            kept -= 1
        self.entries = (*entries[:kept], EpochEntry(epoch, start))

    def truncate_from_end(self, offset: int) -> None:
        entries = self.entries
        kept = len(entries)
        while kept and entries[kept - 1].start_offset >= offset:
            kept -= 1
        self.entries = entries[:kept]

    def truncate_from_start(self, offset: int) -> None:
        below = [entry for entry in self.entries if entry.start_offset <= offset]
        if below:
            first = EpochEntry(below[-1].epoch, offset)
            self.entries = (first, *self.entries[len(below) :])

    def clear(self) -> None:
        self.entries = ()

    def end_offset_for(self, epoch: int, log_end: int) -> tuple[int, int]:
        """(epoch, end offset) of the largest epoch not above the one asked; -1, -1 if unknown."""
        undefined = (UNDEFINED_EPOCH, UNDEFINED_OFFSET)
        if epoch == UNDEFINED_EPOCH or not self.entries:
            return undefined
        if epoch == self.entries[-1].epoch:
            return epoch, log_end
        higher = next((e for e in self.entries if e.epoch > epoch), None)
        lower = [e for e in self.entries if e.epoch <= epoch]
        if higher is None or (self.generation == 1 and not lower):
            return undefined
        return (lower[-1].epoch if lower else epoch), higher.start_offset
