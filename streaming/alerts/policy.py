"""How long alerts wait: for late events, for others of the same cause, and before they resolve."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final

from tidestaff.consistency.catalogue import BY_CODE
from tidestaff.consistency.verdict import FindingClass

if TYPE_CHECKING:
    from collections.abc import Mapping

# A breach between two states is over at the next round: it must stay to be seen.
HOLD_DOWN_MS: Final[Mapping[FindingClass, int]] = {
    FindingClass.LOSS: 300_000,
    FindingClass.DIVERGENCE: 60_000,
    FindingClass.EXPOSURE: 60_000,
    FindingClass.PROTOCOL: 300_000,
    FindingClass.AVAILABILITY: 60_000,
    FindingClass.FORECAST: 120_000,
    FindingClass.SIGHT: 60_000,
}
# ISR005 looks back ten minutes; records are refused one by one, not continuously.
HOLD_DOWN_BY_CODE_MS: Final[Mapping[str, int]] = {"ISR005": 600_000, "SRC004": 300_000}


@dataclass(frozen=True, slots=True)
class AlertPolicy:
    """The times of an alert's life, all of them event time.

    `lateness_ms`: by how much rows of one cluster may be out of step; nothing that waits for a time
    is decided before the cluster's clock has passed it by this much. `doubt_ms`: how long a finding
    that the operator has forgotten may take to be found again; longer than any rule's grace.
    """

    lateness_ms: int = 10_000
    group_wait_ms: int = 10_000
    doubt_ms: int = 1_200_000
    hold_down_by_class_ms: Mapping[FindingClass, int] = field(default_factory=dict)
    hold_down_by_code_ms: Mapping[str, int] = field(default_factory=dict)

    def hold_down_ms(self, code: str) -> int:
        """How long a cleared alert of this code waits before it is resolved."""
        if code in self.hold_down_by_code_ms:
            return self.hold_down_by_code_ms[code]
        finding = BY_CODE[code].finding
        if finding in self.hold_down_by_class_ms:
            return self.hold_down_by_class_ms[finding]
        return HOLD_DOWN_BY_CODE_MS.get(code, HOLD_DOWN_MS[finding])
