"""Observations made fast: a load source makes many of them.

A frozen dataclass sets each of its fields by a call, and these calls are most of what an
observation costs. A draft has the same slots, sets them as any object does, and becomes an
observation when it is complete.
"""

from __future__ import annotations

from dataclasses import fields, make_dataclass
from typing import Any, Final

from tidestaff.consistency.model import PartitionObservation

_Draft: Final = make_dataclass(
    "_Draft", [field.name for field in fields(PartitionObservation)], slots=True
)


def partition_observation(*values: Any) -> PartitionObservation:
    """An observation of all its fields, in their order; none has a default here."""
    draft: Any = _Draft(*values)
    draft.__class__ = PartitionObservation
    made: PartitionObservation = draft
    return made
