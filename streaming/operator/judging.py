"""Spark's side of the operator: decode, process, encode.

Keyed by bucket, not by partition: a Python group costs milliseconds of its own, a partition within
one microseconds.
"""

from __future__ import annotations

import hashlib
import json
import secrets
from collections import OrderedDict
from typing import TYPE_CHECKING, Any, Final

import pandas as pd
from tidestaff.connectors.wire import CLUSTER, MISSING
from tidestaff.streaming import codec
from tidestaff.streaming.operator.bucket import Bucket, Limits
from tidestaff.streaming.operator.saving import Keeper, UnreadableStateError, restore
from tidestaff.streaming.operator.viewing import View

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator

    from pyspark.sql import DataFrame
    from pyspark.sql.streaming.state import GroupState
    from tidestaff.streaming.operator.bucket import Said
    from tidestaff.streaming.operator.entries import Subject
    from tidestaff.streaming.operator.saving import Saved

MAX_KEPT_PARTITIONS: Final = 400_000
_kept: OrderedDict[tuple[str, int], tuple[bytes, Keeper]] = OrderedDict()


def judge(
    rows: DataFrame,
    *,
    buckets: int = Limits().buckets,
    lateness_ms: int = Limits().lateness_ms,
    silence_ms: int = Limits().silence_ms,
    run: str = "",
    view: str = "",
) -> DataFrame:
    """Rows as in `codec.ROW_SCHEMA` to findings, quarantined rows and statistics.

    `run` names the checkpoint, so that a Python worker that serves two jobs does not mix them up.
    With `view` there are rows of kind `state` too, for people to look at; it names who is told, and
    is another one when that has forgotten everything.
    """
    judged = bucket_judge(Limits(lateness_ms, silence_ms, buckets), run, view=view)
    return (
        codec.operator_input(rows, buckets)
        .groupBy("bucket")
        .applyInPandasWithState(
            judged, codec.OUTPUT_SCHEMA, codec.STATE_SCHEMA, "append", "NoTimeout"
        )
    )


def bucket_judge(
    limits: Limits, run: str, *, view: str = ""
) -> Callable[[tuple[Any, ...], Iterable[pd.DataFrame], GroupState], Iterator[pd.DataFrame]]:
    """The function Spark calls for every bucket that has rows in a batch."""

    def judged(
        key: tuple[Any, ...], frames: Iterable[pd.DataFrame], state: GroupState
    ) -> Iterator[pd.DataFrame]:
        number = int(key[0])
        keeper, rebuilt = _keeper(number, state, limits, run)
        block = codec.block_of_frames(frames, number)
        if block is None:
            return
        if view and keeper.bucket.view is None:
            resumed = View.resumed(keeper.told, keeper.bucket, view)
            keeper.bucket.view = resumed or View(secrets.token_hex(4), view)
        said = keeper.bucket.process(block)
        shown = keeper.bucket.view.take(keeper.bucket, number) if keeper.bucket.view else None
        saved = keeper.save()
        state.update(tuple(saved))
        _keep(run, number, _check(saved), keeper)
        found = _output(number, keeper.bucket, said, sum(map(len, saved[1:])), rebuilt)
        if shown is not None:
            found.append(("state", found[-1][1], shown))
        yield _frame(found)

    return judged


def _keeper(number: int, state: GroupState, limits: Limits, run: str) -> tuple[Keeper, str]:
    """The bucket as the state store has it; from this worker's own memory if that is the same."""
    if not state.exists:
        return Keeper(Bucket(limits)), ""
    saved = codec.saved_of_state(state.get)
    found = _kept.pop((run, number), None)
    if found is not None and found[0] == _check(saved):
        return found[1], ""
    try:
        return restore(saved, limits), ""
    except UnreadableStateError as error:
        return Keeper(Bucket(limits)), str(error)


def _check(saved: Saved) -> bytes:
    """Tells two states apart, also those of the same batch run twice."""
    digest = hashlib.blake2b(digest_size=16)
    for part in saved[1:]:
        digest.update(part)
    return digest.digest()


def _keep(run: str, number: int, check: bytes, keeper: Keeper) -> None:
    _kept[run, number] = check, keeper
    total = sum(len(each.bucket.partitions) for _, each in _kept.values())
    while total > MAX_KEPT_PARTITIONS and len(_kept) > 1:
        _, (_, dropped) = _kept.popitem(last=False)
        total -= len(dropped.bucket.partitions)


def _output(
    number: int, bucket: Bucket, said: Said, state_bytes: int, rebuilt: str
) -> list[tuple[str, int, dict[str, Any]]]:
    found = [("finding", event["at_ms"], event | {"bucket": number}) for event in said.findings]
    found += [("quarantine", record["at_ms"], record) for record in said.quarantine]
    stats = _stats(number, bucket, said)
    stats |= {"state_bytes": state_bytes, "state_rebuilt": rebuilt}
    found.append(("stats", stats["max_at_ms"], stats))
    return found


def _frame(found: list[tuple[str, int, dict[str, Any]]]) -> pd.DataFrame:
    payloads = [json.dumps(payload, separators=(",", ":")) for _, _, payload in found]
    return pd.DataFrame(
        {
            "kind": [kind for kind, _, _ in found],
            "at_ms": [at_ms for _, at_ms, _ in found],
            "payload": payloads,
        }
    )


def _stats(number: int, bucket: Bucket, said: Said) -> dict[str, Any]:
    slots = bucket.slots
    known = [int(at) for at in slots.numbers.at[: slots.count] if at >= 0]
    clusters = [s for s in bucket.subjects.values() if s.kind == CLUSTER]
    clusters = [s for s in clusters if s.sequence.at_ms != MISSING]
    return {
        "bucket": number,
        **{name: said.counts[name] for name in ("rows", "quiet", "stepped", "late", "quarantined")},
        "unknown": said.counts["unknown"],
        "held": sum(len(p.sequence.held) for p in bucket.partitions.values()),
        "partitions": len(bucket.partitions),
        "replicas_behind": slots.behind(),
        "clocks": {s.cluster: _clock_ms(s, bucket.limits.silence_ms) for s in clusters},
        "sources": {
            f"{s.cluster}/{name}": max((hearing.last_ms, *hearing.waiting))
            for s in clusters
            for name, hearing in s.sources.items()
        },
        "max_at_ms": max(known, default=0),
    }


def _clock_ms(cluster: Subject, silence_ms: int) -> int:
    """Where everybody is silent, time has passed by as much as that took: what waits for it (a
    group that gathers its members) is told."""
    heard = cluster.sources.values()
    silent = bool(heard) and all(hearing.silent for hearing in heard)
    return cluster.sequence.at_ms + (silence_ms if silent else 0)
