"""The experiments of the articles this project grew from, on a real 3.9.1 cluster with ZooKeeper.

Their brokers 0, 1 and 2 are 1, 2 and 3 here. At each step the listing of partitions, the znodes and
the epoch files are as documented, what the monitor foretold of a stop or an election is what came,
and the monitor, which saw every step, has nothing to say but that a stopped broker is silent.
"""

from __future__ import annotations

import json
import re
import time
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, Final

from tidestaff.consistency.checkpoint_files import parse_leader_epochs
from tidestaff.consistency.election import preferred_election
from tidestaff.consistency.forecast import next_state
from tidestaff.streaming.lab.errors import LabError, NodeDownError

from tests.field.field_report import Row
from tests.field.field_watch import Watch
from tests.field.lab import Kind, running

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterable, Iterator
    from pathlib import Path

    from tidestaff.consistency.model import PartitionObservation, PartitionState

    from tests.field.field_report import Keep
    from tests.field.field_watch import Alert
    from tests.field.lab import Lab

CLUSTER: Final = Kind("3.9.1", "zookeeper")
TOPIC, AGAIN = "secondTopic", "secondTopicAgain"
ASSIGNMENT: Final = ([2, 1, 3], [1, 3, 2], [3, 2, 1], [2, 3, 1])
SETTINGS: Final = {0: {"zookeeper.session.timeout.ms": "9000", "replica.lag.time.max.ms": "10000"}}

State = tuple[int, list[int], int]
"""Leader, ISR as a list, leader epoch."""


class Seeds:
    """Plays the experiments and keeps a row for each."""

    def __init__(self, lab: Lab, watch: Watch, zookeeper: Any, keep: Keep) -> None:
        self.lab, self.watch, self.zookeeper = lab, watch, zookeeper
        self.keep = keep
        self.stopped: set[int] = set()

    def znode(self, path: str) -> tuple[Any, int]:
        data, stat = self.zookeeper.get(path)
        return json.loads(data), stat.version

    def states(self, topic: str) -> list[State]:
        found = []
        for partition in range(len(ASSIGNMENT)):
            state, _ = self.znode(f"/brokers/topics/{topic}/partitions/{partition}/state")
            found.append((state["leader"], state["isr"], state["leader_epoch"]))
        return found

    def stop(self, topic: str, broker: int) -> list[State]:
        """What the monitor foretells of the stop, from its last sample before it."""
        seen = [self.watch.partition(topic, number) for number in range(len(ASSIGNMENT))]
        self.stopped.add(broker)
        self.lab.stop(broker)
        return _foretold(seen, lambda one: next_state(one, stopping={broker}, controlled=True))

    def epochs(self, topic: str, partition: int) -> dict[int, list[tuple[int, int]]]:
        found = {}
        for broker in self.lab.brokers:
            file = self.lab.replica_dir(broker, topic, partition) / "leader-epoch-checkpoint"
            text = file.read_text(encoding="utf-8") if file.exists() else ""
            entries = parse_leader_epochs(text) if text else ()
            found[broker] = [(entry.epoch, entry.start_offset) for entry in entries]
        return found

    def expect(
        self,
        name: str,
        wanted: Any,
        look: Callable[[], Any],
        *,
        foretold: Any = None,
        within_s: float = 40,
    ) -> None:
        """Looks until it is as wanted; the row has what was seen last. `foretold`: by the monitor,
        before what came was there."""
        began = time.monotonic()
        seen = look()
        while seen != wanted and time.monotonic() < began + within_s:
            time.sleep(0.3)
            seen = look()
        self.watch.wait_rounds(2)
        told = [str(alert) for alert in unexpected(self.watch.alerts, self.stopped)]
        as_foretold = foretold in (None, wanted)
        took = time.monotonic() - began
        self.keep(
            Row(
                "seeds",
                name,
                str(CLUSTER),
                f"{wanted}{'' if foretold is None else ', foretold so by the monitor'}; "
                "no alert but that a stopped broker is silent",
                ("as expected" if seen == wanted else str(seen))
                + ("" if foretold is None else ", as foretold" if as_foretold else "")
                + ("" if as_foretold else f"; foretold {foretold}")
                + ("; " if told else "")
                + ", ".join(told),
                seen == wanted and as_foretold and not told,
                took,
            )
        )

    def preferred(self, topic: str, partition: int) -> tuple[str, State]:
        """What the tool says, and what the monitor foretells, from its last sample before."""
        (elected,) = _foretold([self.watch.partition(topic, partition)], _given_back)
        return self._preferred(topic, partition), elected

    def _preferred(self, topic: str, partition: int) -> str:
        words = ("--bootstrap-server", self.lab.bootstrap, "--election-type", "preferred")
        words = (*words, "--topic", topic, "--partition", str(partition))
        for patience in (True, True, False):
            try:
                said = self.lab.tool("org.apache.kafka.tools.LeaderElectionCommand", *words)
            except LabError as error:
                # On a busy machine the tool gives up before a broker has answered.
                if not patience or "Timeout" not in str(error):
                    raise
            else:
                break
        return " ".join(said.split())

    def create(self, topic: str) -> None:
        self.lab.clients.create_topic(topic, assignment=ASSIGNMENT)

    def described(self, topic: str) -> list[tuple[int, list[int], list[int]]]:
        """Leader, replicas and ISR as kafka-topics prints them."""
        said = self.lab.topics_tool("--describe", "--topic", topic)
        pattern = r"Leader: (\d+)\s+Replicas: ([\d,]+)\s+Isr: ([\d,]+)"
        return [
            (int(leader), _numbers(replicas), _numbers(isr))
            for leader, replicas, isr in re.findall(pattern, said)
        ]


