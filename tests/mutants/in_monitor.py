"""Faults in the monitor: judging, the short cut, memory, predictions, forecasts."""

from __future__ import annotations

from typing import Final

from tests.mutants.fault import faults_in

_STORIES: Final = (
    "consistency/test_lost_twice.py",
    "consistency/test_memory_edges.py",
    "consistency/test_codes_fire.py",
    "consistency/test_legal_states.py",
    "consistency/test_legal_histories.py",
    "consistency/test_monitor.py",
)
_JUDGED: Final = ("consistency/test_judge_edges.py", *_STORIES)
_QUIET: Final = ("consistency/test_quiet_edges.py", "consistency/test_quiet.py")

_JUDGE: Final = (
    *faults_in(
        "judge.py",
        _JUDGED,
        (
            "judge-grace-ignored",
            "            if suspicion.samples >= grace.samples and lasted_ms >= grace_ms:",
            "            if suspicion.samples >= grace.samples:",
            "a breach must last its grace time",
        ),
        (
            "judge-samples-ignored",
            "            if suspicion.samples >= grace.samples and lasted_ms >= grace_ms:",
            "            if lasted_ms >= grace_ms:",
            "two observations far apart are not three",
        ),
        (
            "judge-one-sample-too-many",
            "if suspicion.samples >= grace.samples and",
            "if suspicion.samples > grace.samples and",
            "the last sample asked for is enough",
        ),
        (
            "judge-bridges-gaps",
            "if now_ms - suspicion.last_ms <= longest_gap_ms:",
            "if now_ms >= suspicion.last_ms:",
            "two blips an hour apart are not one hour",
        ),
        (
            "judge-gap-shorter-than-the-grace",
            "max(grace_ms, MAX_GAP_MS, 2 * interval_ms)",
            "max(MAX_GAP_MS, 2 * interval_ms)",
            "a slow round may be longer than the usual gap where the grace is",
        ),
        (
            "judge-slow-polling-is-a-gap",
            "max(grace_ms, MAX_GAP_MS, 2 * interval_ms)",
            "max(grace_ms, MAX_GAP_MS)",
            "where every round is slow, a slow round is no gap",
        ),
        (
            "judge-unjudged-clears-the-suspicion",
            "            kept.extend(s for s in suspicions if s.code == rule.code)\n",
            "",
            "what cannot be judged neither confirms nor clears",
        ),
        (
            "judge-unknown-clears-the-suspicion",
            "                kept.extend(_same(suspicions, rule.code, finding.broker))\n",
            "",
            "an unknown finding neither confirms nor clears",
        ),
        (
            "judge-brokers-mixed-up",
            "return (s for s in suspicions if s.code == code and s.broker == key)",
            "return (s for s in suspicions if s.code == code)",
            "each broker has its own grace time",
        ),
        (
            "judge-suspicions-unbounded",
            "tuple(kept[:MAX_SUSPICIONS])",
            "tuple(kept)",
            "memory is bounded",
        ),
        (
            "judge-since-forgotten",
            "violated.append(finding._replace(since_ms=suspicion.since_ms))",
            "violated.append(finding)",
            "an alert says since when the breach lasts",
        ),
    ),
    *faults_in(
        "rules.py",
        _JUDGED,
        (
            "rules-grace-without-lag-times",
            "            + self.lag_times * timing.replica_lag_time_max_ms\n",
            "",
            "grace is counted in the cluster's own settings",
        ),
        (
            "rules-cached-metadata-is-exact",
            "if not lagging_ms or not self.compares_metadata:",
            "if not self.compares_metadata or self.grace == NO_GRACE:",
            "a rule that holds replicas against cached metadata outlasts its lag",
        ),
        (
            "rules-cached-metadata-delays-everything",
            "if not lagging_ms or not self.compares_metadata:",
            "if not lagging_ms:",
            "rules about one replica need not wait for the metadata",
        ),
        (
            "rules-grace-without-rebalance-checks",
            "            + self.rebalance_checks * timing.leader_imbalance_check_interval_ms\n",
            "",
            "a rebalance is due after two checks",
        ),
    ),
    *faults_in(
        "catalogue.py",
        _JUDGED,
        (
            "cat-isr-below-watermark-unbracketed",
            "check=watermark.isr_holds_what_is_committed, sampling=Sampling.BRACKETED",
            "check=watermark.isr_holds_what_is_committed, sampling=Sampling.UNSTRADDLED",
            "without a bracket the follower may have been read first",
        ),
        (
            "cat-unclean-election-waits-for-a-bracket",
            "check=election.election_was_clean)",
            "check=election.election_was_clean, sampling=Sampling.UNSTRADDLED)",
            "an unclean election is seen once, whatever else was changing",
        ),
        (
            "cat-leader-outside-assignment-unbracketed",
            "check=leadership.leader_in_assignment, sampling=Sampling.BRACKETED",
            "check=leadership.leader_in_assignment",
            "state and assignment are two nodes",
        ),
    ),
    *faults_in(
        "monitor.py",
        _JUDGED,
        (
            "mon-unbracketed-rules-judged",
            "if sampling is Sampling.BRACKETED and not sight.coherent:",
            "if sampling is Sampling.BRACKETED and sight.known_to_be_old:",
            "no bracket at all is no coherent one",
        ),
        (
            "mon-moving-metadata-stay-suspected",
            "    if sight.changed:\n        return tuple(each for each",
            "    if False:\n        return tuple(each for each",
            "metadata that move were late, not wrong",
        ),
        (
            "mon-straddled-metadata-judged",
            (
                "    if sampling is Sampling.UNSTRADDLED and "
                "observation.bracket is Bracket.STRADDLED:\n"
                '        return "metadata that does not change while it is read"\n'
            ),
            "",
            "metadata that changed meanwhile accuses nobody",
        ),
        (
            "mon-old-observation-judged",
            (
                "        if observation.observed_at_ms <= memory.observed_at_ms:\n"
                "            return memory, _LATE[Scope.PARTITION]\n"
            ),
            (
                "        if observation.observed_at_ms < memory.observed_at_ms:\n"
                "            return memory, _LATE[Scope.PARTITION]\n"
            ),
            "an observation seen twice changes nothing",
        ),
        (
            "mon-recreated-topic-is-the-old-one",
            "return memory.topic_id != observation.topic_id",
            "return False",
            "a topic made again under its name is another topic",
        ),
        (
            "mon-recreated-node-is-the-old-one",
            "return memory.state_czxid != observation.state_czxid",
            "return False",
            "without topic ids the czxid tells",
        ),
        (
            "mon-cached-metadata-goes-back",
            "    if observation.authoritative:\n        return False\n",
            "    if not observation.authoritative:\n        return False\n",
            "a broker's metadata cache may lag",
        ),
        (
            "mon-deleted-topic-judged",
            (
                "    if observation.deleting:\n"
                '        return "a topic that is not being deleted: '
                'the controller leaves its state alone"\n'
            ),
            "",
            "the controller leaves the state of a topic being deleted alone",
        ),
        (
            "mon-contradiction-taken-over",
            (
                "if memory is not None and _contradicts(memory, observation) "
                "and not verdicts.violated:"
            ),
            "if memory is None:",
            "an old answer of a server that lags is not taken over",
        ),
        (
            "mon-cached-metadata-is-exact",
            "    if observation.authoritative:\n        return 0\n",
            "    if observation.rules:\n        return 0\n",
            "a broker's metadata cache lags",
        ),
        (
            "mon-old-leaders-tell-at-once",
            "return 10_000 if observation.rules.isr_change_through_controller else 70_000",
            "return 10_000",
            "before 2.7 an ISR change is told up to a minute later",
        ),
        (
            "mon-epochs-outlive-zookeeper",
            "    if memory is not None and memory.mode is not observation.rules.mode:\n",
            "    if memory is not None and memory.mode is None:\n",
            "a cluster that moved to KRaft counts its epochs anew",
        ),
        (
            "mon-stale-by-partition-epoch-only",
            (
                "return (now.leader_epoch, now.partition_epoch) < "
                "(known.leader_epoch, known.partition_epoch)"
            ),
            "return now.leader_epoch < known.leader_epoch",
            "an older ISR of the same leader epoch is old as well",
        ),
    ),
)

