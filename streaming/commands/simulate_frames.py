"""`tidestaff simulate --watch`: the replicas' logs drawn, one frame a step."""

from __future__ import annotations

import sys
import time
from typing import TYPE_CHECKING, Final

from tidestaff.connectors.simulator.scenario_state import partition_lines
from tidestaff.streaming.commands.drawing import LEGEND, draw
from tidestaff.streaming.commands.layout import paragraph, terminal_width
from tidestaff.streaming.commands.simulate_text import alert_lines, ending, seconds
from tidestaff.streaming.simulation.values import drawn_logs

if TYPE_CHECKING:
    from collections.abc import Sequence

    from tidestaff.connectors.simulator.cluster import SimulatedCluster
    from tidestaff.streaming.commands.layout import Paint
    from tidestaff.streaming.simulation.history import History, Moment
    from tidestaff.streaming.simulation.performance import Performance
    from tidestaff.streaming.simulation.watch import Alert

_CLEAR: Final = "\x1b[2J\x1b[H"


class Frames:
    """On a terminal in place, with a pause between two; else one after the other."""

    def __init__(self, paint: Paint, delay: float) -> None:
        self.paint, self.delay = paint, delay
        self._terminal = sys.stdout.isatty()
        self._width = terminal_width() if self._terminal else None
        self._first = True

    def show(
        self,
        head: Sequence[str],
        cluster: SimulatedCluster,
        shown: Sequence[str],
        alerts: Sequence[Alert],
    ) -> None:
        lines = list(head)
        partitions = cluster.mode.partitions()
        for partition in partitions:
            lines += ["", f"  {partition_lines(cluster, partition, shown)[0]}"]
            logs = drawn_logs(cluster, partition)
            lines += draw(logs, self.paint, width=self._width) if logs else []
        lines += [] if partitions else ["", "  (no topic)"]
        lines += [""] if alerts else []
        for alert in alerts:
            lines += alert_lines(alert, self.paint)
        lines += ["", *(self.paint(line, "dim") for line in paragraph(LEGEND)), ""]
        if self._terminal and not self._first:
            time.sleep(self.delay)
        self._first = False
        print((_CLEAR if self._terminal else "") + "\n".join(lines), flush=True)


def watch_scenario(performance: Performance, paint: Paint, delay: float) -> None:
    """One frame a block."""
    frames, scenario = Frames(paint, delay), performance.scenario
    for number, played in enumerate(performance.blocks()):
        title = f"{scenario.name}  Kafka {scenario.preset}  "
        comment = played.block.comment.split("\n\n")[0] if number == 0 else played.block.comment
        head = [paint(f"{title}step {number} of {len(scenario.blocks)}", "bold"), ""]
        head += [*paragraph(" ".join(comment.split())), ""]
        head += [f"  > {command}" for command in played.block.commands]
        frames.show(head, performance.cluster, scenario.shown, played.alerts)
    print("\n".join(ending(performance.cluster.truth, performance.watch.alerts, paint)))


def watch_history(history: History, seed: int, steps: int, paint: Paint, delay: float) -> None:
    """One frame for everything that was done, raised or elected."""
    frames, cluster = Frames(paint, delay), history.cluster

    def show(moment: Moment) -> None:
        title = f"A random history: seed {seed}, Kafka {cluster.preset.name}  "
        done = min(len(cluster.actions), steps)
        told = moment.commands or ["(time passes)" if done else "(the beginning)"]
        at = f"step {done} of {steps}, {seconds(moment.at_ms)}"
        head = [paint(f"{title}{at}", "bold"), "", *(f"  > {text}" for text in told)]
        frames.show(head, cluster, (), moment.alerts)

    history.run(steps, show)
    print("\n".join(ending(cluster.truth, history.watch.alerts, paint)))
