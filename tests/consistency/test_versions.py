"""Which rules apply: every switch on both sides of it, the refusals, and how versions are read.

A cluster is written as words: `[kraft] VERSION [at PROTOCOL] [with-elr | without-elr] [migrating]`.
"""

from __future__ import annotations

from contextlib import suppress
from dataclasses import fields
from enum import Enum
from itertools import pairwise
from typing import NamedTuple

import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from tidestaff.consistency.errors import UnknownVersionError
from tidestaff.consistency.versions import (
    AlterPartitionChecks,
    EpochCacheGeneration,
    KafkaVersion,
    Mode,
    ProtocolVersion,
    ReassignmentCompletion,
    RuleSet,
    Truncation,
    TruncationTrigger,
    rules_for,
)

FIRST, SECOND = EpochCacheGeneration.FIRST, EpochCacheGeneration.SECOND

# The last patch we know of each release line, and every patch release at which a rule changed.
ZOOKEEPER_VERSIONS = [
    *("0.8.2.2", "0.9.0.1", "0.10.0.1", "0.10.1.1", "0.10.2.2", "0.11.0.2", "0.11.0.3"),
    *("1.0.1", "1.0.2", "1.1.0", "1.1.1", "2.0.0", "2.0.1", "2.1.1", "2.2.2", "2.3.1", "2.4.1"),
    *("2.5.1", "2.6.3", "2.7.2", "2.8.2", "3.0.2", "3.1.2", "3.2.3", "3.3.2", "3.4.1", "3.5.2"),
    *("3.6.2", "3.7.1", "3.8.1", "3.9.0", "3.9.1"),
]
KRAFT_VERSIONS = [
    *("3.3.2", "3.4.1", "3.5.2", "3.6.2", "3.7.1", "3.8.1", "3.9.0", "3.9.1"),
    *("4.0.0", "4.0.1", "4.1.0", "4.1.1", "4.2.0", "4.3.0"),
]
EVERY_CLUSTER = [*ZOOKEEPER_VERSIONS, *(f"kraft {version}" for version in KRAFT_VERSIONS)]


def rules(cluster: str) -> RuleSet:
    words = cluster.split()
    mode = Mode.KRAFT if "kraft" in words else Mode.ZOOKEEPER
    version = next(word for word in words if word != "kraft")
    elr = True if "with-elr" in words else False if "without-elr" in words else None
    return rules_for(
        version,
        mode,
        protocol=words[words.index("at") + 1] if "at" in words else None,
        elr=elr,
        migrating="migrating" in words,
    )


class Switch(NamedTuple):
    """`field` is `value` in the clusters `true_in`, and something else in those of `false_in`."""

    claim: str
    field: str
    true_in: tuple[str, ...]
    false_in: tuple[str, ...]
    value: object = True


