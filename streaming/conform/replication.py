"""Runs the recorded facts about replicas (epoch cache, truncation, ISR, HW) through our rules.

A handler reads the input, calls the rule, and compares. It decides nothing itself: what is not in
`tidestaff.consistency` is not tested here. The rule set is that of the Kafka version whose test (or
jar) the fact was read from.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping
from functools import wraps
from typing import Any, Final

from tidestaff.consistency import epochs, isr, truncation, watermark
from tidestaff.consistency.epochs import EMPTY, UNDEFINED_END, EndOffset
from tidestaff.consistency.errors import ConsistencyError
from tidestaff.consistency.isr import FollowerState, IsrState
from tidestaff.consistency.model import (
    UNDEFINED_EPOCH,
    UNDEFINED_OFFSET,
    UNKNOWN_BROKER_EPOCH,
    BrokerId,
    EpochEntry,
    Lineage,
    Registration,
)
from tidestaff.consistency.truncation import EpochAnswer, ReplicaLog, TruncationPrediction
from tidestaff.consistency.versions import Mode, RuleSet, Truncation, rules_for
from tidestaff.consistency.watermark import LocalLog, RemoteReplica
from tidestaff.streaming.conform.two_replicas import TwoReplicas
from tidestaff.streaming.conform.vectors import (
    CannotRunError,
    Difference,
    Handler,
    Vector,
    as_set,
    differences,
)

_NEWEST: Final = "4.3"
_START_MS: Final = 1_000_000_000
_PROTOCOLS: Final = {
    "high_watermark": Truncation.HIGH_WATERMARK,
    "hw": Truncation.HIGH_WATERMARK,
    "kip101": Truncation.KIP_101,
    "kip279": Truncation.KIP_279,
    "truncate_on_fetch": Truncation.ON_FETCH,
}
_OLD_NAMES: Final = {"NOT_LEADER_FOR_PARTITION": truncation.NOT_LEADER_OR_FOLLOWER}


def _rules(vector: Vector) -> RuleSet:
    found = re.search(r"\b\d+\.\d+(?:\.\d+)*\b", vector.source)
    version = found[0] if found else _NEWEST
    kraft = int(version.split(".")[0]) >= 4 or "kraft" in vector.versions.lower()
    return rules_for(version, Mode.KRAFT if kraft else Mode.ZOOKEEPER)


def _lineage(entries: Iterable[Iterable[int]]) -> Lineage:
    return tuple(EpochEntry(*entry) for entry in entries)


def _pairs(lineage: Lineage) -> list[list[int]]:
    return [list(entry) for entry in lineage]


def _pair(entry: EpochEntry | None) -> list[int] | None:
    return None if entry is None else list(entry)


def _error(name: object) -> str:
    """OffsetOutOfRangeException, OFFSET_OUT_OF_RANGE and old names are one error."""
    text = re.sub(r"Exception$", "", str(name or truncation.NONE))
    if not text.isupper():
        text = re.sub(r"(?<=[a-z])(?=[A-Z])", "_", text).upper()
    return _OLD_NAMES.get(text, text)


def _compare(vector: Vector, got: Mapping[str, object]) -> list[Difference]:
    expected = dict(vector.expected)
    if "error" in expected:
        expected["error"] = _error(expected["error"])
    return differences(expected, got)


def _steps(vector: Vector) -> list[Mapping[str, Any]]:
    steps = vector.input.get("steps")
    if not isinstance(steps, list):
        raise CannotRunError(f"{vector.id}: no list of steps")
    return steps


# The epoch cache.


def _epoch_cache(vector: Vector) -> list[Difference]:
    rules = _rules(vector)
    lineage = _lineage(vector.input.get("entries", ()))
    for op in vector.input.get("ops", ()):
        lineage = _cache_op(lineage, op, rules)
    with_epoch = rules.end_offset_answer_has_epoch
    results = [
        _cache_check(lineage, check, rules, with_epoch=with_epoch)
        for check in vector.input.get("checks", ())
    ]
    got = {
        "results": results,
        "file_text": _checkpoint_text(lineage),
        "entries": _pairs(lineage),
        "entry_count": len(lineage),
    }
    return differences(vector.expected, got)


def _cache_op(lineage: Lineage, op: list[Any], rules: RuleSet) -> Lineage:
    match op:
        case ["assign", int(epoch), int(start)]:
            return epochs.assign(lineage, epoch, start, generation=rules.epoch_cache)
        case ["truncate_from_end" | "clear_and_flush_latest" | "clear_latest", int(offset)]:
            return epochs.truncate_from_end(lineage, offset)
        case ["truncate_from_start" | "clear_and_flush_earliest" | "clear_earliest", int(offset)]:
            return epochs.truncate_from_start(lineage, offset, generation=rules.epoch_cache)
        case ["clear" | "clear_and_flush"]:
            return EMPTY
        case ["flush" | "reload" | "reopen" | "restart"]:
            return lineage
    raise CannotRunError(f"epoch cache operation {op!r}")


def _cache_check(lineage: Lineage, check: list[Any], rules: RuleSet, *, with_epoch: bool) -> object:
    match check:
        case ["entries"]:
            return _pairs(lineage)
        case ["entry_count" | "size"]:
            return len(lineage)
        case ["non_empty"]:
            return bool(lineage)
        case ["latest_epoch"]:
            return epochs.latest_epoch(lineage)
        case ["latest_entry"]:
            return _pair(epochs.latest_entry(lineage))
        case ["earliest_entry"]:
            return _pair(epochs.earliest_entry(lineage))
        case ["previous_epoch"]:
            return epochs.previous_epoch(lineage)
        case ["end_offset_for", int(epoch), int(log_end)]:
            end = epochs.end_offset_for(lineage, epoch, log_end_offset=log_end, rules=rules)
            return [end.epoch if with_epoch else None, end.end_offset]
        case [str(name), int(argument)]:
            return _cache_lookup(lineage, name, argument)
    raise CannotRunError(f"epoch cache check {check!r}")


def _cache_lookup(lineage: Lineage, name: str, argument: int) -> object:
    match name:
        case "previous_epoch":
            before = epochs.previous_entry(lineage, argument)
            return None if before is None else before.epoch
        case "previous_entry":
            return _pair(epochs.previous_entry(lineage, argument))
        case "next_epoch":
            return epochs.next_epoch(lineage, argument)
        case "epoch_entry" | "entry":
            return _pair(epochs.entry_of(lineage, argument))
        case "epoch_for_offset":
            return epochs.epoch_for_offset(lineage, argument)
    raise CannotRunError(f"epoch cache check {name!r}")


def _checkpoint_text(lineage: Lineage) -> str:
    lines = ["0", str(len(lineage)), *(f"{epoch} {start}" for epoch, start in lineage)]
    return "\n".join(lines) + "\n"


def _epoch_cache_of_log(vector: Vector) -> list[Difference]:
    given = vector.input
    lineage = _lineage(given["entries"])
    end = given.get("log_end_offset")
    known = False
    for name in ("truncate_to", "recovered_log_end_offset"):
        if name in given:
            cut = given[name] if end is None else min(given[name], end)
            lineage, known = epochs.truncate_from_end(lineage, cut), True
    for name in ("new_log_start_offset", "log_start_offset"):
        if name in given:
            lineage, known = epochs.truncate_from_start(lineage, given[name]), True
    if "truncate_fully_and_start_at" in given:
        lineage, known = EMPTY, True
    if not known:
        raise CannotRunError(f"{vector.id}: nothing is done to the log")
    got = {"entries": _pairs(lineage), "entry_count": len(lineage)}
    return differences(vector.expected, got)


# The leader's answers.


def _diverging_epoch(vector: Vector) -> list[Difference]:
    given = vector.input
    leader = ReplicaLog(
        given.get("log_start_offset", 0),
        given.get("high_watermark", 0),
        given["log_end_offset"],
        _lineage(given["leader_epoch_entries"]),
    )
    answer = truncation.answer_fetch(
        leader=leader,
        fetch_offset=given["fetch_offset"],
        last_fetched_epoch=given.get("last_fetched_epoch"),
        rules=_rules(vector),
    )
    diverging = None if answer.diverging is None else answer.diverging._asdict()
    return _compare(vector, {"error": answer.error, "diverging": diverging})


def _end_offset_for_epoch(vector: Vector) -> list[Difference]:
    given = vector.input
    error = _epoch_check(given, leads=bool(given.get("is_leader", True)))
    answer = truncation.answer_end_offset(
        lineage=_lineage(given.get("leader_epoch_entries", ())),
        log_end_offset=given.get("log_end_offset", 0),
        requested_epoch=given["requested_epoch"],
        rules=_rules(vector),
        error=error,
    )
    return _compare(vector, answer._asdict())


def _broker_epoch_check(vector: Vector) -> list[Difference]:
    role = vector.input.get("role")
    if role not in ("leader", "follower"):
        raise CannotRunError(f"{vector.id}: role {role!r}")
    return _compare(vector, {"error": _epoch_check(vector.input, leads=role == "leader")})


def _epoch_check(given: Mapping[str, Any], *, leads: bool) -> str:
    return truncation.check_leader_epoch(
        local_leader_epoch=given.get("local_leader_epoch", given.get("leader_epoch", 0)),
        current_leader_epoch=given.get("request_current_leader_epoch"),
        leads=leads,
        leader_required=bool(given.get("only_leader", True)),
        partition_known=bool(given.get("partition_known", True)),
    )


def _follower_check(vector: Vector) -> list[Difference]:
    given = vector.input
    error = truncation.check_follower_fetch(
        assignment=given["replicas"],
        follower=given["fetch_from"],
        local_leader_epoch=given["local_leader_epoch"],
        current_leader_epoch=given.get("leader_epoch_in_request"),
    )
    return _compare(vector, {"error": error})


# The follower.


def _truncation_point(vector: Vector) -> list[Difference]:
    given = vector.input
    protocol = _PROTOCOLS.get(str(given.get("protocol")))
    if protocol is None:
        raise CannotRunError(f"{vector.id}: protocol {given.get('protocol')!r}")
    follower = given["follower"]
    known = {int(e): EndOffset(*end) for e, end in follower.get("end_offset_for", {}).items()}
    answer = given.get("leader_answer")
    step = truncation.truncation_point(
        protocol=protocol,
        answer=None
        if answer is None
        else EpochAnswer(
            _error(answer.get("error")),
            answer.get("epoch", UNDEFINED_EPOCH),
            answer.get("end_offset", UNDEFINED_OFFSET),
        ),
        log_end_offset=follower["leo"],
        initial_fetch_offset=follower.get("initial_fetch_offset", follower.get("hw", 0)),
        own_end_offset_for=lambda epoch: known.get(epoch, UNDEFINED_END),
    )
    fetching = protocol is Truncation.ON_FETCH or step.complete
    state = "Fetching" if fetching else "Truncating"
    return differences(vector.expected, {**step._asdict(), "next_state": state})


def _reconcile(vector: Vector) -> list[Difference]:
    given = vector.input
    if "replica_log" in given and "leader_log" in given:
        return _reconcile_logs(vector)
    if "replica_log" in given:
        # The leader cannot be asked: no epoch here, or a leader that does not know the call.
        return _reconcile_without_answer(vector)
    if "follower_leader_epoch" in given:
        return _reconcile_refused(vector)
    if re.search(r"\bsame leader epoch\b", str(given.get("event", ""))):
        found = re.search(r"epoch (\d+)", given["event"])
        epoch = int(found[1]) if found else 0
        again = truncation.must_truncate(
            rules=_rules(vector),
            old_leader=0,
            new_leader=0,
            old_leader_epoch=epoch,
            new_leader_epoch=epoch,
        )
        return differences(vector.expected, {"truncations": int(again)})
    raise CannotRunError(f"{vector.id}: neither two logs, nor two epochs, nor a known event")


def _reconcile_logs(vector: Vector) -> list[Difference]:
    given, rules = vector.input, _rules(vector)
    if rules.truncation is not Truncation.ON_FETCH:
        rules = rules_for(_NEWEST, Mode.KRAFT)
    replica = _replica_log(given, "replica")
    if "replica_latest_epoch" in given and given["replica_latest_epoch"] is None:
        replica = replica._replace(lineage=EMPTY)
    leader = _replica_log(given, "leader")
    epoch = given.get("leader_epoch")
    if epoch is not None and epoch > (epochs.latest_epoch(leader.lineage) or 0):
        leader = leader._replace(
            lineage=epochs.assign(
                leader.lineage, epoch, leader.log_end_offset, generation=rules.epoch_cache
            )
        )
    predicted = truncation.predict_truncation(follower=replica, leader=leader, rules=rules)
    got = _after_reconciling(given, replica=replica, leader=leader, predicted=predicted)
    return differences(vector.expected, got)


def _after_reconciling(
    given: Mapping[str, Any],
    *,
    replica: ReplicaLog,
    leader: ReplicaLog,
    predicted: TruncationPrediction,
) -> dict[str, object]:
    kept_to = predicted.final_offset
    log = LocalLog(*replica[:3])
    got: dict[str, object] = {"truncations": len(predicted.rounds), "rounds": predicted.rounds}
    if predicted.rounds:
        first = predicted.rounds[0]
        cut = watermark.truncate(log, to=first)
        lineage = epochs.truncate_from_end(replica.lineage, first)
        got["first_truncation"] = got["truncate_to"] = first
        got["last_fetched_epoch_after_first"] = epochs.latest_epoch(lineage)
        got["after_first"] = _offsets(cut)
    if predicted.restart_at is None:
        log, fetched_from = watermark.truncate(log, to=kept_to), kept_to
    else:
        log = watermark.truncate_fully(to=predicted.restart_at)
        kept_to, fetched_from = 0, predicted.restart_at
    records = [record for record in given["replica_log"] if record[0] < kept_to]
    records += [record for record in given["leader_log"] if record[0] >= fetched_from]
    log = watermark.append(log, records=leader.log_end_offset - log.log_end_offset)
    log = watermark.follow(log, leader_high_watermark=leader.high_watermark)
    log = watermark.follow_log_start(log, leader_log_start_offset=leader.log_start_offset)
    latest = epochs.latest_epoch(_lineage_of(records))
    same = records == [list(record) for record in given["leader_log"]]
    got |= {"replica_log": records, "last_fetched_epoch": latest, "logs_equal": same}
    return got | _offsets(log) | {"fetch_offset": log.log_end_offset}


def _offsets(log: LocalLog) -> dict[str, object]:
    return {
        "log_start": log.log_start_offset,
        "log_start_offset": log.log_start_offset,
        "hw": log.high_watermark,
        "high_watermark": log.high_watermark,
        "leo": log.log_end_offset,
        "log_end_offset": log.log_end_offset,
    }


def _replica_log(given: Mapping[str, Any], side: str) -> ReplicaLog:
    records = given[f"{side}_log"]

    def offset(*names: str, default: int) -> int:
        return next((given[f"{side}_{n}"] for n in names if f"{side}_{n}" in given), default)

    start = offset("log_start_offset", "log_start", default=records[0][0] if records else 0)
    last = records[-1][0] + 1 if records else start
    end = offset("log_end_offset", "log_end", "leo", default=last)
    high_watermark = offset("hw", "high_watermark", default=0)
    return ReplicaLog(start, high_watermark, end, _lineage_of(records))


def _lineage_of(records: Iterable[Iterable[int]]) -> Lineage:
    lineage: Lineage = EMPTY
    rules = rules_for(_NEWEST, Mode.KRAFT)
    for offset, epoch in records:
        if epochs.latest_epoch(lineage) != epoch:
            lineage = epochs.assign(lineage, epoch, offset, generation=rules.epoch_cache)
    return lineage


def _reconcile_without_answer(vector: Vector) -> list[Difference]:
    replica = _replica_log(vector.input, "replica")
    step = truncation.truncation_point(
        protocol=_rules(vector).truncation,
        answer=None,
        log_end_offset=replica.log_end_offset,
        initial_fetch_offset=replica.high_watermark,
    )
    if step.truncate_to is None:
        raise CannotRunError(f"{vector.id}: {step.because}")
    log = watermark.truncate(LocalLog(*replica[:3]), to=step.truncate_to)
    got = {**step._asdict(), **_offsets(log), "fetch_offset": log.log_end_offset, "truncations": 1}
    return differences(vector.expected, got)


def _reconcile_refused(vector: Vector) -> list[Difference]:
    given = vector.input
    error = truncation.check_leader_epoch(
        local_leader_epoch=given["leader_epoch"],
        current_leader_epoch=given["follower_leader_epoch"],
        leads=True,
    )
    answer = EpochAnswer(error, UNDEFINED_EPOCH, UNDEFINED_OFFSET)
    step = truncation.truncation_point(
        protocol=Truncation.KIP_279, answer=answer, log_end_offset=0, initial_fetch_offset=0
    )
    fenced = error == truncation.FENCED_LEADER_EPOCH
    got = {
        "error": error,
        "progress": step.truncate_to is not None,
        "truncations": int(step.truncate_to is not None),
        "partition_marked_failed": fenced,
        "retry": not step.complete and not fenced,
    }
    return _compare(vector, got)


def _become_follower(vector: Vector) -> list[Difference]:
    found: list[Difference] = []
    known: Mapping[str, Any] = {"leader": None, "leader_epoch": None, "partition_epoch": -1}
    for number, step in enumerate(_steps(vector)):
        stale = isr.partition_change_is_stale(
            known_partition_epoch=known["partition_epoch"],
            new_partition_epoch=step.get("partition_epoch", known["partition_epoch"]),
        )
        fresh = not stale and truncation.must_truncate(
            rules=_rules(vector),
            old_leader=known["leader"],
            new_leader=step["leader"],
            old_leader_epoch=known["leader_epoch"],
            new_leader_epoch=step["leader_epoch"],
        )
        for name, got in (("expect_new_epoch", fresh), ("expect_ignored", stale)):
            if name in step:
                found += differences(step[name], got, f"steps[{number}].{name}")
        known = known if stale else {**known, **step}
    return found


def _become_leader(vector: Vector) -> list[Difference]:
    given = vector.input
    known, new = given["current_partition_epoch"], given["new_partition_epoch"]
    ignored = isr.partition_change_is_stale(known_partition_epoch=known, new_partition_epoch=new)
    got = {"ignored": ignored, "partition_epoch": known if ignored else new}
    return differences(vector.expected, got)


# Two replicas told in sentences.


def _replay(vector: Vector) -> TwoReplicas:
    rules = _rules(vector)
    if vector.input.get("version"):
        rules = rules_for(str(vector.input["version"]))
    return TwoReplicas(
        vector.input["assignment"],
        rules=rules,
        unclean_allowed=bool(vector.input.get("unclean", False)),
    )


def _scenario_epoch_files(vector: Vector) -> list[Difference]:
    replay = _replay(vector)
    found: list[Difference] = []
    for number, step in enumerate(_steps(vector)):
        replay.run(str(step["do"]))
        if replay.leader is None:
            raise CannotRunError(f"{vector.id}: no leader after {step['do']!r}")
        leader, follower = replay.replicas[replay.leader], replay.replicas[replay.follower]
        got: dict[str, object] = {
            "leader_entries": _pairs(leader.lineage),
            "follower_entries": _pairs(follower.lineage),
            "leader": replay.leader,
            "leader_epoch": replay.leader_epoch,
        }
        expected = {name: value for name, value in step.items() if name != "do"}
        found += differences(expected, got, f"steps[{number}]")
    return found


def _scenario_final(vector: Vector) -> list[Difference]:
    replay = _replay(vector)
    for step in _steps(vector):
        replay.run(str(step["do"] if isinstance(step, Mapping) else step))
    logs = [replica.records for replica in replay.replicas.values()]
    leader = replay.replicas[replay.assignment[0] if replay.leader is None else replay.leader]
    lost = replay.written - len({number for _, number in leader.records})
    numbers = [[number for _, number in log] for log in logs]
    got: dict[str, object] = {
        "logs_equal": all(log == logs[0] for log in logs),
        "log_end_offset": len(leader.records),
        "leo": len(leader.records),
        "log_end_offsets": [len(log) for log in logs],
        "records_lost": lost,
        "lost": lost,
        "no_data_lost": lost == 0,
        "data_lost": lost > 0,
        "offsets_monotonic": all(log == sorted(set(log)) for log in numbers),
        "messages_written": replay.written,
    }
    return differences(vector.expected, got)


# What a leader remembers of its followers, and the ISR.


def _follower_state(given: Mapping[str, Any]) -> FollowerState:
    return FollowerState(
        log_start_offset=given.get("log_start", UNDEFINED_OFFSET),
        log_end_offset=given.get("leo", UNDEFINED_OFFSET),
        last_caught_up_ms=given.get("last_caught_up", 0),
        last_fetch_leader_log_end_offset=given.get("last_fetch_leader_leo", 0),
        last_fetch_ms=given.get("last_fetch_time", 0),
    )


def _state_fields(state: FollowerState) -> dict[str, object]:
    return {
        "log_start": state.log_start_offset,
        "leo": state.log_end_offset,
        "last_caught_up": state.last_caught_up_ms,
        "last_fetch_leader_leo": state.last_fetch_leader_log_end_offset,
        "last_fetch_time": state.last_fetch_ms,
        "broker_epoch": state.broker_epoch,
    }


def _fetched(state: FollowerState, step: Mapping[str, Any], rules: RuleSet) -> FollowerState:
    return isr.record_fetch(
        state,
        fetch_offset=step["fetch_offset"],
        follower_log_start_offset=step.get("follower_start", 0),
        leader_log_end_offset=step["leader_leo"],
        now_ms=step["t"],
        rules=rules,
        broker_epoch=step.get("broker_epoch", UNKNOWN_BROKER_EPOCH),
    )


def _replica_state(vector: Vector) -> list[Difference]:
    rules = _rules(vector)
    state = _follower_state(vector.input.get("initial", {}))
    found: list[Difference] = []
    for number, step in enumerate(_steps(vector)):
        got: object = None
        match step["op"]:
            case "noop":
                pass
            case "fetch":
                state = _fetched(state, step, rules)
            case "reset":
                state = isr.reset_follower(
                    state,
                    leader_log_end_offset=step["leader_leo"],
                    new_leader=step["new_leader"],
                    in_sync=step["in_sync"],
                    now_ms=step["t"],
                )
            case "caught_up":
                got = isr.is_caught_up(
                    state,
                    leader_log_end_offset=step["leader_leo"],
                    now_ms=step["t"],
                    max_lag_ms=step.get("max_lag_ms", vector.input.get("max_lag_ms", 30_000)),
                    rules=rules,
                )
            case other:
                raise CannotRunError(f"{vector.id}: operation {other!r}")
        if "expect" in step:
            shown = _state_fields(state) if got is None else got
            found += differences(step["expect"], shown, f"steps[{number}]")
    return found


def _replica_broker_epoch(vector: Vector) -> list[Difference]:
    results = []
    for fetch in vector.input["fetches"]:
        stale = isr.is_fetch_stale(
            fetch_broker_epoch=fetch["broker_epoch"],
            known_broker_epoch=fetch.get(
                "cached_broker_epoch", vector.input.get("cached_broker_epoch")
            ),
            rules=_rules(vector),
        )
        results.append("NotLeaderOrFollowerException" if stale else "accepted")
    return differences(vector.expected, {"results": results})


def _out_of_sync(vector: Vector) -> list[Difference]:
    given, rules = vector.input, _rules(vector)
    members = [member for member in given["isr"] if member != given["leader"]]
    initial = _follower_state(given.get("initial_follower", {}))
    followers = dict.fromkeys(members, initial)
    leader_end = given["leader_leo"]
    found: list[Difference] = []
    for number, step in enumerate(_steps(vector)):
        leader_end = step.get("leader_leo", leader_end)
        if step["op"] == "fetch":
            for member in [step["replica"]] if "replica" in step else members:
                followers[member] = _fetched(
                    followers[member], {**step, "leader_leo": leader_end}, rules
                )
        elif step["op"] == "out_of_sync":
            out = isr.out_of_sync(
                isr=given["isr"],
                leader=given["leader"],
                followers=followers,
                leader_log_end_offset=leader_end,
                now_ms=step["t"],
                max_lag_ms=given["max_lag_ms"],
                max_lag_messages=given.get("max_lag_messages", 4000),
                rules=rules,
            )
            found += differences(as_set(step["expect"]), as_set(out), f"steps[{number}]")
        else:
            raise CannotRunError(f"{vector.id}: operation {step['op']!r}")
    return found


class _Leader:
    """A leader in one leader epoch: its log, its ISR and what it remembers of its followers."""

    def __init__(self, setup: Mapping[str, Any], rules: RuleSet) -> None:
        self.rules = rules
        self.now_ms = _START_MS
        self.max_lag_ms: int = setup.get("max_lag_ms", 30_000)
        self.min_isr: int = setup.get("min_isr", 1)
        self.leader: BrokerId = setup["leader"]
        self.log = LocalLog(setup.get("log_start", 0), setup.get("hw", 0), setup["leo"])
        self.epoch_start: int | None = setup.get("leader_epoch_start", setup["leo"])
        self.isr = IsrState(tuple(setup["isr"]))
        self.retry = False
        self.fetched: BrokerId | None = None
        self.active = {
            broker: Registration(broker, broker_epoch=UNKNOWN_BROKER_EPOCH)
            for broker in setup["replicas"]
        }
        self.followers = {
            broker: isr.reset_follower(
                FollowerState(),
                leader_log_end_offset=self.log.log_end_offset,
                new_leader=True,
                in_sync=broker in self.isr.committed,
                now_ms=self.now_ms,
            )
            for broker in setup["replicas"]
            if broker != self.leader
        }

    def step(self, step: Mapping[str, Any]) -> None:
        match step["op"]:
            case "noop":
                pass
            case "advance_ms":
                self.now_ms += step.get("ms", step.get("by", 0))
            case "follower_fetch":
                self._follower_fetch(step)
            case "maybe_shrink":
                self._shrink()
            case "leader_append":
                count = next((step[n] for n in ("records", "count", "n") if n in step), 1)
                self.log = watermark.append(self.log, records=count)
                self._advance()
            case "alter_partition_ok":
                self.isr, self.retry = isr.on_isr_answer(self.isr)
                if "isr" in step:
                    self.isr = IsrState(tuple(step["isr"]))
                self._advance()
            case "alter_partition_error":
                self.isr, self.retry = isr.on_isr_answer(self.isr, step["error"])
                self._advance()
            case "fence" | "shutdown" | "shutting_down" | "unfence" as what:
                broker = step["replica"]
                self.active[broker] = self.active[broker]._replace(fenced=what != "unfence")
            case other:
                raise CannotRunError(f"operation {other!r}")

    def _eligible(self, broker: BrokerId) -> bool:
        known = self.active[broker]
        alive = None if self.rules.mode is Mode.ZOOKEEPER and known.fenced else known
        fetched = self.followers[broker].broker_epoch
        return isr.is_eligible(registration=alive, fetch_broker_epoch=fetched, rules=self.rules)

    def _follower_fetch(self, step: Mapping[str, Any]) -> None:
        broker = self.fetched = step["replica"]
        if broker not in self.followers:
            raise CannotRunError(f"{broker} is not assigned")
        if "broker_epoch" in step and "cached_broker_epoch" in step:
            known = self.active[broker]
            self.active[broker] = known._replace(broker_epoch=step["cached_broker_epoch"])
        before = self.followers[broker]
        fetch = {"t": self.now_ms, "leader_leo": self.log.log_end_offset, **step}
        after = self.followers[broker] = _fetched(before, fetch, self.rules)
        refused = isr.why_not_joining(
            replica=broker,
            isr=self.isr,
            log_end_offset=after.log_end_offset,
            high_watermark=self.log.high_watermark,
            leader_epoch_start_offset=self.epoch_start,
            eligible=self._eligible(broker),
            rules=self.rules,
        )
        if refused is None:
            self.isr = isr.propose_join(self.isr, broker, rules=self.rules)
        if before.log_end_offset != after.log_end_offset:
            self._advance()

    def _shrink(self) -> None:
        leaving = isr.out_of_sync(
            isr=self.isr.committed,
            leader=self.leader,
            followers=self.followers,
            leader_log_end_offset=self.log.log_end_offset,
            now_ms=self.now_ms,
            max_lag_ms=self.max_lag_ms,
            rules=self.rules,
        )
        self.isr = isr.propose_shrink(self.isr, leaving, rules=self.rules)

    def _caught_up(self, broker: BrokerId) -> bool:
        return isr.is_caught_up(
            self.followers[broker],
            leader_log_end_offset=self.log.log_end_offset,
            now_ms=self.now_ms,
            max_lag_ms=self.max_lag_ms,
            rules=self.rules,
        )

    def _advance(self) -> None:
        remote = {
            broker: RemoteReplica(
                state.log_end_offset,
                caught_up=self._caught_up(broker),
                eligible=self._eligible(broker),
            )
            for broker, state in self.followers.items()
        }
        to = watermark.advance(
            high_watermark=self.log.high_watermark,
            log_end_offset=self.log.log_end_offset,
            followers=remote,
            committed_isr=self.isr.committed,
            maximal_isr=self.isr.maximal,
            min_insync_replicas=self.min_isr,
            rules=self.rules,
        )
        self.log = watermark.increment(self.log, to=to)

    def shown(self) -> dict[str, object]:
        under_min = isr.is_under_min_isr(
            isr_size=len(self.isr.committed),
            min_insync_replicas=self.min_isr,
            replica_count=len(self.active),
            rules=self.rules,
        )
        fetched = {} if self.fetched is None else _state_fields(self.followers[self.fetched])
        return {
            **fetched,
            "isr": as_set(self.isr.committed),
            "maximal_isr": as_set(self.isr.maximal),
            "pending_isr": as_set(self.isr.pending),
            "inflight": self.isr.in_flight,
            "hw": self.log.high_watermark,
            "leader_leo": self.log.log_end_offset,
            "retry": self.retry,
            "under_min_isr": under_min,
        }


def _leader_scenario(vector: Vector) -> list[Difference]:
    leader = _Leader(vector.input["setup"], _rules(vector))
    found: list[Difference] = []
    for number, step in enumerate(_steps(vector)):
        leader.step(step)
        expected = step.get("expect", {})
        if not isinstance(expected, Mapping):
            raise CannotRunError(f"{vector.id}: step {number} expects {expected!r}")
        wanted = {name: as_set(value) for name, value in expected.items()}
        found += differences(wanted, leader.shown(), f"steps[{number}]")
    return found


def _isr_sizes(vector: Vector) -> list[Difference]:
    given, rules = vector.input, _rules(vector)
    count, size = len(given["replicas"]), len(given["isr"])
    got: dict[str, object] = {
        "under_replicated": isr.is_under_replicated(replica_count=count, isr_size=size)
    }
    if "min_isr" in given:
        for name, rule in (
            ("under_min_isr", isr.is_under_min_isr),
            ("at_min_isr", isr.is_at_min_isr),
        ):
            got[name] = rule(
                isr_size=size,
                min_insync_replicas=given["min_isr"],
                replica_count=count,
                rules=rules,
            )
    return differences(vector.expected, got)


# The high watermark.


def _leader_advance(vector: Vector) -> list[Difference]:
    given, rules = vector.input, _rules(vector)
    followers = {
        int(broker): RemoteReplica(
            state["leo"],
            caught_up=state.get("caught_up", True),
            eligible=state.get("eligible", True),
        )
        for broker, state in given["followers"].items()
    }
    maximal = given.get("maximal_isr", given["isr"])
    high_watermark = watermark.advance(
        high_watermark=given["old_hw"],
        log_end_offset=given["leader_leo"],
        followers=followers,
        committed_isr=given["isr"],
        maximal_isr=maximal,
        min_insync_replicas=given.get("min_isr", 1),
        rules=rules,
    )
    return differences(vector.expected, {"hw": high_watermark})


def _after_reelection(vector: Vector) -> list[Difference]:
    given = vector.input
    log = watermark.initial(
        checkpointed_high_watermark=given["hw_before"],
        log_start_offset=given.get("log_start", 0),
        log_end_offset=given["leo"],
    )
    available = watermark.is_latest_offset_available(
        high_watermark=log.high_watermark, leader_epoch_start_offset=log.log_end_offset
    )
    late = "OFFSET_NOT_AVAILABLE until HW >= leader epoch start"
    got = {
        "hw": log.high_watermark,
        "leader_epoch_start": log.log_end_offset,
        "client_list_offsets": "available" if available else late,
    }
    return differences(vector.expected, got)


def _checkpoint(vector: Vector) -> list[Difference]:
    written = {
        partition: watermark.initial(
            checkpointed_high_watermark=high_watermark,
            log_start_offset=0,
            log_end_offset=max(0, high_watermark),
        ).high_watermark
        for partition, high_watermark in vector.input["hws"].items()
    }
    return differences(vector.expected, {"file": written})


def _follower_diverging(vector: Vector) -> list[Difference]:
    given = vector.input
    log = LocalLog(given.get("log_start", 0), given["local_hw"], given["local_leo_before"])
    return differences(vector.expected, _offsets(watermark.truncate(log, to=given["truncate_to"])))


def _initial(vector: Vector) -> list[Difference]:
    given = vector.input
    log = watermark.initial(
        checkpointed_high_watermark=given.get("checkpoint_hw"),
        log_start_offset=given.get("log_start", 0),
        log_end_offset=given["leo"],
    )
    return differences(vector.expected, _offsets(log))


def _local_log(vector: Vector) -> list[Difference]:
    log = LocalLog()
    found: list[Difference] = []
    for number, step in enumerate(_steps(vector)):
        before, error = log, truncation.NONE
        try:
            log = _local_log_step(log, step)
        except watermark.BeyondHighWatermarkError as refused:
            error = refused.code
        moved = log.high_watermark != before.high_watermark
        got = {
            **_offsets(log),
            "changed_to": log.high_watermark if moved else None,
            "error": error,
        }
        expected = dict(step.get("expect", {}))
        if "error" in expected:
            expected["error"] = _error(expected["error"])
        found += differences(expected, got, f"steps[{number}]")
    return found


def _local_log_step(log: LocalLog, step: Mapping[str, Any]) -> LocalLog:
    to = step.get("to", 0)
    match step["op"]:
        case "new_log":
            return LocalLog()
        case "append_as_leader" | "append_as_follower" | "append":
            return watermark.append(log, records=step["records"])
        case "maybe_increment":
            return watermark.increment(log, to=to)
        case "update" | "maybe_update_as_follower" | "maybe_update":
            return watermark.follow(log, leader_high_watermark=to)
        case "truncate_to" | "truncate":
            return watermark.truncate(log, to=to)
        case "truncate_fully_and_start_at":
            return watermark.truncate_fully(to=to, log_start_offset=step.get("log_start"))
        case name if "log_start" in name or name == "delete_records":
            return watermark.raise_log_start(log, to=to)
    raise CannotRunError(f"operation {step['op']!r}")


def _truncate_fully(vector: Vector) -> list[Difference]:
    given = vector.input
    log = watermark.truncate_fully(
        to=given["truncate_fully_and_start_at"], log_start_offset=given.get("log_start")
    )
    return differences(vector.expected, _offsets(log))


def _understanding(handler: Handler) -> Handler:
    """An input of another form than the handler reads is "cannot run", no crash of the runner."""

    @wraps(handler)
    def run(vector: Vector) -> list[Difference]:
        try:
            return handler(vector)
        except (KeyError, TypeError, ValueError, IndexError, AttributeError) as error:
            raise CannotRunError(f"{vector.id}: {type(error).__name__}: {error}") from error
        except ConsistencyError as error:
            raise CannotRunError(f"{vector.id}: {error}") from error

    return run


_BY_RULE: Final[Mapping[str, Callable[[Vector], list[Difference]]]] = {
    "epoch_cache": _epoch_cache,
    "epoch_cache_v0_11": _epoch_cache,
    "epoch_cache.log": _epoch_cache_of_log,
    "leader.diverging_epoch": _diverging_epoch,
    "leader.end_offset_for_epoch": _end_offset_for_epoch,
    "leader.end_offset_for_epoch_error": _end_offset_for_epoch,
    "broker.epoch_check": _broker_epoch_check,
    "follower.truncation_point": _truncation_point,
    "follower.reconcile": _reconcile,
    "follower.become": _become_follower,
    "leader.become": _become_leader,
    "leader.follower_check": _follower_check,
    "scenario.epoch_files": _scenario_epoch_files,
    "scenario.final": _scenario_final,
    "replica_state": _replica_state,
    "replica_state.broker_epoch": _replica_broker_epoch,
    "isr.out_of_sync": _out_of_sync,
    "isr.leader_scenario": _leader_scenario,
    "isr.under_replicated": _isr_sizes,
    "isr.under_min_isr": _isr_sizes,
    "isr.at_min_isr": _isr_sizes,
    "hw.leader_advance": _leader_advance,
    "hw.after_reelection": _after_reelection,
    "hw.checkpoint": _checkpoint,
    "hw.follower_diverging": _follower_diverging,
    "hw.initial": _initial,
    "hw.local_log": _local_log,
    "hw.truncate_fully": _truncate_fully,
}

HANDLERS: Final[dict[str, Handler]] = {
    rule: _understanding(handler) for rule, handler in _BY_RULE.items()
}
