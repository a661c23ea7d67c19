"""Alerts for a person at a terminal."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Any, Final

from tidestaff.streaming.commands.layout import Paint, labelled, wants_colour
from tidestaff.streaming.sinks.sink import SinkError
from tidestaff.streaming.sinks.words import details_of, how_long, subject_of, when

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from typing import TextIO

    from tidestaff.streaming.alerts.outbox import Outgoing

STYLES: Final = {
    "pending": "dim",
    "firing": "red",
    "acknowledged": "cyan",
    "resolved": "green",
}


class ConsoleSink:
    """Writes to a text stream. It is the one sink that cannot know what it wrote before a crash: an
    alert may be shown twice then, never skipped."""

    def __init__(
        self, name: str = "console", stream: TextIO | None = None, *, colour: bool | None = None
    ) -> None:
        self.name = name
        self._stream = stream or sys.stdout
        self._paint = Paint(colour=wants_colour() if colour is None else colour)

    def deliver(self, outgoing: Sequence[Outgoing]) -> None:
        try:
            for each in outgoing:
                for line in self._lines(each.transition.fields):
                    self._stream.write(line + "\n")
            self._stream.flush()
        except (OSError, ValueError) as error:
            problem = f"the terminal takes nothing ({type(error).__name__})"
            raise SinkError(self.name, problem, "run the job with a terminal or log file") from None

    def close(self) -> None:
        """The stream is not ours."""

    def _lines(self, fields: Mapping[str, Any]) -> list[str]:
        status = fields["status"]
        paint = self._paint
        severe = "red" if fields["severity"] == "critical" else "yellow"
        style = severe if status == "firing" else STYLES[status]
        head = (
            f"{when(fields['at_ms'])}  {paint(f'{status.upper():<12}', style)}"
            f"  {paint(fields['code'] + ' ' + fields['name'], 'bold')}"
            f" ({fields['severity']}, {fields['class']})  {subject_of(fields)}"
        )
        tail = f"  id {fields['fingerprint'][:8]}"
        if status == "resolved":
            lasted = how_long(fields["at_ms"] - fields["started_at_ms"])
            return [f"{head}  after {lasted}: {fields['reason']}{tail}"]
        if status == "pending":
            return [head + tail]
        return [head + tail, *labelled(details_of(fields), indent=2)]
