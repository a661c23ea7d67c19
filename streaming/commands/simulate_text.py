"""What `tidestaff simulate` writes for people: the story, step by step, and what came of it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from tidestaff.consistency.catalogue import BY_CODE
from tidestaff.consistency.verdict import Severity
from tidestaff.streaming.commands.layout import paragraph, table
from tidestaff.streaming.simulation.ledger import compared

if TYPE_CHECKING:
    from collections.abc import Collection, Sequence

    from tidestaff.connectors.simulator.truth import Truth
    from tidestaff.streaming.commands.layout import Paint
    from tidestaff.streaming.simulation.history import History
    from tidestaff.streaming.simulation.performance import Performance, Played
    from tidestaff.streaming.simulation.watch import Alert

HOW_TO_READ: Final = (
    "Replicas stand in the order of the assignment. hw: high watermark, the offsets below it are "
    "committed. leo: log end offset, where the next record goes. epochs: epoch@first offset, as in "
    "the leader-epoch-checkpoint file (none before 0.11). log: record/leader epoch it was written "
    "in. Of a broker that is down you see its disk. ~ marks what changed, ! is an alert of the "
    "monitor."
)
_COLOURS: Final = {Severity.CRITICAL: "red", Severity.WARNING: "yellow", Severity.INFO: "cyan"}


def seconds(at_ms: int) -> str:
    return f"{at_ms / 1000:.1f} s"


class Stage:
    """Tells a performance block by block; what changed since the block before is marked."""

    def __init__(self, performance: Performance, paint: Paint) -> None:
        self.performance, self.paint = performance, paint
        self._before: dict[str, str] = {}
        self._number = 0

    def opening(self) -> list[str]:
        scenario = self.performance.scenario
        title, _, story = scenario.head.comment.partition("\n")
        lines = [self.paint(f"{scenario.name}: {title}" if title else scenario.name, "bold"), ""]
        for text in story.strip().split("\n\n"):
            lines += [*paragraph(" ".join(text.split())), ""] if text.strip() else []
        lines += [*paragraph(HOW_TO_READ), "", *head_lines(self.performance)]
        return [*lines, ""]

    def told(self, played: Played) -> list[str]:
        block = played.block
        lines: list[str] = []
        if block is self.performance.scenario.head:
            lines.append(self.paint("The cluster as it begins", "bold"))
        else:
            self._number += 1
            count = len(self.performance.scenario.blocks)
            label = f"Step {self._number} of {count}"
            comment = " ".join(block.comment.split())
            told = f"{label}: {comment}" if comment else label
            lines += [self.paint(line, "bold") for line in paragraph(told)]
            lines += [f"  > {command}" for command in block.commands]
        return [*lines, *self._state(played), ""]

    def _state(self, played: Played) -> list[str]:
        alerts = {alert.line: alert for alert in played.alerts}
        lines, now, first = [], {}, not self._before
        place = ""
        for line in played.state:
            if line in alerts:
                lines += alert_lines(alerts[line], self.paint)
                continue
            if line.startswith("."):
                lines.append(f"    {self.paint(line[2:], 'dim')}")
                continue
            if not line.startswith(" "):
                place = line.split()[0]
            key = f"{place}/{line.split()[0]}" if line.startswith(" ") else place
            now[key] = line
            changed = not first and self._before.get(key) != line
            text = f"  {'~' if changed else ' '} {line}"
            lines.append(self.paint(text, "cyan") if changed else text)
        self._before = now
        return lines

    def closing(self) -> list[str]:
        performance = self.performance
        alerts = performance.watch.alerts
        return ending(performance.cluster.truth, alerts, self.paint)


def head_lines(performance: Performance) -> list[str]:
    scenario = performance.scenario
    told = [f"version {scenario.preset}"]
    told += [line for line in scenario.head.commands if not line.startswith("version")]
    return [f"  > {line}" for line in told]


def alert_lines(alert: Alert, paint: Paint) -> list[str]:
    """The alert as a scenario has it, its severity, and why."""
    first, *more = paragraph(f"{alert.line[2:]} ({alert.severity.value})", indent=4)
    lines = [f"  ! {first.strip()}", *more]
    lines += paragraph(alert.violated.because, indent=8)
    return [paint(line, _COLOURS[alert.severity]) for line in lines]


def ledger_values(truth: Truth, alerts: Sequence[Alert]) -> list[dict[str, Any]]:
    return [
        {
            "at_ms": entry.at_ms,
            "partition": None if entry.partition is None else str(entry.partition),
            "truth": entry.what,
            "alert": None if entry.alert is None else entry.alert.as_value(),
        }
        for entry in compared(truth, alerts)
    ]


def ending(truth: Truth, alerts: Sequence[Alert], paint: Paint) -> list[str]:
    """The ledger beside the alerts, and where to read on."""
    lines = [paint("What really happened, and what the monitor said", "bold")]
    rows = [
        (
            seconds(entry.at_ms),
            "" if entry.partition is None else str(entry.partition),
            entry.what,
            _raised(entry.alert),
        )
        for entry in compared(truth, alerts)
    ]
    if rows:
        lines += table(("TIME", "WHERE", "THE SIMULATOR'S LEDGER", "RAISED"), rows, indent=2)
    else:
        lines.append("  Nothing committed was lost, no logs differ, every election was clean.")
    codes = dict.fromkeys(alert.violated.code for alert in alerts)
    if not codes:
        return [*lines, "", "No alert."]
    counted = ", ".join(f"{code} {BY_CODE[code].severity.value}" for code in codes)
    return [*lines, "", f"Alerts: {counted}.", f"Read on: tidestaff rules {' '.join(codes)}"]


def _raised(alert: Alert | None) -> str:
    if alert is None:
        return "not raised"
    return f"{alert.violated.code} {BY_CODE[alert.violated.code].name} at {seconds(alert.at_ms)}"


def history_text(history: History, seed: int, kinds: Collection[str], paint: Paint) -> list[str]:
    """Every action with the state shortly after it; in between, what the cluster did by itself."""
    preset = history.cluster.preset.name
    faults = ", ".join(sorted(kind.replace("_", "-") for kind in kinds))
    title = f"A random history: seed {seed}, Kafka {preset}"
    lines = [paint(title, "bold"), *paragraph(f"Chosen from: {faults}."), ""]
    lines += [*paragraph(HOW_TO_READ), ""]
    before: list[str] = []
    for moment in history.moments:
        told = moment.commands or (["(time passes)"] if before else ["(the beginning)"])
        lines += [paint(f"{seconds(moment.at_ms):>8}  {text}", "bold") for text in told]
        alerts = {alert.line: alert for alert in moment.alerts}
        state = [line for line in moment.state if line not in alerts]
        for line in state if state != before else []:
            mark = "~" if before and line not in before else " "
            lines.append(f"  {mark} {line}")
        for alert in moment.alerts:
            lines += alert_lines(alert, paint)
        before = state
    return [*lines, "", *ending(history.cluster.truth, history.watch.alerts, paint)]