# One entry for a row of the rulebook's section 0, in its order: the first version before, the first
# with, the last with, the first after; then the same with the protocol that decides.
RULEBOOK = (
    Switch(
        "a follower cuts to its own high watermark",
        "truncation",
        value=Truncation.HIGH_WATERMARK,
        true_in=("0.8.2", "0.10.2.2", "0.11.0.0 at 0.10.2", "0.11.0.0 at 0.11.0-IV1"),
        false_in=("0.11.0.0", "0.11.0.0 at 0.11.0-IV2", "1.0.0 at 0.11.0"),
    ),
    Switch(
        "there is a leader-epoch-checkpoint",
        "leader_epoch_checkpoint",
        true_in=("0.11.0.0", "0.11.0.0 at 0.11.0-IV2", "1.1.1", "3.9", "kraft 4.3"),
        false_in=("0.8.2", "0.10.2.2", "0.11.0.0 at 0.11.0-IV1", "1.1.1 at 0.10.2"),
    ),
    Switch(
        "a follower truncates by KIP-101",
        "truncation",
        value=Truncation.KIP_101,
        true_in=("0.11.0.0", "0.11.0.0 at 0.11.0-IV2", "1.0.0", "1.1.1"),
        false_in=("0.10.2.2", "0.11.0.0 at 0.11.0-IV1", "2.0.0"),
    ),
    Switch(
        "a follower truncates by KIP-279",
        "truncation",
        value=Truncation.KIP_279,
        true_in=("2.0.0", "2.7.2", "2.8.0 at 2.7-IV0", "3.9 at 2.7-IV0", "2.8.0 at 0.11.0"),
        false_in=("1.1.1", "2.8.0", "2.8.0 at 2.7-IV1", "3.9 at 2.7-IV1", "kraft 3.3"),
    ),
    Switch(
        "the answer for an epoch names an epoch",
        "end_offset_answer_has_epoch",
        true_in=("2.0.0", "2.0.0 at 2.0-IV0", "3.9", "kraft 4.3"),
        false_in=("1.1.1", "2.0.0 at 1.1-IV0", "2.8.0 at 1.1"),
    ),
    Switch(
        "a leader reports a diverging epoch",
        "leader_reports_divergence",
        true_in=("2.7.0", "3.9", "kraft 3.3", "kraft 4.3"),
        false_in=("0.8.2", "2.6.3"),
    ),
    Switch(
        "a follower truncates on fetch",
        "truncation",
        value=Truncation.ON_FETCH,
        true_in=("2.8.0", "2.8.0 at 2.7-IV1", "3.9", "3.9 at 2.7-IV1", "kraft 3.3", "kraft 4.3"),
        false_in=("2.7.2", "2.7.2 at 2.7-IV2", "2.8.0 at 2.7-IV0", "3.9 at 2.7-IV0"),
    ),
    Switch(
        "a new leader writes its epoch at once",
        "leader_writes_epoch_at_once",
        true_in=("2.0.1", "2.1.0", "3.9", "kraft 4.3"),
        false_in=("0.8.2", "1.1.1", "2.0.0"),
    ),
    Switch(
        "who joins the ISR must have reached the epoch's start",
        "isr_join_needs_epoch_start",
        true_in=("2.0.1", "2.1.0", "3.9", "kraft 4.3"),
        false_in=("0.8.2", "1.1.1", "2.0.0"),
    ),
    Switch(
        "the epoch cache has its first rules",
        "epoch_cache",
        value=FIRST,
        true_in=("0.11.0.0", "2.0.0"),
        false_in=("2.0.1", "2.1.0"),
    ),
    Switch(
        "the epoch cache has its second rules",
        "epoch_cache",
        value=SECOND,
        true_in=("2.0.1", "2.1.0", "3.9", "kraft 4.3"),
        false_in=("0.11.0.0", "2.0.0"),
    ),
    Switch(
        "a follower at the leader's end is never out of sync",
        "at_leader_end_never_out_of_sync",
        true_in=("2.1.0", "3.9", "kraft 4.3"),
        false_in=("0.8.2", "2.0.1"),
    ),
    Switch(
        "the high watermark waits for caught-up replicas outside the ISR",
        "watermark_waits_outside_isr",
        true_in=("0.10.2.0", "3.9", "kraft 4.3"),
        false_in=("0.8.2", "0.10.1.1"),
    ),
    Switch(
        "the high watermark does not wait for the fenced",
        "watermark_ignores_inactive",
        true_in=("3.6.0", "3.9", "kraft 3.6", "kraft 4.3"),
        false_in=("3.5.2", "kraft 3.5"),
    ),
    Switch(
        "the high watermark stands still under min.insync.replicas",
        "watermark_frozen_under_min_isr",
        true_in=("3.7.0", "3.9", "kraft 3.7", "kraft 4.3"),
        false_in=("3.6.2", "kraft 3.6.2"),
    ),
    Switch(
        "retention deletes nothing above the high watermark",
        "retention_stops_at_watermark",
        true_in=("0.11.0.1", "3.9", "kraft 4.3"),
        false_in=("0.8.2", "0.10.2.2", "0.11.0.0"),
    ),
    Switch(
        "unclean election is on by default",
        "unclean_election_default",
        true_in=("0.8.2", "0.10.2.2"),
        false_in=("0.11.0.0", "3.9", "kraft 4.3"),
    ),
    Switch(
        "replica.lag.time.max.ms is 10 s by default",
        "replica_lag_time_max_ms_default",
        value=10_000,
        true_in=("0.8.2", "2.4.1"),
        false_in=("2.5.0", "kraft 4.3"),
    ),
    Switch(
        "replica.lag.time.max.ms is 30 s by default",
        "replica_lag_time_max_ms_default",
        value=30_000,
        true_in=("2.5.0", "3.9", "kraft 4.3"),
        false_in=("2.4.1",),
    ),
    Switch(
        "messages count as lag",
        "lag_by_messages",
        true_in=("0.8.2", "0.8.2.2"),
        false_in=("0.9.0.0", "3.9", "kraft 4.3"),
    ),
    Switch(
        "the controller's writes are fenced",
        "controller_writes_fenced",
        true_in=("2.1.0", "3.9.1"),
        false_in=("0.8.2", "2.0.1", "kraft 3.9", "kraft 4.0"),
    ),
    Switch(
        "a controller claims in one transaction",
        "controller_claim_atomic",
        true_in=("2.1.0", "3.9.1"),
        false_in=("0.8.2", "2.0.1", "kraft 3.9", "kraft 4.0"),
    ),
    Switch(
        "a broker has an epoch",
        "broker_epoch_known",
        true_in=("2.2.0", "3.9.1", "kraft 3.3", "kraft 4.3"),
        false_in=("0.8.2", "2.1.1"),
    ),
    Switch(
        "the leader writes the ISR to ZooKeeper itself",
        "isr_change_through_controller",
        value=False,
        true_in=("0.8.2", "2.6.3", "2.7.0 at 2.7-IV1", "2.8.0 at 2.6", "3.9 at 2.7-IV1"),
        false_in=("2.7.0", "2.7.0 at 2.7-IV2", "kraft 3.3"),
    ),
    Switch(
        "the leader asks the controller for an ISR",
        "isr_change_through_controller",
        true_in=("2.7.0", "2.7.0 at 2.7-IV2", "3.9 at 2.7-IV2", "kraft 3.3", "kraft 4.3"),
        false_in=("2.6.3", "2.7.0 at 2.7-IV1", "3.9 at 2.7-IV1"),
    ),
    Switch(
        "a leader has a recovery state",
        "leader_recovery_state",
        true_in=("3.2.0", "3.2.0 at 3.2-IV0", "3.9.1", "kraft 3.3 at 3.2-IV0", "kraft 4.3"),
        false_in=("3.1.2", "3.2.0 at 3.1", "3.2.0 at 3.1-IV0", "3.9 at 3.1", "kraft 3.3 at 3.1"),
    ),
    Switch(
        "ISR members must be active",
        "isr_members_must_be_active",
        true_in=("3.3.0", "3.9", "kraft 3.3", "kraft 4.3"),
        false_in=("0.8.2", "3.2.3"),
    ),
    Switch(
        "the broker epochs of ISR members are checked",
        "isr_member_epochs_checked",
        true_in=("kraft 3.5", "kraft 4.3"),
        false_in=("kraft 3.4.1", "3.5.0", "3.9"),
    ),
    Switch(
        "an ISR shrink raises the leader epoch",
        "isr_shrink_bumps_epoch",
        true_in=(
            *("kraft 3.3", "kraft 3.5.2", "kraft 3.6 at 3.5-IV2", "kraft 4.3 at 3.5-IV2"),
            *("kraft 3.6 migrating", "kraft 3.9.1 migrating"),
        ),
        false_in=(
            *("kraft 3.6", "kraft 3.6 at 3.6-IV0", "kraft 3.9", "kraft 4.0 migrating", "kraft 4.3"),
            *("0.8.2", "3.5.2", "3.9 migrating"),
        ),
    ),
    Switch(
        "unclean.leader.election.enable is honoured",
        "unclean_election_honoured",
        true_in=("kraft 3.9", "kraft 4.3", "0.8.2", "3.8.1", "3.9"),
        false_in=("kraft 3.3", "kraft 3.8.1"),
    ),
    Switch(
        "there are eligible leader replicas",
        "elr",
        true_in=(
            *("kraft 4.0 with-elr", "kraft 4.0 at 4.0-IV1 with-elr", "kraft 4.1 at 4.0 with-elr"),
            *("kraft 4.1", "kraft 4.1 at 4.1-IV0", "kraft 4.3", "kraft 4.3 with-elr"),
        ),
        false_in=(
            *("3.9", "kraft 3.9.1", "kraft 4.0", "kraft 4.0.1", "kraft 4.0 at 4.0-IV0"),
            *("kraft 4.1 at 4.0", "kraft 4.3 at 4.0-IV3", "kraft 4.3 without-elr"),
        ),
    ),
)

