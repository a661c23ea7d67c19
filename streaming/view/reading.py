"""What the page asks of the state store."""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from tidestaff.consistency.model import SettingSource
from tidestaff.streaming.alerts.errors import told_as_store_errors
from tidestaff.streaming.operator.moments import LADDER, VIOLATING
from tidestaff.streaming.operator.viewing import together
from tidestaff.streaming.view.numbers import table_of
from tidestaff.streaming.view.schema import connect

if TYPE_CHECKING:
    from collections import Counter
    from collections.abc import Iterator, Sequence
    from pathlib import Path
    from re import Pattern

    from tidestaff.streaming.view.numbers import Table

FLAGS: Final = {**LADDER, "violating": VIOLATING}
MOST_MOMENTS: Final = 1_000
_NO_SHAPE: Final = -1


@dataclass(frozen=True, slots=True)
class PartitionFilter:
    """Which partitions are wanted; None is any. `text` is a part of the topic's name, or
    `topic-partition`."""

    cluster: str | None = None
    topic: str | None = None
    text: str | None = None
    broker: int | None = None
    flag: str | None = None
    verified: bool | None = None


class Covered(NamedTuple):
    """How far the copies of a partition have been compared, and when."""

    cluster: str
    topic: str
    partition: int
    end: int
    at_ms: int


