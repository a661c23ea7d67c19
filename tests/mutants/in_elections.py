"""Faults in the rules of the ZooKeeper-mode controller."""

from __future__ import annotations

from typing import Final

from tests.mutants.fault import faults_in

_ELECTIONS: Final = ("consistency/test_election.py", "consistency/test_election_edges.py")

_ELECTION: Final = faults_in(
    "election.py",
    _ELECTIONS,
    (
        "zk-first-of-isr",
        "clean = _first(assignment, live, isr)",
        "clean = _first(isr, live, assignment)",
        "the order of the assignment decides, not that of the ISR",
    ),
    (
        "zk-unclean-while-isr-lives",
        "unclean_allowed=unclean_allowed and nobody_in_sync,",
        "unclean_allowed=unclean_allowed,",
        "unclean election is considered only when no ISR member is live",
    ),
    (
        "zk-isr-in-assignment-order",
        "isr = tuple(replica for replica in state.isr if replica in live)",
        "isr = tuple(r for r in assignment if r in live and r in state.isr)",
        "a clean election keeps the ISR in its old order",
    ),
    (
        "zk-epoch-only-with-a-new-leader",
        "leader_epoch=state.leader_epoch + 1,",
        "leader_epoch=state.leader_epoch + (leader != state.leader),",
        "every write of the controller raises the epoch, as no textbook says",
    ),
    (
        "zk-version-not-raised",
        "partition_epoch=state.partition_epoch + 1,",
        "partition_epoch=state.partition_epoch,",
        "every write raises the zkVersion",
    ),
    (
        "zk-unclean-keeps-isr",
        "elected = _written(state, result.leader, (result.leader,), controller_epoch)",
        "elected = _written(state, result.leader, (result.leader, *state.isr), controller_epoch)",
        "after an unclean election the leader is the whole ISR",
    ),
    (
        "zk-recovering-never-written",
        "    if rules.leader_recovery_state:\n        return elected._replace(",
        "    if not rules.leader_recovery_state:\n        return elected._replace(",
        "RECOVERING is written where the version knows it, and only there",
    ),
    (
        "zk-preferred-has-a-second-choice",
        "leader = _first(assignment[:1], live, isr)",
        "leader = _first(assignment, live, isr)",
        "a preferred election elects the first replica or nobody",
    ),
    (
        "zk-reassignment-drops-dead-isr-members",
        (
            "result = elect_for_reassignment(target=target, isr=state.isr, live=live)\n"
            "    if result.leader is None:\n"
            "        return None\n"
            "    return _written(state, result.leader, state.isr, controller_epoch)"
        ),
        (
            "result = elect_for_reassignment(target=target, isr=state.isr, live=live)\n"
            "    if result.leader is None:\n"
            "        return None\n"
            "    isr = tuple(r for r in state.isr if r in live)\n"
            "    return _written(state, result.leader, isr, controller_epoch)"
        ),
        "a reassignment's election leaves the ISR as it is",
    ),
    (
        "zk-shutdown-isr-keeps-others-leaving",
        "isr = tuple(replica for replica in state.isr if replica not in shutting_down)",
        "isr = tuple(replica for replica in state.isr if replica != state.leader)",
        "every broker that is shutting down leaves the ISR",
    ),
    (
        "zk-shutdown-elects-a-broker-that-leaves",
        "staying = [replica for replica in assignment if replica not in shutting_down]",
        "staying = list(assignment)",
        "nobody who is shutting down is elected",
    ),
    (
        "zk-last-isr-member-removed",
        "isr = remaining if remaining or may_be_empty else state.isr",
        "isr = remaining",
        "the last member stays, so that it can lead again",
    ),
    (
        "zk-removed-leader-goes-on",
        "leader = NO_LEADER if state.leader == replica else state.leader",
        "leader = state.leader",
        "a leader that is taken out of the ISR leads no more",
    ),
    (
        "zk-isr-emptied-in-every-version",
        "may_be_empty = rules.isr_may_become_empty_in_zookeeper and unclean_allowed",
        "may_be_empty = unclean_allowed",
        "only up to 1.0 the ISR could become empty",
    ),
    (
        "zk-new-partition-led-by-the-dead",
        "leader=isr[0],",
        "leader=assignment[0],",
        "a new partition is led by its first live replica",
    ),
    (
        "zk-election-told-to-the-dead",
        "return tuple(replica for replica in replicas if replica in online)",
        "return tuple(replicas)",
        "after an offline election only live replicas are told",
    ),
    (
        "zk-requested-election-trusts-the-name",
        "        if state.leader in live:\n",
        "        if state.leader != NO_LEADER:\n",
        "a leader that is dead does not make an unclean election needless",
    ),
)

