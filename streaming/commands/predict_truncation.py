"""`tidestaff predict truncation`: where a follower cuts its log, and what goes with it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

from tidestaff.consistency.epochs import first_disagreement, truncate_from_end
from tidestaff.consistency.model import OffsetRange
from tidestaff.consistency.truncation import (
    OutOfRangeAction,
    ReplicaLog,
    TruncationPrediction,
    predict_truncation,
)
from tidestaff.consistency.versions import EpochCacheGeneration, Truncation
from tidestaff.streaming.commands.exits import Exit
from tidestaff.streaming.commands.layout import labelled
from tidestaff.streaming.commands.predict import Prediction, rule_set_json, rule_set_name

if TYPE_CHECKING:
    from tidestaff.consistency.versions import RuleSet
    from tidestaff.streaming.commands.reader import InputReader, ObjectReader

EXAMPLES: Final = """\
the input, of predict truncation:
  {"leader":   {"log_end_offset": 170, "epochs": [[0,0],[1,100],[2,150]]},
   "follower": {"log_end_offset": 120, "high_watermark": 90, "epochs": [[0,0]]},
   "committed": 110}

  leader, follower  also log_start_offset (0), and high_watermark of the leader
  epochs            [epoch, start offset] as in leader-epoch-checkpoint; the leader's list as it
                    leads, with its own epoch
  committed         how far the follower's log was committed: the high watermark its old leader
                    had reached (default: the follower's own, which lags behind that one)
  settings          {"unclean_leader_election_enable": true}: counts up to 0.10.2

example:
  echo '{"leader": {"log_end_offset": 170, "epochs": [[0,0],[1,100],[2,150]]},
         "follower": {"log_end_offset": 120, "high_watermark": 90, "epochs": [[0,0]]}}' |
    tidestaff predict truncation --version 3.9 --input -

exit codes:
  0 nothing is cut   1 something is cut, nothing committed is lost
  2 committed offsets are lost, the logs stay different, or the broker exits   3 bad input
