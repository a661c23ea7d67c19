"""Faults in the checks of the catalogue: mostly guards taken away, so that lawful states accuse."""

from __future__ import annotations

from typing import Final

from tests.mutants.fault import faults_in

_STORIES: Final = (
    "consistency/test_lost_twice.py",
    "consistency/test_checks_edges.py",
    "consistency/test_memory_edges.py",
    "consistency/test_codes_fire.py",
    "consistency/test_legal_states.py",
    "consistency/test_legal_histories.py",
    "consistency/test_monitor.py",
)

_SIGHT: Final = (
    *faults_in(
        "checks/sight.py",
        _STORIES,
        (
            "sight-leader-of-another-epoch",
            (
                "        if reading.leader_epoch is not None and "
                "reading.leader_epoch != self.state.leader_epoch:\n"
                "            return None\n"
                "        return reading\n"
            ),
            "        return reading\n",
            "a leader still in another epoch proves nothing",
        ),
        (
            "sight-leader-that-does-not-lead",
            "if reading is None or reading.leads is False:",
            "if reading is None:",
            "a broker that does not know it leads says nothing as a leader",
        ),
        (
            "sight-first-end-only",
            "        return max(first, second)\n",
            "        return first\n",
            "a follower read later may have what the leader took meanwhile",
        ),
        (
            "sight-shutting-down-is-absent",
            "b for b, registration in self.registrations.items() if not registration.fenced\n",
            (
                "b for b, registration in self.registrations.items()\n"
                "            if not registration.fenced and not registration.shutting_down\n"
            ),
            "a broker that is shutting down is still there",
        ),
        (
            "sight-controller-always-settled",
            "return self.now_ms - since >= self.observation.settings.session_timeout_ms",
            "return self.now_ms >= since",
            "a controller needs a session timeout to act",
        ),
        (
            "sight-no-controller-is-settled",
            ("if self.observation.controller is None or self.observation.controller == NO_LEADER:"),
            "if self.observation.controller is None:",
            "without a controller nobody acts",
        ),
        (
            "sight-new-controller-is-settled",
            (
                "            self.observation.controller != self.memory.controller\n"
                "            or self.observation.cluster_controller_epoch "
                "!= self.memory.controller_epoch\n"
            ),
            "            self.observation.controller == NO_LEADER\n",
            "a controller that has just come had no time",
        ),
        (
            "sight-empty-epoch-is-a-fetch",
            "return reading.lineage[-1].start_offset < reading.log_end_offset",
            "return reading.lineage[-1].start_offset <= reading.log_end_offset",
            "an epoch without a record proves no fetch",
        ),
        (
            "sight-fetched-in-another-epoch",
            "if remembered is None or remembered.leader_epoch != self.state.leader_epoch:",
            "if remembered is None:",
            "who fetched from the old leader has not fetched from the new one",
        ),
        (
            "sight-belief-ignored",
            (
                "        if reading.leader_epoch is not None and "
                "reading.leader_epoch != self.state.leader_epoch:\n"
                "            return False\n"
            ),
            "",
            "a follower in an older epoch has not truncated yet",
        ),
        (
            "sight-epoch-start-of-the-last-entry",
            "return last.start_offset if last.epoch == self.state.leader_epoch else None",
            "return last.start_offset",
            "the last entry may be of an older epoch",
        ),
        (
            "sight-any-topic-is-identified",
            "return memory.topic_id == observation.topic_id",
            "return True",
            "another topic id is another topic",
        ),
        (
            "sight-growth-is-a-fetch",
            "return remembered.fetched_in_epoch or broker in self.memory.joined_isr\n",
            (
                "return (\n"
                "            remembered.fetched_in_epoch\n"
                "            or broker in self.memory.joined_isr\n"
                "            or reading.log_end_offset > remembered.log_end_offset\n"
                "        )\n"
            ),
            "a log may grow by what the old leader sent",
        ),
        (
            "sight-nobody-stops",
            "return forecast(self.observation, stopping={self.state.leader})",
            "return forecast(self.observation, stopping=())",
            "the question is what happens if the leader stops",
        ),
        (
            "sight-unknown-incarnation-is-the-same",
            "if remembered is None or remembered.broker_epoch == UNKNOWN_BROKER_EPOCH:",
            "if remembered is None:",
            "without a broker epoch nobody knows of a restart",
        ),
        (
            "sight-unknown-controller-is-settled",
            "if self.observation.controller is None or self.observation.controller == NO_LEADER:",
            "if self.observation.controller == NO_LEADER:",
            "a controller that was not read may have just come",
        ),
        (
            "sight-compaction-forgotten",
            (
                "return self.observation.settings.compacted or (\n"
                "            self.memory is not None and self.memory.was_compacted\n"
                "        )"
            ),
            "return self.observation.settings.compacted",
            "what cleaning took stays away when the setting changes",
        ),
        (
            "sight-unknown-version-is-the-first",
            (
                "            return False\n"
                "        return now.partition_epoch == before.partition_epoch + 1"
            ),
            (
                "            return now.partition_epoch == 0\n"
                "        return now.partition_epoch == before.partition_epoch + 1"
            ),
            "-1 is not told, not the version before 0",
        ),
        (
            "sight-any-write-is-one-later",
            "return now.partition_epoch == before.partition_epoch + 1",
            "return now.partition_epoch > before.partition_epoch",
            "between two states seen others may lie",
        ),
    ),
    *faults_in(
        "checks/cluster_sight.py",
        _STORIES,
        (
            "sight-cluster-always-coherent",
            "self.coherent = observation.controller_epoch == observation.controller_epoch_before",
            "self.coherent = observation.controller_epoch is not None",
            "name and epoch of the controller are two readings",
        ),
    ),
    *faults_in(
        "checks/lineages.py",
        _STORIES,
        (
            "lin-compacted-topics-compared",
            "    if sight.compacted:\n",
            "    if not sight:\n",
            "a replica built anew of a compacted topic has other entries",
        ),
        (
            "lin-differ-to-the-end",
            "offset, end if again is None else again)",
            "offset, end)",
            "diverged logs may go on together",
        ),
        (
            "lin-equal-starts-are-out-of-order",
            "low.epoch < high.epoch and low.start_offset <= high.start_offset",
            "low.epoch < high.epoch and low.start_offset < high.start_offset",
            "equal start offsets are lawful in files of 2.0.0 and before",
        ),
        (
            "lin-first-generation-starts-compared",
            "    if sight.rules.epoch_cache is EpochCacheGeneration.FIRST:\n        return None\n",
            "",
            "up to 2.0.0 entries were written at different moments",
        ),
        (
            "lin-outside-the-isr-is-committed",
            "if offset < committed and in_isr and sight.coherent:",
            "if offset < committed and sight.coherent:",
            "a replica outside the ISR may still have to cut",
        ),
        (
            "lin-committed-by-both",
            "committed = min(*ends, sight.leader.high_watermark or 0)",
            "committed = min(committed, sight.leader.high_watermark or 0)",
            ("what the leader committed every ISR member must have, whatever its own HW says"),
        ),
        (
            "lin-uncommitted-is-committed",
            "if offset < committed and in_isr and sight.coherent:",
            "if in_isr and sight.coherent:",
            "tails lawfully differ until they are cut",
        ),
        (
            "lin-below-the-log-start",
            "start = max(one.log_start_offset or 0, other.log_start_offset or 0)",
            "start = 0",
            "retention moves each replica's first entry by itself",
        ),
        (
            "lin-start-at-the-log-start",
            (
                "    starts = dict(_held_entries(one)[1:])\n"
                "    for epoch, offset in _held_entries(other)[1:]:"
            ),
            (
                "    starts = dict(_held_entries(one))\n"
                "    for epoch, offset in _held_entries(other):"
            ),
            "the first entry's start follows each replica's own log start",
        ),
        (
            "lin-empty-epochs-compared",
            (
                "    return normalise(\n"
                "        reading.lineage,\n"
                "        log_start_offset=reading.log_start_offset or 0,\n"
                "        end_offset=reading.log_end_offset or 0,\n"
                "    )"
            ),
            "    return reading.lineage",
            "an epoch without records says nothing",
        ),
        (
            "lin-tail-of-the-leader",
            "return Conflict(ConflictKind.TAIL, other.broker, one.broker, offset, end)",
            "return Conflict(ConflictKind.TAIL, one.broker, other.broker, offset, end)",
            "the follower has the tail too many, in whatever order they were read",
        ),
    ),
)

