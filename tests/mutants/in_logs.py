"""Faults in the rules about replicas: ISR, high watermark, epoch cache, truncation."""

from __future__ import annotations

from typing import Final

from tests.mutants.fault import faults_in

_ISR: Final = faults_in(
    "isr.py",
    ("consistency/test_isr.py", "conformance/test_vectors.py"),
    (
        "isr-out-at-the-limit",
        "return now_ms - state.last_caught_up_ms <= max_lag_ms",
        "return now_ms - state.last_caught_up_ms < max_lag_ms",
        "a lag of exactly the limit is still in sync",
    ),
    (
        "isr-previous-fetch-must-be-passed",
        "fetch_offset >= state.last_fetch_leader_log_end_offset",
        "fetch_offset > state.last_fetch_leader_log_end_offset",
        "having reached the end of the last fetch is enough",
    ),
    (
        "isr-previous-fetch-counts-as-now",
        "caught_up = max(caught_up, state.last_fetch_ms)",
        "caught_up = max(caught_up, now_ms)",
        "who reached the end of the last fetch was caught up then",
    ),
    (
        "isr-previous-fetch-in-every-version",
        "rules.caught_up_by_previous_fetch and fetch_offset >=",
        "fetch_offset >=",
        "before 0.10.2 only the leader's end counted",
    ),
    (
        "isr-join-beyond-the-epoch-start",
        "if log_end_offset < leader_epoch_start_offset:",
        "if log_end_offset <= leader_epoch_start_offset:",
        "at the epoch's start a replica may join",
    ),
    (
        "isr-join-beyond-the-watermark",
        "if log_end_offset < high_watermark:",
        "if log_end_offset <= high_watermark:",
        "at the high watermark a replica may join",
    ),
    (
        "isr-join-below-the-epoch-start",
        "    if rules.isr_join_needs_epoch_start:\n",
        "    if rules.isr_join_needs_epoch_start and leader_epoch_start_offset is None:\n",
        "a replica below the epoch's start lacks what the old leader committed",
    ),
    (
        "isr-maximal-is-the-pending-one",
        "return (*self.committed, *joining)",
        "return self.pending or self.committed",
        "a member being removed still counts",
    ),
    (
        "isr-at-the-end-and-silent-is-out",
        "if rules.at_leader_end_never_out_of_sync and at_end:",
        "if rules.at_leader_end_never_out_of_sync and at_end and state.last_caught_up_ms:",
        "from 2.1 standing at the leader's end counts for ever",
    ),
    (
        "isr-fresh-start-for-everybody",
        "since = now_ms if in_sync else 0",
        "since = now_ms",
        "only ISR members get a fresh start",
    ),
    (
        "isr-refused-change-retried-always",
        "return IsrAnswer(isr, retry=error not in _STAY_PENDING)",
        "return IsrAnswer(isr, retry=True)",
        "a leader with outdated epochs waits for new metadata",
    ),
    (
        "isr-ineligible-change-stays-pending",
        (
            "    if error in _BACK_TO_COMMITTED:\n"
            "        return IsrAnswer(IsrState(isr.committed), retry=False)\n"
        ),
        "",
        "an ineligible replica's change is taken back",
    ),
    (
        "isr-newer-fetch-is-stale",
        "known_broker_epoch is not None and known_broker_epoch > fetch_broker_epoch",
        "known_broker_epoch is not None and known_broker_epoch != fetch_broker_epoch",
        "metadata may lag behind a broker that registered anew",
    ),
    (
        "isr-unknown-fetch-epoch-ineligible",
        "return fetch_broker_epoch in (UNKNOWN_BROKER_EPOCH, registration.broker_epoch)",
        "return fetch_broker_epoch == registration.broker_epoch",
        "-1 skips the check",
    ),
    (
        "isr-leader-end-falls",
        "leader_end = max(leader_end, state.last_fetch_leader_log_end_offset)",
        "leader_end = leader_log_end_offset",
        "from 3.3 concurrent fetches do not lower it",
    ),
    (
        "isr-slow-by-messages-at-the-limit",
        "slow = state.log_end_offset >= 0 and behind > max_lag_messages",
        "slow = state.log_end_offset >= 0 and behind >= max_lag_messages",
        "0.8 throws out beyond the limit only",
    ),
    (
        "isr-min-capped-in-every-version",
        "    if rules.min_isr_capped_by_replicas:\n",
        "    if rules:\n",
        "before 3.7 min.insync.replicas was taken at its word",
    ),
    (
        "isr-equal-partition-epoch-ignored",
        "return new_partition_epoch < known_partition_epoch",
        "return new_partition_epoch <= known_partition_epoch",
        "an equal epoch is applied again",
    ),
)

