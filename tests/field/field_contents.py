"""One byte of a record on a follower is another, with a checksum that fits again and without: the
cluster's own state shows nothing, and whoever reads from that replica reads something else."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Any, Final

from tests.field import field_disks
from tests.field.field_inject import Fault

if TYPE_CHECKING:
    from tests.field.field_inject import Injected

OFFSET, BROKER = 10, 3
COMPARED: Final[dict[str, Any]] = {
    "verify_bytes_per_round": 4_000_000,
    "verify_again_after_ms": 0,
}
"""Options of a monitor that compares contents in every round, and begins anew at their end."""


def play(injected: Injected) -> None:
    for topic, fixed in (("altered", True), ("rotten", False)):
        injected.topic(topic)
        replica = field_disks.replica_dir(injected.lab, BROKER, topic)
        what = "with its checksum fixed up" if fixed else "its checksum is broken"
        injected.expect(
            Fault(
                f"bytes of a follower altered, {what}",
                "LOG001" if fixed else "LOG002",
                f"{topic}-0",
                partial(field_disks.alter_batch, replica, OFFSET, fix_checksum=fixed),
                BROKER,
                OFFSET,
                topic=topic,
            )
        )
