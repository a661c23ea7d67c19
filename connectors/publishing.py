"""Rows on their way to the transport topic: keys that keep a partition's rows in order, rest while
the transport is away, and a word about it afterwards."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, NamedTuple, Protocol

from tidestaff.connectors.errors import ConnectorError
from tidestaff.connectors.linking import Linker
from tidestaff.connectors.pacing import Rest
from tidestaff.connectors.wire import to_bytes
from tidestaff.consistency.model import HealthObservation, ProblemKind

if TYPE_CHECKING:
    import random
    from collections.abc import Callable, Sequence

    from tidestaff.connectors.wire import Row

SOURCE: Final = "collect"
PLACE: Final = "transport"


class Record(NamedTuple):
    """What Kafka is given."""

    key: bytes
    value: bytes


class Transport(Protocol):
    """Takes records and returns once all are kept, in their order for each key. The number it
    gives back is how many it refuses for their size. May raise a ConnectorError."""

    def publish(self, records: Sequence[Record]) -> int: ...
    def close(self) -> None: ...


def record_of(row: Row) -> Record:
    """Rows of one subject have one key: they go to one partition, one after the other."""
    return Record(f"{row.cluster}/{row.subject}".encode(), to_bytes(row))


class _Outage(NamedTuple):
    since_ms: int
    cause: str


class Publisher:
    """Publishes the rounds of one cluster. A round that failed is published again as a whole: rows
    may come twice, which whoever reads them does not mind, but never in another order."""

    def __init__(
        self,
        transport: Transport,
        cluster: str,
        *,
        now_ms: Callable[[], int],
        chance: random.Random,
        backoff_ms: int = 1_000,
        backoff_max_ms: int = 30_000,
    ) -> None:
        self._transport, self._cluster, self._now_ms = transport, cluster, now_ms
        self._rest: Rest[str] = Rest(backoff_ms, backoff_max_ms, chance)
        self._linker = Linker()
        self._outage: _Outage | None = None
        self._lost = 0
        self._complained = False
        self.published = 0

    @property
    def problem(self) -> str | None:
        """Why nothing is published now."""
        return None if self._outage is None else self._outage.cause

    def lose(self, rows: int) -> None:
        """So many rows had to be given up before they were published."""
        self._lost += rows

    def publish(self, rows: Sequence[Row]) -> bool:
        """Whether they are kept now; if not, they are to be given again."""
        now_ms = self._now_ms()
        if self._rest.resting(PLACE, now_ms):
            return False
        complaint = self._complaint(now_ms)
        told = [] if complaint is None else self._linker.link([complaint])
        try:
            refused = self._transport.publish([record_of(row) for row in (*told, *rows)])
        except ConnectorError as error:
            self._rest.failed(PLACE, now_ms)
            if self._outage is None:
                self._outage = _Outage(now_ms, error.reason)
            return False
        self._rest.succeeded(PLACE)
        self._complained = complaint is not None and complaint.problem is not ProblemKind.OK
        self._outage, self._lost = None, refused
        self.published += len(rows) - refused
        return True

    def _complaint(self, now_ms: int) -> HealthObservation | None:
        """What the readers of the topic should know: that it was away, and later that it is not."""
        if self._outage is None and not self._lost:
            return self._health(ProblemKind.OK, now_ms) if self._complained else None
        said = []
        if self._outage is not None:
            away_s = (now_ms - self._outage.since_ms) // 1_000
            said.append(f"nothing could be published for {away_s} s: {self._outage.cause}")
        if self._lost:
            said.append(f"{self._lost} rows were given up")
        return self._health(ProblemKind.SILENT, now_ms, "; ".join(said))

    def _health(self, kind: ProblemKind, now_ms: int, reason: str = "") -> HealthObservation:
        well = kind is ProblemKind.OK
        return HealthObservation(
            cluster=self._cluster,
            observed_at_ms=now_ms,
            source=SOURCE,
            problem=kind,
            place=PLACE,
            reason=reason,
            remedy="" if well else "see that the transport is up and takes records of this size",
            since_ms=now_ms if self._outage is None else self._outage.since_ms,
        )

    def close(self) -> None:
        self._transport.close()