# The switches the rulebook names in the sections on their subject.
FURTHER = (
    Switch(
        "only another leader makes a follower truncate",
        "truncation_trigger",
        value=TruncationTrigger.LEADER_DIFFERS,
        true_in=("0.8.2", "2.0.0"),
        false_in=("2.0.1", "2.1.0"),
    ),
    Switch(
        "a skipped epoch makes a follower truncate too",
        "truncation_trigger",
        value=TruncationTrigger.LEADER_DIFFERS_OR_EPOCH_SKIPS,
        true_in=("2.0.1",),
        false_in=("2.0.0", "2.1.0"),
    ),
    Switch(
        "every epoch makes a follower truncate",
        "truncation_trigger",
        value=TruncationTrigger.EVERY_EPOCH,
        true_in=("2.1.0", "3.9", "kraft 4.3"),
        false_in=("2.0.0", "2.0.1"),
    ),
    Switch(
        "an empty epoch cache answers with the log end",
        "empty_cache_answers_log_end",
        true_in=("0.11.0.0", "0.11.0.2", "1.0.0", "1.0.1", "1.1.0"),
        false_in=("0.10.2.2", "0.11.0.3", "1.0.2", "1.1.1", "2.0.0", "kraft 4.3"),
    ),
    Switch(
        "a follower drops batches of newer epochs",
        "follower_drops_newer_epochs",
        true_in=("3.9.1", "kraft 3.9.1", "kraft 4.1.0", "kraft 4.3"),
        false_in=("3.8.1", "3.9.0", "kraft 3.9.0", "kraft 4.0.0", "kraft 4.0.1"),
    ),
    Switch(
        "a broker ahead of its leader exits",
        "broker_exits_when_ahead_of_leader",
        true_in=("0.8.2", "0.10.2.2", "0.11.0.0", "1.1.1", "2.0.0"),
        false_in=("2.0.1", "2.1.0", "kraft 4.3"),
    ),
    Switch(
        "a follower is caught up by its previous fetch",
        "caught_up_by_previous_fetch",
        true_in=("0.10.2.0", "3.9", "kraft 4.3"),
        false_in=("0.8.2", "0.10.1.1"),
    ),
    Switch(
        "the leader end a follower saw never falls",
        "last_fetch_leader_end_never_falls",
        true_in=("3.3.0", "3.9", "kraft 3.3", "kraft 4.3"),
        false_in=("0.8.2", "3.2.3"),
    ),
    Switch(
        "min.insync.replicas is capped by the replicas",
        "min_isr_capped_by_replicas",
        true_in=("3.7.0", "kraft 3.7", "kraft 4.3"),
        false_in=("3.6.2", "kraft 3.6.2"),
    ),
    Switch(
        "a session lasts 6 s by default",
        "session_timeout_ms_default",
        value=6_000,
        true_in=("0.8.2", "2.4.1"),
        false_in=("2.5.0", "kraft 3.3"),
    ),
    Switch(
        "a session lasts 18 s by default",
        "session_timeout_ms_default",
        value=18_000,
        true_in=("2.5.0", "3.9"),
        false_in=("2.4.1", "kraft 3.9"),
    ),
    Switch(
        "a session lasts 9 s by default",
        "session_timeout_ms_default",
        value=9_000,
        true_in=("kraft 3.3", "kraft 4.3"),
        false_in=("2.4.1", "3.9"),
    ),
    Switch(
        "the ISR in ZooKeeper may become empty",
        "isr_may_become_empty_in_zookeeper",
        true_in=("0.8.2", "1.0.2"),
        false_in=("1.1.0", "3.9", "kraft 3.3", "kraft 4.3"),
    ),
    Switch(
        "a new controller takes dead replicas out of the ISR",
        "new_controller_removes_dead",
        true_in=("2.4.0", "3.9"),
        false_in=("0.8.2", "1.1.1", "2.3.1", "kraft 3.3", "kraft 4.3"),
    ),
    Switch(
        "a removal by the controller raises the leader epoch",
        "controller_removal_bumps_epoch",
        true_in=("0.8.2", "3.9"),
        false_in=("kraft 3.3", "kraft 3.9", "kraft 4.3"),
    ),
    Switch(
        "an ISR that would be empty counts as a shrink",
        "empty_isr_counts_as_shrink",
        true_in=("kraft 3.3", "kraft 3.7.1"),
        false_in=("kraft 3.8.0", "kraft 4.3", "3.7.1"),
    ),
    Switch(
        "the KRaft controller learns of failed log directories",
        "log_dir_failures_reach_kraft_controller",
        true_in=("kraft 3.7", "kraft 3.7 at 3.7-IV2", "kraft 4.3"),
        false_in=("kraft 3.6", "kraft 3.7 at 3.7-IV1", "kraft 4.3 at 3.6", "3.9"),
    ),
    Switch(
        "AlterPartition is checked by epochs only",
        "alter_partition_checks",
        value=AlterPartitionChecks.EPOCHS_ONLY,
        true_in=("2.7.0", "3.1.2"),
        false_in=("3.2.0", "3.3.0"),
    ),
    Switch(
        "AlterPartition is checked by recovery, then epochs",
        "alter_partition_checks",
        value=AlterPartitionChecks.RECOVERY_THEN_EPOCHS,
        true_in=("3.2.0", "3.2.3"),
        false_in=("3.1.2", "3.3.0"),
    ),
    Switch(
        "AlterPartition is checked by newer epochs, then recovery",
        "alter_partition_checks",
        value=AlterPartitionChecks.NEWER_EPOCHS_THEN_RECOVERY,
        true_in=("3.3.0", "3.9.1"),
        false_in=("3.1.2", "3.2.3"),
    ),
    Switch(
        "a last known leader must be active",
        "last_known_leader_must_be_active",
        true_in=("kraft 4.1.0", "kraft 4.3"),
        false_in=("kraft 4.0.0", "kraft 4.0.1"),
    ),
    Switch(
        "any loss of the leader is remembered",
        "last_known_elr_on_any_leader_loss",
        true_in=("kraft 4.1.1", "kraft 4.2", "kraft 4.3"),
        false_in=("kraft 4.0.1", "kraft 4.1.0"),
    ),
    Switch(
        "a new min.insync.replicas empties the ELR",
        "min_isr_change_clears_elr",
        true_in=("kraft 4.0", "kraft 4.3"),
        false_in=("kraft 3.9.1", "3.9.1"),
    ),
    Switch(
        "the topic id is in the topic's znode",
        "topic_id_in_topic_znode",
        true_in=("2.8.0", "3.9"),
        false_in=("0.8.2", "2.7.2", "3.9 at 2.7", "kraft 3.9"),
    ),
    Switch(
        "a reassignment is in the topic's znode",
        "reassignment_in_topic_znode",
        true_in=("2.4.0", "3.9"),
        false_in=("0.8.2", "2.3.1", "kraft 3.9"),
    ),
    Switch(
        "a reassignment is complete with the added replicas",
        "reassignment_completion",
        value=ReassignmentCompletion.ADDING_IN_ISR,
        true_in=("kraft 3.3", "kraft 3.7.1"),
        false_in=("kraft 3.8.0", "3.7.1"),
    ),
    Switch(
        "a reassignment is complete with the whole target",
        "reassignment_completion",
        value=ReassignmentCompletion.TARGET_IN_ISR,
        true_in=("0.8.2", "3.9", "kraft 3.8.0", "kraft 4.2"),
        false_in=("kraft 3.7.1", "kraft 4.3"),
    ),
    Switch(
        "a reassignment is complete with the target if it shrinks",
        "reassignment_completion",
        value=ReassignmentCompletion.ADDING_IN_ISR_TARGET_IF_SHRINKING,
        true_in=("kraft 4.3",),
        false_in=("kraft 4.2", "3.9"),
    ),
    Switch(
        "the rebalance waits for reassignments",
        "rebalance_waits_for_reassignment",
        true_in=("0.8.2", "3.3.2"),
        false_in=("3.4.0", "3.9", "kraft 3.3"),
    ),
    Switch(
        "the rebalance looks for the preferred replica in the ISR",
        "rebalance_checks_preferred_in_isr",
        true_in=("2.6.0", "3.9", "kraft 3.3"),
        false_in=("0.8.2", "2.5.1"),
    ),
    Switch(
        "the rebalance has a threshold",
        "rebalance_has_threshold",
        true_in=("0.8.2", "3.9"),
        false_in=("kraft 3.3", "kraft 4.3"),
    ),
    Switch(
        "the imbalance metric spares a replica that is being added",
        "imbalance_metric_spares_added_replica",
        true_in=("2.7.0", "3.9"),
        false_in=("0.8.2", "2.6.3"),
    ),
)
SWITCHES = (*RULEBOOK, *FURTHER)
NO_SWITCH = {"version", "mode", "protocol"}