_WATERMARK: Final = faults_in(
    "watermark.py",
    (
        "consistency/test_watermark.py",
        "consistency/test_watermark_edges.py",
        "conformance/test_vectors.py",
    ),
    (
        "hw-min-over-the-assignment",
        "        if broker in maximal_isr:\n",
        "        if broker in followers:\n",
        "the HW waits for the ISR, not for every replica",
    ),
    (
        "hw-waits-for-the-committed-isr-only",
        (
            "    awaited = _awaited(followers, maximal_isr=maximal_isr, rules=rules)\n"
            "    lowest = min((r.log_end_offset for r in awaited.values()), "
            "default=log_end_offset)\n"
            "    return max("
        ),
        (
            "    awaited = _awaited(followers, maximal_isr=committed_isr, rules=rules)\n"
            "    lowest = min((r.log_end_offset for r in awaited.values()), "
            "default=log_end_offset)\n"
            "    return max("
        ),
        "a member being added counts already",
    ),
    (
        "hw-frozen-in-every-version",
        "return rules.watermark_frozen_under_min_isr and is_under_min_isr(",
        "return is_under_min_isr(",
        "only from 3.7 the HW stands still under min ISR",
    ),
    (
        "hw-frozen-by-the-wrong-count",
        "replica_count=len(followers) + 1,",
        "replica_count=len(followers),",
        "the leader is a replica too",
    ),
    (
        "hw-goes-back",
        "return max(high_watermark, min(lowest, log_end_offset))",
        "return min(lowest, log_end_offset)",
        "a leader's HW never goes back",
    ),
    (
        "hw-follower-not-clamped",
        "return log._replace(high_watermark=_clamp(leader_high_watermark, log))",
        "return log._replace(high_watermark=leader_high_watermark)",
        "a follower's HW stays within its own log",
    ),
    (
        "hw-follower-never-falls",
        "return log._replace(high_watermark=_clamp(leader_high_watermark, log))",
        (
            "return log._replace(\n"
            "        high_watermark=max(log.high_watermark, _clamp(leader_high_watermark, log))\n"
            "    )"
        ),
        "a follower's HW may go down with its leader's",
    ),
    (
        "hw-waits-for-whoever-may-join",
        "return rules.watermark_waits_outside_isr and replica.caught_up and may_join",
        "return rules.watermark_waits_outside_isr and may_join",
        "outside the ISR only caught-up replicas hold the HW",
    ),
    (
        "hw-above-the-end-after-a-cut",
        "return log._replace(log_end_offset=to, high_watermark=min(log.high_watermark, to))",
        "return log._replace(log_end_offset=to)",
        "a cut lowers the HW with it",
    ),
    (
        "hw-start-up-trusts-the-checkpoint",
        "return log._replace(high_watermark=_clamp(checkpointed_high_watermark or 0, log))",
        "return log._replace(high_watermark=checkpointed_high_watermark or 0)",
        "the checkpointed HW may lie outside the log",
    ),
    (
        "hw-log-start-beyond-the-watermark",
        "start = min(leader_log_start_offset, log.high_watermark)",
        "start = leader_log_start_offset",
        "a follower's log start stays below its own HW",
    ),
    (
        "hw-latest-one-record-late",
        "return high_watermark >= leader_epoch_start_offset",
        "return high_watermark > leader_epoch_start_offset",
        "at the epoch's start the latest offset is known",
    ),
    (
        "hw-held-by-all-that-lag",
        "if r.log_end_offset == lowest))",
        "if r.log_end_offset < log_end_offset))",
        "the lowest log end holds the HW, not every lower one",
    ),
)