_LEADERS: Final = (
    *faults_in(
        "checks/leadership.py",
        _STORIES,
        (
            "ele-dead-leader-before-the-controller-acts",
            '    if not sight.controller_settled:\n        yield Unknown("ELE004"',
            '    if sight.kraft and not sight.controller_settled:\n        yield Unknown("ELE004"',
            "the controller needs time to move the leader",
        ),
        (
            "ele-leaderless-epoch-has-a-leader",
            (
                "if era is not None and known and state.leader >= 0 and 0 <= era.leader != "
                "state.leader:"
            ),
            "if era is not None and known and era.leader != state.leader:",
            "a leader lost within an epoch is no second leader",
        ),
        (
            "ele-beliefs-of-all-epochs-mixed",
            "first = claims.setdefault(reading.leader_epoch, reading.broker)",
            "first = claims.setdefault(0, reading.broker)",
            "a deposed leader in an older epoch is lawful for a while",
        ),
        (
            "ele-epoch-falls-with-the-topic",
            ('    if not sight.identified:\n        yield Unknown("ELE007"'),
            ('    if sight.kraft and not sight.identified:\n        yield Unknown("ELE007"'),
            "without an id a topic made again cannot be told apart",
        ),
        (
            "ele-version-must-always-rise",
            "changed and now.partition_epoch == before.partition_epoch",
            "now.partition_epoch == before.partition_epoch",
            "an unchanged state keeps its version",
        ),
        (
            "ele-deposed-leader-stands-still",
            "        if reading.high_watermark > remembered.high_watermark:\n",
            "        if reading.high_watermark >= remembered.high_watermark:\n",
            "a deposed leader whose HW stands still harms nobody",
        ),
        (
            "ele-current-leader-is-deposed",
            "if reading.leader_epoch >= sight.state.leader_epoch or remembered is None:",
            "if reading.leader_epoch > sight.state.leader_epoch or remembered is None:",
            "the leader of the current epoch commits",
        ),
    ),
    *faults_in(
        "checks/election.py",
        _STORIES,
        (
            "ele-unseen-versions-judged",
            "    if not sight.one_version_later:\n        yield",
            "    if sight.state.partition_epoch < 0:\n        yield",
            "an election is judged only on the state it started from",
        ),
        (
            "ele-assignment-changed-as-well",
            ('    if sight.assignment_changed:\n        yield Unknown("ELE001"'),
            ('    if sight.kraft and sight.assignment_changed:\n        yield Unknown("ELE001"'),
            "the assignment at the moment of the election is not known",
        ),
        (
            "ele-order-of-an-old-reassignment",
            (
                "if not sight.kraft and not sight.rules.reassignment_in_topic_znode "
                "and _reassigning(sight):"
            ),
            "if sight.kraft and _reassigning(sight):",
            "up to 2.3 the order of the target is not to be read",
        ),
        (
            "ele-empty-isr-is-unclean",
            (
                "if not before.isr and not before.elr and "
                "sight.rules.isr_may_become_empty_in_zookeeper:"
            ),
            "if not before.isr and not before.elr and sight.kraft:",
            "up to 1.0 the last leader of an empty ISR comes back cleanly",
        ),
        (
            "ele-recovering-is-no-news",
            "        return before.recovery is RecoveryState.RECOVERED or outsider\n",
            "        return True\n",
            "a leader that is still recovering was elected once",
        ),
        (
            "ele-unclean-by-versions-that-say-so",
            "        and not sight.rules.leader_recovery_state\n",
            "",
            "versions with a recovery state say themselves what was unclean",
        ),
        (
            "ele-restarted-broker-passed-over",
            "        and now.broker_epoch == before.broker_epoch != UNKNOWN_BROKER_EPOCH\n",
            "",
            "a broker that restarted was away when the leader was elected",
        ),
        (
            "ele-shutting-down-broker-passed-over",
            "and not (now.fenced or now.shutting_down or before.fenced or before.shutting_down)",
            "and not (now.fenced or before.fenced)",
            "a broker that is shutting down is passed over by law",
        ),
        (
            "ele-kraft-preferred-election-accused",
            "        if now.leader != sight.observation.assignment.replicas[0]:\n",
            "        if now.leader >= 0:\n",
            "a preferred election replaces a valid leader",
        ),
        (
            "ele-kraft-valid-leader-may-go",
            "    if sight.kraft and _stayed_eligible(sight, before.leader):\n",
            "    if sight.kraft and not _stayed_eligible(sight, before.leader):\n",
            "KRaft keeps a leader as long as it is valid",
        ),
        (
            "ele-leaderless-before-the-controller-acts",
            '    if not sight.controller_settled:\n        yield Unknown("ELE005"',
            '    if sight.kraft and not sight.controller_settled:\n        yield Unknown("ELE005"',
            "a controller needs time to elect",
        ),
        (
            "ele-unclean-timer-ignored",
            "KraftElection.UNCLEAN if unclean and waited else KraftElection.ONLINE",
            "KraftElection.UNCLEAN if unclean else KraftElection.ONLINE",
            "KRaft elects uncleanly by a timer of five minutes",
        ),
        (
            "ele-kraft-unclean-honoured-in-every-version",
            "        and sight.rules.unclean_election_honoured\n",
            "",
            "up to 3.8 the KRaft controller does not elect uncleanly",
        ),
        (
            "ele-recovered-is-clean",
            "        return before.recovery is RecoveryState.RECOVERED or outsider\n",
            "        return outsider\n",
            "RECOVERING tells of an unclean election whatever was seen before",
        ),
        (
            "ele-elr-is-unclean",
            "    return {*before.isr, *before.elr}\n",
            "    return {*before.isr}\n",
            "a leader out of the ELR is clean",
        ),
        (
            "ele-rebalance-at-the-threshold",
            "if share <= percentage / 100:",
            "if share < percentage / 100:",
            "the imbalance must be greater than the threshold",
        ),
        (
            "ele-rebalance-switched-off",
            "    if not observation.settings.auto_leader_rebalance_enable:\n        return\n",
            "",
            "without automatic rebalance nobody moves the leader back",
        ),
        (
            "ele-rebalance-during-reassignment",
            "    if observation.assignment.being_reassigned:\n        return\n",
            "",
            "while a reassignment runs the lead is where it is",
        ),
        (
            "ele-preferred-not-in-sync",
            "if preferred not in state.isr or preferred not in sight.active:",
            "if preferred not in sight.active:",
            "a preferred replica out of sync cannot lead",
        ),
    ),
    *faults_in(
        "checks/controller.py",
        _STORIES,
        (
            "ctl-epoch-of-two-readings",
            "if owner is None or not sight.coherent or observation.controller is None:",
            "if owner is None or observation.controller is None:",
            "the old name beside the new epoch is no second controller",
        ),
        (
            "ctl-nobody-is-a-second-controller",
            "if same_epoch and 0 <= observation.controller != owner.broker:",
            "if same_epoch and observation.controller != owner.broker:",
            "no controller is not another controller",
        ),
        (
            "ctl-epoch-must-rise",
            "if before is not None and now is not None and now < before:",
            "if before is not None and now is not None and now <= before:",
            "the same controller epoch again is the usual case",
        ),
        (
            "ctl-leaders-write-with-old-epochs",
            "if now.controller_epoch < known and not written_by_leader:",
            "if now.controller_epoch < known:",
            "leaders up to 2.6 write the controller epoch they know",
        ),
        (
            "ctl-election-written-by-the-leader",
            "        and now.leader_epoch == before.leader_epoch\n",
            "",
            "an election is the controller's write",
        ),
        (
            "ctl-own-epoch-is-the-future",
            "if written is not None and known is not None and written > known:",
            "if written is not None and known is not None and written >= known:",
            "a state carries the epoch of the controller that wrote it",
        ),
        (
            "ctl-old-state-was-written-now",
            "    if now.partition_epoch <= before.partition_epoch:\n",
            "    if now.partition_epoch < before.partition_epoch:\n",
            "a state nobody wrote since may carry an old epoch",
        ),
    ),
    *faults_in(
        "checks/registration.py",
        _STORIES,
        (
            "reg-fenced-broker-must-answer",
            "if registration.fenced or registration.broker in answering:",
            "if registration.broker in answering:",
            "a fenced broker need not answer",
        ),
        (
            "reg-fenced-broker-may-lead",
            "registered = {r.broker for r in sight.observation.registrations if not r.fenced}",
            "registered = {r.broker for r in sight.observation.registrations}",
            "a fenced broker leads nothing",
        ),
        (
            "reg-silent-zombie-is-forgotten",
            'for broker in _suspected(sight, "REG002") - registered - heard:',
            "for broker in ():",
            "silence is no sign that a zombie has noticed",
        ),
        (
            "reg-zombie-that-noticed-is-suspected-on",
            'for broker in _suspected(sight, "REG002") - registered - heard:',
            'for broker in _suspected(sight, "REG002") - registered:',
            "who answers and does not lead has noticed",
        ),
        (
            "reg-zombie-that-registered-is-suspected-on",
            'for broker in _suspected(sight, "REG002") - registered - heard:',
            'for broker in _suspected(sight, "REG002") - heard:',
            "who is registered again may lead again",
        ),
        (
            "reg-equal-epoch-fell",
            "if 0 <= registration.broker_epoch < known:",
            "if 0 <= registration.broker_epoch <= known:",
            "a broker that was not restarted keeps its epoch",
        ),
        (
            "reg-unknown-epoch-fell",
            "if 0 <= registration.broker_epoch < known:",
            "if registration.broker_epoch < known:",
            "-1 is not known, not smaller",
        ),
    ),
    *faults_in(
        "checks/sources.py",
        _STORIES,
        (
            "src-unreadable-is-silent",
            "if health.problem is ProblemKind.SILENT:",
            "if health.problem is not ProblemKind.OK:",
            "each problem has its own code",
        ),
    ),
)

