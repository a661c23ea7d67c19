"""The tables of the state store, and how a connection to them is made.

What is in here can be told again by a running job: so a store of another release is replaced, not
migrated, and a power cut may take the last second of it.
"""

from __future__ import annotations

import sqlite3
from typing import TYPE_CHECKING, Final

from tidestaff.streaming.alerts.errors import StoreUnreachableError, told_as_store_errors

if TYPE_CHECKING:
    from collections.abc import Iterable
    from pathlib import Path

VERSION: Final = 2
BUSY_TIMEOUT_S: Final = 10.0
LOG_KEPT_BYTES: Final = 16_000_000

TABLES: Final = """
CREATE TABLE batches (query_id TEXT PRIMARY KEY, batch_id INTEGER NOT NULL) WITHOUT ROWID;
CREATE TABLE clusters (cluster TEXT PRIMARY KEY, at_ms INTEGER NOT NULL, doc TEXT NOT NULL);
CREATE TABLE brokers (
    cluster TEXT NOT NULL, broker INTEGER NOT NULL, seen_ms INTEGER NOT NULL, rack TEXT,
    PRIMARY KEY (cluster, broker)
) WITHOUT ROWID;
CREATE TABLE shapes (id INTEGER PRIMARY KEY, text TEXT NOT NULL UNIQUE);
CREATE TABLE partitions (
    id INTEGER PRIMARY KEY, cluster TEXT NOT NULL, topic TEXT NOT NULL, partition INTEGER NOT NULL,
    at_ms INTEGER NOT NULL, flags INTEGER NOT NULL, shape INTEGER NOT NULL,
    bucket INTEGER NOT NULL, generation TEXT NOT NULL, slot INTEGER NOT NULL,
    verified_ms INTEGER, doc TEXT NOT NULL
);
CREATE INDEX partitions_name ON partitions (cluster, topic, partition, flags, shape);
CREATE INDEX partitions_shape ON partitions (cluster, shape, flags);
CREATE INDEX partitions_flags ON partitions (flags, cluster) WHERE flags > 0;
CREATE INDEX partitions_verified ON partitions (cluster, verified_ms);
CREATE TABLE moments (
    cluster TEXT NOT NULL, topic TEXT NOT NULL, partition INTEGER NOT NULL,
    at_ms INTEGER NOT NULL, flags INTEGER NOT NULL, shape INTEGER NOT NULL, doc TEXT NOT NULL,
    PRIMARY KEY (cluster, topic, partition, at_ms)
) WITHOUT ROWID;
CREATE INDEX moments_at ON moments (at_ms);
CREATE TABLE buckets (
    bucket INTEGER PRIMARY KEY, generation TEXT NOT NULL, numbers BLOB NOT NULL,
    ladder TEXT NOT NULL
);
"""


def create(path: Path) -> sqlite3.Connection:
    """The writer's connection; the tables are made where there are none of ours."""
    with told_as_store_errors(path):
        connection = _opened(path)
        try:
            if connection.execute("PRAGMA user_version").fetchone()[0] != VERSION:
                _make(connection)
        except BaseException:
            connection.close()
            raise
    return connection


def connect(path: Path) -> sqlite3.Connection:
    """A reader's connection."""
    if not path.is_file():
        raise StoreUnreachableError(
            path, "there is no state of partitions yet", "wait for the job's first batch"
        )
    with told_as_store_errors(path):
        connection = _opened(path)
        connection.execute("PRAGMA query_only = ON")
        found = connection.execute("PRAGMA user_version").fetchone()[0]
        if found != VERSION:
            connection.close()
            raise StoreUnreachableError(
                path,
                f"its tables have version {found}, this release knows {VERSION}",
                "run the page and the job of one release",
            )
    return connection


def _opened(path: Path) -> sqlite3.Connection:
    connection = sqlite3.connect(
        path, timeout=BUSY_TIMEOUT_S, isolation_level=None, check_same_thread=False
    )
    connection.execute("PRAGMA journal_mode = WAL")
    connection.execute("PRAGMA synchronous = NORMAL")
    connection.execute(f"PRAGMA journal_size_limit = {LOG_KEPT_BYTES}")
    return connection


def _make(connection: sqlite3.Connection) -> None:
    connection.execute("BEGIN IMMEDIATE")
    for name in _names(connection):
        connection.execute(f'DROP TABLE IF EXISTS "{name}"')
    for statement in TABLES.split(";"):
        connection.execute(statement)
    connection.execute(f"PRAGMA user_version = {VERSION}")
    connection.execute("COMMIT")


def _names(connection: sqlite3.Connection) -> Iterable[str]:
    query = "SELECT name FROM sqlite_master WHERE type = 'table' AND name NOT LIKE 'sqlite_%'"
    return [name for (name,) in connection.execute(query)]
