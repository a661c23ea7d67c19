"""Edges of the high watermark's rules that only a seeded fault showed to be untested."""

from __future__ import annotations

from tidestaff.consistency.versions import Mode, rules_for
from tidestaff.consistency.watermark import RemoteReplica, advance


def test_the_watermark_waits_for_a_member_being_added_however_slow_it_is() -> None:
    to = advance(
        high_watermark=3,
        log_end_offset=10,
        followers={2: RemoteReplica(5, caught_up=False)},
        committed_isr=(1,),
        maximal_isr=(1, 2),
        min_insync_replicas=1,
        rules=rules_for("4.0", Mode.KRAFT),
    )
    assert to == 5
