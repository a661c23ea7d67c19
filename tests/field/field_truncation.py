"""Truncation predicted equals truncation done, over rounds of kills, restarts and writes by chance.

In each round a broker dies, most times with a tail that nobody else has; others lead and write on.
While it is down its files say where its logs end: from them and the new leaders' files the cut is
predicted. Then it starts, and its own log tells the cut it made.
"""

from __future__ import annotations

import random
import re
import time
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final

from tidestaff.connectors.log_directories import LogDirectories
from tidestaff.consistency.model import TopicPartition
from tidestaff.consistency.truncation import ReplicaLog, predict_truncation
from tidestaff.consistency.versions import Mode, rules_for
from tidestaff.streaming.lab.errors import LabError

from tests.field.field_losses import LOSS_CODES, Loss, consumers_ends, lost
from tests.field.field_watch import Watch
from tests.field.lab import running

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from tidestaff.connectors.disk_replica import DiskReplica
    from tidestaff.streaming.lab.clients import PartitionSeen

    from tests.field.field_watch import Alert
    from tests.field.lab import Kind, Lab

CLEAN, UNCLEAN = "safe", "unclean"
ASSIGNMENT: Final = ([1, 2, 3], [2, 3, 1], [3, 1, 2])
LAG_MS: Final = 4_000
NOBODY: Final = -1
SETTINGS: Final = {
    0: {
        "zookeeper.session.timeout.ms": "3000",
        "broker.session.timeout.ms": "3000",
        "broker.heartbeat.interval.ms": "500",
        "replica.lag.time.max.ms": str(LAG_MS),
        "replica.fetch.wait.max.ms": "300",
        "replica.fetch.backoff.ms": "200",
        "unclean.leader.election.enable": "false",
    }
}
_CUT: Final = re.compile(
    r"partition=(?P<new>[\w.-]+-\d+)[,\]].*Truncating to offset (?P<new_at>\d+)"
    r"|Truncating log (?P<old>[\w.-]+-\d+) to offset (?P<old_at>\d+)"
)
_KAFKA_SAYS_UNCLEAN: Final = re.compile(
    r"UNCLEAN partition change for (?P<partition>[\w.-]+-\d+)"
    r".*?[ ,]leader: -?\d+ -> (?P<leader>\d+).*leaderRecoveryState: RECOVERED -> RECOVERING"
)


@dataclass
class Tally:
    """What came of all rounds."""

    kind: Kind
    rounds: int = 0
    wanted: int = 0
    compared: int = 0
    cuts: int = 0
    wrong: list[str] = field(default_factory=list)
    losses: list[Loss] = field(default_factory=list)
    not_named: list[str] = field(default_factory=list)
    nothing_lost: int = 0
    alerts: list[Alert] = field(default_factory=list)
    logged: set[tuple[str, int]] = field(default_factory=set)
    took_s: float = 0.0

    @property
    def unexpected(self) -> list[Alert]:
        """Grave findings on the topic that allows no unclean election, but for those elections that
        the controller's own log calls unclean: KIP-966 makes the last known leader lead again when
        nobody else is left, with or without leave."""
        grave = [a for a in self.alerts if a.grave and not a.subject.startswith(UNCLEAN)]
        return [a for a in grave if a not in self.last_known_leaders]

    @property
    def false_losses(self) -> list[Alert]:
        """Where unclean elections are allowed: what was told as lost and was not. A part of what
        was lost is none of it: if others were written there before the next sample, and no epochs
        are known, only what is missing still can be told beside the election's own range."""
        return [
            alert
            for alert in self.alerts
            if alert.code in LOSS_CODES
            and alert.subject.startswith(UNCLEAN)
            and alert.first is not None
            and not any(each.covers(alert) for each in self.losses)
        ]

    @property
    def last_known_leaders(self) -> list[Alert]:
        return [
            a
            for a in self.alerts
            if a.code == "ELE009"
            and not a.subject.startswith(UNCLEAN)
            and (a.subject, a.broker) in self.logged
        ]