class StateReader:
    """One reader of the store; not for several threads at once."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._db = connect(path)
        self._shapes: dict[int, dict[str, Any]] = {}
        self._tables: dict[int, tuple[str, Table]] = {}

    def close(self) -> None:
        self._db.close()

    def __enter__(self) -> StateReader:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def clusters(self) -> list[dict[str, Any]]:
        """The last report on each cluster, with every broker that was ever registered."""
        with told_as_store_errors(self.path):
            docs = [
                json.loads(doc)
                for (doc,) in self._db.execute("SELECT doc FROM clusters ORDER BY cluster")
            ]
            seen = self._db.execute("SELECT cluster, broker, seen_ms, rack FROM brokers").fetchall()
        for doc in docs:
            now = {each[0]: each for each in doc["brokers"]}
            answering = doc["answering"]
            doc["brokers"] = [
                {
                    "broker": broker,
                    "rack": rack,
                    "registered": broker in now,
                    "fenced": bool(broker in now and now[broker][2]),
                    "shutting_down": bool(broker in now and now[broker][3]),
                    "answers": None if answering is None else broker in answering,
                    "controller": broker == doc["controller"],
                    "seen_ms": seen_ms,
                }
                for cluster, broker, seen_ms, rack in sorted(seen)
                if cluster == doc["cluster"]
            ]
        return docs

    def ladder(self) -> dict[str, Counter[str]]:
        """By cluster: how many partitions are known, and how many stand on each rung."""
        with told_as_store_errors(self.path):
            rows = self._db.execute("SELECT ladder FROM buckets").fetchall()
        return together(json.loads(text) for (text,) in rows)

    def last_batch(self) -> int | None:
        with told_as_store_errors(self.path):
            row = self._db.execute("SELECT max(batch_id) FROM batches").fetchone()
        return None if row is None else row[0]

    def partitions(
        self, wanted: PartitionFilter, *, limit: int, offset: int = 0
    ) -> tuple[list[dict[str, Any]], int]:
        """A page of them with what the list shows, and how many there are in all."""
        where, values = self._where(wanted)
        with told_as_store_errors(self.path):
            total = self._db.execute(f"SELECT count(*) FROM partitions{where}", values)  # noqa: S608
            count = int(total.fetchone()[0])
            names = self._db.execute(
                f"SELECT id FROM partitions{where}"  # noqa: S608
                " ORDER BY cluster, topic, partition LIMIT ? OFFSET ?",
                (*values, limit, offset),
            ).fetchall()
            marks = ", ".join("?" * len(names))
            rows = self._db.execute(
                f"SELECT {_COLUMNS} FROM partitions WHERE id IN ({marks})"  # noqa: S608
                " ORDER BY cluster, topic, partition",
                [each for (each,) in names],
            ).fetchall()
        return [self._current(row) for row in rows], count

    def partition(self, cluster: str, topic: str, partition: int) -> dict[str, Any] | None:
        """One partition as it is now."""
        with told_as_store_errors(self.path):
            row = self._db.execute(
                f"SELECT {_COLUMNS} FROM partitions"  # noqa: S608
                " WHERE cluster = ? AND topic = ? AND partition = ?",
                (cluster, topic, partition),
            ).fetchone()
        return None if row is None else self._current(row)

    def moments(self, cluster: str, topic: str, partition: int) -> list[dict[str, Any]]:
        """What happened to it, oldest first."""
        with told_as_store_errors(self.path):
            rows = self._db.execute(
                "SELECT cluster, topic, partition, at_ms, flags, shape, doc FROM moments"
                " WHERE cluster = ? AND topic = ? AND partition = ? ORDER BY at_ms LIMIT ?",
                (cluster, topic, partition, MOST_MOMENTS),
            ).fetchall()
        found = [self._shown(row) for row in rows]
        for each in found:
            each["verified"] = _of_what_is_left(each)
        return found

    def verified_longest_ago(self, cluster: str, limit: int) -> list[dict[str, Any]]:
        """The partitions whose contents have waited longest to be compared: first those that never
        were."""
        with told_as_store_errors(self.path):
            rows = self._db.execute(
                f"SELECT {_COLUMNS} FROM partitions WHERE cluster = ?"  # noqa: S608
                " ORDER BY verified_ms LIMIT ?",
                (cluster, limit),
            ).fetchall()
        return [self._current(row) for row in rows]

    def covered(self, topics: Pattern[str], limit: int) -> list[Covered]:
        """Partitions of topics whose whole name matches, as far as they were compared."""
        with told_as_store_errors(self.path):
            names = self._db.execute(
                "SELECT DISTINCT cluster, topic FROM partitions WHERE verified_ms IS NOT NULL"
                " ORDER BY cluster, topic"
            ).fetchall()
        found: list[Covered] = []
        for cluster, topic in names:
            if len(found) < limit and topics.fullmatch(topic):
                wanted = PartitionFilter(cluster=cluster, topic=topic, verified=True)
                for each in self.partitions(wanted, limit=limit - len(found))[0]:
                    if (known := each["verified"]) is not None:
                        place = cluster, topic, each["partition"]
                        found.append(Covered(*place, known["offsets"][1], known["at_ms"]))
        return found

    def shapes(self, cluster: str) -> list[tuple[int, dict[str, Any], int]]:
        """Every constellation the cluster's partitions are in, and how many are."""
        with told_as_store_errors(self.path):
            rows = self._db.execute(
                "SELECT shape, count(*) FROM partitions WHERE cluster = ? GROUP BY shape",
                (cluster,),
            ).fetchall()
        return [(number, self._shape(number), count) for number, count in rows]

    def of_shape(self, cluster: str, shape: int, limit: int) -> Iterator[dict[str, Any]]:
        """Partitions of one constellation, those with findings first."""
        with told_as_store_errors(self.path):
            rows = self._db.execute(
                f"SELECT {_COLUMNS} FROM partitions WHERE cluster = ? AND shape = ?"  # noqa: S608
                " ORDER BY flags & 16 DESC LIMIT ?",
                (cluster, shape, limit),
            ).fetchall()
        return map(self._current, rows)

    def _where(self, wanted: PartitionFilter) -> tuple[str, tuple[Any, ...]]:
        tests: list[tuple[str, tuple[Any, ...]]] = []
        if wanted.cluster is not None:
            tests.append(("cluster = ?", (wanted.cluster,)))
        if wanted.topic is not None:
            tests.append(("topic = ?", (wanted.topic,)))
        if wanted.text:
            name, _, number = wanted.text.rpartition("-")
            tests.append(
                (
                    "(instr(topic, ?) > 0 OR (topic = ? AND partition = ?))",
                    (wanted.text, name, int(number) if _is_number(number) else -1),
                )
            )
        if wanted.flag is not None:
            tests.append(("flags > 0 AND flags & ? > 0", (FLAGS[wanted.flag],)))
        if wanted.verified is not None:
            tests.append((f"verified_ms IS {'NOT ' if wanted.verified else ''}NULL", ()))
        if wanted.broker is not None:
            shapes = self._shapes_with(wanted.broker)
            tests.append((f"shape IN ({', '.join(map(str, shapes))})", ()))
        if not tests:
            return "", ()
        return (
            " WHERE " + " AND ".join(text for text, _ in tests),
            tuple(value for _, values in tests for value in values),
        )

    def _shapes_with(self, broker: int) -> list[int]:
        with told_as_store_errors(self.path):
            rows = self._db.execute("SELECT id, text FROM shapes").fetchall()
        found = [number for number, text in rows if broker in json.loads(text)["assignment"][0]]
        return found or [_NO_SHAPE]

    def _shape(self, number: int) -> dict[str, Any]:
        known = self._shapes.get(number)
        if known is None:
            row = self._db.execute("SELECT text FROM shapes WHERE id = ?", (number,)).fetchone()
            known = self._shapes[number] = {} if row is None else json.loads(row[0])
        return known

    def _current(self, row: tuple[Any, ...]) -> dict[str, Any]:
        *told, bucket, generation, slot = row
        shown = self._shown(told)
        table = self._table(bucket, generation)
        replicas = shown["replicas"]
        fresh = None if table is None else table.offsets(slot, len(replicas))
        if table is not None and fresh is not None and int(table.at[slot]) >= shown["at_ms"]:
            shown["at_ms"] = int(table.at[slot])
            for replica, (start, watermark, end) in zip(replicas, fresh, strict=True):
                replica["log_start"], replica["high_watermark"] = start, watermark
                replica["log_end"] = end
            # Records that were committed since; a loss would have been told in full.
            newest = max(
                (r["high_watermark"] for r in replicas if r["broker"] in shown["isr"]), default=0
            )
            shown["committed"][1] = max(shown["committed"][1], newest)
        shown["verified"] = _of_what_is_left(shown)
        return shown

    def _table(self, bucket: int, generation: str) -> Table | None:
        found = self._tables.get(bucket)
        if found is None:
            row = self._db.execute(
                "SELECT generation, numbers FROM buckets WHERE bucket = ?", (bucket,)
            ).fetchone()
            if row is None:
                return None
            found = self._tables[bucket] = row[0], table_of(row[1])
        return found[1] if found[0] == generation else None

    def _shown(self, row: Sequence[Any]) -> dict[str, Any]:
        cluster, topic, partition, at_ms, flags, shape, doc = row
        told, common = json.loads(doc), self._shape(shape)
        replicas, adding, removing = common["assignment"]
        leader_epoch, partition_epoch, controller_epoch = told["epochs"]
        return {
            "cluster": cluster,
            "topic": topic,
            "partition": partition,
            "at_ms": at_ms,
            "flags": [name for name, bit in FLAGS.items() if flags & bit],
            "topic_id": told["topic_id"],
            "rules": common["rules"],
            "leader": common["leader"],
            "leader_epoch": leader_epoch,
            "partition_epoch": partition_epoch,
            "controller_epoch": controller_epoch,
            "recovering": bool(told["recovering"]),
            "isr": common["isr"],
            "elr": common["elr"][0],
            "last_known_elr": common["elr"][1],
            "assignment": replicas,
            "adding": adding,
            "removing": removing,
            "live": [broker for broker, fenced, _ in common["live"] if not fenced],
            "registrations": common["live"],
            "min_insync_replicas": common["min_isr"],
            "unclean_election_allowed": common["unclean"],
            **_sources(common.get("sources")),
            "committed": told["committed"],
            "replicas": [_replica(each) for each in told["replicas"]],
            "findings": [_finding(each) for each in told.get("findings", ())],
            "lost": told.get("lost", []),
            "kept": told.get("kept", []),
            "eras": told.get("eras", []),
            "truncated": told.get("truncated", []),
            "verified": _verified(told.get("verified")),
        }


