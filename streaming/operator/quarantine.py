"""Rows that cannot be read are kept with the reason, not lost."""

from __future__ import annotations

import base64
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from tidestaff.connectors.wire import Row, WireError

MAX_RAW: Final = 4_096


def quarantined(row: Row, error: WireError) -> dict[str, Any]:
    return {
        "cluster": row.cluster,
        "source": row.source,
        "subject": row.subject,
        "reason": error.reason,
        "remedy": error.remedy,
        "at_ms": row.observed_at_ms,
        "raw": base64.b64encode(row.body[:MAX_RAW]).decode("ascii"),
    }
