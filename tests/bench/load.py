"""A load of rows as a collector of a quiet cluster would send them, made without the simulator.

Bodies are encoded once; a round only moves offsets. So the load costs next to nothing beside what
it is to measure.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any, Final

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from tidestaff.connectors.wire import CLUSTER, MISSING, PARTITION, SCHEMA_VERSION, row_of
from tidestaff.consistency.model import (
    Assignment,
    BatchDigest,
    ClusterObservation,
    EpochEntry,
    OffsetRange,
    PartitionObservation,
    PartitionState,
    Registration,
    ReplicaReading,
)
from tidestaff.consistency.versions import rules_for

if TYPE_CHECKING:
    from pathlib import Path

    from tidestaff.connectors.wire import Row

ROUND_MS: Final = 5_000
BEGAN_MS: Final = 1_700_000_000_000
BROKERS: Final = 12
PER_TOPIC: Final = 100
RULES: Final = rules_for("3.9.1")
LIVE: Final = tuple(Registration(broker, 100 + broker) for broker in range(1, BROKERS + 1))

SCHEMA: Final = pa.schema(
    [
        ("schema_version", pa.int32()),
        *((name, pa.string()) for name in ("kind", "cluster", "source", "subject")),
        *((name, pa.int64()) for name in ("observed_at_ms", "previous_at_ms", "round")),
        *(
            (name, pa.list_(pa.int64()))
            for name in (
                *("log_start_offsets", "high_watermarks", "log_end_offsets", "read_at_ms"),
                "leader_again",
            )
        ),
        ("body", pa.binary()),
    ]
)


class Load:
    """A cluster of so many partitions with three replicas each."""

    def __init__(self, partitions: int, cluster: str = "load") -> None:
        self.count, self.cluster = partitions, cluster
        rows = [row_of(self._observation(number)) for number in range(partitions)]
        self._subjects = [row.subject for row in rows]
        self._bodies = [row.body for row in rows]
        self._chance = np.random.default_rng(1)
        self._ends = np.full(partitions, 1_000, np.int64)
        self._compared: dict[int, bytes] = {}
        self.rounds = 0

    def _observation(self, number: int) -> PartitionObservation:
        brokers = tuple((number + place) % BROKERS + 1 for place in range(3))
        lineage = (EpochEntry(0, 0), EpochEntry(3, 500))
        return PartitionObservation(
            self.cluster,
            f"topic-{number // PER_TOPIC}",
            number % PER_TOPIC,
            BEGAN_MS,
            RULES,
            PartitionState(brokers[0], 3, brokers, 7, 2),
            Assignment(brokers),
            tuple(r for r in LIVE if r.broker in brokers),
            replicas=tuple(
                ReplicaReading(
                    broker,
                    broker_epoch=100 + broker,
                    leader_epoch=3,
                    leads=broker == brokers[0],
                    lineage=lineage,
                )
                for broker in brokers
            ),
            topic_id=f"topic-id-{number // PER_TOPIC:013}",
            state_czxid=1_000 + number,
            controller=1,
            cluster_controller_epoch=2,
            source="collector",
        )

    def compare(self, every: int) -> None:
        """In the next round every so many-th partition comes with digests of some records."""
        for number in range(0, self.count, every):
            seen = self._observation(number)
            digests = [
                BatchDigest(broker, OffsetRange(0, 900), 7, 3)
                for broker in seen.assignment.replicas
            ]
            self._compared[number] = row_of(replace(seen, digests=tuple(digests))).body

    def report(self, at_ms: int) -> Row:
        everybody = tuple(r.broker for r in LIVE)
        return row_of(
            ClusterObservation(
                self.cluster,
                at_ms,
                RULES,
                1,
                2,
                2,
                LIVE,
                answering=everybody,
                leading=everybody,
                source="collector",
                round=self.rounds,
            ),
            None if self.rounds == 0 else at_ms - ROUND_MS,
        )

    def round(self) -> pa.Table:
        """The rows of the next round: every log has grown, followers have caught up."""
        at_ms = BEGAN_MS + self.rounds * ROUND_MS
        grown = self._chance.integers(0, 50, self.count)
        self._ends = self._ends + np.where(grown > 5, grown, 0)
        ends = _lists(np.repeat(self._ends, 3), 3)
        columns: dict[str, Any] = {
            "schema_version": np.full(self.count, SCHEMA_VERSION, np.int32),
            "kind": [PARTITION] * self.count,
            "cluster": [self.cluster] * self.count,
            "source": ["collector"] * self.count,
            "subject": self._subjects,
            "observed_at_ms": np.full(self.count, at_ms),
            "previous_at_ms": np.full(self.count, at_ms - ROUND_MS if self.rounds else MISSING),
            "round": np.full(self.count, self.rounds),
            "log_start_offsets": _lists(np.zeros(3 * self.count, np.int64), 3),
            "high_watermarks": ends,
            "log_end_offsets": ends,
            "read_at_ms": _lists(np.full(3 * self.count, at_ms + 3), 3),
            "leader_again": _lists(np.empty(0, np.int64), 0, self.count),
            "body": [self._compared.get(n, body) for n, body in enumerate(self._bodies)],
        }
        self._compared = {}
        report = self.report(at_ms)
        assert report.kind == CLUSTER
        tail = pa.Table.from_pylist([report._asdict()], SCHEMA)
        self.rounds += 1
        return pa.concat_tables([pa.table(columns, SCHEMA), tail])

    def write(self, folder: Path, rounds: int) -> list[Path]:
        folder.mkdir(parents=True, exist_ok=True)
        paths = []
        for _ in range(rounds):
            table = self.round()
            path = folder / f"{self.rounds:06}.parquet"
            pq.write_table(table, path, compression="zstd", row_group_size=50_000)
            paths.append(path)
        return paths


def _lists(values: Any, width: int, count: int | None = None) -> pa.ListArray:
    size = len(values) // width if count is None else count
    offsets = np.arange(size + 1, dtype=np.int32) * width
    return pa.ListArray.from_arrays(offsets, values)
