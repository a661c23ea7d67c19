"""Faults in the rules of the KRaft controller."""

from __future__ import annotations

from typing import Final

from tests.mutants.fault import faults_in

_KRAFT: Final = (
    "consistency/test_kraft.py",
    "consistency/test_kraft_edges.py",
    "consistency/test_kraft_events.py",
    "conformance/test_vectors.py",
)

_BUILDER: Final = faults_in(
    "kraft.py",
    _KRAFT,
    (
        "kraft-valid-leader-replaced",
        "candidates = (partition.leader, *replicas)",
        "candidates = (*replicas,)",
        "a valid leader stays",
    ),
    (
        "kraft-elr-elected-beside-isr",
        "eligible = isr or elr",
        "eligible = (*isr, *elr)",
        "the ELR counts only when the ISR is empty",
    ),
    (
        "kraft-preferred-asks-everybody-first",
        "candidates = (*replicas[:1], *candidates)",
        "candidates = (*replicas, *candidates)",
        "a preferred election asks the first replica, then the old leader",
    ),
    (
        "kraft-last-known-leader-always-active",
        (
            "if may_return and (not rules.last_known_leader_must_be_active or "
            "acceptable(remembered[0])):"
        ),
        "if may_return and acceptable(remembered[0]):",
        "up to 4.0.1 the last known leader is elected dead or alive",
    ),
    (
        "kraft-last-known-leader-beside-the-eligible",
        "use_last_known_leader and not eligible and len(remembered) == 1",
        "use_last_known_leader and len(remembered) == 1",
        "while somebody is eligible the last known leader waits",
    ),
    (
        "kraft-step1-keeps-leaving-isr-members",
        "return draft._replace(isr=done.isr, replicas=done.replicas, removing=(), adding=())",
        "return draft._replace(replicas=done.replicas, removing=(), adding=())",
        "who leaves the replicas leaves the ISR",
    ),
    (
        "kraft-step1-marks-stay",
        "return draft._replace(isr=done.isr, replicas=done.replicas, removing=(), adding=())",
        "return draft._replace(isr=done.isr, replicas=done.replicas, removing=())",
        "a finished reassignment adds nobody any more",
    ),
    (
        "kraft-step2-elr-at-min-isr",
        "if len(draft.isr) >= min_isr:",
        "if len(draft.isr) > min_isr:",
        "at min ISR the ELR is empty",
    ),
    (
        "kraft-step2-crashed-replica-stays-eligible",
        "if b not in draft.isr and b not in unclean_shutdown\n",
        "if b not in draft.isr\n",
        "who shut down uncleanly may have lost records",
    ),
    (
        "kraft-step3-elr-leader-keeps-old-isr",
        "draft = draft._replace(isr=(leader,), elr=tuple(b for b in draft.elr if b != leader))",
        "draft = draft._replace(elr=tuple(b for b in draft.elr if b != leader))",
        "a leader from the ELR is the whole ISR",
    ),
    (
        "kraft-step3-recovering-in-every-version",
        "if partition.recovery is not RecoveryState.RECOVERING and rules.leader_recovery_state:",
        "if partition.recovery is not RecoveryState.RECOVERING:",
        "RECOVERING is written from metadata.version 3.2-IV0",
    ),
    (
        "kraft-step4-epoch-by-count",
        "return not set(partition.replicas) <= set(replicas)",
        "return len(replicas) < len(partition.replicas)",
        "a replica that is exchanged leaves too",
    ),
    (
        "kraft-step5-unclean-keeps-elr",
        "if change.isr is not None or not rules.elr:",
        "if not rules.elr:",
        "an unclean election empties the ELR",
    ),
    (
        "kraft-step5-writes-last-known-elr-always",
        "if not use_last_known_leader and draft.last_known_elr != partition.last_known_elr:",
        "if draft.last_known_elr != partition.last_known_elr:",
        "with the last known leader in use step 8 alone decides",
    ),
    (
        "kraft-step6-isr-emptied-without-elr",
        "writable = bool(draft.isr) or rules.elr",
        "writable = True",
        "without ELR the last ISR is kept",
    ),
    (
        "kraft-step7-empty-isr-is-no-shrink",
        "new_isr = draft.isr if rules.empty_isr_counts_as_shrink else change.isr",
        "new_isr = change.isr",
        "up to 3.7 an empty target ISR counts as a shrink",
    ),
    (
        "kraft-step7-shrink-bumps-in-every-version",
        (
            "return rules.isr_shrink_bumps_epoch and isr is not None and "
            "not set(partition.isr) <= set(isr)"
        ),
        "return isr is not None and not set(partition.isr) <= set(isr)",
        "from metadata.version 3.6-IV0 a shrink keeps the leader epoch",
    ),
    (
        "kraft-step8-second-loss-overwrites",
        "lost = leader == NO_LEADER and not remembered",
        "lost = leader == NO_LEADER",
        "the leader remembered first stays",
    ),
    (
        "kraft-step8-never-forgets",
        "return change._replace(last_known_elr=()) if led and remembered else change",
        "return change",
        "a partition with a leader needs no last known one",
    ),
    (
        "kraft-step9-new-order-not-written",
        "if draft.replicas and draft.replicas != partition.replicas:",
        "if draft.replicas and set(draft.replicas) != set(partition.replicas):",
        "a new order of the same replicas is a change",
    ),
    (
        "kraft-same-leader-is-no-new-epoch",
        "bump = 0 if change.leader is None else 1",
        "bump = int(change.leader not in (None, partition.leader))",
        "a record with a leader, even the same, is a new epoch",
    ),
    (
        "kraft-min-isr-not-capped",
        "return min(min_insync_replicas, replication_factor)",
        "return min_insync_replicas",
        "no more in-sync replicas can be asked for than there are",
    ),
)

