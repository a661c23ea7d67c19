"""Random stops of real brokers: the forecast made just before each against what happened.

`python -m tests.field.field_whatif --stops 30` plays them on 3.9.1 with ZooKeeper and on 4.1.1 with
KRaft, and writes docs/what-if-field.md. Leaders, leader epochs, ISR and who is offline are compared
once the cluster is at rest, before the stopped brokers return; cuts are taken from the brokers' own
logs after they have returned.
"""

from __future__ import annotations

import argparse
import json
import random
import sys
import tempfile
import time
from contextlib import suppress
from dataclasses import asdict, dataclass, field, replace
from itertools import permutations
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from tidestaff.consistency import what_if
from tidestaff.consistency.forecast import next_state
from tidestaff.consistency.model import TopicPartition
from tidestaff.streaming.lab.errors import LabError
from tidestaff.streaming.settings import Cluster
from tidestaff.streaming.what_if.seen import live

from tests.field.field_truncation import logged_cuts
from tests.field.field_whatif_report import page
from tests.field.lab import Kind, running

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from tidestaff.consistency.model import BrokerId, PartitionObservation, PartitionState

    from tests.field.lab import Lab

CLUSTERS: Final = (
    Kind("3.9.1", "zookeeper"),
    Kind("4.1.1", "kraft"),
    Kind("3.9.1", "kraft"),
)
DOCUMENT: Final = Path(__file__).resolve().parents[2] / "docs" / "what-if-field.md"
TRIPLE, PAIR, SINGLE, LOOSE = "triple", "pair", "single", "loose"
PAIRS: Final = ([1, 2], [2, 3], [3, 1])
TOPICS: Final[Mapping[str, tuple[Sequence[Sequence[int]], Mapping[str, str]]]] = {
    TRIPLE: (list(map(list, permutations((1, 2, 3)))), {"min.insync.replicas": "2"}),
    PAIR: (PAIRS, {}),
    SINGLE: ([[1], [2], [3]], {}),
    LOOSE: (PAIRS, {"unclean.leader.election.enable": "true"}),
}
LAG_MS: Final = 15_000
SETTINGS: Final = {
    0: {
        "zookeeper.session.timeout.ms": "6000",
        "broker.session.timeout.ms": "6000",
        "broker.heartbeat.interval.ms": "1000",
        # Longer than a look at the cluster takes, so that who is cut off stays in the ISR.
        "replica.lag.time.max.ms": str(LAG_MS),
        "replica.fetch.backoff.ms": "200",
        "controlled.shutdown.retry.backoff.ms": "500",
        "unclean.leader.election.enable": "false",
    },
    1: {"broker.rack": "a"},
    2: {"broker.rack": "b"},
    3: {"broker.rack": "b"},
}
WITHIN_S: Final = 60.0
AT_REST_S: Final = 3.0
_FETCH_WAITS_S: Final = 1.0
"""Twice replica.fetch.wait.max.ms, and a wire is cut a tenth of a second after it was said."""
PLAIN, TWO, TAIL, SHRUNK = "plain", "two at once", "tail", "out of sync"
DECK: Final = (*[PLAIN] * 8, *[TAIL] * 3, *[SHRUNK] * 2, *[TWO] * 2)


class Place(NamedTuple):
    """What is compared of one partition."""

    leader: BrokerId
    epoch: int
    isr: tuple[BrokerId, ...]


State = dict[str, Place]
Cuts = dict[str, int]
"""By `topic-partition on broker`: the offset a log is cut to."""


@dataclass
class Outcome:
    """One stop: what was foretold, what happened, and how long until the cluster was at rest."""

    cluster: str
    kind: str
    stopped: tuple[int, ...]
    how: str
    with_controller: bool
    partitions: int = 0
    moved: int = 0
    offline: list[str] = field(default_factory=list)
    lost: list[str] = field(default_factory=list)
    cuts: Cuts = field(default_factory=dict)
    order_mattered: bool = False
    rejoined: int = 0
    seconds: float = 0.0
    wrong: list[str] = field(default_factory=list)
    not_told: list[str] = field(default_factory=list)

    @property
    def equal(self) -> bool:
        return not self.wrong and not self.not_told


def play(folder: Path, kind: Kind, stops: int, seed: int) -> Iterator[Outcome]:
    chance = random.Random(seed)  # noqa: S311 - which broker is next
    drawn: list[str] = []
    while len(drawn) < stops:
        drawn += chance.sample(DECK, len(DECK))
    with running(folder, *kind, cuttable=True, settings=SETTINGS) as lab:
        make_topics(lab)
        yield from play_on(lab, kind, drawn[:stops], chance)


def make_topics(lab: Lab) -> None:
    for topic, (assignment, configs) in TOPICS.items():
        lab.clients.create_topic(topic, assignment=assignment, configs=configs)


def play_on(lab: Lab, kind: Kind, stops: Sequence[str], chance: random.Random) -> Iterator[Outcome]:
    """Between two stops everybody is back, and some leaderships go to whoever comes first."""
    for what in stops:
        _write(lab, chance)
        yield _one(lab, kind, what, chance)
        if chance.random() < 0.5:
            _rebalance(lab)


