"""Runs the recorded facts about a follower that makes its log agree with the leader's."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any, Final

from tidestaff.consistency import epochs, isr, truncation, watermark
from tidestaff.consistency.epochs import EMPTY, UNDEFINED_END, EndOffset
from tidestaff.consistency.model import UNDEFINED_EPOCH, UNDEFINED_OFFSET, Lineage
from tidestaff.consistency.truncation import EpochAnswer, ReplicaLog, TruncationPrediction
from tidestaff.consistency.versions import Mode, Truncation, rules_for
from tidestaff.consistency.watermark import LocalLog
from tidestaff.streaming.conform.replica_fields import (
    NEWEST,
    compare,
    error_name,
    offsets,
    rules_of,
    steps_of,
    understanding_all,
)
from tidestaff.streaming.conform.vectors import CannotRunError, Difference, Vector, differences

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

_PROTOCOLS: Final = {
    "high_watermark": Truncation.HIGH_WATERMARK,
    "hw": Truncation.HIGH_WATERMARK,
    "kip101": Truncation.KIP_101,
    "kip279": Truncation.KIP_279,
    "truncate_on_fetch": Truncation.ON_FETCH,
}


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
            error_name(answer.get("error")),
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
            rules=rules_of(vector),
            old_leader=0,
            new_leader=0,
            old_leader_epoch=epoch,
            new_leader_epoch=epoch,
        )
        return differences(vector.expected, {"truncations": int(again)})
    raise CannotRunError(f"{vector.id}: neither two logs, nor two epochs, nor a known event")


def _reconcile_logs(vector: Vector) -> list[Difference]:
    given, rules = vector.input, rules_of(vector)
    if rules.truncation is not Truncation.ON_FETCH:
        rules = rules_for(NEWEST, Mode.KRAFT)
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
        got["after_first"] = offsets(cut)
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
    return got | offsets(log) | {"fetch_offset": log.log_end_offset}


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
    rules = rules_for(NEWEST, Mode.KRAFT)
    for offset, epoch in records:
        if epochs.latest_epoch(lineage) != epoch:
            lineage = epochs.assign(lineage, epoch, offset, generation=rules.epoch_cache)
    return lineage


def _reconcile_without_answer(vector: Vector) -> list[Difference]:
    replica = _replica_log(vector.input, "replica")
    step = truncation.truncation_point(
        protocol=rules_of(vector).truncation,
        answer=None,
        log_end_offset=replica.log_end_offset,
        initial_fetch_offset=replica.high_watermark,
    )
    if step.truncate_to is None:
        raise CannotRunError(f"{vector.id}: {step.because}")
    log = watermark.truncate(LocalLog(*replica[:3]), to=step.truncate_to)
    got = {**step._asdict(), **offsets(log), "fetch_offset": log.log_end_offset, "truncations": 1}
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
    return compare(vector, got)


def _become_follower(vector: Vector) -> list[Difference]:
    found: list[Difference] = []
    known: Mapping[str, Any] = {"leader": None, "leader_epoch": None, "partition_epoch": -1}
    for number, step in enumerate(steps_of(vector)):
        stale = isr.partition_change_is_stale(
            known_partition_epoch=known["partition_epoch"],
            new_partition_epoch=step.get("partition_epoch", known["partition_epoch"]),
        )
        fresh = not stale and truncation.must_truncate(
            rules=rules_of(vector),
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


HANDLERS: Final = understanding_all(
    {
        "follower.truncation_point": _truncation_point,
        "follower.reconcile": _reconcile,
        "follower.become": _become_follower,
        "leader.become": _become_leader,
    }
)