_EPOCHS: Final = faults_in(
    "epochs.py",
    (
        "consistency/test_epochs.py",
        "consistency/test_epochs_edges.py",
        "conformance/test_vectors.py",
    ),
    (
        "epo-assign-keeps-an-equal-start",
        "lineage[kept - 1].epoch >= epoch or lineage[kept - 1].start_offset >= start_offset",
        "lineage[kept - 1].epoch >= epoch or lineage[kept - 1].start_offset > start_offset",
        "from 2.0.1 an empty epoch is replaced by the next one",
    ),
    (
        "epo-assign-first-generation-strict",
        "newer = epoch > last.epoch and start_offset >= last.start_offset",
        "newer = epoch > last.epoch and start_offset > last.start_offset",
        "up to 2.0.0 two entries could share a start",
    ),
    (
        "epo-truncate-end-exclusive",
        (
            "    if offset < 0 or not lineage or lineage[-1].start_offset < offset:\n"
            "        return lineage\n"
            "    return tuple(entry for entry in lineage if entry.start_offset < offset)"
        ),
        (
            "    if offset < 0 or not lineage or lineage[-1].start_offset <= offset:\n"
            "        return lineage\n"
            "    return tuple(entry for entry in lineage if entry.start_offset <= offset)"
        ),
        "an entry that starts at the new end has no record left",
    ),
    (
        "epo-truncate-start-drops-the-epoch-in-force",
        (
            "    rest = tuple(entry for entry in lineage if entry.start_offset > offset)\n"
            "    return (EpochEntry(passed[-1].epoch, offset), *rest)"
        ),
        "    return tuple(entry for entry in lineage if entry.start_offset > offset)",
        "the epoch in force at the log start now begins there",
    ),
    (
        "epo-truncate-start-keeps-the-old-start",
        (
            "    rest = tuple(entry for entry in lineage if entry.start_offset > offset)\n"
            "    return (EpochEntry(passed[-1].epoch, offset), *rest)"
        ),
        (
            "    rest = tuple(entry for entry in lineage if entry.start_offset > offset)\n"
            "    return (passed[-1], *rest)"
        ),
        "the first entry's start follows the log start",
    ),
    (
        "epo-answer-start-of-the-latest",
        "return EndOffset(floor.epoch, larger.start_offset)",
        "return EndOffset(floor.epoch, lineage[-1].start_offset)",
        "the textbook: an older epoch ends where the leader's latest starts (S-29)",
    ),
    (
        "epo-answer-epoch-plus-one",
        "larger = next((entry for entry in lineage if entry.epoch > epoch), None)",
        "larger = next((entry for entry in lineage if entry.epoch == epoch + 1), None)",
        "the textbook: an epoch ends where epoch + 1 starts; gaps are normal (S-29)",
    ),
    (
        "epo-answer-own-start",
        "return EndOffset(floor.epoch, larger.start_offset)",
        "return EndOffset(floor.epoch, floor.start_offset)",
        "the textbook: the offset of the follower's epoch (S-29)",
    ),
    (
        "epo-answer-names-the-asked-epoch",
        "return EndOffset(floor.epoch, larger.start_offset)",
        "return EndOffset(epoch, larger.start_offset)",
        "the answer names the largest known epoch up to the one asked",
    ),
    (
        "epo-answer-older-than-all-is-undefined",
        (
            "    if generation is EpochCacheGeneration.FIRST:\n"
            "        return UNDEFINED_END\n"
            "    return EndOffset(epoch, larger.start_offset)"
        ),
        "    return UNDEFINED_END",
        "from 2.0.1 an epoch older than all ends where the first one starts",
    ),
    (
        "epo-answer-carries-the-epoch-always",
        (
            "return found if rules.end_offset_answer_has_epoch else "
            "found._replace(epoch=UNDEFINED_EPOCH)"
        ),
        "return found",
        "before 2.0 the answer carries no epoch",
    ),
    (
        "epo-first-record-of-an-epoch",
        "        if entry.start_offset > offset:\n            break",
        "        if entry.start_offset >= offset:\n            break",
        "the record at an epoch's start is of that epoch",
    ),
    (
        "epo-trailing-empty-epoch-compared",
        "if entry.start_offset >= end_offset:\n            continue",
        "if entry.start_offset > end_offset:\n            continue",
        "an epoch without a record says nothing",
    ),
    (
        "epo-last-agreement",
        "for offset in sorted({start, *starts}):",
        "for offset in sorted({start, *starts}, reverse=True):",
        "the first offset where two lineages agree again",
    ),
    (
        "epo-old-record-keeps-lineage",
        "        if epoch < 0:\n            lineage = EMPTY\n",
        "        if epoch < 0:\n            continue\n",
        "a record of an old message format clears what was known",
    ),
)

_LINEAGES: Final = faults_in(
    "lineages.py",
    ("consistency/test_epochs.py", "conformance/test_vectors.py"),
    (
        "epo-disagreement-where-nothing-is-known",
        "first_known = max(start, a[0].start_offset, b[0].start_offset)",
        "first_known = start",
        "below its first entry a lineage says nothing",
    ),
)