@pytest.mark.parametrize(
    ("field", "value", "cluster"),
    [
        pytest.param(switch.field, switch.value, cluster, id=f"{switch.claim} in {cluster}")
        for switch in SWITCHES
        for cluster in switch.true_in
    ],
)
def test_a_switch_is_on(field: str, value: object, cluster: str) -> None:
    assert getattr(rules(cluster), field) == value


@pytest.mark.parametrize(
    ("field", "value", "cluster"),
    [
        pytest.param(switch.field, switch.value, cluster, id=f"not: {switch.claim} in {cluster}")
        for switch in SWITCHES
        for cluster in switch.false_in
    ],
)
def test_a_switch_is_off(field: str, value: object, cluster: str) -> None:
    assert getattr(rules(cluster), field) != value


def test_every_switch_is_in_the_table() -> None:
    assert {switch.field for switch in SWITCHES} == {f.name for f in fields(RuleSet)} - NO_SWITCH


@pytest.mark.parametrize("field", sorted({f.name for f in fields(RuleSet)} - NO_SWITCH))
def test_no_switch_is_dead(field: str) -> None:
    seen = {getattr(rules(cluster), field) for cluster in EVERY_CLUSTER}
    assert len(seen) > 1
    kinds = {type(value) for value in seen}
    assert len(kinds) == 1
    kind = kinds.pop()
    if issubclass(kind, Enum):
        # Every value belongs to some release that we cover.
        assert seen == set(kind)