def _foretold(
    seen: Iterable[PartitionObservation | None],
    by: Callable[[PartitionObservation], PartitionState | None],
) -> list[State]:
    """By partition; where nothing is written the state stays."""
    found = []
    for each in seen:
        assert each is not None, "the monitor has not seen the partition"
        state = by(each) or each.state
        found.append((state.leader, list(state.isr), state.leader_epoch))
    return found


def _given_back(seen: PartitionObservation) -> PartitionState | None:
    """Where the preferred replica leads already nobody is elected."""
    if seen.state.leader == seen.assignment.replicas[0]:
        return None
    live = {each.broker for each in seen.live}
    return preferred_election(seen.state, assignment=seen.assignment.replicas, live=live)


def unexpected(alerts: Iterable[Alert], stopped: Collection[int]) -> list[Alert]:
    """All but that a broker which was stopped is silent."""
    return [each for each in alerts if each.code != "SRC001" or each.broker not in stopped]


def _numbers(text: str) -> list[int]:
    return [int(each) for each in text.split(",")]


@contextmanager
def zookeeper_of(lab: Lab, *, read_only: bool = True) -> Iterator[Any]:
    from kazoo.client import KazooClient  # noqa: PLC0415 - slow

    client = KazooClient(hosts=lab.zookeeper_connect, read_only=read_only)
    client.start(30)
    try:
        yield client
    finally:
        client.stop()
        client.close()


def play(folder: Path, keep: Keep) -> None:
    with (
        running(folder, *CLUSTER, settings=SETTINGS) as lab,
        zookeeper_of(lab) as zookeeper,
        Watch(lab, f"{TOPIC}.*") as watch,
    ):
        seeds = Seeds(lab, watch, zookeeper, keep)
        _second_topic(seeds)
        _second_topic_again(seeds)
        _controller(seeds)
        _stale_registration(seeds)


def _second_topic(seeds: Seeds) -> None:
    lab = seeds.lab
    seeds.create(TOPIC)
    seeds.expect(
        "S-08 created: leader = first of the assignment, ISR = assignment, epoch 0",
        [(2, [2, 1, 3], 0), (1, [1, 3, 2], 0), (3, [3, 2, 1], 0), (2, [2, 3, 1], 0)],
        lambda: seeds.states(TOPIC),
    )
    seeds.expect(
        "S-08 epoch file: (0,0) on the leader, none on followers",
        {1: [(0, 0)], 2: [], 3: []},
        lambda: seeds.epochs(TOPIC, 1),
    )
    foretold = seeds.stop(TOPIC, 1)
    seeds.expect(
        "S-09 a broker stops: gone from every ISR, only its own partition moves, epoch +1 on all",
        [(2, [2, 3], 1), (3, [3, 2], 1), (3, [3, 2], 1), (2, [2, 3], 1)],
        lambda: seeds.states(TOPIC),
        foretold=foretold,
    )
    lab.start(1)
    seeds.expect(
        "S-10 it returns: appended to each ISR, no leader moves, epochs unchanged",
        [(2, [2, 3, 1], 1), (3, [3, 2, 1], 1), (3, [3, 2, 1], 1), (2, [2, 3, 1], 1)],
        lambda: seeds.states(TOPIC),
    )
    said, elected = seeds.preferred(TOPIC, 1)
    seeds.expect(
        "S-11 preferred election: first of the assignment, ISR list unchanged, epoch +1",
        (True, (1, [3, 2, 1], 2)),
        lambda: ("Successfully completed" in said, seeds.states(TOPIC)[1]),
        foretold=(True, elected),
    )
    again, elected = seeds.preferred(TOPIC, 1)
    seeds.expect(
        "S-11 again: 'already elected', nothing changes",
        (True, (1, [3, 2, 1], 2)),
        lambda: ("already elected" in again, seeds.states(TOPIC)[1]),
        foretold=(True, elected),
    )
    seeds.expect(
        "S-12 the topic's znode still holds the assignment of its creation",
        {str(number): replicas for number, replicas in enumerate(ASSIGNMENT)},
        lambda: seeds.znode(f"/brokers/topics/{TOPIC}")[0]["partitions"],
    )
    seeds.expect(
        "S-13 epoch files after three leaders of an empty log: (2,0), (1,0), none",
        {1: [(2, 0)], 3: [(1, 0)], 2: []},
        lambda: seeds.epochs(TOPIC, 1),
    )