_EVENTS: Final = faults_in(
    "kraft_events.py",
    _KRAFT[1:],
    (
        "kraft-leaving-broker-may-lead",
        (
            "if broker == going.removed or not (\n"
            "            broker == going.added or is_active(image.brokers.get(broker))\n"
            "        ):"
        ),
        "if not (broker == going.added or is_active(image.brokers.get(broker))):",
        "the image still shows the broker as it was before the event",
    ),
    (
        "kraft-crash-leaves-the-elr-alone",
        "step = _take_out(image, broker, _with_in_isr_or_elr(image, broker), unclean=True)",
        "step = _take_out(image, broker, _with_in_isr(image, broker), unclean=True)",
        "after an unclean shutdown a broker leaves the ELR as well",
    ),
    (
        "kraft-new-epoch-is-a-new-leader",
        "if change is not None and change.leader not in (None, request.broker):",
        "if change is not None and change.leader is not None:",
        "NEW_LEADER_ELECTED is for another leader only",
    ),
    (
        "kraft-reassignment-elects-uncleanly",
        "change = _propose(image, tp, targets, election=KraftElection.ONLINE)",
        "change = _propose(image, tp, targets)",
        "a reassignment holds a clean election whatever the topic allows",
    ),
    (
        "kraft-reassignment-forgets-who-leaves",
        "removing=wanted.removing or None",
        "removing=wanted.removing",
        "an empty set does not replace that of a reassignment under way",
    ),
    (
        "kraft-min-isr-change-touches-all",
        "if topic in (None, tp.topic) and (p.elr or p.last_known_elr)",
        "if topic in (None, tp.topic)",
        "partitions without an ELR keep their epoch",
    ),
    (
        "kraft-first-replica-leads-fenced",
        "KraftPartition(tuple(replicas), isr, leader=isr[0])",
        "KraftPartition(tuple(replicas), isr, leader=replicas[0])",
        "the first active replica leads a new partition",
    ),
    (
        "kraft-one-election-too-many",
        "if len(changes) >= at_most:",
        "if len(changes) > at_most:",
        "the timer stops at its maximum",
    ),
    (
        "kraft-restarted-broker-unfenced",
        "fresh = known._replace(broker_epoch=epoch, fenced=True, shutting_down=False)",
        "fresh = known._replace(broker_epoch=epoch, shutting_down=False)",
        "a new process starts fenced",
    ),
    (
        "kraft-failed-dir-takes-all-partitions",
        "if tp in named and broker in p.replicas]",
        "if broker in p.replicas]",
        "a failed log directory concerns the partitions in it",
    ),
)

