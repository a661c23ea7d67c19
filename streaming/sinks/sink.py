"""What a sink is, and how it says that it cannot take something."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, Protocol, runtime_checkable

from tidestaff.streaming.alerts.alert import Status
from tidestaff.streaming.alerts.transition import DID_NOT_LAST

if TYPE_CHECKING:
    from collections.abc import Sequence

    from tidestaff.streaming.alerts.alert import Alert
    from tidestaff.streaming.alerts.outbox import Outgoing
    from tidestaff.streaming.alerts.transition import Transition

# At most this many are handed over at once, so a sink that looks at its own last TAIL entries has
# seen everything that may be given to it again.
DELIVERY_LIMIT: Final = 500
TAIL: Final = 2 * DELIVERY_LIMIT

EVERYTHING: Final = frozenset(Status)
FOR_PEOPLE: Final = frozenset({Status.FIRING, Status.ACKNOWLEDGED, Status.RESOLVED})


class Sink(Protocol):
    """Takes transitions. `deliver` returns when the sink has them all for good, and raises
    otherwise; it is then called again with the same ones and perhaps more."""

    @property
    def name(self) -> str: ...

    def deliver(self, outgoing: Sequence[Outgoing]) -> None: ...

    def close(self) -> None: ...


@runtime_checkable
class RefreshedSink(Protocol):
    """A sink that forgets, and is told of every firing alert again and again."""

    @property
    def refresh_every_s(self) -> float: ...

    def refresh(self, firing: Sequence[Alert]) -> None: ...


class SinkError(Exception):
    """A sink did not take what it was given. The text holds no secret: it is shown and stored."""

    retriable = True

    def __init__(self, sink: str, problem: str, remedy: str) -> None:
        super().__init__(f"sink {sink}: {problem}; {remedy}")
        self.sink, self.problem, self.remedy = sink, problem, remedy


def is_for(statuses: frozenset[Status], transition: Transition) -> bool:
    """Whether a sink that wants these statuses wants this. One that skips suspicions does not hear
    that they came to nothing either."""
    if transition.status not in statuses:
        return False
    if Status.PENDING in statuses or transition.status is not Status.RESOLVED:
        return True
    return bool(transition.fields["reason"] != DID_NOT_LAST)
