"""Partitions, offsets and lineages: the words of `model` that everything needs."""

from __future__ import annotations

from typing import NamedTuple, TypeAlias

BrokerId: TypeAlias = int


class TopicPartition(NamedTuple):
    """A partition's name, written as Kafka writes it."""

    topic: str
    partition: int

    def __str__(self) -> str:
        return f"{self.topic}-{self.partition}"


class EpochEntry(NamedTuple):
    """One line of leader-epoch-checkpoint: the epoch, and the offset its first record has."""

    epoch: int
    start_offset: int


Lineage: TypeAlias = tuple[EpochEntry, ...]


class OffsetRange(NamedTuple):
    """Offsets from `start` up to, not including, `end`."""

    start: int
    end: int

    def __str__(self) -> str:
        return f"[{self.start},{self.end})"