_REST: Final = (
    *faults_in(
        "kraft_alter_partition.py",
        ("consistency/test_kraft_alter_partition.py", *_KRAFT[1:]),
        (
            "kraft-alter-members-before-recovery",
            (
                "        _recovery(partition, request),\n"
                "        _members(request, registrations, rules),\n"
            ),
            (
                "        _members(request, registrations, rules),\n"
                "        _recovery(partition, request),\n"
            ),
            "the order of the checks decides the error",
        ),
        (
            "kraft-alter-newer-leader-epoch-taken",
            "request.leader_epoch > partition.leader_epoch\n        or ",
            "",
            "a leader that knows more has heard from a newer controller",
        ),
        (
            "kraft-alter-unknown-member-epoch-refused",
            (
                "said = rules.isr_member_epochs_checked and "
                "member.broker_epoch != UNKNOWN_BROKER_EPOCH"
            ),
            "said = rules.isr_member_epochs_checked",
            "-1 skips the check",
        ),
        (
            "kraft-alter-member-twice",
            "        and len(set(members)) == len(members)\n",
            "",
            "an ISR names each member once",
        ),
        (
            "kraft-alter-stale-version-taken",
            "if request.partition_epoch < partition.partition_epoch:",
            "if request.partition_epoch < partition.partition_epoch - 1:",
            "a change made on an older state is refused",
        ),
    ),
    *faults_in(
        "kraft_image.py",
        _KRAFT[1:],
        (
            "kraft-min-isr-by-own-replicas",
            "counted = self.partitions.get(TopicPartition(tp.topic, 0), self.partitions[tp])",
            "counted = self.partitions[tp]",
            "partition 0 stands for the whole topic",
        ),
        (
            "kraft-unclean-honoured-in-every-version",
            "return wanted and self.rules.unclean_election_honoured",
            "return wanted",
            "up to 3.8 the KRaft controller reads the setting as false",
        ),
        (
            "kraft-leaderless-is-balanced",
            "if (p.leader,) != p.replicas[:1])",
            "if p.leader != NO_LEADER and (p.leader,) != p.replicas[:1])",
            "a leaderless partition is imbalanced too",
        ),
    ),
    *faults_in(
        "kraft_reassignment.py",
        _KRAFT,
        (
            "kraft-same-size-is-shrinking",
            "shrinking = len(assignment.adding) < len(assignment.removing)",
            "shrinking = len(assignment.adding) <= len(assignment.removing)",
            "a reassignment to as many replicas ends with the added ones in sync",
        ),
        (
            "kraft-unclean-revert-without-leave",
            "if reverted is None or (reverted.unclean and not unclean_allowed):",
            "if reverted is None:",
            "a cancellation that may lose records needs the topic's leave",
        ),
        (
            "kraft-complete-with-an-empty-isr",
            "if assignment.removing and not (new_isr and new_replicas):",
            "if assignment.removing and not new_replicas:",
            "an empty ISR never completes a reassignment",
        ),
        (
            "kraft-leaving-replicas-unsorted",
            "removing = tuple(sorted(set(current) - set(target)))",
            "removing = tuple(r for r in current if r not in target)",
            "the leaving ones stand in ascending order",
        ),
    ),
)

FAULTS: Final = (*_BUILDER, *_EVENTS, *_REST)
