"""Every seeded fault: mistakes one could make in the rules, each of which a test must see."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from tests.mutants import (
    in_checks,
    in_contents,
    in_elections,
    in_formats,
    in_kraft,
    in_logs,
    in_monitor,
)

if TYPE_CHECKING:
    from tests.mutants.fault import Fault

FAULTS: Final[tuple[Fault, ...]] = (
    *in_elections.FAULTS,
    *in_kraft.FAULTS,
    *in_logs.FAULTS,
    *in_formats.FAULTS,
    *in_monitor.FAULTS,
    *in_checks.FAULTS,
    *in_contents.FAULTS,
)
