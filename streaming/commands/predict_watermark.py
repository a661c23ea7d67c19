"""`tidestaff predict watermark`: where the high watermark goes, and who holds it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final, NamedTuple

from tidestaff.consistency.isr import effective_min_isr
from tidestaff.consistency.watermark import RemoteReplica, advance, held_by, is_frozen
from tidestaff.streaming.commands.exits import Exit
from tidestaff.streaming.commands.layout import labelled
from tidestaff.streaming.commands.predict import (
    Prediction,
    claim_of,
    rule_set_json,
    rule_set_name,
)
from tidestaff.streaming.commands.reader import INT32_MAX

if TYPE_CHECKING:
    from tidestaff.consistency.model import BrokerId
    from tidestaff.consistency.versions import RuleSet
    from tidestaff.streaming.commands.reader import InputReader, ObjectReader

EXAMPLES: Final = """\
the input, of predict watermark:
  {"leader": {"log_end_offset": 8, "high_watermark": 4},
   "followers": {"2": {"log_end_offset": 6}, "3": {"log_end_offset": 8, "caught_up": true}},
   "isr": [1,2],
   "min_insync_replicas": 2}

  followers    every assigned replica but the leader, by broker id; log_end_offset is -1 before its
               first fetch; caught_up (default: as in the ISR) and eligible (true) say whether it
               is about to join the ISR
  isr          with the leader: the one member that is not among the followers
  maximal_isr  the ISR and whoever is being added, while a change of it is in flight

example:
  echo '{"leader": {"log_end_offset": 8, "high_watermark": 4},
         "followers": {"2": {"log_end_offset": 6}}, "isr": [1,2]}' |
    tidestaff predict watermark --version 3.9 --input -

exit codes:
  0 it moves, or stands at the log end   1 it is held   3 bad input
"""


class WatermarkQuestion(NamedTuple):
    """A leader's view of its partition."""

    rules: RuleSet
    log_end_offset: int
    high_watermark: int
    followers: dict[BrokerId, RemoteReplica]
    isr: tuple[BrokerId, ...]
    maximal_isr: tuple[BrokerId, ...]
    min_insync_replicas: int

    def next_high_watermark(self) -> int:
        return advance(
            high_watermark=self.high_watermark,
            log_end_offset=self.log_end_offset,
            followers=self.followers,
            committed_isr=self.isr,
            maximal_isr=self.maximal_isr,
            min_insync_replicas=self.min_insync_replicas,
            rules=self.rules,
        )

    @property
    def frozen(self) -> bool:
        return is_frozen(
            isr_size=len(self.isr),
            min_insync_replicas=self.min_insync_replicas,
            replica_count=len(self.followers) + 1,
            rules=self.rules,
        )

    @property
    def minimum(self) -> int:
        return effective_min_isr(
            min_insync_replicas=self.min_insync_replicas,
            replica_count=len(self.followers) + 1,
            rules=self.rules,
        )

    def held_by(self) -> tuple[BrokerId, ...]:
        return held_by(
            log_end_offset=self.log_end_offset,
            followers=self.followers,
            maximal_isr=self.maximal_isr,
            rules=self.rules,
        )

    def is_awaited(self, broker: BrokerId) -> bool:
        """Whether the HW waits for this follower: one behind the leader would hold it, alone."""
        behind = self.followers[broker]._replace(log_end_offset=self.log_end_offset - 1)
        return bool(
            held_by(
                log_end_offset=self.log_end_offset,
                followers={broker: behind},
                maximal_isr=self.maximal_isr,
                rules=self.rules,
            )
        )


def predict(reader: InputReader, value: object, rules: RuleSet) -> Prediction:
    question = _read(reader, value, rules)
    after = question.next_high_watermark()
    moves, at_end = after > question.high_watermark, after == question.log_end_offset
    code = Exit.OK if moves or at_end else Exit.WARNING
    verdict = "it moves" if moves else "it stands at the log end" if at_end else "it is held"
    text = "\n".join(_lines(question, after, f"{verdict} (exit {code})"))
    return Prediction(text, _content(question, after, code, verdict), code)