_SHORT_CUT: Final = faults_in(
    "quiet.py",
    _QUIET,
    (
        "quiet-any-bracket",
        "observation.bracket is Bracket.COHERENT\n        and ",
        "",
        "only a coherent bracket proves that all holds",
    ),
    (
        "quiet-not-newer",
        "        and observation.observed_at_ms > memory.observed_at_ms\n",
        "",
        "an old observation changes nothing",
    ),
    (
        "quiet-new-state",
        "        and observation.state == memory.state\n",
        "",
        "a new state is judged",
    ),
    (
        "quiet-new-registrations",
        "        and observation.live == memory.live\n",
        "",
        "a broker that went is judged",
    ),
    (
        "quiet-new-assignment",
        "        and observation.assignment == memory.assignment\n",
        "",
        "a new assignment is judged",
    ),
    (
        "quiet-another-topic",
        "        and observation.topic_id == memory.topic_id\n",
        "",
        "another topic has another memory",
    ),
    (
        "quiet-another-node",
        "        and observation.state_czxid == memory.state_czxid\n",
        "",
        "another znode has another memory",
    ),
    (
        "quiet-new-controller",
        "        and observation.controller == memory.controller\n",
        "",
        "a new controller starts the time it has to act",
    ),
    (
        "quiet-new-controller-epoch",
        "        and observation.cluster_controller_epoch == memory.controller_epoch\n",
        "",
        "a new controller epoch is remembered",
    ),
    (
        "quiet-new-version",
        "        and observation.rules is memory.rules\n",
        "",
        "another version has other rules",
    ),
    (
        "quiet-new-settings",
        (
            "        and (observation.settings is memory.settings or "
            "observation.settings == memory.settings)\n"
        ),
        "",
        "other settings have other limits",
    ),
    (
        "quiet-digests-unread",
        "        and not observation.digests\n",
        "",
        "checksums are compared",
    ),
    (
        "quiet-deletion-unseen",
        "        and not observation.deleting\n",
        "",
        "a topic that is being deleted is judged as one",
    ),
    (
        "quiet-below-the-watermark",
        "if own_end is None or not max(watermark, memory.committed_end) <= own_end <= last_end:",
        "if own_end is None or not memory.committed_end <= own_end <= last_end:",
        "a replica below the leader's HW is an exposure",
    ),
    (
        "quiet-below-what-was-committed",
        "if own_end is None or not max(watermark, memory.committed_end) <= own_end <= last_end:",
        "if own_end is None or not watermark <= own_end <= last_end:",
        "another replica's HW may have shown more to be committed",
    ),
    (
        "quiet-beyond-the-leader",
        "if own_end is None or not max(watermark, memory.committed_end) <= own_end <= last_end:",
        "if own_end is None or not max(watermark, memory.committed_end) <= own_end:",
        "a replica beyond its leader has other records",
    ),
    (
        "quiet-follower-watermark-behind",
        "if own_watermark is None or own_watermark < min(leader_known.high_watermark, watermark):",
        "if own_watermark is None:",
        "a follower that does not learn the HW is suspected",
    ),
    (
        "quiet-slow-follower",
        (
            "            if own_end < end and own_end < replica.mark_offset:\n"
            "                return None\n"
        ),
        "",
        "a follower that falls behind is reckoned in full",
    ),
    (
        "quiet-leader-log-start-moved",
        "if watermark is None or end is None or leader.log_start_offset != known.log_start_offset:",
        "if watermark is None or end is None:",
        "retention moves the start of the ledger",
    ),
    (
        "quiet-watermark-stands-still",
        "return watermark == end or watermark > known.high_watermark",
        "return True",
        "a HW that stands still below the end is suspected",
    ),
    (
        "quiet-ledger-not-extended",
        (
            "    if leader.lineage and not _ledger_follows(memory, leader.lineage[-1], shown):\n"
            "        return None\n"
        ),
        "",
        "the ledger learns a new epoch",
    ),
    (
        "quiet-other-replicas",
        "        if reading.broker != replica.broker:\n            return None\n",
        "",
        "each reading is held against its own replica",
    ),
    (
        "quiet-log-start-fell",
        "replica.log_start_offset <= log_start <= own_watermark <= own_end",
        "log_start <= own_watermark <= own_end",
        "a log start that falls is unusual",
    ),
    (
        "quiet-out-of-order",
        "replica.log_start_offset <= log_start <= own_watermark <= own_end",
        "replica.log_start_offset <= log_start",
        "log start <= HW <= LEO is a rule",
    ),
    (
        "quiet-log-got-shorter",
        "        and own_end >= replica.log_end_offset\n",
        "",
        "a log that got shorter was cut",
    ),
    (
        "quiet-watermark-fell",
        "        and own_watermark >= replica.high_watermark\n",
        "",
        "a HW that falls is judged",
    ),
    (
        "quiet-other-lineage",
        "        and (reading.lineage is replica.lineage or reading.lineage == replica.lineage)\n",
        "",
        "another lineage is another history",
    ),
    (
        "quiet-restarted",
        (
            "        and (reading.broker_epoch is None or "
            "reading.broker_epoch == replica.broker_epoch)\n"
        ),
        "",
        "a restarted broker is another process",
    ),
    (
        "quiet-other-belief",
        (
            "        and (reading.leader_epoch is None or "
            "reading.leader_epoch == state.leader_epoch)\n"
        ),
        "",
        "a replica in another epoch is judged",
    ),
    (
        "quiet-two-leaders",
        (
            "        and (reading.leads is None or "
            "reading.leads is (reading.broker == state.leader))\n"
        ),
        "",
        "two leaders are judged",
    ),
    (
        "quiet-log-dir-offline",
        "        and reading.log_dir_online\n",
        "",
        "an offline log directory is an alert",
    ),
    (
        "quiet-other-topic-id",
        "        and (reading.topic_id is None or reading.topic_id == memory.topic_id)\n",
        "",
        "a directory of another topic is an alert",
    ),
    (
        "quiet-growth-is-a-fetch",
        "        replica.fetched_in_epoch,\n",
        "        replica.fetched_in_epoch or own_end > replica.log_end_offset,\n",
        "a log may grow by what the old leader sent",
    ),
)

