"""What could not be read, and whether an answer hangs on it.

Whatever is not known to be without weight has some: a topic that may not be described has
partitions, too, and a broker that does not answer may be dead already, though the cluster still
counts it among those in sync.
"""

from __future__ import annotations

from operator import itemgetter
from typing import TYPE_CHECKING, Final, NamedTuple

from tidestaff.connectors.broker_settings import TOPIC_SETTINGS
from tidestaff.consistency.model import ProblemKind

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from tidestaff.consistency.model import BrokerId, HealthObservation, PartitionObservation

_READ_ALL_THE_SAME: Final = frozenset(
    {
        ProblemKind.CLOCK_SKEW,
        ProblemKind.STRAY_DIRECTORY,
        ProblemKind.CHECKPOINT_ENTRY_MISSING,
        ProblemKind.SINK_FAILING,
    }
)
_WITHOUT_WEIGHT: Final = (
    # Lineages, which are read from batch headers, too; of members of the ISR none is needed.
    "agent of broker ",
    "lineage of topic ",
    # Without them a fenced broker is not listed at all: nobody takes it for live.
    "registrations",
    # Which of two controllers counts is known.
    "/migration",
    # How far contents were compared.
    "verify_state ",
    # Whose majority is counted by itself.
    "controller ",
)
_OF_NAMED_TOPICS_WITHOUT_WEIGHT: Final = ("log directories", "topics that are hidden", "quorum")
"""Hidden topics and the voters: a plan that names its topics is told of those that are not seen."""


class Asked(NamedTuple):
    """What a question is about: topics that `wants` takes, and of them the partitions that one of
    `held_by` holds (None: all). `stopping` stop, so it does not matter whether they answer;
    `targets` are to copy, so they must. `named`: the question itself names its topics."""

    wants: Callable[[str], bool]
    held_by: frozenset[BrokerId] | None = None
    stopping: frozenset[BrokerId] = frozenset()
    targets: frozenset[BrokerId] = frozenset()
    named: bool = False


def hanging_on(
    problems: Sequence[HealthObservation],
    partitions: Sequence[PartitionObservation],
    asked: Asked,
) -> list[str]:
    """Why an answer is a guess: what could not be read, and who should be in sync and said
    nothing, which is no problem to a source before it lasts."""
    concerned = [o for o in partitions if _is_concerned(o, asked)]
    told = [each for each in problems if _matters(each, concerned, asked)]
    named = {each.broker for each in told}
    silent: dict[BrokerId, PartitionObservation] = {}
    for seen in concerned:
        for broker in seen.state.isr if seen.replicas else ():
            if _counts_on(seen, broker, asked) and not _is_read(seen, broker):
                silent.setdefault(broker, seen)
    return [_words(each) for each in told] + [
        f"broker {broker} is in the ISR of {o.topic}-{o.partition} and was not read"
        for broker, o in sorted(silent.items(), key=itemgetter(0))
        if broker not in named
    ]


def _words(problem: HealthObservation) -> str:
    return f"{problem.place} was not read: {problem.reason or problem.problem.value}"


def _is_concerned(seen: PartitionObservation, asked: Asked) -> bool:
    held = asked.held_by is None or asked.held_by & set(seen.assignment.replicas)
    return bool(held) and asked.wants(seen.topic) and not seen.deleting


def _matters(
    problem: HealthObservation, concerned: Sequence[PartitionObservation], asked: Asked
) -> bool:
    place = problem.place
    if problem.problem in _READ_ALL_THE_SAME or place.startswith(_WITHOUT_WEIGHT):
        return False
    if asked.named and place in _OF_NAMED_TOPICS_WITHOUT_WEIGHT:
        return False
    if problem.topic is not None:
        return asked.wants(problem.topic) and _topic_matters(problem, concerned, asked)
    if problem.problem is ProblemKind.LOG_DIR_OFFLINE:
        return False  # which replicas are gone with it is told one by one
    if problem.broker is None:
        return True
    if place == f"broker {problem.broker}":
        return problem.broker in asked.targets or any(
            _counts_on(o, problem.broker, asked) for o in concerned
        )
    # A directory or a file of it: what the broker says of its replicas was read.
    return not place.startswith(("log directory ", f"broker {problem.broker}: "))


def _topic_matters(
    problem: HealthObservation, concerned: Sequence[PartitionObservation], asked: Asked
) -> bool:
    mine = [o for o in concerned if o.topic == problem.topic]
    if problem.broker is not None:
        return any(
            _counts_on(o, problem.broker, asked) and not _is_read(o, problem.broker) for o in mine
        )
    return bool(mine) if problem.place.startswith(TOPIC_SETTINGS) else True


def _counts_on(seen: PartitionObservation, broker: BrokerId, asked: Asked) -> bool:
    """As one that stays in sync. Where nobody leads it is known that nobody can."""
    return seen.state.leader >= 0 and broker in seen.state.isr and broker not in asked.stopping


def _is_read(seen: PartitionObservation, broker: BrokerId) -> bool:
    return any(r.broker == broker and r.log_dir_online is not False for r in seen.replicas)
