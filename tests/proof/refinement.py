"""`python -m tests.proof.refinement --seeds 1000 1100 --steps 200`: the driver explained by the
kernel. Exit code 0: every step is; 1: one is not, and its history is named.

One partition of a simulated cluster is projected onto a kernel state after every event, and each
change of it told as a short sequence of enabled kernel actions.

How the two are compared:

- Kernel actions read other replicas as they are; in the driver one hears of another by message. So
  an action may read another replica as it was earlier: a leader since its follower believes in it,
  a follower while it follows that leader (where fetches are fenced, in an epoch since this leader
  is in office without a break). It changes one replica and the znode.
- The kernel truncates in the step in which a follower takes a leader epoch, the driver when the
  leader has answered. Until then the follower stays as it was: its request is still on its way, and
  it can only lose records. That it is answered at last is not asked: this is about safety alone.
- Leader epochs are renumbered: what the controller does in one epoch may be several actions.
- Of a follower's belief the ISR is not compared, and not that of a leader with a change under way:
  nobody acts on it.

Outside the kernel's vocabulary, and so in no history here: log starts that rise (retention,
DeleteRecords), reassignment, topics made again, and fetches that outlive the office of their leader
(slow fetcher removal). KRaft's controller has actions of its own. In 2.0.1, whose fetches are not
fenced, a list of epochs forgets what a smaller epoch written later contradicts; the kernel reads
epochs from the records, and where they fall along a log the two may part.
"""

from __future__ import annotations

import argparse
import sys
from collections import Counter
from itertools import chain
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from tidestaff.connectors.simulator.cluster import SimulatedCluster
from tidestaff.connectors.simulator.faults import WEIGHTS, RandomFaults
from tidestaff.connectors.simulator.kernel import actions, beyond
from tidestaff.connectors.simulator.kernel.actions import NotEnabled
from tidestaff.connectors.simulator.kernel.rules import (
    HW,
    KIP101,
    KIP279,
    Fence,
    IsrExpand,
    RuleSet,
    Truncation,
)
from tidestaff.connectors.simulator.kernel.state import (
    NOTHING_HEARD,
    Isr,
    LeaderAndIsr,
    Record,
    Replica,
    State,
    initial_state,
)
from tidestaff.connectors.simulator.presets import TruncationProtocol
from tidestaff.connectors.simulator.replica import Phase
from tidestaff.connectors.simulator.settings import QUICK
from tidestaff.consistency.model import NO_LEADER, BrokerId, PartitionState, TopicPartition

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from tidestaff.connectors.simulator.broker import Broker
    from tidestaff.connectors.simulator.kernel.actions import ActionFunction
    from tidestaff.connectors.simulator.replica import Replica as DriverReplica

PARTITION: Final = TopicPartition("a", 0)
OUTSIDE: Final = frozenset({"retention", "delete_records", "reassign", "recreate_topic"})
KINDS: Final = frozenset(WEIGHTS) - OUTSIDE

_BEFORE_2_0_1: Final = KIP101._replace(truncate_on_become_follower=Truncation.KNOWN_EPOCH_LOOKUP)
_SINCE_2_0_1: Final = KIP279._replace(
    truncate_on_become_follower=Truncation.LEADER_EPOCH_ROUNDS,
    isr_expand=IsrExpand.LEO_REACHED_HW_AND_EPOCH_START,
)
_SINCE_2_1: Final = _SINCE_2_0_1._replace(
    truncation_fenced=True, fetch_fence=Fence.SAME_LEADER_EPOCH
)
# With truncation on fetch a follower asks before it is cut: it counts from where its tail matches.
_SINCE_2_8: Final = _SINCE_2_1._replace(
    truncate_on_become_follower=Truncation.LAST_MATCHING_RECORD, hw_fence=Fence.TAIL_EPOCH_MATCHES
)
RULES: Final[dict[str, RuleSet]] = {
    "0.10.2.2": HW,
    "1.1.1": _BEFORE_2_0_1,
    "2.0.1": _SINCE_2_0_1,
    "2.4.1": _SINCE_2_1,
    "2.8.2": _SINCE_2_8,
    "3.9.1": _SINCE_2_8,
}


