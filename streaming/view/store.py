"""The writer of the state store: what the operator's buckets tell, by one transaction a batch.

A batch that Spark repeats writes the same again. The page is no reason for the monitor to stop: a
store that cannot be written is said once, and what it missed waits for the next batch.
"""

from __future__ import annotations

import base64
import json
from typing import TYPE_CHECKING, Any, Final

from tidestaff.streaming.alerts.errors import StoreError
from tidestaff.streaming.alerts.schema import transaction
from tidestaff.streaming.operator.viewing import together, unpacked
from tidestaff.streaming.view.schema import create

if TYPE_CHECKING:
    from collections import Counter
    from collections.abc import Callable, Iterable, Sequence
    from pathlib import Path

    from tidestaff.streaming.alerts.batch import OutputRow
    from tidestaff.streaming.view.limits import HistoryLimits

PRUNE_EVERY: Final = 50
MAX_WAITING: Final = 50
_ROW: Final = (
    *("cluster", "topic", "partition", "at_ms", "flags", "shape"),
    *("bucket", "generation", "slot", "verified_ms", "doc"),
)
_PUT: Final = f"INSERT INTO partitions ({', '.join(_ROW)}) VALUES ({', '.join('?' * len(_ROW))})"  # noqa: S608
_APART: Final = {"cluster", "name", "at_ms", "flags", "shape", "slot"}


class StateStore:
    """One job writes it; `take` is called with everything a batch put out."""

    def __init__(self, path: Path, limits: HistoryLimits) -> None:
        self.path, self._limits = path, limits
        self._db = create(path)
        self._shapes: dict[str, int] = {}
        self._batches = 0

    def take(self, query_id: str, batch_id: int, rows: Iterable[OutputRow]) -> None:
        messages = [json.loads(row.payload) for row in rows if row.kind == "state"]
        with transaction(self._db, self.path):
            for message in messages:
                self._bucket(message)
            self._db.execute("INSERT OR REPLACE INTO batches VALUES (?, ?)", (query_id, batch_id))
            self._batches += 1
            if self._batches % PRUNE_EVERY == 1:
                self._prune()

    def _bucket(self, message: dict[str, Any]) -> None:
        number, generation = message["bucket"], message["generation"]
        told = json.loads(unpacked(base64.b64decode(message["told"])))
        self._db.execute(
            "INSERT OR REPLACE INTO buckets VALUES (?, ?, ?, ?)",
            (
                number,
                generation,
                base64.b64decode(message["numbers"]),
                json.dumps(message["ladder"]),
            ),
        )
        for doc in told["clusters"]:
            self._cluster(doc)
        for cluster, name in told["gone"]:
            topic, partition = named(name)
            self._db.execute(
                "DELETE FROM partitions WHERE cluster = ? AND topic = ? AND partition = ?",
                (cluster, topic, partition),
            )
        self._partitions(told["docs"], number, generation)
        self._moments(told["moments"])

    def _cluster(self, doc: dict[str, Any]) -> None:
        cluster, at_ms = doc["cluster"], doc["at_ms"]
        self._db.execute(
            "INSERT OR REPLACE INTO clusters VALUES (?, ?, ?)", (cluster, at_ms, json.dumps(doc))
        )
        self._db.executemany(
            "INSERT OR REPLACE INTO brokers VALUES (?, ?, ?, ?)",
            [(cluster, broker, at_ms, rack) for broker, _, _, _, rack in doc["brokers"]],
        )

    def _partitions(self, docs: list[dict[str, Any]], bucket: int, generation: str) -> None:
        keys, rows = [], []
        for doc in docs:
            topic, partition = named(doc["name"])
            keys.append((doc["cluster"], topic, partition))
            rest = {name: value for name, value in doc.items() if name not in _APART}
            rows.append(
                (
                    *(doc["cluster"], topic, partition, doc["at_ms"], doc["flags"]),
                    *(self._shape(doc["shape"]), bucket, generation, doc["slot"]),
                    _verified_ms(doc),
                    json.dumps(rest, separators=(",", ":")),
                )
            )
        self._db.executemany(
            "DELETE FROM partitions WHERE cluster = ? AND topic = ? AND partition = ?", keys
        )
        self._db.executemany(_PUT, rows)

    def _moments(self, docs: list[dict[str, Any]]) -> None:
        touched = set()
        for doc in docs:
            topic, partition = named(doc["name"])
            key = (doc["cluster"], topic, partition)
            touched.add(key)
            rest = {name: value for name, value in doc.items() if name not in _APART}
            text = json.dumps(rest, separators=(",", ":"))
            self._db.execute(
                "INSERT OR REPLACE INTO moments VALUES (?, ?, ?, ?, ?, ?, ?)",
                (*key, doc["at_ms"], doc["flags"], self._shape(doc["shape"]), text),
            )
        self._db.executemany(
            "DELETE FROM moments WHERE cluster = ?1 AND topic = ?2 AND partition = ?3 AND at_ms <="
            " (SELECT at_ms FROM moments WHERE cluster = ?1 AND topic = ?2 AND partition = ?3"
            "  ORDER BY at_ms DESC LIMIT 1 OFFSET ?4)",
            [(*key, self._limits.per_partition) for key in touched],
        )

    def _shape(self, shape: dict[str, Any]) -> int:
        text = json.dumps(shape, sort_keys=True, separators=(",", ":"))
        known = self._shapes.get(text)
        if known is None:
            self._db.execute("INSERT OR IGNORE INTO shapes (text) VALUES (?)", (text,))
            found = self._db.execute("SELECT id FROM shapes WHERE text = ?", (text,)).fetchone()
            known = self._shapes[text] = int(found[0])
        return known

    def _prune(self) -> None:
        """By age (event time) and number; then what nobody refers to any more."""
        newest = self._db.execute("SELECT max(at_ms) FROM clusters").fetchone()[0] or 0
        oldest = newest - self._limits.days * 86_400_000
        self._db.execute("DELETE FROM moments WHERE at_ms < ?", (oldest,))
        count = self._db.execute("SELECT count(*) FROM moments").fetchone()[0]
        if count > self._limits.rows:
            query = "SELECT at_ms FROM moments ORDER BY at_ms LIMIT 1 OFFSET ?"
            found = self._db.execute(query, (count - self._limits.rows,)).fetchone()
            self._db.execute("DELETE FROM moments WHERE at_ms < ?", found)
        self._shapes.clear()
        self._db.execute(
            "DELETE FROM shapes WHERE id NOT IN (SELECT shape FROM partitions)"
            " AND id NOT IN (SELECT shape FROM moments)"
        )

    def forget_others(self, clusters: Sequence[str]) -> None:
        """Clusters that are no longer watched are not shown."""
        marks = ", ".join("?" * len(clusters))
        with transaction(self._db, self.path):
            for table in ("clusters", "brokers", "partitions", "moments"):
                query = f"DELETE FROM {table} WHERE cluster NOT IN ({marks})"  # noqa: S608
                self._db.execute(query, tuple(clusters))
            # Buckets tell anew when the job begins.
            self._db.execute("DELETE FROM buckets")

    def close(self) -> None:
        self._db.close()