def play(
    folder: Path,
    kind: Kind,
    *,
    rounds: int,
    seed: int,
    until: float | None = None,
    say: Callable[[str], None] = lambda _: None,
) -> Tally:
    """Ends early at `until` of the monotonic clock; `rounds` of the result says how many were."""
    chance, began = random.Random(seed), time.monotonic()  # noqa: S311 - replayable
    tally = Tally(kind, wanted=rounds)
    with running(folder, *kind, cuttable=True, settings=SETTINGS) as lab:
        for topic in (CLEAN, UNCLEAN):
            unclean = str(topic == UNCLEAN).lower()
            lab.clients.create_topic(
                topic,
                assignment=ASSIGNMENT,
                configs={"min.insync.replicas": "1", "unclean.leader.election.enable": unclean},
            )
        with Watch(lab, f"{CLEAN}|{UNCLEAN}", every_s=0.7) as watch:
            while tally.rounds < rounds and (until is None or time.monotonic() < until):
                started, known, told = time.monotonic(), len(tally.losses), len(watch.alerts)
                how = _round(lab, watch, tally, chance)
                tally.rounds += 1
                took_s = time.monotonic() - started
                say(f"round {tally.rounds}: {how}, {took_s:.0f} s {tally.losses[known:] or ''}")
                for alert in watch.alerts[told:]:
                    if alert.grave:
                        say(f"  {alert}: expected {alert.expected}, observed {alert.observed}")
            watch.wait_rounds(3)
            tally.alerts = watch.alerts
            for alert in (*tally.unexpected, *tally.false_losses):
                say(f"unexpected: {alert}: expected {alert.expected}, observed {alert.observed}")
                for each in watch.shown(alert):
                    say(f"  seen: {each}")
        tally.logged = {
            (found["partition"], int(found["leader"]))
            for node in lab.brokers
            for found in _KAFKA_SAYS_UNCLEAN.finditer(lab.log(node))
        }
    tally.took_s = time.monotonic() - began
    return tally


def _round(lab: Lab, watch: Watch, tally: Tally, chance: random.Random) -> str:
    _write(lab, chance, acks="all")
    how = chance.choices(("stop", "kill", "tail", "alone"), (1, 2, 5, 2))[0]
    # From 2.7 on an ISR is shrunk by way of the controller: only on its own broker one leads alone.
    # With KRaft only the followers' fetches are cut off, so that everybody hears the controller.
    of_controller = how == "alone" and tally.kind.mode == "zookeeper"
    victim = lab.clients.controller() if of_controller else chance.choice(lab.brokers)
    others = [broker for broker in lab.brokers if broker != victim]
    watch.wait_rounds(1)
    led: list[int] = []
    if how in {"tail", "alone"}:
        kraft = tally.kind.mode == "kraft"
        led = [p.partition for p in lab.clients.describe(UNCLEAN) if p.leader == victim]
        try:
            _make_tail(lab, victim, chance, alone=how == "alone", kraft=kraft)
        except LabError:
            # 2.8 may wait for ever for an answer to its change of the ISR.
            if not tally.kind.version.startswith("2.8."):
                raise
            how = "alone, unanswered"
        if how != "tail":
            # Its last try may have been committed just now. What is committed and lost between two
            # rounds nobody has seen.
            watch.wait_rounds(2)
    told = consumers_ends(lab, victim, UNCLEAN, led)
    if how == "stop":
        lab.stop(victim)
    else:
        lab.kill(victim)
    lab.heal()
    # Whatever the victim may have committed alone stays without a leader where that is not unclean.
    lab.clients.until(CLEAN, lambda s: _led_by(s, [NOBODY, *others]), 60)
    lab.clients.until(UNCLEAN, lambda s: _led_by(s, others), 60)
    watch.wait_rounds(1)
    _judge_unclean(lab, watch, tally, victim, told)
    _write(lab, chance, acks=chance.choice(("all", 1)))
    time.sleep(0.5)
    predicted = _predict(lab, tally.kind, victim)
    mark = len(lab.log(victim))
    lab.start(victim)
    for topic in (CLEAN, UNCLEAN):
        lab.clients.until(topic, lambda s: bool(s) and all(len(p.isr) == 3 for p in s), 90)
    _compare(tally, how, victim, predicted, logged_cuts(lab.log(victim)[mark:]))
    return how


def _led_by(seen: list[PartitionSeen], others: list[int]) -> bool:
    return bool(seen) and all(each.leader in others for each in seen)


def _write(lab: Lab, chance: random.Random, *, acks: str | int) -> None:
    """Some records to each partition that has a leader."""
    batches = {
        (each.topic, each.partition): [b"x" * chance.randint(1, 40)] * chance.randint(0, 4)
        for each in lab.clients.describe(CLEAN, UNCLEAN)
        if each.leader != NOBODY
    }
    lab.clients.produce_many(batches, acks=acks)