_BROKERS: Final = (
    *faults_in(
        "broker_events.py",
        ("consistency/test_forecast.py",),
        (
            "zk-new-controller-removes-the-dead-always",
            "for replica in assignment if rules.new_controller_removes_dead else ():",
            "for replica in assignment:",
            "before 2.4 a new controller takes nobody out of the ISR",
        ),
    ),
    *faults_in(
        "broker_events.py",
        _ELECTIONS,
        (
            "zk-dead-broker-still-live",
            "survivors = frozenset(live) - frozenset(dead)",
            "survivors = frozenset(live)",
            "`live` may still name the dead",
        ),
        (
            "zk-return-moves-the-leader",
            "if state.leader != NO_LEADER:",
            "if state.leader != NO_LEADER and state.leader == assignment[0]:",
            "a partition that has a leader keeps it when a broker returns",
        ),
        (
            "zk-second-write-from-the-first-state",
            "writes[-1] if writes else state,",
            "state,",
            "each write starts from what the one before it left",
        ),
    ),
    *faults_in(
        "controlled_shutdown.py",
        (*_ELECTIONS, "consistency/test_controller.py"),
        (
            "zk-shutdown-takes-the-only-replica",
            "if broker not in assignment or len(assignment) == 1:",
            "if broker not in assignment:",
            "a partition of one replica is left alone",
        ),
        (
            "zk-shutdown-waits-for-single-replicas",
            "if (after or state).leader == broker and len(assignment.replicas) > 1:",
            "if (after or state).leader == broker:",
            "or a broker with such a partition could never stop",
        ),
        (
            "zk-shutdown-refuses-its-own-epoch",
            "if broker_epoch < registered[broker].broker_epoch:",
            "if broker_epoch <= registered[broker].broker_epoch:",
            "only an older broker epoch is stale",
        ),
        (
            "zk-shutdown-forgets-others-leaving",
            "going = frozenset(r.broker for r in registrations if r.shutting_down) | {broker}",
            "going = frozenset({broker})",
            "two brokers may be shutting down at once",
        ),
        (
            "zk-shutdown-checks-unknown-epochs",
            "if not rules.broker_epoch_known or broker_epoch == UNKNOWN_BROKER_EPOCH:",
            "if not rules.broker_epoch_known:",
            "a broker that does not know its epoch is let through",
        ),
    ),
    *faults_in(
        "partition_lifecycle.py",
        (*_ELECTIONS, "consistency/test_controller.py"),
        (
            "zk-offline-needs-a-write",
            "if asked is PartitionLifecycle.ONLINE and not state_written:",
            "if not state_written:",
            "only becoming Online depends on a write",
        ),
    ),
    *faults_in(
        "registration.py",
        ("consistency/test_registration.py",),
        (
            "reg-older-reading-is-a-bounce",
            "return was != UNKNOWN_BROKER_EPOCH and now > was",
            "return was != UNKNOWN_BROKER_EPOCH and now != was",
            "a smaller czxid is an older reading",
        ),
        (
            "reg-shutting-down-is-active",
            "not (registration.fenced or registration.shutting_down)",
            "not registration.fenced",
            "a broker in controlled shutdown is not active",
        ),
        (
            "reg-any-epoch-is-a-clean-shutdown",
            "existing.registration.broker_epoch == previous_broker_epoch",
            "previous_broker_epoch != UNKNOWN_BROKER_EPOCH",
            "the shutdown was clean only if the stored epoch is named",
        ),
        (
            "reg-unfenced-one-record-late",
            "caught_up = heartbeat.metadata_offset >= registration_offset",
            "caught_up = heartbeat.metadata_offset > registration_offset",
            "having read its own registration is enough",
        ),
        (
            "reg-shutdown-before-all-have-seen-it",
            "(leads_partitions or not shutdown_seen_by_all)",
            "leads_partitions",
            "every active broker has to see the leaderships move first",
        ),
        (
            "reg-session-of-another-kept",
            "    if existing.session == session:\n        return existing\n",
            "    if existing.czxid < czxid:\n        return existing\n",
            "a node of another session blocks the registration",
        ),
    ),
)

