"""The newest a recording tells of each partition up to a moment, and what it told before that."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tidestaff.connectors.wire import (
    CLUSTER,
    GONE,
    HEALTH,
    PARTITION,
    TICK,
    WireError,
    observation_of,
)
from tidestaff.streaming.commands.exits import CommandError
from tidestaff.streaming.sources.row_files import batches, listed, to_rows

if TYPE_CHECKING:
    from pathlib import Path

    from tidestaff.connectors.wire import Row
    from tidestaff.consistency.model import Observation


def newest_of(
    folder: Path, at_ms: int | None, cluster: str | None
) -> tuple[list[Observation], list[Observation]]:
    """Two rounds, the newest last."""
    if not folder.is_dir() or not listed(folder):
        raise CommandError(
            f"{folder}: no recording is there", "give a folder that 'tidestaff record' wrote"
        )
    newest: dict[str, _Newest] = {}
    for name in listed(folder):
        for batch in batches(folder / name):
            for row in to_rows(batch):
                late = at_ms is not None and row.observed_at_ms > at_ms
                if row.kind != TICK and not late and cluster in (None, row.cluster):
                    newest.setdefault(row.cluster, _Newest()).take(row)
    if len(newest) > 1:
        raise CommandError(
            f"{folder} holds several clusters: {', '.join(sorted(newest))}", "say which: --cluster"
        )
    if not newest:
        raise CommandError(f"{folder} holds nothing of that moment or cluster", "see --at")
    (found,) = newest.values()
    return found.observations()


class _Newest:
    """The newest two rows of each subject, by their times: rounds are numbered anew when a
    collector starts again. What is kept does not grow with the length of a recording."""

    def __init__(self) -> None:
        self._rows: dict[tuple[str, str], tuple[Row, ...]] = {}

    def take(self, row: Row) -> None:
        key = (PARTITION if row.kind == GONE else row.kind, row.subject)
        both = sorted((*self._rows.get(key, ()), row), key=_observed_at_ms)
        self._rows[key] = tuple(both[-2:])

    def observations(self) -> tuple[list[Observation], list[Observation]]:
        """A partition that is gone is not there; a problem counts if the last round has it."""
        rounds = [at for (kind, _), at in self._times() if kind == CLUSTER]
        last = max(rounds or (at for _, at in self._times()))
        before: list[Observation] = []
        after: list[Observation] = []
        for (kind, _), (*earlier, newest) in self._rows.items():
            if newest.kind == GONE or (kind == HEALTH and newest.observed_at_ms < last):
                continue
            after.append(_decoded(newest))
            before += [_decoded(row) for row in earlier if row.kind != GONE]
        return before, after

    def _times(self) -> list[tuple[tuple[str, str], int]]:
        return [(key, rows[-1].observed_at_ms) for key, rows in self._rows.items()]


def _observed_at_ms(row: Row) -> int:
    return row.observed_at_ms


def _decoded(row: Row) -> Observation:
    try:
        return observation_of(row)
    except WireError as error:
        raise CommandError(
            f"a row of {row.subject} cannot be read: {error.reason}", error.remedy
        ) from None
