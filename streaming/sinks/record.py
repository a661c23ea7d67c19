"""A transition as one flat record, for formats with a schema: Avro and Parquet have the same
columns."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from collections.abc import Mapping

_AS_THEY_ARE: Final = (
    *("schema_version", "id", "fingerprint", "number", "status", "at_ms", "reason"),
    *("code", "name", "severity", "class", "scope", "claim", "inputs"),
    *("cluster", "topic", "topic_id", "partition", "place", "broker", "cause", "leader_epoch"),
    *("since_ms", "started_at_ms", "fired_at_ms", "resolved_at_ms", "last_seen_ms"),
    *("expected", "observed", "because", "latched"),
)


def record_of(fields: Mapping[str, Any]) -> dict[str, Any]:
    """Offsets and acknowledgement as columns of their own, the evidence as JSON text."""
    offsets = fields["offsets"] or (None, None)
    ack = fields["acknowledged"] or {"who": None, "at_ms": None, "why": None}
    evidence = fields["evidence"]
    return {
        **{name: fields[name] for name in _AS_THEY_ARE},
        "offsets_start": offsets[0],
        "offsets_end": offsets[1],
        "members": [_member(each) for each in fields["members"]],
        "members_count": fields["members_count"],
        "members_affected": fields["members_affected"],
        "acknowledged_by": ack["who"],
        "acknowledged_at_ms": ack["at_ms"],
        "acknowledged_why": ack["why"],
        "evidence": None if evidence is None else json.dumps(evidence, sort_keys=True),
        "next_step": fields["next_step"],
        "runbook": fields["runbook"],
    }


def _member(member: Mapping[str, Any]) -> dict[str, Any]:
    offsets = member["offsets"] or (None, None)
    return {
        "topic": member["topic"],
        "partition": member["partition"],
        "at_ms": member["at_ms"],
        "observed": member["observed"],
        "offsets_start": offsets[0],
        "offsets_end": offsets[1],
    }
