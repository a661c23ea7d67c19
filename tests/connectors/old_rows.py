"""Rows as collectors of earlier releases send them."""

from __future__ import annotations

import io
import json
from typing import TYPE_CHECKING

import fastavro
from tidestaff.connectors import bodies, wire

if TYPE_CHECKING:
    from tidestaff.consistency.model import PartitionObservation


def version_1(observation: PartitionObservation) -> wire.Row:
    """Settings have no sources yet."""
    body = bodies.partition_body(observation)
    body["settings"] = {k: v for k, v in body["settings"].items() if not k.endswith("_source")}
    out = io.BytesIO()
    schema = fastavro.parse_schema(json.loads(wire.schema_text(wire.PARTITION, 1)))
    fastavro.schemaless_writer(out, schema, body)
    return wire.row_of(observation)._replace(schema_version=1, body=out.getvalue())