def _one(lab: Lab, kind: Kind, what: str, chance: random.Random) -> Outcome:
    # A KRaft quorum of three nodes needs two: only one may go at a time there.
    if what == TWO and kind.mode != "zookeeper":
        what = PLAIN
    brokers, kill = list(lab.brokers), what == TWO or chance.random() < 0.5
    who = tuple(sorted(chance.sample(brokers, 2 if what == TWO else 1)))
    if what in (TAIL, SHRUNK):
        who = _cut_off(lab, what, chance)
    marks = {broker: len(lab.log(broker)) for broker in brokers}
    seen = live(_cluster(lab)).partitions
    found = what_if.stop(seen, who, controlled=not kill)
    foretold = _foretold(seen, who, kill=kill)
    outcome = Outcome(
        str(kind), what, who, "kill" if kill else "clean stop", found.controller_moves, len(seen)
    )
    outcome.not_told = [f"{c.name}: {', '.join(c.after.missing)}" for c in found.unknown]
    outcome.offline = [str(c.name) for c in found.offline]
    outcome.lost = [f"{c.name} {c.after.lost}" for c in found.losing]
    expected = {
        f"{c.name} on broker {cut.broker}": cut.offsets.start
        for c in found.changes
        for cut in c.after.cuts
    }
    (lab.kill if kill else lab.stop)(*who)
    began = time.monotonic()
    lab.heal()
    happened = _at_rest(lab, seen, foretold)
    outcome.seconds = time.monotonic() - began - AT_REST_S
    _compare(outcome, seen, foretold, happened)
    lab.start(*who)
    for topic, (assignment, _) in TOPICS.items():
        copies = len(assignment[0])
        lab.clients.until(topic, _whole(copies), 120)
    _compare_cuts(outcome, lab, expected, marks)
    return outcome


def _whole(copies: int) -> Any:
    return lambda seen: all(len(p.isr) == copies and p.leader >= 0 for p in seen)


def _cut_off(lab: Lab, what: str, chance: random.Random) -> tuple[int]:
    """Two brokers that are not the controller lose sight of each other, and the first writes on.

    With a tail the second is in sync still: what was written is not committed, and the third has
    it. Out of sync: the ISR has shrunk, and what was written is committed without the second.
    """
    _rebalance(lab)
    controller = live(_cluster(lab)).partitions[0].controller
    one, other = chance.sample([b for b in lab.brokers if b != controller], 2)
    lab.cut(one, other)
    # A fetch that was on its way is answered, with nothing: else it would bring the tail when the
    # wire is mended, after the forecast.
    time.sleep(_FETCH_WAITS_S)
    both = [p for p in lab.clients.describe(*TOPICS) if {one, other} <= set(p.replicas)]
    led = [p for p in both if p.leader == one]
    records = {(p.topic, p.partition): [b"tail"] * chance.randint(1, 5) for p in led}
    # With all acknowledgements it waits until the ISR has shrunk.
    acks = 1 if what == TAIL else "all"
    lab.clients.produce_many(records, acks=acks, at=lab.bootstrap_of(one))
    time.sleep(1)  # the third fetches
    return (one,)


def _foretold(
    seen: Sequence[PartitionObservation], who: tuple[int, ...], *, kill: bool
) -> list[State]:
    """The forecast; of two deaths also one after the other, as the controller may notice them."""
    together = {_name(o): _place(next_state(o, stopping=who, controlled=not kill)) for o in seen}
    found = [together]
    for order in permutations(who) if len(who) > 1 else ():
        others = [b for b in (1, 2, 3) if b != order[0]]
        found += [{_name(o): _in_turn(o, order, next_one) for o in seen} for next_one in others]
    return found


def _in_turn(seen: PartitionObservation, order: Sequence[int], successor: int) -> Place:
    for broker in order:
        state = next_state(seen, stopping={broker})
        moved = successor if seen.controller == broker else seen.controller
        live_now = tuple(r for r in seen.live if r.broker != broker)
        seen = replace(seen, state=state, live=live_now, controller=moved)
    return _place(seen.state)


def _name(seen: PartitionObservation) -> str:
    return str(TopicPartition(seen.topic, seen.partition))


def _place(state: PartitionState) -> Place:
    return Place(state.leader, state.leader_epoch, tuple(sorted(state.isr)))


def _at_rest(lab: Lab, seen: Sequence[PartitionObservation], foretold: list[State]) -> State:
    """What the brokers' metadata say once it is as foretold, or once it has had time enough; and
    then some seconds later: a state on the way is no outcome."""
    until, happened = time.monotonic() + WITHIN_S, State()
    while True:
        with suppress(LabError):  # a client may still try the broker that is gone
            happened = _described(lab)
        settled = any(not _unlike(seen, each, happened) for each in foretold)
        if settled or time.monotonic() > until:
            break
        time.sleep(0.5)
    time.sleep(AT_REST_S)
    with suppress(LabError):
        happened = _described(lab)
    return happened