"""

RULES: Final = {
    Truncation.HIGH_WATERMARK: "A follower cuts its log at its own high watermark (up to 0.10.2).",
    Truncation.KIP_101: (
        "A follower asks its leader where its latest epoch ends and cuts there (KIP-101)."
    ),
    Truncation.KIP_279: (
        "A follower asks its leader where its latest epoch ends and cuts there, again and again "
        "until both know the epoch (KIP-279)."
    ),
    Truncation.ON_FETCH: (
        "A follower names its last epoch in each fetch; a leader in which that epoch ended earlier "
        "says so, and the follower cuts there (2.8 and later)."
    ),
}


@dataclass(frozen=True, slots=True)
class Consequences:
    """What a cut means. `cut` leaves the follower, `lost` was committed and is not on the leader,
    `comes_back` is fetched from it again; from `diverges_at` the two logs differ for good."""

    prediction: TruncationPrediction
    cut: OffsetRange | None
    lost: OffsetRange | None
    comes_back: OffsetRange | None
    diverges_at: int | None
    broker_exits: bool


def consequences(
    *,
    follower: ReplicaLog,
    leader: ReplicaLog,
    rules: RuleSet,
    committed: int | None = None,
    unclean_allowed: bool | None = None,
) -> Consequences:
    """The predicted cut, held against what both logs contain.

    `committed` is how far the follower's log was committed, the HW of its old leader; without it
    the follower's own HW stands for it: what lies below that was committed as the follower has it.
    Epochs of the input are knowledge about the records, also where the version itself has none.
    """
    allowed = rules.unclean_election_default if unclean_allowed is None else unclean_allowed
    prediction = predict_truncation(
        follower=follower, leader=leader, rules=rules, unclean_allowed=allowed
    )
    shared = _shared_end(follower, leader)
    end = prediction.final_offset if prediction.restart_at is None else follower.log_start_offset
    known = follower.high_watermark if committed is None else committed
    kept = truncate_from_end(follower.lineage, end)
    return Consequences(
        prediction=prediction,
        cut=_range(end, follower.log_end_offset),
        lost=_range(max(shared, leader.log_start_offset), known),
        comes_back=_range(max(end, leader.log_start_offset), min(shared, follower.log_end_offset)),
        diverges_at=first_disagreement(
            kept,
            leader.lineage,
            start=_start(follower, leader),
            end=min(end, leader.log_end_offset),
        ),
        broker_exits=OutOfRangeAction.EXIT.value in prediction.because,
    )


def _shared_end(follower: ReplicaLog, leader: ReplicaLog) -> int:
    """The end of what both logs hold: the shorter end, or the first offset of different epochs."""
    end = min(follower.log_end_offset, leader.log_end_offset)
    differs = first_disagreement(
        follower.lineage, leader.lineage, start=_start(follower, leader), end=end
    )
    if differs is not None:
        return differs
    # Beyond the follower's end the leader's records may well be the committed ones.
    return leader.log_end_offset


def _start(follower: ReplicaLog, leader: ReplicaLog) -> int:
    return max(follower.log_start_offset, leader.log_start_offset)


def _range(start: int, end: int) -> OffsetRange | None:
    return OffsetRange(start, end) if start < end else None


def predict(reader: InputReader, value: object, rules: RuleSet) -> Prediction:
    top = reader.object(value)
    leader = _read_log(top.object("leader"), rules, follows=False)
    follower = _read_log(top.object("follower"), rules, follows=True)
    committed = top.optional_integer("committed")
    if committed is not None and committed < follower.high_watermark:
        expected = f"at least the follower's high watermark {follower.high_watermark}"
        top.report("committed", str(committed), expected)
    unclean = top.optional_object("settings").boolean(
        "unclean_leader_election_enable", default=rules.unclean_election_default
    )
    reader.finish()
    found = consequences(
        follower=follower,
        leader=leader,
        rules=rules,
        committed=committed,
        unclean_allowed=unclean,
    )
    code, verdict = _verdict(found)
    text = "\n".join(_lines(found, follower, rules, f"{verdict} (exit {code})"))
    return Prediction(text, _content(found, rules, code, verdict), code)


def _read_log(fields: ObjectReader, rules: RuleSet, *, follows: bool) -> ReplicaLog:
    start = fields.integer("log_start_offset", default=0)
    end = fields.integer("log_end_offset")
    # Only a follower's own HW decides anything here.
    watermark = fields.integer("high_watermark", default=None if follows else start)
    lineage = fields.lineage(
        "epochs",
        required=rules.truncation is not Truncation.HIGH_WATERMARK,
        starts_may_repeat=rules.epoch_cache is EpochCacheGeneration.FIRST,
    )
    if start > end:
        fields.report("log_start_offset", str(start), f"at most the log end offset {end}")
    elif "high_watermark" in fields and not start <= watermark <= end:
        fields.report("high_watermark", str(watermark), f"from {start} to the log end offset {end}")
    if lineage and lineage[-1].start_offset > end:
        last = list(lineage[-1])
        fields.report("epochs", str(last), f"starts up to the log end offset {end}")
    return ReplicaLog(start, watermark, end, lineage)


def _verdict(found: Consequences) -> tuple[Exit, str]:
    if found.broker_exits:
        return Exit.CRITICAL, "the follower's broker exits: it is ahead of its leader"
    if found.lost:
        return Exit.CRITICAL, f"committed offsets {found.lost} are lost: the leader lacks them"
    if found.diverges_at is not None:
        at = found.diverges_at
        return Exit.CRITICAL, f"the logs stay different from offset {at}: nobody will notice"
    if found.cut is None:
        return Exit.OK, "nothing is cut"
    return Exit.WARNING, f"offsets {found.cut} are cut, nothing committed is lost"


def _lines(found: Consequences, follower: ReplicaLog, rules: RuleSet, verdict: str) -> list[str]:
    prediction = found.prediction
    rows = [("log end", _log_end(found, follower))]
    rows.append(("cut", "nothing" if found.cut is None else f"offsets {found.cut}"))
    if found.comes_back:
        rows.append(("comes back", f"offsets {found.comes_back}, fetched again from the leader"))
    if len(prediction.rounds) > 1:
        rows.append(("rounds", " -> ".join(map(str, prediction.rounds))))
    rows.append(("lost", f"offsets {found.lost}" if found.lost else "no committed offset"))
    if not prediction.exact:
        rows.append(("exact", "no: after a restart the stored high watermark may be older still"))
    return [
        rule_set_name(rules),
        "",
        *labelled([*rows, ("result", verdict)], indent=2),
        "",
        *labelled([("why", prediction.because), ("rule", RULES[rules.truncation])], indent=2),
    ]


def _log_end(found: Consequences, follower: ReplicaLog) -> str:
    prediction = found.prediction
    if prediction.restart_at is not None:
        return f"{follower.log_end_offset} -> begins anew at {prediction.restart_at}"
    if prediction.final_offset == follower.log_end_offset:
        return f"{follower.log_end_offset}, unchanged"
    return f"{follower.log_end_offset} -> {prediction.final_offset}"


def _content(found: Consequences, rules: RuleSet, code: Exit, verdict: str) -> dict[str, Any]:
    prediction = found.prediction
    return {
        "prediction": "truncation",
        "rule_set": rule_set_json(rules),
        "final_offset": prediction.final_offset,
        "rounds": list(prediction.rounds),
        "restart_at": prediction.restart_at,
        "exact": prediction.exact,
        "cut": _pair(found.cut),
        "comes_back": _pair(found.comes_back),
        "lost": _pair(found.lost),
        "diverges_at": found.diverges_at,
        "broker_exits": found.broker_exits,
        "because": prediction.because,
        "rule": RULES[rules.truncation],
        "result": verdict,
        "exit_code": int(code),
    }


def _pair(offsets: OffsetRange | None) -> list[int] | None:
    return None if offsets is None else [offsets.start, offsets.end]