_CONTROLLER: Final = (
    *faults_in(
        "controller.py",
        ("consistency/test_controller.py",),
        (
            "ctl-fenced-in-every-version",
            "if rules.controller_writes_fenced and held_epoch_version not in held:",
            "if held_epoch_version not in held:",
            "before 2.1 an old controller's writes went through",
        ),
        (
            "ctl-state-version-checked-first",
            (
                "    if rules.controller_writes_fenced and held_epoch_version not in held:\n"
                "        return StateWrite(Code.CONTROLLER_MOVED)\n"
                "    if node_version is None:\n"
                "        return StateWrite(Code.NONODE)\n"
                "    if expected_version not in (MATCH_ANY_VERSION, node_version):\n"
                "        return StateWrite(Code.BADVERSION)\n"
            ),
            (
                "    if node_version is None:\n"
                "        return StateWrite(Code.NONODE)\n"
                "    if expected_version not in (MATCH_ANY_VERSION, node_version):\n"
                "        return StateWrite(Code.BADVERSION)\n"
                "    if rules.controller_writes_fenced and held_epoch_version not in held:\n"
                "        return StateWrite(Code.CONTROLLER_MOVED)\n"
            ),
            "BADVERSION is retried: a deposed controller must learn that it is one",
        ),
        (
            "ctl-own-state-is-a-later-controllers",
            "state.controller_epoch <= controller_epoch",
            "state.controller_epoch < controller_epoch",
            "a controller may change what it wrote itself",
        ),
        (
            "ctl-kraft-node-goes-with-the-session",
            "if holder is None or holder.broker != broker or not holder.ephemeral:",
            "if holder is None or holder.broker != broker:",
            "a KRaft controller's /controller outlives its session",
        ),
        (
            "ctl-lost-reply-under-any-epoch",
            "if mine and epoch.controller_epoch == claimed_epoch:",
            "if mine:",
            "only the very epoch it tried to write proves the lost reply",
        ),
        (
            "ctl-first-epoch-at-version-zero",
            "return Claim(ClaimOutcome.CLAIMED, created, FIRST_CONTROLLER_EPOCH, 1)",
            "return Claim(ClaimOutcome.CLAIMED, created, FIRST_CONTROLLER_EPOCH, 0)",
            "the first controller up to 2.0 believes in version 1",
        ),
        (
            "ctl-same-kraft-epoch-takes-over",
            "holder.kraft_epoch >= kraft_epoch",
            "holder.kraft_epoch > kraft_epoch",
            "the same KRaft epoch stands in the way",
        ),
        (
            "ctl-resigns-for-another",
            (
                "if znodes.epoch is None or held_epoch_version not in "
                "(MATCH_ANY_VERSION, znodes.epoch.version):"
            ),
            "if znodes.epoch is None:",
            "a deposed controller must not delete its successor's /controller",
        ),
    ),
    *faults_in(
        "alter_partition.py",
        (*_ELECTIONS[1:], "consistency/test_controller.py", "conformance/test_vectors.py"),
        (
            "zk-alter-resent-change-refused",
            (
                "    if _in_force(current, request):\n"
                "        return AlterPartitionAnswer(None, state=current)\n"
            ),
            "",
            "a re-sent change that is in force succeeds",
        ),
        (
            "zk-alter-newer-leader-epoch-taken",
            (
                "request.partition_epoch > current.partition_epoch\n"
                "        or request.leader_epoch > current.leader_epoch\n"
            ),
            "request.partition_epoch > current.partition_epoch\n",
            "from 3.3 a newer leader epoch means this controller is old",
        ),
        (
            "zk-alter-newer-epoch-fenced",
            "if request.leader_epoch < current.leader_epoch:",
            "if request.leader_epoch != current.leader_epoch:",
            "only an older leader epoch is fenced",
        ),
        (
            "zk-alter-recovering-isr-grows",
            "if len(request.isr) > 1 or current.recovery is RecoveryState.RECOVERED:",
            "if len(request.isr) > 1 and current.recovery is RecoveryState.RECOVERED:",
            "either alone is a fault of the request",
        ),
        (
            "zk-alter-raises-the-leader-epoch",
            "leader_epoch=request.leader_epoch,\n        isr=request.isr,",
            "leader_epoch=request.leader_epoch + 1,\n        isr=request.isr,",
            "an ISR change by the leader keeps the leader epoch",
        ),
        (
            "zk-alter-shutting-down-may-join",
            "if not (r.fenced or r.shutting_down)]",
            "if not r.fenced]",
            "from 3.3 a broker that is leaving may not join the ISR",
        ),
        (
            "zk-alter-recovery-before-epochs",
            "if checks is AlterPartitionChecks.RECOVERY_THEN_EPOCHS:",
            "if checks is not AlterPartitionChecks.EPOCHS_ONLY:",
            "from 3.3 a leader with an outdated epoch learns that first",
        ),
    ),
)

