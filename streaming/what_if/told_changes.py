"""What a reassignment, or elections of replicas out of sync, would do, for people and machines."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tidestaff.streaming.commands.exits import Exit
from tidestaff.streaming.commands.layout import counted, table
from tidestaff.streaming.what_if.told import MOST_LINES, Told, brokers_named

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from tidestaff.consistency.model import TopicPartition
    from tidestaff.consistency.what_if import Move, StopForecast, UncleanElection


def of_reassign(moves: Sequence[Move], unsettled: Sequence[TopicPartition] = ()) -> Told:
    """`unsettled` partitions changed while they were read."""
    moving = {m.name for m in moves} & set(unsettled)
    stuck = [m for m in moves if m.away or m.unknown]
    under = [m for m in moves if m.under_min_isr]
    unread = [m for m in moves if m.adding and m.records_to_copy is None]
    moved = [m for m in moves if m.leader_after != m.leader_before]
    records = sum(m.records_to_copy or 0 for m in moves)
    if stuck:
        names = ", ".join(str(m.name) for m in stuck[:3])
        verdict, code = f"NOT SAFE: {len(stuck)} would never end ({names})", Exit.CRITICAL
    elif under:
        verdict = f"NOT SAFE: {counted(len(under), 'partition')} would end under min ISR"
        code = Exit.CRITICAL
    elif moving:
        verdict, code = _changed(len(moving)), Exit.UNKNOWN
    elif unread:
        leaders = counted(len(unread), "partition")
        verdict = f"CANNOT TELL: the leader's log of {leaders} could not be read"
        code = Exit.UNKNOWN
    else:
        verdict = (
            f"SAFE: {counted(len(moves), 'partition')}, {records} records to copy, "
            f"{counted(len(moved), 'leader')} would move"
        )
        code = Exit.OK
    rows = []
    for m in moves[:MOST_LINES]:
        what = m.unknown or ""
        if m.away:
            what = f"waits for {brokers_named(m.away)}, not there"
        elif m.under_min_isr:
            what = "ends under min ISR"
        before, after = _leader(m.leader_before), _leader(m.leader_after)
        rows.append(
            (
                str(m.name),
                f"{_listed(m.replicas)} -> {_listed(m.target)}",
                before if before == after else f"{before} -> {after}",
                "?" if m.records_to_copy is None else str(m.records_to_copy),
                what,
            )
        )
    lines = table(("PARTITION", "REPLICAS", "LEADER", "RECORDS TO COPY", "WHAT"), rows)
    values = [{**m._asdict(), "name": str(m.name)} for m in moves]
    return Told(verdict, lines, {"partitions": values}, code)


def of_unclean(
    found: Sequence[UncleanElection],
    risks: StopForecast | None,
    leaderless: int = 0,
    unsettled: Sequence[TopicPartition] = (),
) -> Told:
    """`leaderless`: partitions without a leader, those that get none with it as well."""
    losing = [e for e in found if e.lost is not None or e.lost_at_least]
    if found:
        records = sum(e.lost.end - e.lost.start for e in found if e.lost)
        least = "at least " if any(e.lost_at_least for e in found) else ""
        verdict = (
            f"NOT SAFE: {counted(len(found), 'partition')} without a leader would get one, and "
            f"lose {least}{counted(records, 'committed record')}"
        )
        code = Exit.CRITICAL if losing else Exit.WARNING
    elif unsettled:
        verdict, code = _changed(len(unsettled)), Exit.UNKNOWN
    elif leaderless:
        verdict = (
            f"RISKY: nobody is there to lead {counted(leaderless, 'partition')} without a leader; "
            "whoever is back first would"
        )
        code = Exit.WARNING
    elif risks is not None and risks.losing:
        names = counted(len(risks.losing), "partition")
        verdict = f"RISKY: nothing is offline now, but {names} would lose records at a next failure"
        code = Exit.WARNING
    else:
        verdict, code = "SAFE now: no partition is without a leader", Exit.OK
    rows = [
        (
            str(e.name),
            str(e.leader),
            "none known" if e.lost is None else str(e.lost),
            "yes" if e.lost_at_least else "no",
        )
        for e in found[:MOST_LINES]
    ]
    lines = table(("PARTITION", "WOULD LEAD", "LOST", "PERHAPS MORE"), rows) if rows else []
    value = {
        "partitions": [
            {
                "partition": str(e.name),
                "leader": e.leader,
                "lost": None if e.lost is None else list(e.lost),
                "perhaps_more": e.lost_at_least,
            }
            for e in found
        ]
    }
    return Told(verdict, lines, value, code)


def _changed(partitions: int) -> str:
    return f"CANNOT TELL: {counted(partitions, 'partition')} changed while being read: ask again"


def _listed(brokers: Iterable[int]) -> str:
    return ",".join(map(str, brokers)) or "none"


def _leader(broker: int) -> str:
    return str(broker) if broker >= 0 else "none"