@pytest.mark.parametrize(
    ("cluster", "mode"),
    [
        pytest.param("0.8.2", Mode.ZOOKEEPER, id="ZooKeeper mode is covered from 0.8.2"),
        pytest.param("0.8.2-beta", Mode.ZOOKEEPER, id="a suffix does not matter"),
        pytest.param("3.9.1", Mode.ZOOKEEPER, id="ZooKeeper mode is there up to 3.9"),
        pytest.param("kraft 3.3", Mode.KRAFT, id="KRaft mode is there from 3.3"),
        pytest.param("kraft 4.3.1", Mode.KRAFT, id="a later patch of the newest line is covered"),
        pytest.param("3.9 at 0.8.2", Mode.ZOOKEEPER, id="a protocol may be as old as it likes"),
        pytest.param("kraft 4.3 at 4.3", Mode.KRAFT, id="a protocol may be as new as the software"),
    ],
)
def test_a_cluster_is_covered(cluster: str, mode: Mode) -> None:
    assert rules(cluster).mode is mode


@pytest.mark.parametrize(
    ("cluster", "what", "remedy"),
    [
        pytest.param("trunk", "'trunk' is not", "write it like 0.10.2.2", id="no version at all"),
        pytest.param("4", "'4' is not", "write it like 0.10.2.2", id="a number is no version"),
        pytest.param("2.8 at x", "'x' is not", "write it like 2.7-IV1", id="no protocol at all"),
        pytest.param("0.8.1", "0.8.1.0 is too old", "name that one if it", id="0.8.1 is too old"),
        pytest.param("kraft 4.4", "4.4.0 is too new", "name the newest", id="4.4 is too new"),
        pytest.param(
            "7.5.0-ccs", "7.5.0 is too new", "Kafka's own number", id="a distribution's own number"
        ),
        pytest.param("4.0", "no ZooKeeper mode", "use mode kraft", id="ZooKeeper mode in 4.0"),
        pytest.param(
            "kraft 3.2", "no production KRaft", "use mode zookeeper", id="KRaft mode in 3.2"
        ),
        pytest.param(
            "2.8 at 3.0", "cannot speak protocol 3.0", "correct one of", id="an IBP too new"
        ),
        pytest.param(
            "kraft 3.6 at 3.7-IV0",
            "cannot speak protocol 3.7-IV0",
            "correct one",
            id="an MV too new",
        ),
        pytest.param("3.9 with-elr", "no eligible", "leave it off", id="ELR in ZooKeeper mode"),
        pytest.param("kraft 3.9 with-elr", "no eligible", "leave it off", id="ELR before 4.0"),
        pytest.param(
            "kraft 4.0 at 4.0-IV0 with-elr",
            "4.0-IV0 has no eligible",
            "4.0-IV1: leave it off",
            id="ELR with a metadata.version before 4.0-IV1",
        ),
    ],
)
def test_a_refusal_names_the_remedy(cluster: str, what: str, remedy: str) -> None:
    with pytest.raises(UnknownVersionError) as caught:
        rules(cluster)
    assert what in caught.value.text
    assert remedy in caught.value.remedy
    assert str(caught.value) == f"{caught.value.text}: {caught.value.remedy}"


