"""Messages with delay between places; a cut link or bad luck loses them."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Callable
    from random import Random

    from tidestaff.connectors.simulator.clock import EventLoop
    from tidestaff.connectors.simulator.settings import Settings

ZOOKEEPER: Final = "zookeeper"
CONTROLLER: Final = "controller"


class Network:
    """Places are broker ids as text, `zookeeper`, and KRaft's `controller`; links have a
    direction."""

    def __init__(self, loop: EventLoop, chance: Random, settings: Callable[[], Settings]) -> None:
        self._loop, self._chance, self._settings = loop, chance, settings
        self.cuts: set[tuple[str, str]] = set()

    def reaches(self, source: str, target: str) -> bool:
        return source == target or (source, target) not in self.cuts

    def talks(self, one: str, other: str) -> bool:
        """Both directions work, as a connection needs."""
        return self.reaches(one, other) and self.reaches(other, one)

    def delay(self) -> int:
        low, high = self._settings().delay_ms
        return self._chance.randint(low, high)

    def send(self, source: str, target: str, deliver: Callable[[], None]) -> None:
        """Deliver later, or never: the link must hold at both ends of the way."""
        delay = self.delay()
        loss = self._settings().loss
        lost = loss > 0 and source != target and self._chance.random() < loss
        if lost or not self.reaches(source, target):
            return

        def arrive() -> None:
            if self.reaches(source, target):
                deliver()

        self._loop.after(delay, arrive)
