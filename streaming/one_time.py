"""The checkpoint and what was told of its batches must be of one time.

Batches are recognised by their number, which is right as long as both went on together. A power cut
may take the newest entries of a checkpoint, and people put back copies: then a number stands for
other rows than before, or the operator holds for told what nobody kept. Both would lose alerts
without a word, so it is looked at before the first batch.
"""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Protocol

from tidestaff.streaming import checkpoint

if TYPE_CHECKING:
    from collections.abc import Callable

    from tidestaff.streaming.checkpoint import Folder


class Keeper(Protocol):
    """Who keeps what batches told, and by their number knows one that comes again."""

    def last_batch(self, query_id: str) -> int | None: ...
    def set_back(self, query_id: str, batch_id: int) -> None: ...


def make_of_one_time(
    folder: Folder, store: Keeper, quarantine: Keeper, say: Callable[[str], None]
) -> None:
    """A checkpoint that is older than the store goes on where it is, and its next batches count as
    new. One that is newer is put aside: what it holds for told was not kept."""
    done = checkpoint.newest(folder, "commits")
    planned = max(done, checkpoint.newest(folder, "offsets"))
    query_id = checkpoint.name_of(folder)
    told = _last(store, query_id)
    if told < done:
        aside = checkpoint.put_aside(folder, int(time.time() * 1_000))
        known = "nothing" if told < 0 else f"batches up to {told}"
        say(
            f"the checkpoint has come to batch {done}, and the alert store knows {known} of it:"
            f" they are of different times; the checkpoint is put aside ({aside}) and everything"
            " is judged anew"
        )
        return
    if query_id is None:
        return
    if told > planned:
        store.set_back(query_id, done)
        say(
            f"the alert store knows batches up to {told}, and the checkpoint has come to batch"
            f" {planned}: they are of different times; what came after is judged again, and its"
            " alerts may be told again"
        )
    # Not every batch puts something there: to know fewer is no sign of anything.
    if _last(quarantine, query_id) > planned:
        quarantine.set_back(query_id, done)


def _last(keeper: Keeper, query_id: str | None) -> int:
    last = None if query_id is None else keeper.last_batch(query_id)
    return -1 if last is None else last