_ASKS: Final = object()
_PIECE_MS: Final = 500
_AT_MOST_MS: Final = 1_000_000


class UnexplainedError(AssertionError):
    """No short sequence of kernel actions makes this step of the driver."""


class Seen(NamedTuple):
    """A replica as others may read it, from this moment on."""

    moment: int
    replica: Replica


class Refinement:
    """Follows a cluster of three brokers from its first moment on."""

    def __init__(self, cluster: SimulatedCluster) -> None:
        self.cluster, self.rules = cluster, RULES[cluster.config.preset]
        brokers = cluster.config.topics[PARTITION.topic][PARTITION.partition]
        self.kernel = initial_state(brokers)
        self.told: Counter[str] = Counter()
        self.steps = 0
        self._moment = 0
        self._epochs = {-1: -1}
        self._znodes: set[LeaderAndIsr] = set()
        self._ids: dict[tuple[int, int, int], Record] = {}
        self._seen = {b: [Seen(0, Replica(b))] for b in brokers}
        self._in_office: dict[BrokerId, int] = {}
        self._follows: dict[BrokerId, tuple[BrokerId, int]] = {}
        self._unsettled: dict[BrokerId, object] = {}
        self._lowest: dict[BrokerId, int] = {}
        self._believes: dict[BrokerId, tuple[BrokerId, int]] = {}
        self._processes: dict[BrokerId, int] = dict.fromkeys(brokers, 0)
        self._watermarks: dict[BrokerId, set[int]] = {b: {0} for b in brokers}
        known = cluster.mode.partition(PARTITION)
        assert known is not None
        self._written(known.state)
        self.look([PARTITION])
        cluster.after_event = self.look
        cluster.after_write = self._znode

    # -- what the driver did

    def _znode(self, partition: TopicPartition) -> None:
        known = self.cluster.mode.partition(partition)
        if partition == PARTITION and known is not None:
            self._written(known.state)

    def _written(self, state: PartitionState) -> None:
        isr = tuple(sorted(state.isr))
        if state.leader_epoch in self._epochs:
            for member in self._missing(isr):
                self._change_isr("leader_shrink_isr", state.leader, member)
            for member in isr:
                if member not in self.kernel.quorum.isr:
                    self._change_isr("leader_expand_isr", state.leader, member)
        else:
            self._decided(state.leader, isr)
        quorum = self.kernel.quorum
        if (quorum.leader, quorum.isr) != (state.leader, isr):
            raise self._unexplained(f"znode {state}", quorum)
        self._epochs[state.leader_epoch] = quorum.leader_epoch
        self._znodes.add(quorum)
        self.steps += 1

    def _decided(self, leader: BrokerId, isr: Isr) -> None:
        """What the controller writes with a new leader epoch."""
        before = self.kernel.quorum
        if (leader, isr) == (NO_LEADER, before.isr) and before.leader == NO_LEADER:
            return  # The last member of the ISR is removed once more: nobody is told anything.
        if leader not in (NO_LEADER, *before.isr):
            self._do("controller_unclean_elect", leader=leader)
            return
        # Twice: the last one stays when it led; before 1.1 it went where anybody may lead.
        for member in (*self._missing(isr), *self._missing(isr)):
            if member in self.kernel.quorum.isr:
                self._do("controller_shrink_isr", replica=member)
        now = self.kernel.quorum.leader
        if leader == NO_LEADER and now != NO_LEADER:
            self._do("controller_shrink_isr", replica=now)
        elif leader != now:
            self._do("controller_elect", leader=leader)

    def _missing(self, isr: Isr) -> list[BrokerId]:
        return [member for member in self.kernel.quorum.isr if member not in isr]

    def look(self, touched: Sequence[TopicPartition]) -> None:
        if PARTITION in touched:
            for broker in sorted(self._seen):
                self._look_at(self.cluster.brokers[broker])

    def _look_at(self, broker: Broker) -> None:
        driver = broker.replicas.get(PARTITION)
        target = self._projected(broker, driver)
        process = broker.incarnation if broker.up else 0
        if not broker.up or process != self._processes[broker.id]:
            self._ended(broker.id, target if driver is not None else Replica(broker.id))
            self._processes[broker.id] = process
        if broker.up and driver is not None and driver.known:
            self._track(broker.id, driver, target)
            if driver.leads:
                self._explain_leader(driver, target)
            elif broker.id in self._unsettled:
                self._explain_waiting(target)
            elif not self._explain_follower(target):
                self._explain_late_answer(target)
        elif self.kernel.replica(broker.id) != target:
            raise self._unexplained(_short(target), self._own(broker.id))
        self._show(broker.id, driver, target)

    def _projected(self, broker: Broker, driver: DriverReplica | None) -> Replica:
        """The driver's replica in the kernel's terms; of one that is down, what the disk holds."""
        if driver is None:
            return Replica(broker.id)
        log = tuple(
            self._record(run.epoch, run.writer, offset)
            for run in driver.log.runs
            for offset in range(run.start, run.end)
        )
        if not broker.up:
            return Replica(broker.id, log, min(driver.checkpointed_hw, len(log)))
        belief = NOTHING_HEARD
        if driver.known:
            epoch = self._epochs[driver.leader_epoch]
            belief = LeaderAndIsr(driver.leader, epoch, tuple(sorted(driver.isr)))
        return Replica(broker.id, log, driver.high_watermark, belief)

    def _record(self, epoch: int, writer: int, offset: int) -> Record:
        key = (epoch, writer, offset)
        if key not in self._ids:
            self._ids[key] = Record(self._epochs[epoch], len(self._ids))
        return self._ids[key]

    def _track(self, broker: BrokerId, driver: DriverReplica, target: Replica) -> None:
        """Since when it follows whom, and whether its log is cut for that already."""
        last, belief = self._seen[broker][-1].replica, target.belief
        new = self._believes.get(broker) != belief[:2]
        self._believes[broker] = belief[:2]
        if driver.leads:
            self._unsettled.pop(broker, None)
            if broker not in self._in_office:
                self._in_office[broker] = belief.leader_epoch
            return
        if self._in_office.pop(broker, None) is not None:
            self._follows.pop(broker, None)
        followed = self._follows.get(broker)
        if followed is None or followed[0] != driver.leader:
            self._follows[broker] = (driver.leader, self._moment)
        if new:
            self._lowest[broker] = target.log_end_offset
        self._lowest[broker] = min(self._lowest[broker], target.log_end_offset)
        if driver.phase is Phase.TRUNCATING:
            self._unsettled[broker] = _ASKS
        elif followed is None or new:
            self._unsettled.pop(broker, None)
            if _fetches_first(driver):
                self._unsettled[broker] = driver.nothing_new
        elif broker in self._unsettled and driver.phase is Phase.FETCHING:
            cut = self._unsettled[broker] is _ASKS
            at_end = driver.nothing_new is not self._unsettled[broker]
            if cut or at_end or target.log_end_offset > last.log_end_offset:
                del self._unsettled[broker]

    def _show(self, broker: BrokerId, driver: DriverReplica | None, target: Replica) -> None:
        """What others can hear of it from now on."""
        if driver is not None and not driver.leads and driver.phase is Phase.TRUNCATING:
            target = target._replace(belief=NOTHING_HEARD)
        self._watermarks[broker].add(target.high_watermark)
        if self._seen[broker][-1].replica != target:
            self._moment += 1
            self.steps += 1
            self._seen[broker].append(Seen(self._moment, target))

    # -- how the kernel tells it

    def _explain_leader(self, driver: DriverReplica, target: Replica) -> None:
        broker, belief = target.broker, target.belief
        if self._own(broker).belief[:2] != belief[:2]:
            asked = self.kernel.request(belief.leader_epoch)
            if driver.pending_isr is None and asked != belief and belief in self._znodes:
                # The state node was sent again in this epoch, when it was like that.
                sent = self.kernel._replace(quorum=belief)
                after = self._after("controller_repeat", sent)
                self.kernel = self.kernel._replace(requests=after.requests)
            # A follower may be elected when its log is cut already for a leader that it had.
            shorter = self._own(broker).log_end_offset > target.log_end_offset
            if shorter and not self._explain_follower(self._seen[broker][-1].replica):
                raise self._unexplained(_short(target), self._own(broker))
            self._do("become_leader", replica=broker, leader_epoch=belief.leader_epoch)
        own = self._own(broker)
        for record in target.log[own.log_end_offset :]:
            fresh = self.kernel._replace(next_record_id=record.record_id)
            self._do("leader_write", fresh, leader=broker, record_id=record.record_id)
        while self._own(broker).high_watermark < target.high_watermark:
            self._do("leader_advance_hw", self._as_heard(target), leader=broker)
        own = self._own(broker)
        same_isr = driver.pending_isr is not None or own.belief.isr == belief.isr
        if own._replace(belief=belief) != target or not same_isr:
            raise self._unexplained(_short(target), own)

    def _explain_waiting(self, target: Replica) -> None:
        """Until it is settled where its log is cut, it can only lose some of it."""
        own, end = self._own(target.broker), target.log_end_offset
        kept = (own.log[:end], min(own.high_watermark, end))
        if (target.log, target.high_watermark) != kept:
            raise self._unexplained(_short(target), own)

    def _explain_late_answer(self, target: Replica) -> None:
        """The leader is the same, and for all there is to see its new epoch is not taken over yet:
        what came was asked in the old one, or (before 2.0.1) nothing is cut for the new."""
        own, broker = self._own(target.broker), target.broker
        epochs = range(own.belief.leader_epoch + 1, target.belief.leader_epoch)
        beliefs = (own.belief, *(self.kernel.request(epoch) for epoch in epochs))
        if not any(
            belief is not None
            and belief.leader == target.belief.leader
            and self._explain_follower(target._replace(belief=belief))
            for belief in beliefs
        ):
            raise self._unexplained(_short(target), own)
        self._unsettled[broker] = self.cluster.brokers[broker].replicas[PARTITION].nothing_new
        self._lowest[broker] = target.log_end_offset

    def _explain_follower(self, target: Replica) -> bool:
        own = self._own(target.broker)
        if own._replace(belief=own.belief._replace(isr=target.belief.isr)) == target:
            return True
        for moment, cut in self._cut(own, target):
            for leader in chain((self._own(target.belief.leader),), self._leaders(target, moment)):
                names = self._fetched(cut, target, leader)
                if names is not None:
                    taken = [] if cut is own else ["become_follower"]
                    self.told.update([*taken, *names])
                    self.kernel = self.kernel.with_replica(target._replace(belief=cut.belief))
                    return True
        return False

    def _cut(self, own: Replica, target: Replica) -> Iterator[tuple[int, Replica]]:
        """Ways to take the belief, and when the leader was so."""
        if own.belief[:2] == target.belief[:2]:
            yield 0, own
            return
        params = {"replica": own.broker, "leader_epoch": target.belief.leader_epoch}
        asks = self.rules.truncate_on_become_follower is not Truncation.LOCAL_HW
        since = self._follows[own.broker][1]
        for moment, leader in self._readable(target.belief.leader, since):
            if asks and not leader.believes_it_leads:
                continue
            after = actions.become_follower(self.kernel.with_replica(leader), params, self.rules)
            if not isinstance(after, NotEnabled):
                cut = after.replica(own.broker)
                assert cut is not None
                if cut.log_end_offset == self._lowest[own.broker]:
                    yield moment, cut

    def _fetched(self, own: Replica, target: Replica, leader: Replica) -> list[str] | None:
        """From here to the target by fetches from this leader; None if that does not lead there."""
        state = self.kernel.with_replica(leader).with_replica(own)
        params = {"follower": own.broker, "leader": leader.broker}
        names: list[str] = []
        while True:
            own = state.replica(own.broker)  # type: ignore[assignment]
            if (own.log, own.high_watermark) == (target.log, target.high_watermark):
                return names
            length = own.log_end_offset
            if own.log != target.log[:length]:
                name = "follower_out_of_range"
            elif length < target.log_end_offset:
                name = "follower_fetch"
            else:
                name = "follower_hear_hw"
            after = _ACTIONS[name](state, params, self.rules)
            if isinstance(after, NotEnabled) or after == state:
                return None
            state = after
            names.append(name)

    def _leaders(self, follower: Replica, least: int) -> Iterator[Replica]:
        """The leader as the follower may have heard it: in office, since it believes in it."""
        leader = follower.belief.leader
        since = max(least, self._follows[follower.broker][1])
        for seen in self._readable(leader, since):
            if seen.replica.believes_it_leads:
                yield seen.replica

    def _readable(self, broker: BrokerId, since: int) -> Iterator[Seen]:
        """As it was then, and every time it was different afterwards."""
        versions = self._seen[broker]
        first = max(i for i, seen in enumerate(versions) if seen.moment <= since)
        return iter(versions[first:])

    def _as_heard(self, leader: Replica) -> State:
        """Every other replica at the moment that lets the leader's HW rise furthest."""
        state = self.kernel
        for member in self._own(leader.broker).belief.isr:
            if member != leader.broker:
                heard = list(self._heard(leader, member))
                if heard:
                    state = state.with_replica(max(heard, key=lambda r: r.log_end_offset))
        return state

    def _heard(self, leader: Replica, member: BrokerId) -> Iterator[Replica]:
        """What this member may have asked the leader for: it follows, in an epoch since the leader
        is in office without a break where fetches are fenced."""
        first_epoch = self._in_office.get(leader.broker, leader.belief.leader_epoch)
        fenced = self.rules.fetch_fence is Fence.SAME_LEADER_EPOCH
        for _, replica in self._seen[member]:
            if replica.belief.leader == leader.broker and (
                not fenced or replica.belief.leader_epoch >= first_epoch
            ):
                if self.rules.hw_fence is Fence.TAIL_EPOCH_MATCHES and not (
                    actions.tail_epoch_matches(leader=leader, follower=replica)
                ):
                    continue
                yield replica

    def _change_isr(self, name: str, broker: BrokerId, member: BrokerId) -> None:
        """The leader's proposal, as it was when it made it; the znode changes now."""
        params = {"leader": broker, "replica": member}
        silent = self._silent(broker, member)
        epoch = self.kernel.quorum.leader_epoch
        leaders = [s.replica for s in self._seen[broker] if s.replica.belief[:2] == (broker, epoch)]
        for leader in reversed(leaders):
            heard = reversed(list(self._heard(leader, member)))
            for version in chain(silent, heard, (self._seen[member][-1].replica,)):
                state = self.kernel.with_replica(leader).with_replica(version)
                after = _ACTIONS[name](state, params, self.rules)
                if not isinstance(after, NotEnabled):
                    self.told[name] += 1
                    own = self._own(broker)
                    belief = own.belief._replace(isr=after.quorum.isr)
                    if own.belief[:2] == (broker, epoch):
                        self.kernel = self.kernel.with_replica(own._replace(belief=belief))
                    self.kernel = self.kernel._replace(quorum=after.quorum)
                    return
        raise self._unexplained(f"{name} {params}", self.kernel.quorum)

    def _silent(self, broker: BrokerId, member: BrokerId) -> list[Replica]:
        """A member that the leader has not heard of since it is in office does not follow, for all
        it knows; before 2.1 also one not heard of for replica.lag.time.max.ms at the leader's
        end."""
        leader = self.cluster.brokers[broker].replicas[PARTITION]
        progress = leader.followers.get(member)
        if progress is None:
            return []
        late = self.cluster.now_ms - progress.last_fetch_ms > self.cluster.settings.lag_ms
        late = late and not leader.preset.at_leader_end_never_lags
        return [Replica(member)] if late or progress.log_end_offset < 0 else []

    def _ended(self, broker: BrokerId, target: Replica) -> None:
        """The process has ended (and the next one may run already)."""
        keep, high_watermark = target.log_end_offset, target.high_watermark
        own = self._own(broker)
        if own == target._replace(belief=NOTHING_HEARD):
            return
        self._in_office.pop(broker, None)
        self._follows.pop(broker, None)
        self._unsettled.pop(broker, None)
        self._believes.pop(broker, None)
        if high_watermark not in {min(keep, hw) for hw in self._watermarks[broker]}:
            raise self._unexplained(f"a checkpoint of {high_watermark}", own)
        self._do("restart", replica=broker, keep=keep, hw=high_watermark)

    def _own(self, broker: BrokerId) -> Replica:
        found = self.kernel.replica(broker)
        assert found is not None
        return found

    def _after(self, name: str, before: State, **params: int) -> State:
        after = _ACTIONS[name](before, params, self.rules)
        if isinstance(after, NotEnabled):
            raise self._unexplained(f"{name} {params}: {after.because}", before)
        self.told[name] += 1
        return after

    def _do(self, name: str, reading: State | None = None, **params: int) -> None:
        """One action; of the state it was read in, only what it changed is taken over."""
        after = self._after(name, self.kernel if reading is None else reading, **params)
        if reading is None:
            self.kernel = after
            return
        changed = after.replica(params["leader"])
        assert changed is not None
        self.kernel = self.kernel.with_replica(changed)

    def _unexplained(self, what: str, instead: Any) -> UnexplainedError:
        at = f"{self.cluster.config.preset}, seed {self.cluster.config.seed}, "
        at += f"{self.cluster.now_ms} ms, after {len(self.cluster.actions)} actions"
        return UnexplainedError(f"{at}: {what}; the kernel is at {_short(instead)}")


