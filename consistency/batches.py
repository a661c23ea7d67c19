"""The words for contents of logs: batches by their headers, digests of ranges, how far a copy goes.

A batch belongs to the range that its last offset lies in. The last offset is told by the header of
every message format, and so every batch belongs to exactly one range however a log is cut up.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, NamedTuple

if TYPE_CHECKING:
    from tidestaff.consistency.model import BrokerId, Lineage, OffsetRange

_DELETE_HORIZON: Final = 0x40
"""The cleaner has written the time into the batch after which its tombstones go (KIP-534)."""


class BatchMark(NamedTuple):
    """One batch by its header: what followers copy unchanged from their leader.

    Of a compressed set of an old format only the last offset is known: `first_offset` is it, and
    `records` is None. `intact` is None where the payload was not read.
    """

    first_offset: int
    last_offset: int
    leader_epoch: int | None
    crc: int
    records: int | None
    max_timestamp: int | None = None
    attributes: int = 0
    intact: bool | None = None

    @property
    def identity(self) -> tuple[int, int, int | None, int, int | None]:
        return self.first_offset, self.last_offset, self.leader_epoch, self.crc, self.records

    @property
    def untouched(self) -> bool:
        """Whether no cleaner can have written it anew: it has a record for each of its offsets."""
        whole = self.records == self.last_offset - self.first_offset + 1
        return whole and not self.attributes & _DELETE_HORIZON


class RangeDigest(NamedTuple):
    """What one copy holds in a range: a digest of the headers of the batches that end there.

    `invalid_at`: a batch whose payload does not match its checksum (told where payloads were read).
    `starts_at`: the log begins above the start of the range; nothing else is told then.
    `unreadable_at`: from this offset on the log cannot be read, `reason` says why.
    """

    offsets: OffsetRange
    digest: int = 0
    batches: int = 0
    records: int = 0
    last_epoch: int | None = None
    invalid_at: int | None = None
    starts_at: int | None = None
    unreadable_at: int | None = None
    reason: str = ""


class Extent(NamedTuple):
    """One copy: where it begins and ends, and what else decides what may be compared.

    `high_watermark` is its own. `cleaned_up_to` is the cleaner's first dirty offset: None where
    the topic is compacted and nobody told it, 0 where nothing was ever cleaned. `broken_at`: by its
    files it cannot be read from there on.
    """

    broker: BrokerId
    log_start_offset: int
    high_watermark: int
    log_end_offset: int
    lineage: Lineage | None = None
    cleaned_up_to: int | None = 0
    in_sync: bool | None = None
    topic_id: str | None = None
    broken_at: int | None = None

    @property
    def end(self) -> int:
        """Up to here it holds what it knows to be committed."""
        return min(self.high_watermark, self.log_end_offset)
