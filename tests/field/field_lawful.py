"""For how long a state that was put in by hand may still be a lawful one, and since when.

The monitor must not tell of it before; it must tell of it within two rounds and one batch after.
"""

from __future__ import annotations

import re
import threading
import time
from typing import TYPE_CHECKING, Final

from tidestaff.consistency.catalogue import BY_CODE

if TYPE_CHECKING:
    from collections.abc import Callable
    from types import TracebackType

    from tests.field.lab import Lab

LAWFUL: Final = {
    "EPO003": """\
the metadata is old: the controller has given out the epoch, the replica has it, and the ZooKeeper
server that was asked does not have it yet. A server may be syncLimit ticks behind (10 s as shipped)
before it is cut off. No broker tells ZooKeeper's settings or the size of its ensemble, so the
time is fixed. With KRaft a broker's cache is asked, which may be behind, too: 10 s more""",
    "LOG004": """\
the topic was deleted and made again under its name: the metadata has the new id at once, each
broker sets the directory of the old one aside when it comes to that change. No setting of Kafka
bounds how long it takes to work through a large one (it renames directories one by one), so the
minute is fixed. So it is with KRaft. With ZooKeeper the name is free only when every broker has set
its directory aside, and no more is lawful than metadata that lags (10 s): there the minute is more
than is needed""",
    "REG001": """\
the process died, or stands still, and its session has not ended: session timeout, as the brokers
tell it (6 s here, 18 s as shipped). 15 s more, fixed, are for a registration read from a server
that lags (10 s) and for a broker that has registered and does not answer yet. The clock starts when
the monitor first asks in vain. A silent broker is asked in every round here
(`backoff_max_ms` is 1 s; 30 s as shipped), and the alert waits for such a question""",
    "REG002": """\
its session has ended and it does not know: it hears so when it reaches ZooKeeper or the controller
again, and one that was only paused or cut off for a moment may need another session timeout for
that (6 s here). 15 s more, fixed, are for registrations read from a server that lags (10 s) and for
connecting anew. The clock starts when the registration goes, not when the wire is cut""",
}
"""By code: the legal state that looks the same."""

EXPLAINED: Final = """\
A rule with a grace tells of a state that may be a lawful one at first. "Lawful until" is counted
from the injection, by the test's own clock: the moment from which the state is there, and the grace
of the rule. The alert must come within two rounds and one batch after that; one that comes before
is a false one, and the row fails. A round is a second, or longer if it takes longer; each is judged
by itself, so that a batch is one more. The other rules of this table have no grace, or two
observations in a row, which the two rounds are enough for. What the four graces stand for:
"""

_LOOK_EVERY_S: Final = 0.1


def in_words() -> str:
    """The list on the page, from the graces of the catalogue."""
    lines = [EXPLAINED]
    for code, legal in LAWFUL.items():
        rule = BY_CODE[code]
        lines.append(f"- {code} {rule.name}, {rule.grace}: {legal}.")
    return "\n".join(lines) + "\n"


class Since(threading.Thread):
    """When something first was so, in seconds after the start; None where it never was."""

    def __init__(self, so: Callable[[], bool]) -> None:
        super().__init__(name="since", daemon=True)
        self._so, self._ends = so, threading.Event()
        self.at_s: float | None = None
        self._began = time.monotonic()

    def __enter__(self) -> Since:
        self._began = time.monotonic()
        self.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._ends.set()
        self.join(10)

    def run(self) -> None:
        while not self._ends.is_set():
            if self._so():
                self.at_s = time.monotonic() - self._began
                return
            self._ends.wait(_LOOK_EVERY_S)


def at_once() -> bool:
    return True


def fenced_by_a_controller(lab: Lab, broker: int) -> Callable[[], bool]:
    """A controller of KRaft writes so into its log; what it wrote before this call does not count.

    Read from the files of the others, not from the monitor: the clock must be independent of it.
    """
    says = re.compile(rf"Fencing broker {broker}\b")
    others = [node for node in lab.brokers if node != broker]
    before = {node: len(says.findall(lab.log(node))) for node in others}
    return lambda: any(len(says.findall(lab.log(node))) > before[node] for node in others)
