"""What a bucket keeps of each subject: its place in the sequence, its memory, its findings."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tidestaff.streaming.operator.sequence import Sequence

if TYPE_CHECKING:
    from tidestaff.consistency.memory import ClusterMemory, HealthMemory, PartitionMemory
    from tidestaff.streaming.operator.events import Findings


class Hearing:
    """When a source reported last, whether it is said to be silent, and its reports that wait for
    others that may be on their way."""

    __slots__ = ("last_ms", "silent", "waiting")

    def __init__(self, last_ms: int, waiting: list[int], *, silent: bool) -> None:
        self.last_ms, self.silent, self.waiting = last_ms, silent, waiting


class Subject:
    """A cluster, or one place of a source. `heard` in this batch; `waited_ms` is for how long the
    job's clock has ticked since it was heard last. `sources` are those of a cluster; `about` is the
    partition that a place of a source was last said to concern, or topic alone."""

    __slots__ = (
        *("about", "active", "cluster", "heard", "kind", "memory", "name", "sequence"),
        *("sources", "waited_ms"),
    )

    def __init__(self, kind: str, cluster: str, name: str) -> None:
        self.kind, self.cluster, self.name = kind, cluster, name
        self.sequence = Sequence()
        self.memory: ClusterMemory | HealthMemory | None = None
        self.active: Findings = {}
        self.heard = False
        self.waited_ms = 0
        self.sources: dict[str, Hearing] = {}
        self.about: tuple[str | None, int | None] = (None, None)


class Partition:
    """A partition. While its slot is armed `memory` holds all but the numbers of the slot.

    `memory` is None before the first row, and while it waits undecoded in `packed`. `body` is that
    of the last row. `shown` are the findings that people were last told of, at `told_ms`; None
    before anything was told.
    """

    __slots__ = (
        *("active", "body", "changed", "cluster", "memory", "name", "packed", "sequence"),
        *("shown", "silent_since", "slot", "told_ms"),
    )

    def __init__(self, cluster: str, name: str, slot: int) -> None:
        self.cluster, self.name, self.slot = cluster, name, slot
        self.sequence = Sequence()
        self.memory: PartitionMemory | None = None
        self.active: Findings = {}
        self.body: bytes | None = None
        self.silent_since: int | None = None
        self.packed: bytes | None = None
        self.changed = True
        self.shown: tuple[object, ...] | None = None
        self.told_ms = -1
