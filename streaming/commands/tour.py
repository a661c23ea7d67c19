"""`tidestaff tour`: the most telling predictions, one after the other, all computed as it plays."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any, Final

from tidestaff.consistency.catalogue import BY_CODE
from tidestaff.streaming.commands.drawing import LEGEND, draw
from tidestaff.streaming.commands.exits import Exit
from tidestaff.streaming.commands.layout import Paint, paragraph, table, wants_colour
from tidestaff.streaming.commands.tour_elections import (
    assignment_order,
    last_replica,
    unclean_choice,
)
from tidestaff.streaming.commands.tour_logs import divergence, leader_answer, loss_by_watermark
from tidestaff.streaming.commands.tour_watermark import frozen_watermark

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from tidestaff.streaming.commands.arguments import CommandParser, Options
    from tidestaff.streaming.commands.scene import Scene

EXAMPLES: Final = """\
examples:
  tidestaff tour
  tidestaff tour --json

Colour only on a terminal, and not where NO_COLOR is set.
"""

INTRODUCTION: Final = (
    "Kafka's replication follows exact rules, and they differ from version to version. Tidestaff "
    "computes from them what a cluster will do, and raises an alert, by its code, when the cluster "
    "did something else. Every number below is computed now, by those rules."
)
CLOSING: Final = """\
your own case    tidestaff predict election --help     (also truncation, watermark)
a code in full   tidestaff rules TRN001"""

SCENES: Final[tuple[Callable[[], Scene], ...]] = (
    assignment_order,
    loss_by_watermark,
    divergence,
    leader_answer,
    unclean_choice,
    frozen_watermark,
    last_replica,
)


def configure(_: CommandParser, __: Sequence[str]) -> None:
    """The tour takes no arguments of its own."""


def run(options: Options) -> int:
    scenes = [make() for make in SCENES]
    if options.json:
        print(json.dumps({"scenes": [_content(scene) for scene in scenes]}, indent=2))
        return Exit.OK
    paint = Paint(colour=wants_colour())
    lines = [*paragraph(INTRODUCTION), "", *paragraph(LEGEND)]
    for number, scene in enumerate(scenes, 1):
        lines += ["", "", *_told(number, len(scenes), scene, paint)]
    print("\n".join([*lines, "", "", CLOSING]))
    return Exit.OK


def _told(number: int, count: int, scene: Scene, paint: Paint) -> list[str]:
    lines = [paint(f"{number}/{count}  {scene.title}", "bold"), ""]
    lines += paragraph(scene.story, indent=2)
    for drawing in scene.drawings:
        lines += ["", *([f"  {drawing.caption}"] if drawing.caption else [])]
        lines += draw(drawing.logs, paint)
    lines += ["", *table(scene.head, scene.rows, indent=2, rule=True), ""]
    lines += [*paragraph(scene.lesson, indent=2), "", "  What the monitor would say:"]
    for alert in scene.alerts:
        rule = BY_CODE[alert.code]
        told = f"{rule.code} {rule.name} ({rule.severity.value}): {alert.when}"
        first, *more = paragraph(told, indent=5)
        lines += [f"  {paint('!', 'red')}  {first.strip()}", *more]
    return lines


def _content(scene: Scene) -> dict[str, Any]:
    return {
        "title": scene.title,
        "story": scene.story,
        "logs": [
            {
                "caption": drawing.caption,
                "replicas": [
                    {
                        "name": drawn.name,
                        "log_end_offset": drawn.log.log_end_offset,
                        "high_watermark": drawn.log.high_watermark,
                        "epochs": [list(entry) for entry in drawn.log.lineage],
                        "remark": drawn.remark,
                    }
                    for drawn in drawing.logs
                ],
            }
            for drawing in scene.drawings
        ],
        "columns": list(scene.head),
        "rows": [list(row) for row in scene.rows],
        "lesson": scene.lesson,
        "alerts": [
            {"code": alert.code, "name": BY_CODE[alert.code].name, "when": alert.when}
            for alert in scene.alerts
        ],
    }