def _sources(told: list[str] | None) -> dict[str, str]:
    """Where two settings come from, in words; a store of an earlier release does not know."""
    found = (SettingSource(each).words for each in told or ("UNKNOWN", "UNKNOWN"))
    names = ("min_insync_replicas_source", "unclean_election_source")
    return dict(zip(names, found, strict=True))


_COLUMNS: Final = "cluster, topic, partition, at_ms, flags, shape, doc, bucket, generation, slot"


def _replica(told: list[Any]) -> dict[str, Any]:
    broker, start, watermark, end, lineage, cut = told
    return {
        "broker": broker,
        "log_start": start,
        "high_watermark": watermark,
        "log_end": end,
        "lineage": lineage,
        "cut": None if cut is None else dict(zip(("epoch", "offset", "because"), cut, strict=True)),
    }


def _verified(told: list[int] | None) -> dict[str, Any] | None:
    if told is None:
        return None
    start, end, epoch, leader_epoch, began_ms, at_ms = told
    return {
        "offsets": [start, end],
        "epoch": None if epoch < 0 else epoch,
        "leader_epoch": leader_epoch,
        "began_ms": began_ms,
        "at_ms": at_ms,
    }


def _of_what_is_left(shown: dict[str, Any]) -> dict[str, Any] | None:
    """Of what was compared, what has not been deleted since by age or size, and which share of the
    committed records that is."""
    verified = shown["verified"]
    if verified is None:
        return None
    starts = [r["log_start"] for r in shown["replicas"] if r["broker"] == shown["leader"]]
    first = max([*starts, shown["committed"][0]])
    start, end = max(first, verified["offsets"][0]), verified["offsets"][1]
    if start >= end:
        return None
    share = min(1.0, (end - start) / max(1, shown["committed"][1] - first))
    return {**verified, "offsets": [start, end], "share": round(share, 4)}


def _finding(told: list[Any]) -> dict[str, Any]:
    code, broker, start, end = told
    return {
        "code": code,
        "broker": None if broker < 0 else broker,
        "offsets": None if start is None else [start, end],
    }


def _is_number(text: str) -> bool:
    return text.isascii() and text.isdigit() and len(text) < 10
