"""What goes wrong in a lab: each error names the node and what to do."""

from __future__ import annotations

from tidestaff.streaming.commands.exits import CommandError


class LabError(CommandError):
    """The lab cannot do what was asked."""


class NodeDownError(LabError):
    """A node did not come up, or ended; the end of its own log says why."""