def _read(reader: InputReader, value: object, rules: RuleSet) -> WatermarkQuestion:
    top = reader.object(value)
    leader = top.object("leader")
    end = leader.integer("log_end_offset")
    watermark = leader.integer("high_watermark")
    if watermark > end:
        leader.report("high_watermark", str(watermark), f"at most the log end offset {end}")
    isr = top.brokers("isr", may_be_empty=False)
    followers = _read_followers(top.object("followers"), isr)
    maximal = top.brokers("maximal_isr", required=False) or isr
    if not set(maximal) >= set(isr):
        top.report("maximal_isr", str(list(maximal)), f"every member of the ISR {list(isr)}")
    outside = [broker for broker in isr if broker not in followers]
    if isr and len(outside) != 1:
        known = ", ".join(map(str, followers)) or "none"
        expected = f"one member, the leader, that is not among the followers ({known})"
        top.report("isr", str(list(isr)), expected)
    minimum = top.integer("min_insync_replicas", least=1, most=INT32_MAX, default=1)
    reader.finish()
    return WatermarkQuestion(rules, end, watermark, followers, isr, maximal, minimum)


def _read_followers(
    fields: ObjectReader, isr: tuple[BrokerId, ...]
) -> dict[BrokerId, RemoteReplica]:
    found: dict[BrokerId, RemoteReplica] = {}
    for key in fields.names():
        follower = fields.object(key)
        if not key.isascii() or not key.isdigit() or int(key) > INT32_MAX:
            fields.report(key, "this key", "a broker id")
            continue
        found[int(key)] = RemoteReplica(
            log_end_offset=follower.integer("log_end_offset", least=-1),
            caught_up=follower.boolean("caught_up", default=int(key) in isr),
            eligible=follower.boolean("eligible", default=True),
        )
    return found


def _lines(question: WatermarkQuestion, after: int, verdict: str) -> list[str]:
    before, end = question.high_watermark, question.log_end_offset
    rows = [
        ("high watermark", f"{before} -> {after}" if after != before else f"{after}, unchanged"),
        ("leader's log end", str(end)),
        ("ISR", f"[{','.join(map(str, question.isr))}], min ISR {question.minimum}"),
        ("result", verdict),
    ]
    waits = [(f"broker {each}", _waits(question, each)) for each in sorted(question.followers)]
    return [
        rule_set_name(question.rules),
        "",
        *labelled(rows, indent=2),
        "",
        *labelled([("why", _why(question, after)), ("rule", _rule(question))], indent=2),
        *(["", "  the followers", *labelled(waits, indent=4)] if waits else []),
    ]


def _rule(question: WatermarkQuestion) -> str:
    return claim_of(is_frozen if question.frozen else advance)


def _why(question: WatermarkQuestion, after: int) -> str:
    if question.frozen:
        size = len(question.isr)
        return f"frozen: the ISR has {size}, fewer than min ISR {question.minimum}"
    if after == question.log_end_offset:
        return "everyone it waits for has reached the leader's log end"
    holders = ", ".join(f"broker {each}" for each in question.held_by())
    return f"it waits for {holders}"


def _waits(question: WatermarkQuestion, broker: BrokerId) -> str:
    replica = question.followers[broker]
    told = f"log end {replica.log_end_offset}, "
    if broker in question.maximal_isr:
        return told + "awaited: in the ISR" + ("" if broker in question.isr else ", being added")
    if question.is_awaited(broker):
        return told + "awaited: caught up and about to join the ISR"
    reasons = [] if replica.caught_up else ["not caught up"]
    reasons += [] if replica.eligible else ["not eligible"]
    return told + ", ".join(["not awaited: not in the ISR", *reasons])


def _content(question: WatermarkQuestion, after: int, code: Exit, verdict: str) -> dict[str, Any]:
    return {
        "prediction": "watermark",
        "rule_set": rule_set_json(question.rules),
        "high_watermark_before": question.high_watermark,
        "high_watermark": after,
        "log_end_offset": question.log_end_offset,
        "frozen": question.frozen,
        "held_by": list(question.held_by()),
        "awaited": [each for each in sorted(question.followers) if question.is_awaited(each)],
        "because": _why(question, after),
        "rule": _rule(question),
        "result": verdict,
        "exit_code": int(code),
    }
