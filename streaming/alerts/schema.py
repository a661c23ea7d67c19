"""The tables of the store, and how a connection to them is made.

`user_version` is the version of the tables. A new release reads the tables of an old one by the
steps in MIGRATIONS; it refuses those of a newer one.
"""

from __future__ import annotations

import secrets
import sqlite3
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Final

from tidestaff.streaming.alerts.errors import (
    StoreCorruptError,
    StoreUnreachableError,
    StoreVersionError,
    told_as_store_errors,
)

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

VERSION: Final = 1
APPLICATION_ID: Final = 0x54494445  # "TIDE"
BUSY_TIMEOUT_S: Final = 10.0
LOG_KEPT_BYTES: Final = 16_000_000

TABLES: Final = """
CREATE TABLE meta (key TEXT PRIMARY KEY, value TEXT NOT NULL) WITHOUT ROWID;
CREATE TABLE batches (query_id TEXT PRIMARY KEY, batch_id INTEGER NOT NULL) WITHOUT ROWID;
CREATE TABLE clocks (cluster TEXT PRIMARY KEY, at_ms INTEGER NOT NULL) WITHOUT ROWID;
CREATE TABLE alerts (
    fingerprint TEXT PRIMARY KEY, open INTEGER NOT NULL, status TEXT NOT NULL,
    number INTEGER NOT NULL, cluster TEXT NOT NULL, code TEXT NOT NULL, severity TEXT NOT NULL,
    topic TEXT, partition INTEGER, last_seen_ms INTEGER NOT NULL, state TEXT NOT NULL
);
CREATE INDEX alerts_open ON alerts (open, status);
CREATE INDEX alerts_seen ON alerts (last_seen_ms);
CREATE TABLE waiting (id INTEGER PRIMARY KEY, event TEXT NOT NULL);
CREATE TABLE transitions (
    seq INTEGER PRIMARY KEY AUTOINCREMENT, fingerprint TEXT NOT NULL, number INTEGER NOT NULL,
    at_ms INTEGER NOT NULL, status TEXT NOT NULL, code TEXT NOT NULL, text TEXT NOT NULL,
    UNIQUE (fingerprint, number, at_ms)
);
CREATE INDEX transitions_at ON transitions (at_ms);
CREATE TABLE cursors (
    sink TEXT PRIMARY KEY, seq INTEGER NOT NULL, delivered INTEGER NOT NULL DEFAULT 0,
    dropped INTEGER NOT NULL DEFAULT 0, failures INTEGER NOT NULL DEFAULT 0,
    failing_since_ms INTEGER, last_error TEXT
) WITHOUT ROWID;
CREATE TABLE acks (
    id INTEGER PRIMARY KEY AUTOINCREMENT, fingerprint TEXT NOT NULL, number INTEGER NOT NULL,
    who TEXT NOT NULL, at_ms INTEGER NOT NULL, why TEXT NOT NULL
);
CREATE TABLE quarantine (
    id INTEGER PRIMARY KEY AUTOINCREMENT, at_ms INTEGER NOT NULL, cluster TEXT NOT NULL,
    source TEXT NOT NULL, record TEXT NOT NULL
);
CREATE TABLE buckets (
    query_id TEXT NOT NULL, bucket INTEGER NOT NULL, stats TEXT NOT NULL,
    PRIMARY KEY (query_id, bucket)
) WITHOUT ROWID;
CREATE TABLE totals (name TEXT PRIMARY KEY, value INTEGER NOT NULL) WITHOUT ROWID;
"""

# From version n to n + 1: statements that keep what is there.
MIGRATIONS: Final[Mapping[int, str]] = {}


def connect(path: Path | str, *, create: bool = False) -> sqlite3.Connection:
    """A connection in autocommit mode to tables of our version."""
    if not create and not Path(path).exists():
        raise StoreUnreachableError(
            path, "there is no such file", "name the store of the running job (state.directory)"
        )
    with told_as_store_errors(path):
        connection = sqlite3.connect(
            path, timeout=BUSY_TIMEOUT_S, isolation_level=None, check_same_thread=False
        )
        try:
            _prepare(connection, path)
        except BaseException:
            connection.close()
            raise
    return connection


def _prepare(connection: sqlite3.Connection, path: Path | str) -> None:
    connection.execute("PRAGMA journal_mode = WAL")
    # A sink must never have seen a transition that a power cut takes out of the store again.
    connection.execute("PRAGMA synchronous = FULL")
    connection.execute(f"PRAGMA journal_size_limit = {LOG_KEPT_BYTES}")
    if connection.execute("PRAGMA user_version").fetchone()[0] == VERSION:
        _check_owner(connection, path)
        return
    with transaction(connection, path):
        found = connection.execute("PRAGMA user_version").fetchone()[0]
        empty = not connection.execute("SELECT 1 FROM sqlite_master LIMIT 1").fetchone()
        if found == 0 and empty:
            _make(connection)
            return
        _check_owner(connection, path)
        _migrate(connection, path, found)


def _make(connection: sqlite3.Connection) -> None:
    for statement in TABLES.split(";"):
        connection.execute(statement)
    connection.execute(f"PRAGMA application_id = {APPLICATION_ID}")
    connection.execute(f"PRAGMA user_version = {VERSION}")
    identity = ("store", secrets.token_hex(4))
    connection.execute("INSERT INTO meta VALUES (?, ?)", identity)


def _check_owner(connection: sqlite3.Connection, path: Path | str) -> None:
    if connection.execute("PRAGMA application_id").fetchone()[0] != APPLICATION_ID:
        raise StoreCorruptError(
            path, "it is a database of another program", "name another file for the alert store"
        )


def _migrate(connection: sqlite3.Connection, path: Path | str, found: int) -> None:
    for version in range(found, VERSION):
        if version not in MIGRATIONS:
            break
        for statement in MIGRATIONS[version].split(";"):
            connection.execute(statement)
        found = version + 1
    if found != VERSION:
        raise StoreVersionError(
            path,
            f"it has version {found} of the tables and this release knows {VERSION}",
            "run the release that wrote it, or move the file aside to start anew",
        )
    connection.execute(f"PRAGMA user_version = {VERSION}")


@contextmanager
def transaction(connection: sqlite3.Connection, path: Path | str) -> Iterator[None]:
    """All or nothing, and nobody else writes meanwhile."""
    with told_as_store_errors(path):
        connection.execute("BEGIN IMMEDIATE")
        try:
            yield
            connection.execute("COMMIT")
        except BaseException:
            if connection.in_transaction:
                connection.execute("ROLLBACK")
            raise