def _described(lab: Lab) -> State:
    return {
        f"{p.topic}-{p.partition}": Place(p.leader, p.leader_epoch, tuple(sorted(p.isr)))
        for p in lab.clients.describe(*TOPICS)
    }


def _unlike(seen: Sequence[PartitionObservation], foretold: State, happened: State) -> list[str]:
    wrong = []
    for each in seen:
        name = _name(each)
        expected, found = foretold[name], happened.get(name)
        if found is None:
            wrong.append(f"{name}: not described")
            continue
        # Who was out of sync and lives may be back at any time: that is no part of the stop.
        may_return = set(each.assignment.replicas) - set(each.state.isr)
        isr = tuple(b for b in found.isr if b in expected.isr or b not in may_return)
        # Where a whole ISR dies, which member stays listed is not foretold (docs/what-if.md).
        nobody = expected.leader < 0 and len(each.state.isr) > 1
        if found._replace(isr=expected.isr if nobody else isr) != expected:
            before = _place(each.state)
            wrong.append(f"{name}: was {before}, foretold {expected}, happened {found}")
    return wrong


def _compare(
    outcome: Outcome,
    seen: Sequence[PartitionObservation],
    foretold: list[State],
    happened: State,
) -> None:
    differences = [_unlike(seen, each, happened) for each in foretold]
    best = min(range(len(foretold)), key=lambda n: len(differences[n]))
    outcome.wrong += differences[best]
    outcome.order_mattered = best > 0
    before = {_name(o): o for o in seen}
    outcome.moved = sum(
        p.leader not in (-1, before[name].state.leader) for name, p in happened.items()
    )
    outcome.rejoined = sum(
        bool(set(p.isr) - set(foretold[best][name].isr)) for name, p in happened.items()
    )
    gone = {name for name, p in happened.items() if p.leader < 0}
    if gone != set(outcome.offline):
        outcome.wrong.append(
            f"offline: foretold {sorted(outcome.offline)}, happened {sorted(gone)}"
        )


def _compare_cuts(outcome: Outcome, lab: Lab, expected: Cuts, marks: Mapping[int, int]) -> None:
    """Every cut that a broker logged since, and no other."""
    done = {
        f"{name} on broker {broker}": at
        for broker, mark in marks.items()
        for name, at in logged_cuts(lab.log(broker)[mark:]).items()
        if name.rpartition("-")[0] in TOPICS
    }
    outcome.cuts = done
    for place in sorted(expected.keys() | done.keys()):
        if expected.get(place) != done.get(place):
            told, seen = expected.get(place, "none"), done.get(place, "none")
            outcome.wrong.append(f"cut of {place}: foretold {told}, happened {seen}")


def _write(lab: Lab, chance: random.Random) -> None:
    places = {
        (topic, number): [b"record"] * chance.randint(1, 20)
        for topic, (assignment, _) in TOPICS.items()
        for number in range(len(assignment))
    }
    lab.clients.produce_many(places)


def _rebalance(lab: Lab) -> None:
    lab.clients.ask(
        "elect", "preferred leaders", lambda admin: admin.elect_leaders(0, raise_errors=False)
    )


def _cluster(lab: Lab) -> Cluster:
    """As `tidestaff what-if` asks it."""
    asked = {
        "bootstrap_servers": lab.answering,
        "version": lab.plan.version,
        "mode": lab.plan.mode,
        "include": "|".join(TOPICS),
        "jitter_ms": 0,
        "missed_rounds": 1,
        "header_fetches": 20,
        **({"zookeeper_connect": lab.zookeeper_connect} if lab.zookeeper_connect else {}),
    }
    source = {"type": "direct", "collector": "brokers", "options": asked}
    return Cluster.model_validate({"name": "whatif", "source": source})


def main(arguments: list[str]) -> int:
    parser = argparse.ArgumentParser(prog="field_whatif")
    parser.add_argument("--stops", type=int, default=30)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--cluster", action="append", choices=[str(kind) for kind in CLUSTERS])
    parser.add_argument("--keep", type=Path, help="outcomes as lines of JSON; read first")
    parser.add_argument("--no-page", action="store_true", help="write no page")
    options = parser.parse_args(arguments)
    outcomes: list[Outcome] = []
    if options.keep is not None and options.keep.exists():
        lines = options.keep.read_text(encoding="utf-8").splitlines()
        outcomes = [Outcome(**json.loads(line)) for line in lines]
    for kind in CLUSTERS:
        if str(kind) not in (options.cluster or [str(each) for each in CLUSTERS[:2]]):
            continue
        outcomes = [o for o in outcomes if o.cluster != str(kind)]
        with tempfile.TemporaryDirectory(prefix="tidestaff-whatif-") as folder:
            for outcome in play(Path(folder) / "lab", kind, options.stops, options.seed):
                outcomes.append(outcome)
                print(outcome, flush=True)
                if options.keep is not None:
                    kept = "".join(f"{json.dumps(asdict(o))}\n" for o in outcomes)
                    options.keep.write_text(kept, encoding="utf-8")
    if not options.no_page:
        DOCUMENT.write_text(page(outcomes, options.seed), encoding="utf-8")
    return 0 if all(o.equal for o in outcomes) else 1


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
