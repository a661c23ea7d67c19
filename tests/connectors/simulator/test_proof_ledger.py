"""The judge of the random search: what is missed has the reason that is true of it."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from tidestaff.consistency.model import EpochEntry, OffsetRange, ReplicaReading, TopicPartition

from tests.proof.epoch_files import tell_apart
from tests.proof.histories import EVERY_STEP, Plan, Watched, live, live_again
from tests.proof.ledger import (
    BESIDE,
    DELETING,
    FELL_BACK,
    NO_LINEAGE,
    OLD_FILES,
    REPLACED_DISK,
    SAME_EPOCH,
    SKIPPED,
    STRAY,
    TORN_TAIL,
    UNEXPLAINED,
    judge,
)
from tests.proof.search import main, plan_of
from tests.proof.watching import DIFFERENT_RECORDS, differing_from_others

UNCLEANLY = {"unclean_leader_election_enable": True}
TWO_SECONDS_MS = 2_000


def elected_uncleanly(*, deleted: bool) -> list[dict[str, Any]]:
    """The leader of b dies, then its follower falls silent; the first comes back and is elected.
    Whether the topic is deleted then, before the next sample at 12 s, is the difference."""
    actions: list[dict[str, Any]] = [
        {"at_ms": 4_000, "do": "crash", "broker": 2},
        {"at_ms": 7_000, "do": "pause", "broker": 3},
        {"at_ms": 7_500, "do": "start", "broker": 2},
        {"at_ms": 10_500, "do": "change_settings", "topic": "b", "settings": UNCLEANLY},
    ]
    return [*actions, {"at_ms": 11_000, "do": "delete_topic", "topic": "b"}][: 4 + deleted]


@pytest.mark.parametrize("preset", ["2.8.2", "3.9.1"])
@pytest.mark.parametrize("deleted", [False, True])
def test_an_election_of_a_topic_that_is_deleted_before_the_next_sample_is_not_judged(
    preset: str, *, deleted: bool
) -> None:
    plan = Plan(preset, seed=1, every_ms=TWO_SECONDS_MS)
    watched = live_again(plan, elected_uncleanly(deleted=deleted), 20_000)
    found = judge(watched)
    assert len(watched.cluster.truth.unclean_elections) == 1
    assert (found.exact["unclean election"], found.missed["unclean election"]) == (
        (0, 1) if deleted else (1, 0)
    )
    assert dict(found.reasons) == ({f"unclean election missed: {DELETING}": 1} if deleted else {})
    assert found.disagreements == 0


def fell_back(*, removed_ms: int | None) -> list[dict[str, Any]]:
    """The leader of b comes back with an empty disk, alone in the ISR. Its five records are lost by
    that, unless they were removed before."""
    actions: list[dict[str, Any]] = [
        {"at_ms": 4_000, "do": "pause", "broker": 2},
        {"at_ms": 6_500, "do": "produce", "topic": "b", "partition": 0, "records": 5},
        {"at_ms": removed_ms, "do": "delete_records", "topic": "b", "partition": 0, "offset": 5},
        {"at_ms": 12_900, "do": "clean_stop", "broker": 3},
        {"at_ms": 13_000, "do": "wipe_disk", "broker": 3},
        {"at_ms": 13_100, "do": "start", "broker": 3},
    ]
    return [action for action in actions if action["at_ms"] is not None]


@pytest.mark.parametrize(
    ("removed_ms", "losses", "raised", "reasons"),
    [
        pytest.param(None, 1, 1, {}, id="what-is-lost-is-raised"),
        pytest.param(9_000, 0, 0, {}, id="what-a-sample-showed-as-removed-is-not"),
        pytest.param(
            *(12_500, 0, 1, {f"loss raised: {FELL_BACK}": 1}),
            id="what-was-removed-unseen-is-raised-and-counted-under-its-own-name",
        ),
    ],
)
@pytest.mark.parametrize("preset", ["3.9.1-kraft", "4.1.1-kraft"])
def test_records_that_were_removed_are_not_lost_with_the_log(
    preset: str, removed_ms: int | None, losses: int, raised: int, reasons: dict[str, int]
) -> None:
    plan = Plan(preset, seed=1, every_ms=TWO_SECONDS_MS)
    watched = live_again(plan, fell_back(removed_ms=removed_ms), 20_000)
    found = judge(watched)
    assert len(watched.cluster.truth.losses) == losses
    assert found.confirmed["TRN001"] == raised
    assert dict(found.reasons) == reasons
    assert found.disagreements == 0


def raised_once_though_removed() -> Watched:
    plan = Plan("3.9.1-kraft", seed=1, every_ms=TWO_SECONDS_MS)
    return live_again(plan, fell_back(removed_ms=12_500), 20_000)


def test_what_was_removed_unseen_is_raised_once_or_it_is_false() -> None:
    """As if the monitor had not taken the reported loss out of its books."""
    watched = raised_once_though_removed()
    [alarm] = [a for a in watched.watcher.alarms if a.violated.code == "TRN001"]
    again = alarm._replace(
        at_ms=alarm.at_ms + TWO_SECONDS_MS, until_ms=alarm.until_ms + TWO_SECONDS_MS
    )
    watched.watcher.alarms.append(again)
    assert judge(watched).false == {"TRN001": 1}


def test_what_the_alarms_own_sample_shows_as_removed_is_false() -> None:
    """As if the monitor had not looked at the log start that it was told."""
    watched = raised_once_though_removed()
    [alarm] = [a for a in watched.watcher.alarms if a.violated.code == "TRN001"]
    assert alarm.partition is not None
    assert alarm.violated.offsets == (0, 5)
    glimpses = watched.watcher.glimpses[alarm.partition]
    at = next(at for at, g in enumerate(glimpses) if g.at_ms == alarm.at_ms)
    glimpses[at] = glimpses[at]._replace(log_start=4)
    assert judge(watched).false == {"TRN001": 1}


def back_with_a_tail(*, wiped: bool) -> Watched:
    """3 leads b alone, and goes with twenty records; 2 has none of them, is elected and writes
    thirty. 3 is back in the ISR after samples that show it outside, as long as its leader."""
    at = {"topic": "b", "partition": 0}
    actions: list[dict[str, Any]] = [
        {"at_ms": 1_000, "do": "change_settings", "topic": "b", "settings": UNCLEANLY},
        {"at_ms": 2_000, "do": "crash", "broker": 2},
        {"at_ms": 5_000, "do": "produce", **at, "records": 20},
        {"at_ms": 9_000, "do": "crash", "broker": 3},
        {"at_ms": 11_000, "do": "start", "broker": 2},
        {"at_ms": 12_500, "do": "produce", **at, "records": 30},
        {"at_ms": 13_000, "do": "wipe_disk", "broker": 3},
        {"at_ms": 14_000, "do": "start", "broker": 3},
        {"at_ms": 14_000, "do": "cut", "source": "2", "target": "zookeeper", "one_way": False},
        {"at_ms": 14_600, "do": "heal", "source": "2", "target": "zookeeper"},
    ]
    kept = [action for action in actions if wiped or action["do"] != "wipe_disk"]
    return live_again(Plan("0.10.2.2", seed=1, every_ms=100), kept, 18_000)


@pytest.mark.parametrize("wiped", [False, True])
def test_a_disk_that_was_replaced_looks_like_a_tail_that_was_kept(*, wiped: bool) -> None:
    """Seed 1119 of the search: what a sample showed outside the ISR told nothing of it."""
    watched = back_with_a_tail(wiped=wiped)
    found = judge(watched)
    raised = [a for a in watched.watcher.alarms if a.violated.code == "TRN006"]
    assert {a.violated.offsets for a in raised} == {(0, 20)}
    assert raised[0].partition is not None
    outside = [
        g
        for g in watched.watcher.glimpses[raised[0].partition]
        if 14_000 < g.at_ms < raised[0].at_ms and 3 in g.ends
    ]
    assert outside
    assert len(watched.cluster.truth.divergences) == (0 if wiped else 1)
    assert found.confirmed["TRN006"] == len(raised)
    reason = f"TRN006 raised: {REPLACED_DISK}"
    assert found.reasons[reason] == (len(raised) if wiped else 0)
    assert found.disagreements == 0


def back_after(how: str) -> Watched:
    """The same with two writes; the second, of eight records, is not flushed when 3 goes."""
    at = {"topic": "b", "partition": 0}
    actions: list[dict[str, Any]] = [
        {"at_ms": 1_000, "do": "change_settings", "topic": "b", "settings": UNCLEANLY},
        {"at_ms": 2_000, "do": "crash", "broker": 2},
        {"at_ms": 5_000, "do": "produce", **at, "records": 12},
        {"at_ms": 6_100, "do": "produce", **at, "records": 8},
        {"at_ms": 7_900, "do": how, "broker": 3},
        {"at_ms": 11_000, "do": "start", "broker": 2},
        {"at_ms": 12_500, "do": "produce", **at, "records": 30},
        {"at_ms": 14_000, "do": "start", "broker": 3},
    ]
    watched = live_again(Plan("0.10.2.2", seed=1, every_ms=100), actions, 18_000)
    torn = [tail.offsets for tail in watched.cluster.truth.torn_tails]
    assert torn == ([(12, 20)] if how == "power_loss" else [])
    return watched


@pytest.mark.parametrize("how", ["crash", "power_loss"])
def test_what_a_power_loss_took_is_named_with_the_tail_that_was_kept(how: str) -> None:
    """Seed 9022 of the search: the samples are the same as after a crash."""
    watched = back_after(how)
    found = judge(watched)
    raised = [a for a in watched.watcher.alarms if a.violated.code == "TRN006"]
    assert {a.violated.offsets for a in raised} == {(0, 20)}
    [divergence] = watched.cluster.truth.divergences
    assert divergence.offsets == ((0, 12) if how == "power_loss" else (0, 20))
    assert found.confirmed["TRN006"] == len(raised) > 0
    reason = f"TRN006 raised: {TORN_TAIL}"
    assert found.reasons[reason] == (len(raised) if how == "power_loss" else 0)
    assert found.disagreements == 0


def test_a_power_loss_excuses_no_more_than_it_took() -> None:
    """As if it had taken less."""
    watched = back_after("power_loss")
    [torn] = watched.cluster.truth.torn_tails
    watched.cluster.truth.torn_tails[:] = [torn._replace(offsets=OffsetRange(13, 20))]
    assert judge(watched).false["TRN006"] > 0


@pytest.mark.parametrize("shown", ["shorter", "away again"])
def test_a_sample_that_tells_the_new_disk_from_the_old_one_leaves_no_excuse(shown: str) -> None:
    """As if the monitor had overlooked it."""
    watched = back_with_a_tail(wiped=True)
    raised = [a for a in watched.watcher.alarms if a.violated.code == "TRN006"]
    assert raised[0].partition is not None
    glimpses = watched.watcher.glimpses[raised[0].partition]
    told = [at for at, g in enumerate(glimpses) if g.at_ms < raised[0].at_ms and 3 in g.ends]
    at = told[-1]
    others = {broker: end for broker, end in glimpses[at].ends.items() if broker != 3}
    if shown == "shorter":
        glimpses[at] = glimpses[at]._replace(ends={**others, 3: 19})
    else:
        glimpses[at] = glimpses[at]._replace(ends=others, registered=frozenset({2}))
    assert judge(watched).false == {"TRN006": len(raised)}


@pytest.mark.parametrize("preset", ["2.8.2", "3.9.1"])
def test_a_loss_of_records_that_nobody_had_shown_was_not_reported_with_others(preset: str) -> None:
    """Seed 1205 of the search: a deposed leader wakes up and shows what it had committed, where
    the loss of other records was reported while it slept. It is told once, too."""
    watched = live(plan_of("all faults", preset, 1205, 200))
    assert judge(watched).disagreements == 0
    first, second = (
        a
        for a in watched.watcher.alarms
        if a.violated.offsets in ((0, 117), (96, 119)) and a.violated.code == "TRN001"
    )
    assert first.at_ms < second.at_ms
    again = second._replace(at_ms=second.at_ms + 2_000, until_ms=second.until_ms + 2_000)
    watched.watcher.alarms.append(again)
    assert judge(watched).false == {"TRN001": 1}


def test_a_leader_of_old_metadata_beside_a_later_one_shows_no_loss() -> None:
    """Seed 2007 of the search: metadata is three seconds old, and a leader of a later epoch answers
    beside the one it names; by the time it is named its log is long enough again."""
    watched = live(plan_of("late places", "0.10.2.2", 2007, 200))
    found = judge(watched)
    assert found.disagreements == 0
    assert found.reasons[f"loss missed: {NO_LINEAGE}"] == 4


def committed_by_a_stray_leader() -> Watched:
    """3.9.1, seed 3117 of the search, its fewest actions: 2 sleeps alone in the ISR, 1 is elected
    uncleanly and a reassignment leaves 2 out. It wakes up, and still leads by its own word."""
    at = {"topic": "b", "partition": 0}
    actions: list[dict[str, Any]] = [
        {"at_ms": 30_610, "do": "change_settings", "topic": "b", "settings": UNCLEANLY},
        {"at_ms": 40_924, "do": "pause", "broker": 3},
        {"at_ms": 41_301, "do": "pause", "broker": 2},
        {"at_ms": 43_858, "do": "reassign", **at, "replicas": [1, 3]},
        {"at_ms": 44_313, "do": "resume", "broker": 3},
        {"at_ms": 45_429, "do": "resume", "broker": 2},
        {"at_ms": 45_589, "do": "produce", **at, "records": 3, "broker": 2},
    ]
    return live_again(plan_of("every step", "3.9.1", 3117, 200), actions, 50_000)


def test_what_a_leader_commits_that_is_no_longer_assigned_is_missed_for_that_reason() -> None:
    watched = committed_by_a_stray_leader()
    [loss], [commit] = watched.cluster.truth.losses, watched.cluster.truth.stray_commits
    assert (loss.offsets, loss.records, commit.broker) == ((0, 3), commit.records, 2)
    found = judge(watched)
    assert dict(found.reasons) == {f"loss missed: {STRAY}": 1}
    assert found.exact["unclean election"] == 1, "what made it possible is told"


@pytest.mark.parametrize("ground", ["not all of it was committed so", "a sample showed it"])
def test_a_loss_of_what_a_stray_leader_had_committed_is_excused_on_its_own_ground_only(
    ground: str,
) -> None:
    watched = committed_by_a_stray_leader()
    [loss], [commit] = watched.cluster.truth.losses, watched.cluster.truth.stray_commits
    [run] = commit.records
    if ground == "a sample showed it":
        glimpses = watched.watcher.glimpses[loss.partition]
        glimpses[-1] = glimpses[-1]._replace(shown=(run._replace(start=2),))
    else:
        less = commit._replace(records=(run._replace(end=2),))
        watched.cluster.truth.stray_commits[:] = [less]
    assert dict(judge(watched).reasons) == {f"loss missed: {UNEXPLAINED}": 1}


@pytest.mark.parametrize(("late_ms", "false"), [(0, 0), (1_000, 1)])
def test_a_stray_commit_that_shows_when_its_leader_is_assigned_again_is_raised_then(
    late_ms: int, false: int
) -> None:
    """3.9.1, seed 32013 of the search: the other leader was seen all along, but until 3 is assigned
    again nobody knows of its commit. The alarm comes with the next word of who is in office."""
    at = {"topic": "b", "partition": 0}
    actions: list[dict[str, Any]] = [
        {"at_ms": 6_902, "do": "clean_stop", "broker": 2},
        {"at_ms": 7_471, "do": "pause", "broker": 3},
        {"at_ms": 8_406, "do": "reassign", **at, "replicas": [1, 2]},
        {"at_ms": 9_042, "do": "unclean_election", **at},
        {"at_ms": 9_202, "do": "start", "broker": 2},
        {"at_ms": 11_857, "do": "resume", "broker": 3},
        {"at_ms": 12_269, "do": "produce", **at, "records": 3, "broker": 3},
        {"at_ms": 16_328, "do": "reassign", **at, "replicas": [3, 1]},
    ]
    watched = live_again(plan_of("every step", "3.9.1", 32013, 200), actions, 23_500)
    alarms = watched.watcher.alarms
    [raised] = [alarm for alarm in alarms if alarm.violated.code == "TRN001"]
    later = raised._replace(at_ms=raised.at_ms + late_ms, until_ms=raised.until_ms + late_ms)
    alarms[alarms.index(raised)] = later
    found = judge(watched)
    assert (found.exact["loss"], found.false["TRN001"]) == (1 - false, false)


def emptied_isr(*, every_ms: int) -> Watched:
    """0.10.2.2, seed 3113 of the search, its fewest actions: the leader of b dies, then its heir,
    which leaves the ISR empty; the first one comes back and is elected."""
    actions: list[dict[str, Any]] = [
        {"at_ms": 19_411, "do": "change_settings", "topic": "b", "settings": UNCLEANLY},
        {"at_ms": 38_381, "do": "crash", "broker": 3},
        {"at_ms": 40_173, "do": "start", "broker": 3},
        {"at_ms": 45_017, "do": "crash", "broker": 2},
        {"at_ms": 45_185, "do": "crash", "broker": 3},
        {"at_ms": 47_901, "do": "start", "broker": 2},
    ]
    plan = plan_of("all faults", "0.10.2.2", 3113, 200)
    return live_again(replace(plan, every_ms=every_ms), actions, 52_000)


def test_who_was_last_in_an_emptied_isr_is_not_told_by_samples_that_skipped_it() -> None:
    """The dead leader may as well have been the last: 3 may have died before it."""
    watched = emptied_isr(every_ms=2_000)
    [election] = watched.cluster.truth.unclean_elections
    assert election.leader == 2
    assert dict(judge(watched).reasons) == {f"unclean election missed: {SKIPPED}": 1}


@pytest.mark.parametrize("every_ms", [EVERY_STEP, 20])
def test_who_was_last_in_an_emptied_isr_is_told_by_a_sample_of_it(every_ms: int) -> None:
    found = judge(emptied_isr(every_ms=every_ms))
    assert found.exact["unclean election"] == 1
    assert found.disagreements == 0


def test_who_was_in_no_isr_that_was_shown_is_elected_uncleanly_whatever_was_skipped() -> None:
    """As if the monitor had been silent: the sample before had shown another in the ISR alone."""
    watched = emptied_isr(every_ms=2_000)
    [election] = watched.cluster.truth.unclean_elections
    glimpses = watched.watcher.glimpses[election.partition]
    at = max(at for at, g in enumerate(glimpses) if g.leader >= 0 and g.at_ms < election.at_ms)
    glimpses[at] = glimpses[at]._replace(electable=frozenset({3}))
    assert dict(judge(watched).reasons) == {f"unclean election missed: {UNEXPLAINED}": 1}


def test_what_a_deposed_leader_commits_beyond_a_reported_loss_is_found_with_its_range() -> None:
    """Seed 8010: nobody in office answers while it shows them, and it is gone when somebody does;
    no log has epochs, no reading a topic id."""
    watched = live(plan_of("real timeouts", "0.10.2.2", 8_010, 200))
    first, second = watched.cluster.truth.losses
    assert first.offsets.end == second.offsets.start, "beyond what was lost before"
    found = judge(watched)
    assert (found.exact["loss"], dict(found.reasons), dict(found.false)) == (2, {}, {})


@pytest.mark.parametrize("kind", ["every step", "late places"])
@pytest.mark.parametrize(
    ("writes", "confirmed"),
    [
        pytest.param("as they were", 1, id="the-write-itself"),
        pytest.param("none", 0, id="no-write"),
        pytest.param("of another partition", 0, id="a-write-of-another-partition"),
        pytest.param("later", 0, id="a-write-after-the-alarm"),
    ],
)
def test_an_alarm_of_a_stale_controller_needs_its_very_write(
    kind: str, writes: str, confirmed: int
) -> None:
    watched = live(plan_of(kind, "0.10.2.2", 3, 60))
    entries = watched.cluster.truth.stale_writes
    [write] = entries
    assert write.controller_epoch < write.current_epoch
    [alarm] = [a for a in watched.watcher.alarms if a.violated.code == "CTL004"]
    if writes == "none":
        entries.clear()
    elif writes == "of another partition":
        entries[:] = [write._replace(partition=TopicPartition("another", 0))]
    elif writes == "later":
        entries[:] = [write._replace(at_ms=alarm.until_ms + 1)]
    found = judge(watched)
    assert (found.confirmed["CTL004"], found.false["CTL004"]) == (confirmed, 1 - confirmed)


def listing(*entries: tuple[int, int], believes: int, leads: bool = False) -> ReplicaReading:
    file = tuple(EpochEntry(*entry) for entry in entries)
    return ReplicaReading(1, 0, 30, 30, leader_epoch=believes, leads=leads, lineage=file)


@pytest.mark.parametrize(
    ("newer", "told"),
    [
        pytest.param(listing((0, 0), (2, 10), believes=4), [10], id="where-its-entry-starts"),
        pytest.param(
            listing((0, 0), (2, 10), believes=2), range(10, 30), id="what-came-in-that-epoch"
        ),
        pytest.param(
            listing((0, 0), (2, 10), (3, 20), believes=4, leads=True),
            [10, *range(20, 30)],
            id="what-a-leader-had-from-the-one-before-it",
        ),
        pytest.param(listing((0, 0), (1, 10), believes=4), [], id="nothing-where-they-agree"),
        pytest.param(listing((2, 12), (3, 30), believes=4), [], id="not-the-first-entry"),
    ],
)
def test_what_two_epoch_files_of_before_2_0_1_tell(newer: ReplicaReading, told: Any) -> None:
    other = listing((0, 0), (1, 10), believes=4)
    assert [at for at in range(30) if tell_apart(newer, other, at)] == list(told)
    assert [at for at in range(30) if tell_apart(other, newer, at)] == list(told)


@pytest.mark.parametrize(
    ("preset", "seed", "reason"),
    [("2.0.1", 34_013, SAME_EPOCH), ("1.1.1", 34_003, OLD_FILES)],
)
def test_a_divergence_that_epochs_cannot_tell_is_not_excused_where_they_can(
    preset: str, seed: int, reason: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    watched = live(plan_of("all faults", preset, seed, 200))
    assert sum(n for r, n in judge(watched).reasons.items() if r.endswith(reason)) > 0
    found = watched.cluster.truth.divergences
    if reason == SAME_EPOCH:
        found[:] = [
            each._replace(
                records=tuple(
                    tuple(r._replace(epoch=-i) for r in part)
                    for i, part in enumerate(each.records, 1)
                )
            )
            for each in found
        ]
    else:
        monkeypatch.setattr("tests.proof.ledger.tell_nothing", lambda *_: False)
    reasons = judge(watched).reasons
    assert not any(r.startswith("divergence") and r.endswith(reason) for r in reasons)
    assert any(r.startswith("divergence") and r.endswith(UNEXPLAINED) for r in reasons)


def unexplained(watched: Watched) -> int:
    return sum(n for reason, n in judge(watched).reasons.items() if reason.endswith(UNEXPLAINED))


def test_a_loss_of_every_step_is_not_paid_for_by_the_next_one_at_the_same_offsets() -> None:
    """As if the monitor had raised the last loss of each range only."""
    watched = live(plan_of("every step", "0.10.2.2", 88_009, 200))
    alarms = watched.watcher.alarms
    lost = [a for a in alarms if a.violated.code == "TRN001"]
    last = {(a.partition, a.violated.offsets): a for a in lost}
    assert judge(watched).disagreements == 0
    alarms[:] = [a for a in alarms if a not in lost or a in last.values()]
    assert unexplained(watched) == len(lost) - len(last) > 0


def test_a_loss_of_every_step_is_not_paid_for_by_one_of_the_topic_that_was_made_again() -> None:
    watched = live(plan_of("every step", "0.10.2.2", 88_009, 200))
    alarms = watched.watcher.alarms
    alarms[:] = [a._replace(topic="another") for a in alarms]
    assert unexplained(watched) >= len(watched.cluster.truth.losses) > 0


@pytest.mark.parametrize(("late_ms", "missed"), [(20, 0), (500, 1)])
def test_a_divergence_of_every_step_is_told_in_its_step(late_ms: int, missed: int) -> None:
    watched = live(plan_of("every step", "0.10.2.2", 88_004, 150))
    [divergence] = watched.cluster.truth.divergences
    alarms = watched.watcher.alarms
    alarms[:] = [
        a._replace(until_ms=divergence.at_ms + late_ms)
        if a.violated.code in DIFFERENT_RECORDS
        else a
        for a in alarms
    ]
    assert unexplained(watched) == missed


def test_a_divergence_that_is_mended_is_not_raised_again() -> None:
    """As if the monitor had not seen that the logs are equal again."""
    watched = live(plan_of("every step", "0.10.2.2", 88_004, 150))
    alarms, end_ms = watched.watcher.alarms, watched.cluster.now_ms
    raised = next(a for a in alarms if a.violated.code == "TRN006")
    broker, offsets = raised.violated.broker, raised.violated.offsets
    assert raised.partition is not None
    assert broker is not None
    assert offsets is not None
    now = differing_from_others(watched.cluster, raised.partition, broker, offsets)
    assert now == ()
    assert judge(watched).disagreements == 0
    alarms.append(raised._replace(at_ms=end_ms, until_ms=end_ms, differing=now))
    assert judge(watched).false == {"TRN006": 1}


def test_a_loss_is_not_told_together_with_records_that_the_leader_is_seen_with() -> None:
    """As if the monitor had named all that lies below it, too."""
    watched = live(plan_of("all faults", "1.1.1", 88_050, 200))
    alarms = watched.watcher.alarms
    lost = [at for at, a in enumerate(alarms) if (a.violated.code, a.at_ms) == ("TRN001", 45_180)]
    at = lost[0]
    assert alarms[at].violated.offsets == (70, 79)
    more = alarms[at].violated._replace(offsets=OffsetRange(0, 79))
    alarms[at] = alarms[at]._replace(violated=more)
    assert judge(watched).false == {"TRN001": 1}


@pytest.mark.parametrize(
    ("seed", "at_ms"),
    [
        pytest.param(88_024, 37_593, id="shown-by-the-leader-that-the-metadata-no-longer-names"),
        pytest.param(88_037, 57_890, id="shown-by-a-follower-in-the-sample-of-the-loss"),
    ],
)
def test_a_loss_that_the_samples_prove_has_no_excuse(seed: int, at_ms: int) -> None:
    """As if the monitor had been silent."""
    watched = live(plan_of("all faults", "1.1.1", seed, 200))
    [loss] = [loss for loss in watched.cluster.truth.losses if loss.at_ms == at_ms]
    assert judge(watched).disagreements == 0
    watched.watcher.alarms[:] = [
        a
        for a in watched.watcher.alarms
        if (a.violated.code, a.partition) != ("TRN001", loss.partition) or a.until_ms < at_ms
    ]
    assert f"loss missed: {UNEXPLAINED}" in judge(watched).reasons


def test_what_is_shown_out_of_office_beside_anothers_commit_is_not_told_without_topic_ids() -> None:
    """Seed 91025: two deposed leaders have others at the same offsets, in one sample."""
    watched = live(plan_of("all faults", "2.4.1", 91_025, 200))
    found = judge(watched)
    assert (found.disagreements, found.reasons[f"loss partly: {BESIDE}"]) == (0, 1)
    glimpses = watched.watcher.glimpses[TopicPartition("b", 0)]
    [at] = [at for at, g in enumerate(glimpses) if g.at_ms == 52_180]
    readings = tuple(r._replace(topic_id=glimpses[at].topic) for r in glimpses[at].readings)
    glimpses[at] = glimpses[at]._replace(readings=readings)
    assert unexplained(watched) == 1, "with its id it is told"


def test_a_version_that_the_search_does_not_know_is_told(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr("sys.argv", ["search", "--preset", "3.10"])
    with pytest.raises(SystemExit):
        main()
    assert "invalid choice: '3.10' (choose from '0.8.2.2'," in capsys.readouterr().err