@pytest.mark.parametrize(
    ("text", "parts"),
    [
        pytest.param("0.10.2.2", (0, 10, 2, 2), id="up to 0.11 a release has four numbers"),
        pytest.param("0.11", (0, 11, 0, 0), id="missing numbers are zero"),
        pytest.param("3.9", (3, 9, 0), id="from 1.0 a release has three numbers"),
        pytest.param(" v3.9.1-rc0\n", (3, 9, 1), id="a tag is read as its release"),
    ],
)
def test_a_version_is_read(text: str, parts: tuple[int, ...]) -> None:
    assert KafkaVersion.parse(text).parts == parts


@pytest.mark.parametrize(
    "ascending",
    [
        pytest.param(
            ["2.7-IV0", "2.7-IV1", "2.7", "2.8-IV0"], id="a bare release is its last step"
        ),
        pytest.param(["0.10.2", "0.11.0-IV2", "0.11.0", "1.0-IV0"], id="0.x has three numbers"),
        pytest.param(["2.9-IV0", "2.10-IV0", "2.10-IV10"], id="numbers are not compared as text"),
    ],
)
def test_protocols_are_ordered(ascending: list[str]) -> None:
    read = [ProtocolVersion.parse(text) for text in ascending]
    assert all(older < newer for older, newer in pairwise(read))