def _second_topic_again(seeds: Seeds) -> None:
    lab = seeds.lab
    seeds.create(AGAIN)
    seeds.watch.wait_rounds(2)
    seeds.stop(AGAIN, 3)
    lab.start(3)
    lab.clients.until(AGAIN, lambda seen: all(len(each.isr) == 3 for each in seen))
    seeds.preferred(AGAIN, 2)
    before = [(2, [2, 1, 3], 1), (1, [1, 2, 3], 1), (3, [2, 1, 3], 2), (2, [2, 1, 3], 1)]
    seeds.expect("S-14 the state before the stop", before, lambda: seeds.states(AGAIN))
    seeds.expect(
        "S-14 kafka-topics --describe says the same",
        [(leader, ASSIGNMENT[n], isr) for n, (leader, isr, _) in enumerate(before)],
        lambda: seeds.described(AGAIN),
    )
    foretold = seeds.stop(AGAIN, 3)
    seeds.expect(
        "S-15 a broker stops: only its partition moves, to the next of its assignment",
        [(2, [2, 1], 2), (1, [1, 2], 2), (2, [2, 1], 3), (2, [2, 1], 2)],
        lambda: seeds.states(AGAIN),
        foretold=foretold,
    )
    seeds.expect(
        "S-16 state znode of partition 0: epoch 2 though its leader never changed, version 3",
        (2, 3),
        lambda: (
            seeds.states(AGAIN)[0][2],
            seeds.znode(f"/brokers/topics/{AGAIN}/partitions/0/state")[1],
        ),
    )
    lab.start(3)
    seeds.expect(
        "S-17 it returns: appended, nobody moves",
        [(2, [2, 1, 3], 2), (1, [1, 2, 3], 2), (2, [2, 1, 3], 3), (2, [2, 1, 3], 2)],
        lambda: seeds.states(AGAIN),
    )
    _, elected = seeds.preferred(AGAIN, 2)
    seeds.expect(
        "S-17 preferred election on partition 2",
        [(2, [2, 1, 3], 2), (1, [1, 2, 3], 2), (3, [2, 1, 3], 4), (2, [2, 1, 3], 2)],
        lambda: seeds.states(AGAIN),
        foretold=[(2, [2, 1, 3], 2), (1, [1, 2, 3], 2), elected, (2, [2, 1, 3], 2)],
    )


def _controller(seeds: Seeds) -> None:
    claim, _ = seeds.znode("/controller")
    (epoch, _), x = seeds.znode("/controller_epoch"), claim["brokerid"]
    seeds.expect(
        "S-03 the claim: version 2, a broker, kraftControllerEpoch -1",
        (2, True, -1),
        lambda: (claim["version"], x in seeds.lab.brokers, claim["kraftControllerEpoch"]),
    )
    seeds.stopped.add(x)
    seeds.lab.stop(x)
    seeds.expect(
        "S-04 fail-over: another broker claims, the controller epoch is one more",
        (True, epoch + 1),
        lambda: (_claimant(seeds) not in {x, None}, seeds.znode("/controller_epoch")[0]),
    )
    seeds.lab.start(x)
    seeds.lab.clients.until(AGAIN, lambda seen: all(len(each.isr) == 3 for each in seen))
    seeds.expect(
        "S-04 the monitor names the new controller and its epoch",
        (_claimant(seeds), epoch + 1),
        lambda: _seen_controller(seeds),
    )


def _claimant(seeds: Seeds) -> int | None:
    if seeds.zookeeper.exists("/controller") is None:
        return None
    return int(seeds.znode("/controller")[0]["brokerid"])


def _seen_controller(seeds: Seeds) -> tuple[int | None, int | None]:
    seen = seeds.watch.cluster
    return (None, None) if seen is None else (seen.controller, seen.controller_epoch)


def _stale_registration(seeds: Seeds) -> None:
    lab = seeds.lab
    seeds.stopped.add(1)
    lab.kill(1)
    try:
        lab.start(1)
        said = "it started"
    except NodeDownError as error:
        said = "refused" if "NodeExists" in "".join(error.problems) + lab.log(1) else str(error)
    except LabError as error:
        said = str(error)
    seeds.expect("S-05 a restart within the old session is refused", "refused", lambda: said)
    # The old session must be over before it may come back.
    time.sleep(10)
    if not lab.running(1):
        lab.start(1)
    lab.clients.until(AGAIN, lambda seen: all(len(each.isr) == 3 for each in seen))
    seeds.expect(
        "S-05 after the session's end it registers again",
        ["1", "2", "3"],
        lambda: sorted(seeds.zookeeper.get_children("/brokers/ids")),
    )
