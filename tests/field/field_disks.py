"""What happens to disks: a tail that never reached it, and no room left."""

from __future__ import annotations

import errno
import os
import subprocess
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Final

from tidestaff.connectors.segments import SegmentScan, checked_from, checksum

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tests.field.lab import Lab

SMALL: Final = "48m"
FULL: Final = "full"
_CHECKSUM_AT, _OLD_CHECKSUM_AT = 17, 12


@contextmanager
def small_disk(place: Path) -> Iterator[Path | None]:
    """A file system of its own; None where nobody lets us mount one."""
    place.mkdir(parents=True)
    command = ["mount", "-t", "tmpfs", "-o", f"size={SMALL}", "tmpfs", str(place)]
    if subprocess.run(command, check=False, capture_output=True).returncode:
        yield None
        return
    try:
        yield place
    finally:
        subprocess.run(["umount", "--lazy", str(place)], check=False)


def fill(disk: Path) -> None:
    """To the last byte."""
    descriptor = os.open(disk / FULL, os.O_WRONLY | os.O_CREAT, 0o600)
    try:
        while True:
            os.write(descriptor, bytes(64 * 1_024))
    except OSError as error:
        if error.errno != errno.ENOSPC:
            raise
    finally:
        os.close(descriptor)


def log_dirs(lab: Lab, broker: int) -> list[Path]:
    given = lab.plan.settings.get(broker, {}).get("log.dirs", str(lab.log_dir(broker)))
    return [Path(place) for place in given.split(",")]


def replica_dir(lab: Lab, broker: int, topic: str, partition: int = 0) -> Path:
    """In whichever of its log directories it is."""
    found = [place / f"{topic}-{partition}" for place in log_dirs(lab, broker)]
    return next(each for each in found if each.is_dir())


def cut_tail(replica: Path, offset: int) -> None:
    """The last segment loses all batches from this offset on; its indexes are made anew."""
    segment = max(replica.glob("*.log"))
    descriptor = os.open(segment, os.O_RDONLY)
    try:
        position = next(
            batch.position for batch in SegmentScan(descriptor) if batch.last_offset >= offset
        )
    finally:
        os.close(descriptor)
    os.truncate(segment, position)


def alter_batch(replica: Path, offset: int, *, fix_checksum: bool) -> None:
    """The last byte but one of the batch, or old message, that begins there is another."""
    segment = max(replica.glob("*.log"))
    descriptor = os.open(segment, os.O_RDWR)
    try:
        batch = next(each for each in SegmentScan(descriptor) if each.base_offset == offset)
        bytes_ = bytearray(os.pread(descriptor, batch.size, batch.position))
        bytes_[-2] ^= 1
        if fix_checksum:
            checked = checked_from(batch.magic)
            fitting = checksum(batch.magic, 0, bytes(bytes_[checked:]))
            at = _CHECKSUM_AT if batch.magic >= 2 else _OLD_CHECKSUM_AT
            bytes_[at : at + 4] = fitting.to_bytes(4, "big")
        os.pwrite(descriptor, bytes_, batch.position)
    finally:
        os.close(descriptor)
