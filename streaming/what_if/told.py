"""A forecast for people, a verdict first; and for machines."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final, NamedTuple

from tidestaff.consistency.catching_up import Pace, catching_up, returns, written_a_second
from tidestaff.streaming.commands.exits import Exit
from tidestaff.streaming.commands.layout import counted, paragraph, table

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from tidestaff.consistency.catching_up import CatchUp, Return
    from tidestaff.consistency.model import PartitionObservation, TopicPartition
    from tidestaff.consistency.what_if import Change, RestartPlan, StopForecast

MOST_LINES: Final = 40
_NO_QUORUM: Final = (
    "Without a quorum nothing is written to the metadata: leaders move only as long as it lasts, "
    "and none is elected after that until voters are back."
)


class Told(NamedTuple):
    """A verdict in one line, what stands under it, the same as a value, and the exit code."""

    verdict: str
    lines: list[str]
    value: dict[str, Any]
    code: Exit


class Rejoining(NamedTuple):
    """Who is out of sync, and how many records a second each broker has to hold."""

    behind: tuple[CatchUp, ...] = ()
    a_second: Mapping[int, float] | None = None

    @classmethod
    def of(
        cls, earlier: Sequence[PartitionObservation], later: Sequence[PartitionObservation]
    ) -> Rejoining:
        return cls(catching_up(earlier, later), written_a_second(earlier, later))


class Voters(NamedTuple):
    """Of a KRaft quorum: without most of them nobody is elected any more."""

    listed: tuple[int, ...] = ()
    silent: tuple[int, ...] = ()
    """Those that are away already."""

    def staying(self, stopping: Iterable[int]) -> int:
        return len(set(self.listed) - set(stopping) - set(self.silent))

    def is_lost(self, stopping: Iterable[int]) -> bool:
        return bool(self.listed) and self.staying(stopping) * 2 <= len(self.listed)


def brokers_named(numbers: Iterable[int]) -> str:
    listed = [str(n) for n in numbers]
    return f"broker {listed[0]}" if len(listed) == 1 else f"brokers {', '.join(listed)}"


# -- stop


def of_stop(
    found: StopForecast,
    rejoining: Rejoining,
    unsettled: Sequence[TopicPartition] = (),
    voters: Voters = Voters(),  # noqa: B008 - it never changes
) -> Told:
    """`unsettled` partitions changed while they were read: nobody can vouch for what is said."""
    faults = []
    quorum_lost = voters.is_lost(found.stopping)
    if quorum_lost:
        left = f"{voters.staying(found.stopping)} of {len(voters.listed)} voters"
        faults.append(f"no quorum of controllers would be left ({left})")
    if found.losing:
        records = sum(c.after.lost.end - c.after.lost.start for c in found.losing if c.after.lost)
        faults.append(f"{counted(records, 'committed record')} would be lost")
    if found.offline:
        faults.append(f"{counted(len(found.offline), 'partition')} would be offline")
    if found.under_min_isr:
        faults.append(f"{counted(len(found.under_min_isr), 'partition')} would refuse acks=all")
    code = Exit.CRITICAL if faults else Exit.OK
    warnings = []
    if found.one_copy_left and not faults:
        left = counted(len(found.one_copy_left), "partition")
        warnings.append(f"{left} would have one in-sync copy left")
        code = Exit.WARNING
    if found.offline_already and not faults:
        warnings.append(f"{_offline_already(len(found.offline_already))} and would stay so")
        code = Exit.WARNING
    if found.unknown and not faults:
        warnings.append(f"of {counted(len(found.unknown), 'partition')} not all could be read")
        code = Exit.UNKNOWN
    moving = {c.name for c in found.changes} & set(unsettled)
    if moving and not faults:
        warnings.append(f"{counted(len(moving), 'partition')} changed while being read: ask again")
        code = Exit.UNKNOWN
    who = brokers_named(found.stopping)
    how = "" if found.controlled else " by a crash"
    moved = sum(c.after.leader_changes and not c.after.offline for c in found.changes)
    calm = f"{counted(moved, 'leader')} would move, nothing would be lost or go offline"
    answer = {Exit.OK: "SAFE", Exit.WARNING: "RISKY", Exit.UNKNOWN: "CANNOT TELL"}.get(
        code, "NOT SAFE"
    )
    told = "; ".join(faults or warnings or [calm])
    verdict = f"{answer}: stopping {who}{how}: {told}"
    value = {
        **_stop_value(found, rejoining),
        "unsettled": sorted(map(str, moving)),
        "voters": sorted(voters.listed),
        "silent_voters": sorted(voters.silent),
        "quorum_lost": quorum_lost,
    }
    lines = _stop_lines(found, rejoining)
    if quorum_lost:
        lines += ["", *paragraph(_NO_QUORUM)]
    return Told(verdict, lines, value, code)


def _offline_already(partitions: int) -> str:
    return (
        f"{counted(partitions, 'partition')} {'is' if partitions == 1 else 'are'} offline already"
    )


def _stop_lines(found: StopForecast, rejoining: Rejoining) -> list[str]:
    lines = []
    shown = [c for c in found.changes if _matters(c)]
    shown.sort(key=lambda c: (c.after.lost is None, not c.newly_offline, c.name))
    if shown:
        rows = [_stop_row(c) for c in shown[:MOST_LINES]]
        lines += table(("PARTITION", "LEADER", "EPOCH", "ISR", "WHAT"), rows)
        if len(shown) > MOST_LINES:
            lines.append(f"... and {len(shown) - MOST_LINES} more; --json has them all")
    rows = [(str(b), str(n), str(found.leaders_after[b])) for b, n in found.leaders_before.items()]
    lines += [*([""] if lines else []), *table(("BROKER", "LEADS NOW", "LEADS THEN"), rows)]
    if found.controller_moves:
        lines += ["", "The controller is among them: another one takes over first."]
    return [*lines, *_away_lines(found.stopping, rejoining), *_behind_lines(rejoining.behind)]


def _matters(change: Change) -> bool:
    after = change.after
    return (
        after.leader_changes
        or after.offline
        or bool(after.cuts or after.missing)
        or (change.newly_under_min_isr or change.one_copy_left)
    )


def _stop_row(change: Change) -> tuple[str, ...]:
    before, after = change.before.state, change.after
    leader = f"{before.leader} -> {after.leader if after.leader >= 0 else 'none'}"
    if not after.leader_changes:
        leader = str(before.leader)
    what = []
    if after.offline:
        what.append("OFFLINE already" if change.offline_already else "OFFLINE")
    if after.unclean:
        what.append("unclean election")
    if after.lost is not None:
        what.append(f"LOSES {after.lost}")
    if change.newly_under_min_isr:
        what.append(f"under min ISR ({after.in_sync} of {change.minimum})")
    elif change.one_copy_left:
        what.append("one copy left")
    for cut in after.cuts:
        when = " when it is back" if cut.on_return else ""
        what.append(f"broker {cut.broker} cuts {cut.offsets}{when}")
    what += [f"not known: {each}" for each in after.missing]
    isr = ",".join(map(str, after.isr))
    return str(change.name), leader, str(after.leader_epoch), isr, "; ".join(what)


def _away_lines(stopping: Sequence[int], rejoining: Rejoining) -> list[str]:
    """What they miss while they are away is what they have to fetch before they are in sync."""
    if rejoining.a_second is None:
        return ["", "What they would miss while away is not known: the cluster was seen once."]
    told = [f"broker {b}: {_missed(rejoining.a_second.get(b, 0.0))}" for b in stopping]
    return ["", f"To fetch after a minute away: {'; '.join(told)}."]


def _missed(a_second: float) -> str:
    return f"about {counted(round(a_second * 60), 'record')}"


def _behind_lines(behind: Sequence[CatchUp]) -> list[str]:
    if not behind:
        return []
    rows = [(str(c.name), str(c.broker), str(c.behind), _eta(c)) for c in behind[:MOST_LINES]]
    lines = ["", *table(("OUT OF SYNC", "BROKER", "BEHIND", "BACK IN SYNC IN"), rows)]
    if len(behind) > MOST_LINES:
        lines.append(f"... and {len(behind) - MOST_LINES} more; --json has them all")
    rows = [(str(r.broker), str(r.partitions), str(r.behind), _eta(r)) for r in returns(behind)]
    return [*lines, "", *table(("BROKER", "OUT OF SYNC", "BEHIND", "BACK IN SYNC IN"), rows)]


def _eta(each: CatchUp | Return) -> str:
    if each.seconds is None:
        unknown = each.pace is Pace.UNKNOWN
        return "unknown: not seen twice" if unknown else "not at its present speed"
    return f"about {max(each.seconds, 1):.0f} s"


def _rejoining_value(rejoining: Rejoining) -> dict[str, Any]:
    return {
        "out_of_sync": [
            {
                "partition": str(c.name),
                "broker": c.broker,
                "behind": c.behind,
                "seconds": c.seconds,
                "pace": c.pace.value,
            }
            for c in rejoining.behind
        ],
        "back_in_sync": [{**r._asdict(), "pace": r.pace.value} for r in returns(rejoining.behind)],
        "written_a_second": None
        if rejoining.a_second is None
        else {str(b): round(n, 3) for b, n in sorted(rejoining.a_second.items())},
    }


def _change_value(change: Change) -> dict[str, Any]:
    after = change.after
    return {
        "topic": after.topic,
        "partition": after.partition,
        "leader": [change.before.state.leader, after.leader],
        "leader_epoch": [change.before.state.leader_epoch, after.leader_epoch],
        "isr": [list(change.before.state.isr), list(after.isr)],
        "offline": after.offline,
        "unclean": after.unclean,
        "under_min_isr": after.under_min_isr,
        "min_isr": change.minimum,
        "lost": None if after.lost is None else list(after.lost),
        "cuts": [
            {"broker": c.broker, "offsets": list(c.offsets), "on_return": c.on_return}
            for c in after.cuts
        ],
        "missing": list(after.missing),
    }


def _stop_value(found: StopForecast, rejoining: Rejoining) -> dict[str, Any]:
    return {
        "stopping": list(found.stopping),
        "controlled": found.controlled,
        "safe": found.safe,
        "partitions": [_change_value(c) for c in found.changes],
        "leaders_before": {str(b): n for b, n in found.leaders_before.items()},
        "leaders_after": {str(b): n for b, n in found.leaders_after.items()},
        "offline": [str(c.name) for c in found.offline],
        "offline_already": [str(c.name) for c in found.offline_already],
        "under_min_isr": [str(c.name) for c in found.under_min_isr],
        "losing": [str(c.name) for c in found.losing],
        "controller_moves": found.controller_moves,
        **_rejoining_value(rejoining),
    }


# -- restart


def of_restart(
    plan: RestartPlan,
    rejoining: Rejoining,
    voters: Voters = Voters(),  # noqa: B008 - it never changes
    unsettled: Sequence[TopicPartition] = (),
) -> Told:
    """As `of_stop`, for each of them: what it calls risky or cannot tell is not safe here."""
    now = [step.as_it_is for step in plan.steps]
    unknown = {c.name for each in now for c in each.unknown}
    moving = {c.name for each in now for c in each.changes} & set(unsettled)
    few = {c.name for each in now for c in each.one_copy_left}
    away = {c.name for each in now for c in each.offline_already}
    electing = [s.broker for s in plan.steps if s.broker in voters.listed]
    starved = sorted(broker for broker in electing if voters.is_lost([broker]))
    blocked, waits = plan.blocked, [s for s in plan.steps if s.safe and not s.as_it_is.safe]
    if blocked:
        worst = blocked[0]
        first = (worst.healed.offline or worst.healed.under_min_isr or worst.healed.losing)[0]
        verdict = (
            f"NOT SAFE: {brokers_named(s.broker for s in blocked)} cannot stop without harm, "
            f"even with every replica in sync ({first.name} first)"
        )
        code = Exit.CRITICAL
    elif starved and not voters.silent:
        verdict = (
            f"NOT SAFE: without {brokers_named(starved)} no quorum of controllers is left "
            f"({counted(len(voters.listed), 'voter')})"
        )
        code = Exit.CRITICAL
    elif unknown:
        verdict = f"CANNOT TELL: of {counted(len(unknown), 'partition')} not all could be read"
        code = Exit.UNKNOWN
    elif moving:
        changed = counted(len(moving), "partition")
        verdict = f"CANNOT TELL: {changed} changed while being read: ask again"
        code = Exit.UNKNOWN
    elif starved:
        silent = ", ".join(map(str, voters.silent))
        verdict = (
            f"WAIT: controller {silent} is silent: until it is back no quorum would be left "
            f"without {brokers_named(starved)}"
        )
        code = Exit.WARNING
    elif waits:
        verdict = (
            f"WAIT: a restart of {brokers_named(s.broker for s in plan.steps)} is safe one by one, "
            f"but {brokers_named(s.broker for s in waits)} must wait for replicas to be in sync"
        )
        code = Exit.WARNING
    elif away:
        verdict = f"RISKY: {_offline_already(len(away))}: start the brokers that hold them first"
        code = Exit.WARNING
    elif few:
        verdict = (
            f"RISKY: {counted(len(few), 'partition')} would have one in-sync copy left in the "
            "meantime"
        )
        code = Exit.WARNING
    else:
        order = ", ".join(str(s.broker) for s in plan.steps)
        verdict = f"SAFE: restart one by one in this order: {order}"
        code = Exit.OK
    value = {
        "order": [s.broker for s in plan.steps],
        "steps": [
            {
                "broker": s.broker,
                "down": s.down,
                "safe_now": s.as_it_is.safe,
                "safe_when_in_sync": s.safe,
                "wait_for": [str(each) for each in s.wait_for],
                "blocked_by": [str(c.name) for c in (*s.healed.offline, *s.healed.under_min_isr)],
            }
            for s in plan.steps
        ],
        "silent_voters": sorted(voters.silent),
        "quorum_lost_without": starved,
        "unsettled": sorted(map(str, moving)),
        **_rejoining_value(rejoining),
    }
    lines = [*_restart_lines(plan, starved), *_behind_lines(rejoining.behind)]
    return Told(verdict, lines, value, code)


def _restart_lines(plan: RestartPlan, starved: Sequence[int]) -> list[str]:
    rows = []
    for number, step in enumerate(plan.steps, 1):
        held = len(step.as_it_is.changes)
        moved = sum(c.after.leader_changes for c in step.healed.changes)
        rows.append(
            (str(number), str(step.broker), f"{moved} of {held}", _step_words(step, starved))
        )
    lines = table(("STEP", "BROKER", "LEADERS MOVE", "BEFORE AND AFTER"), rows)
    return [
        *lines,
        "",
        *paragraph(
            "After each step wait until every partition of that broker has its "
            "whole ISR again: ask 'tidestaff what-if stop NEXT' for the next."
        ),
    ]


def _step_words(step: Any, starved: Sequence[int]) -> str:
    if not step.safe:
        bad = (*step.healed.offline, *step.healed.under_min_isr, *step.healed.losing)
        names = ", ".join(str(c.name) for c in bad[:5])
        more = f" and {len(bad) - 5} more" if len(bad) > 5 else ""
        return f"cannot stop without harm to {names}{more}"
    if step.broker in starved:
        return "without it there is no quorum of controllers"
    if not step.as_it_is.safe:
        names = ", ".join(map(str, step.wait_for[:5]))
        return f"wait first for {names}"
    held = len(step.as_it_is.changes)
    if step.down:
        return "is down: start it, and wait until its partitions are in sync"
    return f"can stop now; then wait for {counted(held, 'partition')} to be in sync"