def _make_tail(lab: Lab, victim: int, chance: random.Random, *, alone: bool, kraft: bool) -> None:
    """Cut the victim off and write to what it leads. `alone`: until it commits without others."""
    for other in lab.brokers:
        if other != victim:
            lab.cut(victim, other, inner_only=alone and kraft)
    led = [p for p in lab.clients.describe(CLEAN, UNCLEAN) if p.leader == victim]
    if alone:
        time.sleep(2 * LAG_MS / 1_000)
    batches = {
        (p.topic, p.partition): [b"tail %d" % n for n in range(chance.randint(1, 5))] for p in led
    }
    lab.clients.produce_many(batches, acks="all" if alone else 1, at=lab.bootstrap_of(victim))


def _disk(lab: Lab, broker: int) -> dict[TopicPartition, DiskReplica]:
    reader = LogDirectories([str(lab.log_dir(broker))], lambda: int(time.time() * 1_000))
    wanted = [TopicPartition(t, p) for t in (CLEAN, UNCLEAN) for p in range(len(ASSIGNMENT))]
    return reader.read(wanted, log_ends=True).replicas


def _predict(lab: Lab, kind: Kind, victim: int) -> dict[TopicPartition, tuple[int, int]]:
    """By partition where the victim's log ends now and where it will be cut to."""
    rules = rules_for(kind.version, Mode(kind.mode))
    mine = _disk(lab, victim)
    disks = {broker: _disk(lab, broker) for broker in lab.brokers if broker != victim}
    found = {}
    for each in lab.clients.describe(CLEAN, UNCLEAN):
        partition = TopicPartition(each.topic, each.partition)
        if each.leader not in disks:
            continue
        leader, follower = disks[each.leader][partition], mine[partition]
        assert follower.log_end_offset is not None
        prediction = predict_truncation(
            follower=_log(follower),
            leader=_log(leader),
            rules=rules,
            unclean_allowed=each.topic == UNCLEAN,
        )
        found[partition] = (follower.log_end_offset, prediction.final_offset)
    return found


def _log(replica: DiskReplica) -> ReplicaLog:
    assert replica.log_end_offset is not None
    return ReplicaLog(
        replica.log_start_offset or 0,
        min(replica.high_watermark or 0, replica.log_end_offset),
        replica.log_end_offset,
        replica.lineage or (),
    )


def logged_cuts(text: str) -> dict[str, int]:
    """The lowest cut of each partition, as the broker logged it."""
    found: dict[str, int] = {}
    for match in _CUT.finditer(text):
        name = match["new"] or match["old"]
        at = int(match["new_at"] or match["old_at"])
        found[name] = min(at, found.get(name, at))
    return found


def _compare(
    tally: Tally,
    how: str,
    victim: int,
    predicted: dict[TopicPartition, tuple[int, int]],
    cuts: dict[str, int],
) -> None:
    for partition, (end, expected) in predicted.items():
        name = f"{partition.topic}-{partition.partition}"
        seen = min(end, cuts.get(name, end))
        tally.compared += 1
        tally.cuts += seen < end
        if seen != expected:
            tally.wrong.append(
                f"round {tally.rounds} ({how}) {name} on broker {victim}: ended at {end}, "
                f"predicted {expected}, cut to {seen}"
            )


def _judge_unclean(lab: Lab, watch: Watch, tally: Tally, victim: int, told: dict[int, int]) -> None:
    """Each partition the victim led is now led by another, which may lack what was committed."""
    dead = _disk(lab, victim)
    for number, end in told.items():
        (now,) = [p for p in lab.clients.describe(UNCLEAN) if p.partition == number]
        place, subject = TopicPartition(UNCLEAN, number), f"{UNCLEAN}-{number}"
        folder = lab.replica_dir(victim, UNCLEAN, number)
        loss = lost(subject, end, dead[place], _disk(lab, now.leader)[place], folder)
        if loss is None:
            tally.nothing_lost += 1
            continue
        tally.losses.append(loss)

        def named(wanted: Loss = loss) -> bool:
            return any(wanted.told_by(alert) for alert in watch.alerts)

        if not watch.wait_until(named, 15, must=False):
            grave = [str(a) for a in watch.alerts if a.subject == subject and a.grave]
            tally.not_named.append(f"{subject}: lost {loss[1:3]}, told {grave[-3:]}")