_TRUNCATION: Final = faults_in(
    "truncation.py",
    (
        "consistency/test_truncation.py",
        "consistency/test_truncation_edges.py",
        "conformance/test_vectors.py",
    ),
    (
        "trn-compares-the-start-of-its-epoch",
        (
            "        log_end_offset=log.log_end_offset,\n"
            "        initial_fetch_offset=log.high_watermark,"
        ),
        (
            "        log_end_offset=log.lineage[-1].start_offset if log.lineage else "
            "log.log_end_offset,\n"
            "        initial_fetch_offset=log.high_watermark,"
        ),
        "the textbook: the own LEO is compared, not the start of the own epoch",
    ),
    (
        "trn-beyond-the-own-end",
        "return TruncationStep(max(0, min(to, log_end_offset)), complete, because)",
        "return TruncationStep(max(0, to), complete, because)",
        "nothing is cut above the own log end",
    ),
    (
        "trn-kip-279-one-round-only",
        "return cut(own.end_offset, because, complete=False)",
        "return cut(own.end_offset, because)",
        "rounds go on until the epochs match",
    ),
    (
        "trn-no-fallback-to-the-watermark",
        'return cut(initial_fetch_offset, f"the leader cannot place it: {OWN_HIGH_WATERMARK}")',
        'return cut(log_end_offset, f"the leader cannot place it: {OWN_HIGH_WATERMARK}")',
        "an epoch the leader cannot place sends the follower to its HW",
    ),
    (
        "trn-answer-above-the-own-end-of-the-epoch",
        "return cut(min(own.end_offset, answer.end_offset), ",
        "return cut(answer.end_offset, ",
        "the own end of the common epoch bounds the cut",
    ),
    (
        "trn-equal-end-diverges",
        "if end.epoch < last_fetched_epoch or end.end_offset < fetch_offset:",
        "if end.epoch < last_fetched_epoch or end.end_offset <= fetch_offset:",
        "a follower that stands at the end of its epoch agrees",
    ),
    (
        "trn-older-epoch-is-no-divergence",
        "if end.epoch < last_fetched_epoch or end.end_offset < fetch_offset:",
        "if end.end_offset < fetch_offset:",
        "an epoch the leader does not know is a divergence",
    ),
    (
        "trn-divergence-before-the-log-start",
        "        if fetch_offset < leader.log_start_offset:\n            return out_of_range\n",
        "",
        "an offset below the log start is out of range first",
    ),
    (
        "trn-same-epoch-truncates-again",
        "if new_leader_epoch <= old_leader_epoch:",
        "if new_leader_epoch < old_leader_epoch:",
        "the same leader epoch again changes nothing",
    ),
    (
        "trn-every-epoch-in-2-0-1",
        "return old_leader != new_leader or new_leader_epoch > old_leader_epoch + 1",
        "return old_leader != new_leader or new_leader_epoch > old_leader_epoch",
        "2.0.1 truncates when an epoch was missed, not at each bump",
    ),
    (
        "trn-restart-at-an-equal-start",
        "if leader_log_start_offset > log_end_offset:",
        "if leader_log_start_offset >= log_end_offset:",
        "a follower whose end is the leader's start goes on from there",
    ),
    (
        "trn-exits-though-unclean-is-allowed",
        "if rules.broker_exits_when_ahead_of_leader and not unclean_allowed:",
        "if rules.broker_exits_when_ahead_of_leader:",
        "the broker exits only where the topic forbids unclean election",
    ),
    (
        "trn-undefined-epoch-is-fenced",
        "if current_leader_epoch is not None and current_leader_epoch != UNDEFINED_EPOCH:",
        "if current_leader_epoch is not None:",
        "-1 skips the check of the leader epoch",
    ),
    (
        "trn-cut-keeps-the-lineage",
        "lineage=truncate_from_end(log.lineage, to),",
        "lineage=log.lineage,",
        "entries beyond the cut go with the records",
    ),
    (
        "trn-watermark-cut-is-exact",
        "exact = OWN_HIGH_WATERMARK not in because",
        "exact = True",
        "after a restart the HW is the checkpointed one",
    ),
    (
        "trn-unknown-replica-told-the-same",
        "return NOT_LEADER_OR_FOLLOWER if current_leader_epoch is None else UNKNOWN_LEADER_EPOCH",
        "return UNKNOWN_LEADER_EPOCH",
        "a request without a leader epoch is told to look again",
    ),
)

FAULTS: Final = (*_ISR, *_WATERMARK, *_EPOCHS, *_LINEAGES, *_TRUNCATION)
