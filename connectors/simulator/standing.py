"""Exchanges in which nothing moves: most of what a large cluster does.

A follower at its leader's end asks the same again and hears the same again. As long as nothing that
can be seen of any replica has changed, neither has to be worked out anew; only time goes on.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from tidestaff.connectors.simulator.fetcher import FetchRequest
    from tidestaff.connectors.simulator.leading import Answer, Ask
    from tidestaff.connectors.simulator.replica import FollowerProgress


@dataclass(frozen=True, slots=True)
class Heard:
    """As the leader knows it: all of the request comes from members of the ISR at the log's end."""

    changes: int
    request: FetchRequest
    answers: tuple[Answer, ...]
    progress: list[FollowerProgress]

    def is_again(self, request: FetchRequest, changes: int | None) -> bool:
        return (
            self.changes == changes
            and self.request.asks is request.asks
            and self.request.broker_epoch == request.broker_epoch
        )

    def renew(self, now_ms: int) -> None:
        for progress in self.progress:
            progress.last_caught_up_ms = progress.last_fetch_ms = now_ms


@dataclass(frozen=True, slots=True)
class Asked:
    """As the follower knows it: the questions of all partitions of a fetcher."""

    changes: int
    limit: int
    asks: tuple[Ask, ...]


@dataclass(frozen=True, slots=True)
class OldNews:
    """Answers that changed nothing when they were taken."""

    changes: int
    answers: tuple[Answer, ...]