_ASSIGNMENT: Final = (
    *faults_in(
        "rebalance.py",
        (*_ELECTIONS[1:], "consistency/test_rebalance.py"),
        (
            "reb-threshold-reached-is-enough",
            "return imbalance.ratio > threshold_percent / 100",
            "return imbalance.ratio >= threshold_percent / 100",
            "1 of 10 at 10 % is left alone",
        ),
        (
            "reb-leaderless-counts-as-balanced",
            "partition.state is not None and partition.state.leader != preferred\n",
            "partition.state is not None and partition.state.leader not in (preferred, -1)\n",
            "leader -1 is not the preferred leader",
        ),
        (
            "reb-waits-for-reassignment-for-ever",
            "if rules.rebalance_waits_for_reassignment and reassigning:",
            "if reassigning:",
            "from 3.4 the rebalance goes on beside a reassignment",
        ),
        (
            "reb-moves-to-an-offline-log-dir",
            "online = frozenset(live) - frozenset(partition.offline_replicas)",
            "online = frozenset(live)",
            "a replica in an offline log directory cannot lead",
        ),
        (
            "reb-metric-spares-added-replica-always",
            "return preferred not in partition.state.isr",
            "return True",
            "an added replica is missed once it is in the ISR",
        ),
        (
            "reb-threshold-in-kraft",
            "        if not rules.rebalance_has_threshold\n        or exceeds_threshold(",
            "        if exceeds_threshold(",
            "KRaft moves every imbalanced partition",
        ),
    ),
    *faults_in(
        "reassignment.py",
        ("consistency/test_reassignment.py",),
        (
            "rea-origin-first",
            "union = tuple(dict.fromkeys((*replicas, *before)))",
            "union = tuple(dict.fromkeys((*before, *replicas)))",
            "the union lists the target first: it changes the preferred replica",
        ),
        (
            "rea-complete-with-the-added-alone",
            "set(assignment.target) <= set(isr)",
            "set(assignment.adding) <= set(isr)",
            "every target replica has to be in the ISR",
        ),
        (
            "rea-dead-leader-kept",
            "if leader in requested.target and leader in live:",
            "if leader in requested.target:",
            "a leader in the target that is dead is replaced",
        ),
        (
            "rea-removes-before-it-moves",
            (
                "        self.state(Phase.MOVE_LEADER, moved)\n"
                "        self.remove(Phase.REMOVE_FROM_ISR, requested.removing)\n"
            ),
            (
                "        self.remove(Phase.REMOVE_FROM_ISR, requested.removing)\n"
                "        self.state(Phase.MOVE_LEADER, moved)\n"
            ),
            "the leader moves into the target first",
        ),
        (
            "rea-forgets-who-fell-out",
            "        run.remove(Phase.STOP_UNNEEDED, unneeded)\n",
            "        del unneeded\n",
            "replicas that fall out of a replaced reassignment leave the ISR",
        ),
    ),
    *faults_in(
        "model.py",
        ("consistency/test_reassignment.py",),
        (
            "model-target-is-the-origin",
            "return tuple(r for r in self.replicas if r not in self.removing)",
            "return tuple(r for r in self.replicas if r not in self.adding)",
            "the target is what remains when the reassignment is done",
        ),
    ),
)

FAULTS: Final = (*_ELECTION, *_BROKERS, *_CONTROLLER, *_ASSIGNMENT)