@pytest.mark.parametrize(
    ("one", "other"),
    [("2.8", "2.8.2"), ("0.11", "0.11.0.3"), (" 3.9 ", "3.9")],
)
def test_patch_releases_speak_one_protocol(one: str, other: str) -> None:
    assert ProtocolVersion.parse(one) == ProtocolVersion.parse(other)
    assert ProtocolVersion.of(KafkaVersion.parse(other)) == ProtocolVersion.parse(one)


@pytest.mark.parametrize(
    ("cluster", "text"),
    [
        ("2.8", "2.8.0 zookeeper"),
        ("kraft 4.0.1", "4.0.1 kraft"),
        ("kraft 4.1", "4.1.0 kraft elr"),
    ],
)
def test_a_rule_set_says_whose_it_is(cluster: str, text: str) -> None:
    assert str(rules(cluster)) == text


NUMBERS = st.integers(0, 9999)
VERSIONS = st.lists(NUMBERS, min_size=2, max_size=4).map(
    lambda parts: KafkaVersion.parse(".".join(map(str, parts)))
)
PROTOCOLS = st.tuples(
    st.lists(NUMBERS, min_size=2, max_size=4), st.none() | st.integers(0, 99)
).map(
    lambda read: ProtocolVersion.parse(
        ".".join(map(str, read[0])) + ("" if read[1] is None else f"-IV{read[1]}")
    )
)
# Mostly what versions are made of, so that a search gets beyond the first number.
NEARLY = st.text(st.one_of(st.sampled_from("0123489.-IVv+rc \n"), st.characters()), max_size=16)
KNOWN = st.sampled_from([*ZOOKEEPER_VERSIONS, *KRAFT_VERSIONS])
MANY_DIGITS = "1" * 5000