def _fetches_first(driver: DriverReplica) -> bool:
    """It is cut by the leader's answer to its first fetch; also where it has no epoch to ask for,
    and so no record, its first fetch is the first that a leader may refuse."""
    protocol = driver.preset.truncation
    return protocol is TruncationProtocol.ON_FETCH or (
        protocol is TruncationProtocol.KIP279 and driver.log_end == 0
    )


def _short(value: object) -> str:
    """A replica as [records@epoch ...] HW belief."""
    if isinstance(value, State):
        return "; ".join([str(value.quorum), *map(_short, value.replicas)])
    if not isinstance(value, Replica):
        return str(value)
    runs = Counter(record.epoch for record in value.log)
    log = " ".join(f"{records}@{epoch}" for epoch, records in runs.items())
    belief = f"L{value.belief.leader} e{value.belief.leader_epoch} ISR{list(value.belief.isr)}"
    return f"{value.broker} [{log}] HW {value.high_watermark} {belief}"


_ACTIONS: Final[dict[str, ActionFunction]] = {
    function.__name__: function
    for function in (
        actions.controller_elect,
        actions.controller_unclean_elect,
        actions.controller_shrink_isr,
        beyond.controller_repeat,
        actions.become_leader,
        actions.leader_write,
        actions.leader_advance_hw,
        actions.leader_shrink_isr,
        actions.leader_expand_isr,
        actions.follower_fetch,
        beyond.follower_hear_hw,
        beyond.follower_out_of_range,
        beyond.restart,
    )
}


