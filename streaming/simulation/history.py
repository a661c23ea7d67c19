"""A random history: faults by chance on a small cluster, watched all along, and healed at the
end."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final, NamedTuple

from tidestaff.connectors.simulator.action_text import as_text
from tidestaff.connectors.simulator.cluster import SimulatedCluster
from tidestaff.connectors.simulator.faults import RandomFaults
from tidestaff.connectors.simulator.sampler import Sampler
from tidestaff.connectors.simulator.scenario_state import state_lines
from tidestaff.connectors.simulator.settings import QUICK
from tidestaff.streaming.simulation.performance import by_partition, too_early
from tidestaff.streaming.simulation.watch import Watch, rules_of_preset

if TYPE_CHECKING:
    from collections.abc import Callable, Collection

    from tidestaff.consistency.model import Observation
    from tidestaff.streaming.simulation.watch import Alert

BROKERS: Final = (1, 2, 3)
TOPICS: Final = {"t": [[1, 2, 3]]}
REPAIRS: Final = frozenset({"produce", "start", "resume", "heal", "release_fetches", "usual_speed"})
_ROUND_MS: Final = 50
_QUIET_MS: Final = 3_000
_ONE_ACTION_MS: Final = 400


class Moment(NamedTuple):
    """What was done since the moment before, and what it looked like shortly after."""

    at_ms: int
    commands: list[str]
    state: list[str]
    alerts: list[Alert]


class History:
    """One seed makes one history: the cluster, the faults and the looks are all determined by
    it."""

    def __init__(
        self,
        preset: str,
        seed: int,
        kinds: Collection[str],
        record: Callable[[Observation], None] | None = None,
    ) -> None:
        self.cluster = SimulatedCluster(preset, BROKERS, TOPICS, QUICK, seed)
        self.watch = Watch()
        self.moments: list[Moment] = []
        self._faults = RandomFaults(self.cluster, seed, kinds)
        self._sampler = Sampler(self.cluster, rules_of_preset(preset))
        self._record = record
        self._told = 0
        self._healing = False
        self._show: Callable[[Moment], None] | None = None
        self._before: list[str] = []

    def run(self, steps: int, show: Callable[[Moment], None] | None = None) -> None:
        """So many faults, then every fault ends, then a while of quiet. `show` is called with each
        moment while the cluster is as it tells.

        Where little can be done for long (the only topic is gone until chance makes it again) the
        faults go on until there were so many: writing to a topic that is there is always possible,
        and so is making one again.
        """
        self._show = show
        self._tick()
        stretch_ms, end_ms = steps * _ONE_ACTION_MS * 10, 0
        while len(self.cluster.actions) < steps:
            if self.cluster.now_ms >= end_ms:
                self._faults.schedule(stretch_ms)
                end_ms = self.cluster.now_ms + stretch_ms
            self.cluster.advance(1)
        self._note()
        self._healing = True
        self._faults.heal()
        self.cluster.advance(_QUIET_MS)

    def never_happened(self, kinds: Collection[str]) -> list[str]:
        """Which of these faults there were none of: chance, or nothing they could act on."""
        return sorted(set(kinds) - self._faults.happened)

    def _tick(self) -> None:
        """Looks from inside the event loop, so that no stretch of time goes unwatched."""
        seen = [each for each in self._sampler.round() if not too_early(each)]
        self.watch.see(seen)
        if self._record is not None:
            for observation in seen:
                self._record(observation)
        self._note()
        self.cluster.loop.at(self.cluster.now_ms + _ROUND_MS, self._tick, outside=True)

    def _note(self) -> None:
        """A moment is worth telling when something was done, raised, or elected."""
        done = self.cluster.actions[self._told :]
        self._told = len(self.cluster.actions)
        alerts = self.watch.take()
        lines = state_lines(self.cluster)
        heads = [line for line in lines if not line.startswith(" ")]
        if done or alerts or heads != self._before:
            self._before = heads
            state = state_lines(self.cluster, (), by_partition(alerts))
            commands = [_text(a) for a in done if not self._healing or _heals(a)]
            if self._healing and len(done) > len(self.cluster.brokers):
                commands.insert(0, "(every fault ends)")
            moment = Moment(self.cluster.now_ms, commands, state, alerts)
            self.moments.append(moment)
            if self._show is not None:
                self._show(moment)


def _heals(action: dict[str, Any]) -> bool:
    """Of what ends a history only that is told which changes something."""
    return bool(action["applied"]) and action["do"] not in {"slow_follower", "change_settings"}


def _text(action: dict[str, Any]) -> str:
    return as_text(action) + ("" if action["applied"] else "   (not possible now)")
