"""Segments for tests. The bytes are made by kafka-python's writers, not by our idea of them."""

from __future__ import annotations

import struct
import warnings
from functools import cache

with warnings.catch_warnings():
    warnings.filterwarnings("ignore", ".*_text is deprecated", DeprecationWarning)
    from kafka.record.default_records import (  # type: ignore[import-untyped]
        DefaultRecordBatchBuilder,
    )
    from kafka.record.legacy_records import (  # type: ignore[import-untyped]
        LegacyRecordBatchBuilder,
    )

GZIP = 1


def v2(
    base_offset: int,
    records: int = 1,
    *,
    epoch: int = 0,
    value: bytes = b"value",
    compression: int = 0,
    transactional: bool = False,
) -> bytes:
    # Offset and epoch are the broker's to fill in; the checksum does not cover them.
    data = bytearray(_v2(records, value, compression, transactional))
    struct.pack_into(">q", data, 0, base_offset)
    struct.pack_into(">i", data, 12, epoch)
    return bytes(data)


@cache
def _v2(records: int, value: bytes, compression: int, transactional: bool) -> bytes:
    builder = DefaultRecordBatchBuilder(
        2,
        compression,
        is_transactional=transactional,
        producer_id=7 if transactional else -1,
        producer_epoch=0 if transactional else -1,
        base_sequence=0 if transactional else -1,
        batch_size=1 << 24,
    )
    for number in range(records):
        builder.append(number, 1_000 + number, b"key", value, [])
    return bytes(builder.build())


def old(magic: int, first_offset: int, records: int = 1, *, compression: int = 0) -> bytes:
    """Messages of format v0 or v1 one after the other, or one compressed set of them."""
    builder = LegacyRecordBatchBuilder(magic, compression, 1 << 24)
    for number in range(records):
        inner = number if compression and magic else first_offset + number
        builder.append(inner, 1_000 + number if magic else None, b"key", b"value")
    data = bytearray(builder.build())
    if compression:
        struct.pack_into(">q", data, 0, first_offset + records - 1)
    return bytes(data)