def refined(preset: str, seed: int, steps: int) -> Refinement:
    """One random history of that many faults, followed event by event."""
    topics = {PARTITION.topic: [[1, 2, 3]]}
    cluster = SimulatedCluster(preset, [1, 2, 3], topics, QUICK, seed)
    refinement = Refinement(cluster)
    faults = RandomFaults(cluster, seed, KINDS)
    faults.schedule(_AT_MOST_MS)
    while len(cluster.actions) < steps and cluster.now_ms < _AT_MOST_MS:
        cluster.advance(_PIECE_MS)
    return refinement


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.proof.refinement", description=__doc__)
    parser.add_argument("--seeds", type=int, nargs=2, default=(1_000, 1_100), metavar="N")
    parser.add_argument("--steps", type=int, default=200)
    parser.add_argument("--preset", choices=RULES, action="append")
    options = parser.parse_args(arguments)
    failed = 0
    for preset in options.preset or RULES:
        told: Counter[str] = Counter()
        steps = 0
        for seed in range(*options.seeds):
            try:
                found = refined(preset, seed, options.steps)
            except UnexplainedError as error:
                print(error)
                failed += 1
            else:
                told.update(found.told)
                steps += found.steps
        counts = ", ".join(f"{name} {count:,}" for name, count in sorted(told.items()))
        print(f"{preset}: {steps:,} changes, {told.total():,} actions ({counts})", flush=True)
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