_MEMORY: Final = (
    *faults_in(
        "remember.py",
        ("consistency/test_lost_twice.py", *_STORIES),
        (
            "mem-offsets-from-an-incoherent-bracket",
            (
                "if not sight.coherent or reading.log_end_offset is None "
                "or reading.high_watermark is None:"
            ),
            "if reading.log_end_offset is None or reading.high_watermark is None:",
            "offsets of different moments predict a wrong cut",
        ),
        (
            "mem-eras-unbounded",
            "(*known, Era(state.leader_epoch, state.leader, offset, exact))[-MAX_ERAS:]",
            "(*known, Era(state.leader_epoch, state.leader, offset, exact))",
            "memory is bounded",
        ),
        (
            "mem-exits-unbounded",
            "exits = (*replica.isr_exits_ms, sight.now_ms)[-MAX_ISR_EXITS:]",
            "exits = (*replica.isr_exits_ms, sight.now_ms)",
            "memory is bounded, and the oldest exit decides",
        ),
        (
            "mem-lineage-unbounded",
            "        lineage = lineage[-MAX_LINEAGE_ENTRIES:]\n",
            "        lineage = lineage[:]\n",
            "memory is bounded",
        ),
        (
            "mem-calm-though-suspected",
            "        and not judgement.suspicions\n",
            "",
            "what is suspected is not waved through",
        ),
        (
            "mem-calm-after-a-change",
            "        and not sight.changed\n",
            "",
            "right after a change nothing is usual",
        ),
        (
            "mem-caught-up-over-a-gap",
            "    gap = sight.now_ms - memory.observed_at_ms > lag_time_ms\n",
            "    gap = lag_time_ms < 0\n",
            "a gap in the observations leaves nothing to reckon from",
        ),
        (
            "mem-caught-up-in-another-epoch",
            ("    if remembered.leader_epoch != sight.state.leader_epoch:\n        return fresh\n"),
            "",
            "a new leader epoch gives followers a fresh start",
        ),
        (
            "mem-exit-by-death",
            "if replica.broker in sight.state.isr or replica.broker not in sight.present:",
            "if replica.broker in sight.state.isr:",
            "a broker that stopped left for a reason",
        ),
        (
            "mem-exits-survive-a-restart",
            (
                "if remembered is None or not sight.same_incarnation(remembered.broker):\n"
                "        return ()"
            ),
            "if remembered is None:\n        return ()",
            "a restart explains an exit",
        ),
        (
            "mem-joined-in-another-epoch",
            (
                "if memory is None or memory.state.leader_epoch != sight.state.leader_epoch:\n"
                "        return ()"
            ),
            "if memory is None:\n        return ()",
            "who joined under the last leader may be shorter than this epoch's start",
        ),
        (
            "mem-fetched-in-another-epoch",
            "(same_epoch and remembered is not None and remembered.fetched_in_epoch)",
            "(remembered is not None and remembered.fetched_in_epoch)",
            "a fetch of the last epoch proves nothing in this one",
        ),
        (
            "mem-controller-never-new",
            "        if controller_changed or before is None\n",
            "        if before is None\n",
            "a new controller has a session timeout to act",
        ),
        (
            "mem-epoch-after-the-state",
            (
                "controller_epoch_before_state=before.controller_epoch "
                "if before is not None else None,"
            ),
            "controller_epoch_before_state=observation.cluster_controller_epoch,",
            "a write may lie between the state and the epoch read after it",
        ),
        (
            "mem-owner-from-two-readings",
            "        coherent\n        and epoch is not None\n",
            "        epoch is not None\n",
            "name and epoch of the controller must belong together",
        ),
        (
            "mem-owner-overwritten",
            "and (owner is None or epoch > owner.controller_epoch)",
            "and (owner is None or epoch >= owner.controller_epoch)",
            "the first owner of an epoch is its owner",
        ),
        (
            "mem-controller-epoch-falls",
            "controller_epoch=highest,",
            "controller_epoch=epoch,",
            "the highest controller epoch is remembered",
        ),
        (
            "mem-gone-broker-forgotten",
            "if current is None or current.broker_epoch < known.broker_epoch:",
            "if current is not None and current.broker_epoch < known.broker_epoch:",
            "a broker's epoch must not fall when it returns",
        ),
    ),
    *faults_in(
        "remember.py",
        ("consistency/test_lost_twice.py", *_STORIES),
        (
            "mem-torn-rounds-show-no-leader",
            "    return remembered._replace(led_to=end)\n",
            "    return remembered\n",
            "what a torn round showed, and was reported, is not new when it is shown again",
        ),
    ),
    *faults_in(
        "ledger.py",
        ("consistency/test_lost_twice.py", *_STORIES),
        (
            "mem-deposed-commits-for-the-new-one",
            "    return end if first is None else first\n",
            "    return end\n",
            "a deposed leader shows nothing of the new one's records",
        ),
        (
            "mem-deposed-of-any-topic",
            "_its_own_word(sight, reading) and names_the_topic(sight, reading)\n",
            "_its_own_word(sight, reading)\n",
            "a leader may speak of a deleted topic of that name",
        ),
        (
            "mem-deposed-beyond-its-lineage",
            "    if known >= end:\n        return None\n",
            "",
            "where a lineage does not reach nothing is known",
        ),
        (
            "mem-compacted-lineages-that-differ",
            "common = None if sight.compacted else _agree_up_to(sight, reading)",
            "common = _agree_up_to(sight, reading)",
            "lineages of a compacted topic differ lawfully",
        ),
        (
            "mem-out-of-office-before-topic-ids",
            "(in_office or was)",
            "in_office",
            "who was in office beside the ledger goes on in that epoch",
        ),
        (
            "mem-deposed-shows-nothing",
            "    shown += [\n        _in_common(sight, reading)\n",
            "    shown += [\n        0\n",
            "what it committed and the new one has is committed",
        ),
        (
            "mem-beside-of-any-topic",
            "        if alone or names_the_topic(sight, reading):\n",
            "        if reading.leads:\n",
            "a leader may speak of a deleted topic of that name",
        ),
        (
            "mem-beside-cuts-the-ledger",
            "    if gone := sight.losses_of_ledger:\n",
            "    if gone := sight.losses:\n",
            "what was beside the ledger leaves it as it is",
        ),
        (
            "mem-beside-unbounded",
            "for offsets in ranges))[-MAX_BESIDE:]",
            "for offsets in ranges))",
            "memory is bounded",
        ),
        (
            "mem-beside-one-entry-a-round",
            "    ranges = merged(known.offsets for known in (*same, new))\n",
            "    ranges = [known.offsets for known in (*same, new)]\n",
            "a leader's commits grow from round to round",
        ),
        (
            "mem-beside-never-settled",
            "            and without(known.offsets, gone) == (known.offsets,)\n",
            "",
            "what is reported is settled",
        ),
        (
            "mem-beside-kept-below-the-watermark",
            "            watermark < known.offsets.end > (leader.log_start_offset or 0)\n",
            "            known.offsets.end > (leader.log_start_offset or 0)\n",
            "what somebody in office has committed is the ledger's",
        ),
        (
            "mem-beside-though-reported",
            "        for left in without(part.offsets, [unknown, *held, *told]):\n",
            "        for left in without(part.offsets, [unknown, *held]):\n",
            "what was reported as lost is not lost again",
        ),
        (
            "mem-nothing-beyond-a-loss",
            "            for each in _committed_beyond_lost(known, reading, watermark):\n",
            "            for each in ():\n",
            "what is committed beyond a reported loss is lost too",
        ),
        (
            "mem-nobody-in-office-in-a-torn-round",
            "        lost = () if in_office else known.lost\n",
            "        lost = known.lost\n",
            "what a leader in office has below its HW is committed, whatever was lost there",
        ),
        (
            "mem-in-office-by-old-metadata",
            "        in_office = reading is sight.leader and not sight.known_to_be_old\n",
            "        in_office = reading is sight.leader\n",
            "a deposed leader and old metadata agree with each other",
        ),
        (
            "mem-beyond-a-loss-with-the-loss",
            "        for left in without(part.offsets, told):\n",
            "        for left in (part.offsets,) if told else ():\n",
            "what was reported as lost is not lost again",
        ),
        (
            "mem-beside-without-epochs-never-settled",
            "        or (known.epoch != UNKNOWN_EPOCH and not leader.lineage)\n",
            "        or not leader.lineage\n",
            "what somebody in office has committed is the ledger's, with epochs or without",
        ),
        (
            "mem-loss-reported-for-ever",
            "            end=min(known.end, first),\n",
            "",
            "what is lost is reported once and leaves the ledger",
        ),
        (
            "mem-ledger-not-cut",
            ("            epochs=tuple(e for e in known.epochs if e.start_offset < first),\n"),
            "",
            "epochs of lost offsets leave the ledger too",
        ),
        (
            "mem-ledger-from-an-incoherent-bracket",
            "if not sight.coherent or watermark is None or leader is None:",
            "if watermark is None or leader is None:",
            "only a coherent bracket proves what is committed",
        ),
        (
            "mem-ledger-falls",
            "    if watermark >= known.end:\n",
            "    if watermark >= 0:\n",
            "a new leader's HW may lag: what was committed stays committed",
        ),
        (
            "mem-ledger-holds-what-is-not-committed",
            "log_start_offset=log_start, end_offset=told)",
            "log_start_offset=log_start, end_offset=leader.log_end_offset or watermark)",
            "only epochs of committed offsets are promised",
        ),
        (
            "mem-retention-is-loss",
            "    known = known._replace(start=max(known.start, log_start))\n",
            "",
            "offsets below the log start were removed, not lost",
        ),
        (
            "mem-losses-unbounded",
            "lost=_few((*known.lost, *sight.losses)),",
            "lost=(*known.lost, *sight.losses),",
            "memory is bounded",
        ),
        (
            "mem-losses-of-many-epochs-dropped",
            "        if one.offsets.end == other.offsets.start:\n                both",
            "        if one.offsets.end == other.offsets.start < 0:\n                both",
            "a loss of many epochs is known whole",
        ),
        (
            "mem-lost-for-ever",
            "            known = known._replace(lost=_without_written(known.lost, written))\n",
            "            del written\n",
            "what is written and committed anew at lost offsets can be lost anew",
        ),
        (
            "mem-lost-records-taken-over",
            "known.may_be(part) and without(part.offsets, [known.offsets]) != (part.offsets,)",
            "not known.may_be(part)",
            "what was reported as lost is not committed by showing it again",
        ),
        (
            "mem-oldest-ledger-entries-kept",
            "        return lineage[-at_most:]\n",
            "        return lineage[:at_most]\n",
            "the newest epochs are those that can be lost",
        ),
    ),
    *faults_in(
        "lag.py",
        _STORIES,
        (
            "lag-previous-end-does-not-count",
            "return max(replica.caught_up_at_ms, replica.mark_at_ms), now_ms, leader_end",
            "return replica.caught_up_at_ms, now_ms, leader_end",
            "who reached the leader's end of some moment was caught up then",
        ),
        (
            "lag-previous-end-counts-as-now",
            "return max(replica.caught_up_at_ms, replica.mark_at_ms), now_ms, leader_end",
            "return now_ms, now_ms, leader_end",
            "who reached an old end of the leader is behind since that moment",
        ),
        (
            "lag-mark-always-the-newest",
            "return replica.caught_up_at_ms, replica.mark_at_ms, replica.mark_offset",
            "return replica.caught_up_at_ms, now_ms, leader_end",
            "a busy leader's newest end would never be reached",
        ),
    ),
    *faults_in(
        "origins.py",
        ("consistency/test_origins.py", *_STORIES),
        (
            "origins-of-steps-not-seen",
            "epochs_name_records or not sight.observation.continuous:",
            "epochs_name_records:",
            "between two samples a log may shrink and grow again",
        ),
        (
            "origins-first-sight-is-growth",
            "return KnownLog(reading.broker, end, unknown)",
            "return KnownLog(reading.broker, start, ())",
            "who wrote what was there at first sight is not known",
        ),
        (
            "origins-follower-writes-itself",
            "    if role.leads:\n",
            "    if role.epoch >= 0:\n",
            "a follower copies what its leader has",
        ),
        (
            "origins-unknown-differs",
            "if UNKNOWN not in (left.epoch, right.epoch) and left[2:] != right[2:]",
            "if left[2:] != right[2:]",
            "an unknown origin accuses nobody",
        ),
        (
            "origins-above-the-watermark",
            "end = min(one.high_watermark or 0, other.high_watermark or 0)",
            "end = max(one.high_watermark or 0, other.high_watermark or 0)",
            "above the lower HW nothing counts as committed on both",
        ),
        (
            "origins-lost-for-ever",
            "for p in _unreported(part, lost)]",
            "for p in (part,)]",
            "a leader out of office shows its commits again and again",
        ),
        (
            "origins-last-deed-forgotten",
            "role = _role(reading) or before.role",
            "role = _role(reading)",
            "what a process did last shows when it is back",
        ),
        (
            "origins-pending-forgotten",
            "gone = list(known.pending) if known is not None else []",
            "gone: list[OffsetRange] = []",
            "a loss while nobody is in office is told later",
        ),
        (
            "origins-unbounded",
            "    if len(segments) <= MAX_SEGMENTS:\n",
            "    if len(segments) >= 0:\n",
            "memory is bounded",
        ),
    ),
    *faults_in(
        "ranges.py",
        ("consistency/test_origins.py", *_STORIES),
        (
            "ranges-adjacent-stay-apart",
            "if found and start <= found[-1].end:",
            "if found and start < found[-1].end:",
            "adjacent ranges are one",
        ),
        (
            "ranges-taken-beyond-the-end",
            "left.append(OffsetRange(position, min(start, offsets.end)))",
            "left.append(OffsetRange(position, start))",
            "what is left is within the range",
        ),
    ),
    *faults_in(
        "kept_tails.py",
        ("consistency/test_kept_tails_edges.py", *_STORIES),
        (
            "kept-before-the-checkpoint",
            "if at_ms <= due_ms)])",
            "if at_ms > 0)])",
            "a HW that was not checkpointed yet is lost in a crash",
        ),
        (
            "kept-though-the-watermark-fell",
            "offset = min(known.offset, watermark) if known is not None else 0",
            "offset = known.offset if known is not None else 0",
            "a HW that fell may be in the checkpoint by now",
        ),
        (
            "kept-though-the-leader-is-shorter",
            "watermark = min(reading.high_watermark, _uncut(sight, reading))",
            "watermark = reading.high_watermark",
            "a follower longer than its leader is cut by its next fetch",
        ),
        (
            "kept-by-a-leader-that-does-not-answer",
            "return max(era.start_offset, 0) if era is not None else 0",
            "return end",
            "a leader that does not answer may be shorter than its follower",
        ),
        (
            "kept-unless-somebody-leads",
            "if state.leader in (reading.broker, NO_LEADER):",
            "if state.leader == reading.broker:",
            "where nobody leads nobody is cut",
        ),
        (
            "kept-though-a-session-has-passed",
            "    if sight.now_ms - memory.observed_at_ms > session_ms:\n        return True\n",
            "",
            "who was back and crashed is registered no longer than a session",
        ),
        (
            "kept-though-it-was-registered",
            "return state.leader != broker or epochs > 1",
            "return False",
            "a replica that is registered and not read may follow a shorter leader",
        ),
        (
            "kept-unless-it-was-elected",
            "return state.leader != broker or epochs > 1",
            "return True",
            "a replica that leads is not cut",
        ),
        (
            "kept-though-it-joined-the-isr",
            "return state.partition_epoch - before.partition_epoch > epochs",
            "return False",
            "who joined the ISR between two samples was back",
        ),
        (
            "kept-whatever-the-next-leader-had",
            "if before is None or before.leader_epoch != state.leader_epoch:",
            "if before is None:",
            "of an epoch that began since the last sample nothing is known",
        ),
        (
            "kept-though-it-was-cut",
            "if tail is not None and (reading.log_end_offset or 0) < tail.end:",
            "if tail is not None and reading.log_end_offset is None:",
            "a replica that is seen shorter has cut its tail",
        ),
        (
            "kept-in-the-same-epoch",
            "replica.leader_epoch >= sight.state.leader_epoch:",
            "replica.leader_epoch > sight.state.leader_epoch:",
            "records of the current epoch are the leader's own",
        ),
        (
            "kept-before-it-joins",
            "if tail.broker in joined and tail.broker in sight.state.isr:",
            "if tail.broker in sight.readings:",
            "until it is back in the ISR a replica's tail misleads nobody",
        ),
    ),
    *faults_in(
        "memory.py",
        _STORIES,
        (
            "mem-era-of-the-epoch-before",
            "            if era.epoch == epoch:\n",
            "            if era.epoch == epoch - 1:\n",
            "an era is found by its own epoch",
        ),
    ),
)