class StateReceiver:
    """Hands batches to the store. What it could not take waits; after too many it is given up."""

    def __init__(self, store: StateStore, say: Callable[[str], None]) -> None:
        self.store, self._say = store, say
        self._waiting: list[tuple[str, int, list[OutputRow]]] = []
        self._failing = False
        self._ladders: dict[int, dict[str, dict[str, int]]] = {}

    def ladder(self) -> dict[str, Counter[str]]:
        """By cluster: how many partitions stand on each rung, as the buckets last said."""
        return together(list(self._ladders.values()))

    def process_batch(self, query_id: str, batch_id: int, rows: Sequence[OutputRow]) -> None:
        mine = [row for row in rows if row.kind == "state"]
        for row in mine:
            told = json.loads(row.payload)
            self._ladders[told["bucket"]] = told["ladder"]
        self._waiting = [*self._waiting, (query_id, batch_id, mine)][-MAX_WAITING:]
        try:
            while self._waiting:
                self.store.take(*self._waiting[0])
                self._waiting.pop(0)
        except StoreError as error:
            if not self._failing:
                self._say(f"the web page shows an old state: {error}")
            self._failing = True
            return
        self._failing = False


def _verified_ms(doc: dict[str, Any]) -> int | None:
    """When contents were last compared; None where they never were."""
    verified = doc.get("verified")
    return None if verified is None else int(verified[-1])


def named(name: str) -> tuple[str, int]:
    """`orders-7` is partition 7 of orders."""
    topic, _, number = name.rpartition("-")
    return topic, int(number)