_REPLICAS: Final = (
    *faults_in(
        "checks/isr.py",
        _STORIES,
        (
            "isr-last-member-accused",
            "    if sight.state.leader < 0:\n        return\n    for member in sight.state.isr:",
            "    for member in sight.state.isr:",
            "an offline partition keeps its last member on purpose",
        ),
        (
            "isr-dead-member-before-the-controller-acts",
            '        if not sight.controller_settled:\n            yield Unknown("ISR002"',
            (
                "        if sight.kraft and not sight.controller_settled:\n"
                '            yield Unknown("ISR002"'
            ),
            "a new controller has to find out first",
        ),
        (
            "isr-slow-after-one-lag-time",
            "SHRINK_OVERDUE_FACTOR: Final = 2\n",
            "SHRINK_OVERDUE_FACTOR: Final = 1\n",
            "the check runs every half lag time",
        ),
        (
            "isr-slow-measured-by-the-second-reading",
            (
                "leader_end = sight.leader.log_end_offset if sight.leader is not None else None\n"
                "    if memory is None or remembered is None"
            ),
            "leader_end = sight.leader_end\n    if memory is None or remembered is None",
            "what the leader took after the follower was read is no lag",
        ),
        (
            "isr-slow-though-nobody-acts",
            "if remembered is None or behind_ms <= limit_ms or not sight.controller_settled:",
            "if remembered is None or behind_ms <= limit_ms:",
            "without a controller nobody leaves the ISR",
        ),
        (
            "isr-join-without-a-fetch",
            '        if not sight.has_fetched(broker):\n            yield Unknown("ISR004"',
            (
                "        if sight.kraft and not sight.has_fetched(broker):\n"
                '            yield Unknown("ISR004"'
            ),
            "who cannot reach its leader stays outside",
        ),
        (
            "isr-join-below-the-start-of-the-epoch",
            "            if end < sight.epoch_start:\n                continue\n",
            "",
            "below the epoch's start nobody may join",
        ),
        (
            "isr-join-shutting-down",
            "if broker not in sight.active or not reading.log_dir_online:",
            "if broker not in sight.present or not reading.log_dir_online:",
            "who is shutting down does not join",
        ),
        (
            "isr-join-unassigned",
            (
                "        if broker not in sight.observation.assignment.replicas:\n"
                "            continue\n"
            ),
            "",
            "a log left behind joins nothing",
        ),
        (
            "isr-flapping-for-ever",
            "if len(exits) < MAX_ISR_EXITS or sight.now_ms - exits[0] > FLAPPING_WINDOW_MS:",
            "if len(exits) < MAX_ISR_EXITS:",
            "four exits in a year are no flapping",
        ),
        (
            "isr-single-replica-at-minimum",
            "if size == minimum and size < len(sight.observation.assignment.target):",
            "if size == minimum:",
            "a partition of one replica is complete with one",
        ),
        (
            "isr-adding-replica-missed",
            (
                "r for r in assignment.target if r not in sight.state.isr "
                "and r not in assignment.adding\n"
            ),
            "r for r in assignment.target if r not in sight.state.isr\n",
            "a replica that is being added is not yet in sync by law",
        ),
        (
            "isr-old-member-below-the-start",
            "joined = {*memory.joined_isr, *(set(sight.state.isr) - set(memory.state.isr))}",
            "joined = set(sight.state.isr)",
            "members from before the election may be shorter",
        ),
        (
            "isr-restarted-member-below-the-start",
            "        if not sight.same_incarnation(reading.broker):\n            continue\n",
            "",
            "a restart may lose the unflushed tail",
        ),
        (
            "isr-under-min-without-a-leader",
            (
                "    if sight.state.leader == NO_LEADER or sight.observation.deleting:\n"
                "        return\n"
                "    if len(sight.state.isr) < sight.effective_min_isr:"
            ),
            "    if len(sight.state.isr) < sight.effective_min_isr:",
            "an offline partition has its own alert",
        ),
    ),
    *faults_in(
        "checks/watermark.py",
        _STORIES,
        (
            "hwm-old-log-start-below-the-watermark",
            "*([(start, watermark)] if ordered else [])",
            "(start, watermark)",
            "before 0.11.0.1 retention does not look at the HW",
        ),
        (
            "hwm-log-start-beyond-the-end",
            "pairs = [(start, end), (watermark, end),",
            "pairs = [(watermark, end),",
            "a log does not start behind its end",
        ),
        (
            "hwm-falls-with-a-new-leader",
            (
                "    if remembered is None or "
                "remembered.leader_epoch != sight.state.leader_epoch:\n"
                "        return\n"
                "    if not sight.same_incarnation(sight.state.leader):"
            ),
            (
                "    if remembered is None:\n"
                "        return\n"
                "    if not sight.same_incarnation(sight.state.leader):"
            ),
            "in a new epoch the same leader may start lower",
        ),
        (
            "hwm-falls-with-a-restart",
            "    if not sight.same_incarnation(sight.state.leader):\n        return\n",
            "",
            "a restarted leader begins with its checkpointed HW",
        ),
        (
            "hwm-earlier-leaders-forgotten",
            "watermark = max(sight.leader_watermark, _committed_before(sight))",
            "watermark = sight.leader_watermark",
            "what earlier leaders committed stays committed",
        ),
        (
            "hwm-second-reading-of-the-leader",
            "    watermark = max(sight.leader_watermark, _committed_before(sight))\n",
            (
                "    again = sight.observation.leader_again\n"
                "    watermark = (again.high_watermark if again else None) or "
                "sight.leader_watermark\n"
            ),
            "the leader's HW must be read before the follower's LEO",
        ),
        (
            "hwm-outside-the-isr",
            (
                "        if reading.broker not in sight.state.isr or "
                "reading.log_end_offset is None:\n"
                "            continue\n"
                "        if reading.log_end_offset < watermark:"
            ),
            (
                "        if reading.log_end_offset is None:\n"
                "            continue\n"
                "        if reading.log_end_offset < watermark:"
            ),
            "a replica outside the ISR may lack anything",
        ),
        (
            "hwm-moving-is-standing",
            "if remembered.high_watermark != watermark or remembered.log_end_offset <= watermark:",
            "if remembered.log_end_offset <= watermark:",
            "a HW that moves is not held",
        ),
        (
            "hwm-new-records-are-held",
            "if remembered.high_watermark != watermark or remembered.log_end_offset <= watermark:",
            "if remembered.high_watermark != watermark:",
            "records that were not there before cannot have been held",
        ),
        (
            "hwm-follower-without-the-records",
            "if reading.broker not in sight.present or reading.log_end_offset < watermark:",
            "if reading.broker not in sight.present:",
            "a follower's HW is bounded by its own log",
        ),
        (
            "hwm-follower-one-fetch-behind",
            "if reading.high_watermark < min(remembered_leader.high_watermark, watermark):",
            "if reading.high_watermark < watermark:",
            "a follower learns the HW one fetch later",
        ),
        (
            "hwm-follower-of-a-new-leader",
            "    if remembered_leader.leader_epoch != sight.state.leader_epoch:\n        return\n",
            "",
            "a new leader's HW of the last epoch was its own as a follower",
        ),
    ),
    *faults_in(
        "checks/epochs.py",
        _STORIES,
        (
            "epo-no-lineage-is-out-of-order",
            "        if lineage and not is_rising(lineage):",
            "        if not lineage or not is_rising(lineage):",
            "a replica without epochs breaks no order",
        ),
        (
            "epo-current-epoch-is-the-future",
            "if reading.lineage and reading.lineage[-1].epoch > sight.state.leader_epoch:",
            "if reading.lineage and reading.lineage[-1].epoch >= sight.state.leader_epoch:",
            "a replica knows the current epoch",
        ),
        (
            "epo-leader-before-2-0-1-must-write",
            (
                "if leader is None or not leader.lineage or "
                "not sight.rules.leader_writes_epoch_at_once:"
            ),
            "if leader is None or not leader.lineage:",
            "up to 2.0.0 the entry comes with the first record",
        ),
        (
            "epo-leader-known-from-batches",
            "    if leader.lineage_source is not LineageSource.CHECKPOINT_FILE:\n        return\n",
            "",
            "batch headers do not show an epoch without records",
        ),
        (
            "epo-leader-not-yet-in-its-epoch",
            "    if leader.leader_epoch != sight.state.leader_epoch:\n        return\n",
            "",
            "a reading that does not tell its epoch proves nothing",
        ),
    ),
    *faults_in(
        "checks/losses.py",
        ("consistency/test_lost_twice.py", *_STORIES),
        (
            "trn-old-metadata-judges-later-commits",
            "            if known.leader_epoch <= sight.state.leader_epoch\n",
            "",
            "somebody in office by old metadata says nothing of a later leader's commits",
        ),
        (
            "trn-beside-waits-for-epochs-that-never-come",
            "            and (leader.lineage or known.epoch == UNKNOWN_EPOCH)\n",
            "            and leader.lineage\n",
            "logs without epochs have ends",
        ),
        (
            "trn-torn-rounds-forgotten",
            "    return max(remembered.log_end_offset, remembered.led_to)\n",
            "    return remembered.log_end_offset\n",
            "what a torn round showed, and was reported, is not new when it is shown again",
        ),
        (
            "trn-loss-by-the-watermark",
            "    missing = [OffsetRange(max(end, proof.start), proof.end)]\n",
            (
                "    end = leader.high_watermark or 0\n"
                "    missing = [OffsetRange(max(end, proof.start), proof.end)]\n"
            ),
            "a new leader's HW may lag; its LEO counts",
        ),
        (
            "trn-divergence-told-as-loss",
            "comparable=reading.broker not in sight.state.isr\n",
            "comparable=True\n",
            "an in-sync replica with other epochs has diverged, which is EPO004",
        ),
        (
            "trn-loss-reported-again",
            "(_unreported(lost, proof, reported) if proof.repeats else (lost,))",
            "(lost,)",
            "a follower that still shows the old HW does not report the loss again",
        ),
        (
            "trn-lost-offsets-for-lost-records",
            "[known.offsets for known in reported if known.may_be(lost)]",
            "[known.offsets for known in reported]",
            "other records at offsets that were lost before can be lost too",
        ),
        (
            "trn-new-commits-of-a-deposed-leader",
            "    if max(start, proof.new_from) < end:\n",
            "    if proof.new_from < start:\n",
            "what a deposed leader commits after the report is lost too",
        ),
        (
            "trn-reported-without-an-epoch",
            "if k.epoch == lost.epoch != UNKNOWN_EPOCH]",
            "if k.epoch == lost.epoch]",
            "without epochs a deposed leader's new records may not be taken for the reported ones",
        ),
        (
            "trn-loss-healed-within-the-round",
            "leader.log_end_offset if leader.log_end_offset is not None else leader_end",
            "leader_end",
            "what the leader lacks at its first word it has lost, whatever it writes then",
        ),
        (
            "trn-followers-prove-nothing",
            "        if reading.high_watermark is None or not reading.log_dir_online:\n",
            "        if True:\n",
            "a follower takes its HW from a leader: it proves a commit",
        ),
        (
            "trn-deposed-leader-is-no-proof",
            "        if reading.leads and not leads_by_its_own_word(sight, reading):\n",
            "        if reading.leads:\n",
            "what a deposed leader commits to its followers is committed",
        ),
        (
            "trn-leader-of-another-topic",
            "or reading.leader_epoch <= sight.state.leader_epoch",
            "or reading.leader_epoch >= 0",
            "without a topic id it may speak of a deleted topic",
        ),
        (
            "trn-ledger-without-epochs-compared",
            "common = min(proof.epochs_end, proof.end, end)",
            "common = min(proof.end, end)",
            "where the lineage was not read the ledger knows no epochs",
        ),
        (
            "trn-compacted-loss",
            "is_rising(leader.lineage) and not sight.compacted:",
            "is_rising(leader.lineage):",
            "a compacted replica's epochs prove nothing",
        ),
        (
            "trn-loss-below-the-leaders-log-start",
            "start: int | None = max(log_start, proof.start)",
            "start: int | None = proof.start",
            "what retention removed is not compared",
        ),
    ),
    *faults_in(
        "checks/truncation.py",
        _STORIES,
        (
            "trn-tail-below-its-log-start",
            "        start = max(end, reading.log_start_offset or 0)\n",
            "        start = end\n",
            "a log holds nothing below its start",
        ),
        (
            "trn-tail-before-the-first-fetch",
            "        if not sight.has_fetched(broker):\n",
            "        if sight.kraft and not sight.has_fetched(broker):\n",
            "until its first fetch a follower lawfully keeps its tail",
        ),
        (
            "trn-tail-without-a-second-reading",
            "if end is None or sight.observation.leader_again is None:",
            "if end is None:",
            "the follower may have been read after the leader",
        ),
        (
            "trn-committed-tail-is-uncommitted",
            "start = max(end, memory.committed_end)\n    if start < old.log_end_offset:",
            "start = end\n    if start < old.log_end_offset:",
            "what was committed is a loss, and not told as information",
        ),
        (
            "trn-tail-of-the-same-leader",
            "if memory is None or end is None or memory.state.leader == sight.state.leader:",
            "if memory is None or end is None:",
            "a leader that comes back shorter is no shorter replica elected",
        ),
    ),
    *faults_in(
        "checks/contents.py",
        _STORIES,
        (
            "log-compacted-bytes-compared",
            '        if sight.compacted:\n            yield Unknown("LOG001"',
            ('        if sight.kraft and sight.compacted:\n            yield Unknown("LOG001"'),
            "replicas of a compacted topic are cleaned at different times",
        ),
        (
            "log-uncommitted-bytes-compared",
            "if offsets.start < reading.log_start_offset or offsets.end > reading.high_watermark:",
            "if offsets.start < reading.log_start_offset:",
            "above the HW replicas may differ",
        ),
        (
            "log-deleted-bytes-compared",
            "if offsets.start < reading.log_start_offset or offsets.end > reading.high_watermark:",
            "if offsets.end > reading.high_watermark:",
            "below the log start segments are being deleted",
        ),
        (
            "log-majority-of-half",
            "right = most if votes * 2 > len(digests) else",
            "right = most if votes * 2 >= len(digests) else",
            "one of two is no majority: the leader is believed",
        ),
        (
            "log-compacted-gap",
            "        if sight.compacted:\n            continue\n",
            "",
            "compaction leaves gaps",
        ),
        (
            "log-missing-topic-id-differs",
            "if known is not None and reading.topic_id is not None and reading.topic_id != known:",
            "if known is not None and reading.topic_id != known:",
            "a directory without partition.metadata names no other topic",
        ),
    ),
    *faults_in(
        "checks/forecast.py",
        _STORIES,
        (
            "fct-single-replica-accused",
            "if leader < 0 or len(observation.assignment.target) < 2 or observation.deleting:",
            "if leader < 0 or observation.deleting:",
            "a partition of one replica survives no failure by choice",
        ),
    ),
)

FAULTS: Final = (*_SIGHT, *_LEADERS, *_REPLICAS)