_PREDICTIONS: Final = (
    *faults_in(
        "predictions.py",
        _STORIES,
        (
            "pre-from-an-incoherent-bracket",
            "leader = _leader_log(sight) if sight.coherent else None",
            "leader = _leader_log(sight)",
            "leader and follower have to be of one moment",
        ),
        (
            "pre-without-a-reason-to-truncate",
            "    if not restarted and not must_truncate(",
            "    if restarted and not must_truncate(",
            "up to 2.0 an epoch bump alone makes nobody truncate",
        ),
        (
            "pre-bound-above-the-watermark",
            "        at_least = min(at_least, _watermark_floor(memory, replica))\n",
            "        pass\n",
            "an epoch its leader cannot place sends a follower to its HW",
        ),
        (
            "pre-bound-above-the-old-leaders-watermark",
            (
                "return min(replica.high_watermark, leader.high_watermark if leader is not "
                "None else 0)"
            ),
            "return replica.high_watermark",
            "a fetch may have lowered the HW to the old leader's",
        ),
        (
            "pre-restart-loses-nothing",
            "    if restarted or prediction.restart_at is not None or not",
            "    if prediction.restart_at is not None or not",
            "a restart may lose the unflushed tail",
        ),
        (
            "pre-restart-within-the-epoch",
            "return cut if sight.same_incarnation(replica.broker) else cut._replace(at_least=0)",
            "return cut",
            "a restart in the same epoch may cost the unflushed tail as well",
        ),
        (
            "pre-over-unseen-leaders",
            "if UNKNOWN_PARTITION_EPOCH in (known, now) or now != known + 1 or not told:",
            "if UNKNOWN_PARTITION_EPOCH in (known, now) or not told:",
            "behind several writes an unseen leader may have been shorter",
        ),
        (
            "pre-not-carried-on",
            "if replica.cut is not None and replica.cut.leader_epoch == sight.state.leader_epoch:",
            "if replica.cut is not None and replica.cut.leader_epoch > sight.state.leader_epoch:",
            "a prediction holds for its whole epoch",
        ),
        (
            "pre-without-a-lineage",
            "if replica.lineage is None and rules.truncation is not Truncation.HIGH_WATERMARK:",
            "if replica.lineage is None and rules.truncation is Truncation.HIGH_WATERMARK:",
            "before 0.11 no lineage is needed, later there is no prediction without one",
        ),
    ),
    *faults_in(
        "forecast.py",
        ("consistency/test_forecast_edges.py", "consistency/test_forecast.py"),
        (
            "fct-elr-is-unclean",
            "and after.leader not in {*before.isr, *before.elr},",
            "and after.leader not in before.isr,",
            "a leader out of the ELR is clean",
        ),
        (
            "fct-the-dead-hold-the-minimum",
            "in_sync = sum(broker not in stopping for broker in after.isr)",
            "in_sync = len(after.isr)",
            "who died with the controller is in the ISR before 2.4, and not in sync",
        ),
        (
            "fct-loss-of-the-uncommitted",
            "committed = led_by.high_watermark or 0",
            "committed = led_by.log_end_offset or 0",
            "what was never committed is not lost",
        ),
        (
            "fct-loss-by-length-only",
            "first = disagreement if disagreement is not None else first",
            "first = max(first, disagreement or 0)",
            "other records at committed offsets are a loss as well",
        ),
        (
            "fct-loss-below-the-log-start",
            "start = max(first, led_by.log_start_offset or 0)",
            "start = first",
            "what retention removed cannot be lost",
        ),
        (
            "fct-lineage-of-anybody",
            "        and follower.broker in observation.state.isr\n",
            "",
            "only of a member of the ISR it is known to hold its leader's records",
        ),
        (
            "fct-shutting-down-counts-as-live",
            "live={r.broker for r in observation.live if not r.shutting_down},",
            "live={r.broker for r in observation.live},",
            "a broker that is leaving is not elected",
        ),
        (
            "fct-new-epoch-not-written",
            "if observation.rules.leader_writes_epoch_at_once and new_leader.lineage:",
            "if not observation.rules.leader_writes_epoch_at_once and new_leader.lineage:",
            "from 2.0.1 a leader writes its epoch when it begins",
        ),
        (
            "fct-min-isr-reached-is-under",
            "in_sync < minimum,",
            "in_sync <= minimum,",
            "at min ISR writes go on",
        ),
        (
            "fct-clean-stops-one-after-the-other",
            "shutting_down=going,",
            "shutting_down=(),",
            "brokers that stop together are not elected one after the other",
        ),
        (
            "fct-return-is-no-return",
            "ForecastCut(broker, cut, broker in stopping, prediction.because)",
            "ForecastCut(broker, cut, broker not in stopping, prediction.because)",
            "who stops cuts when it returns",
        ),
    ),
)

FAULTS: Final = (*_JUDGE, *_SHORT_CUT, *_MEMORY, *_PREDICTIONS)