@given(NEARLY)
@example(f"{MANY_DIGITS}.0")
@example(f"3.{MANY_DIGITS}")
@example("\u0663.\u0669")
@example("3.9-IV" + MANY_DIGITS)
def test_a_text_is_read_or_refused_with_our_own_error(text: str) -> None:
    for read in (KafkaVersion.parse, ProtocolVersion.parse):
        version = None
        with suppress(UnknownVersionError):
            version = read(text)
        assert version is None or read(str(version)) == version


@given(
    NEARLY | KNOWN,
    st.sampled_from(Mode),
    st.none() | NEARLY | KNOWN,
    st.none() | st.booleans(),
    st.booleans(),
)
def test_rules_are_given_or_refused_with_our_own_error(
    version: str, mode: Mode, protocol: str | None, elr: bool | None, migrating: bool
) -> None:
    with suppress(UnknownVersionError):
        found = rules_for(version, mode, protocol=protocol, elr=elr, migrating=migrating)
        assert (found.mode, found.elr) == (mode, found.elr if elr is None else elr)


@given(
    st.one_of(st.tuples(VERSIONS, VERSIONS, VERSIONS), st.tuples(PROTOCOLS, PROTOCOLS, PROTOCOLS))
)
def test_the_order_is_total(three: tuple[KafkaVersion, KafkaVersion, KafkaVersion]) -> None:
    one, other, third = three
    assert [one < other, one == other, one > other].count(True) == 1
    assert (one <= other) == (not one > other)
    assert (one == other) == (hash(one) == hash(other) and str(one) == str(other))
    low, middle, high = sorted(three)
    assert low <= middle <= high
    assert low <= high
    assert sorted((third, one, other)) == [low, middle, high]


@given(VERSIONS)
def test_a_version_comes_back_as_written(version: KafkaVersion) -> None:
    assert KafkaVersion.parse(str(version)) == version
    assert version.at_least(*version.parts)


@given(PROTOCOLS)
def test_a_protocol_comes_back_as_written(protocol: ProtocolVersion) -> None:
    assert ProtocolVersion.parse(str(protocol)) == protocol
