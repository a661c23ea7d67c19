"""The scene of the tour about the high watermark."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tidestaff.consistency.versions import rules_for
from tidestaff.consistency.watermark import RemoteReplica
from tidestaff.streaming.commands.predict import rule_set_name
from tidestaff.streaming.commands.predict_watermark import WatermarkQuestion
from tidestaff.streaming.commands.scene import Alert, Scene, drawing, log

if TYPE_CHECKING:
    from tidestaff.consistency.truncation import ReplicaLog
    from tidestaff.consistency.versions import RuleSet


def frozen_watermark() -> Scene:
    """From 3.7 the HW waits for min ISR; before, a lone leader commits what nobody else has."""
    sets = [rules_for("3.6"), rules_for("3.7")]
    leader, follower = log(8, 5, (4, 0)), log(5, 5, (4, 0))
    questions = [_alone_in_sync(leader, follower, rules) for rules in sets]
    after = [question.next_high_watermark() for question in questions]
    rows = (
        ("high watermark", *(f"{leader.high_watermark} -> {each}" for each in after)),
        ("frozen", *("yes" if question.frozen else "no" for question in questions)),
        ("on one disk only, yet committed", *(_alone(each, follower) for each in after)),
    )
    return Scene(
        title="The high watermark stands still: lawful from 3.7, a fault before",
        story=(
            "min.insync.replicas is 2, and only the leader is left in the ISR. acks=all writes are "
            "refused, but a producer with acks=1 goes on writing."
        ),
        drawings=(
            drawing(
                {1: leader, 2: follower, 3: follower},
                {1: "leader, the whole ISR", 2: "out of the ISR", 3: "out of the ISR"},
            ),
        ),
        head=("", *map(rule_set_name, sets)),
        rows=rows,
        lesson=(
            "Up to 3.6 a lone leader commits records, and consumers read them, that exist on one "
            "disk only. From 3.7 nothing is committed that fewer than min ISR replicas hold, which "
            "the next scene builds on."
        ),
        alerts=(
            Alert("HWM003", "while it stands still, with who or what holds it"),
            Alert("ISR007", "the cause, as long as the ISR is too small"),
        ),
    )


def _alone_in_sync(leader: ReplicaLog, follower: ReplicaLog, rules: RuleSet) -> WatermarkQuestion:
    behind = RemoteReplica(follower.log_end_offset, caught_up=False)
    return WatermarkQuestion(
        rules=rules,
        log_end_offset=leader.log_end_offset,
        high_watermark=leader.high_watermark,
        followers={2: behind, 3: behind},
        isr=(1,),
        maximal_isr=(1,),
        min_insync_replicas=2,
    )


def _alone(high_watermark: int, follower: ReplicaLog) -> str:
    if high_watermark <= follower.log_end_offset:
        return "nothing"
    return f"[{follower.log_end_offset},{high_watermark})"
