"""`tidestaff what-if`: what a stop, a restart, a reassignment would do, before it is done."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import TYPE_CHECKING, Final

from tidestaff.consistency.model import TopicPartition
from tidestaff.streaming.commands.arguments import did_you_mean
from tidestaff.streaming.commands.exits import CommandError, Exit, UsageError

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from tidestaff.streaming.commands.arguments import CommandParser, Options
    from tidestaff.streaming.settings import Cluster
    from tidestaff.streaming.what_if.seen import Seen
    from tidestaff.streaming.what_if.told import Told
    from tidestaff.streaming.what_if.unread import Asked

EXAMPLES: Final = """\
questions:
  stop 3             end broker 3 cleanly; 1,3 both at once; rack:b a whole rack; all
  restart all        a rolling restart: a safe order, and where to wait; or some: 1,3
  reassign FILE      a plan as kafka-reassign-partitions takes it
  unclean on         unclean election allowed now

examples:
  tidestaff what-if stop 3 --bootstrap-server broker-1:9092 && systemctl restart kafka
  tidestaff what-if stop rack:b --crash --config tidestaff.yaml
  tidestaff what-if restart all --bootstrap-server broker-1:9092
  tidestaff what-if stop 1 --scenario s23-loss-0.10.2 --at 2
  tidestaff what-if stop 3 --recording DIR --json

The forecast is made by the rules of the cluster's own version; nothing is changed. See
docs/what-if.md for systemd, Kubernetes and Ansible.
exit codes: 0 safe, 1 risky (one copy left, or wait first), 2 not safe (offline, under min ISR,
records lost), 3 could not tell
"""
_QUESTIONS: Final = ("stop", "restart", "reassign", "unclean")

_TAKEN_WITH: Final = {
    "at": ("scenario", "recording"),
    "cluster": ("config", "recording"),
    "command_config": ("bootstrap_server",),
    "zookeeper": ("bootstrap_server",),
}
"""Options that say nothing of other sources: left alone they would be believed."""


_AT_ONCE: Final[Mapping[str, Mapping[str, int]]] = {
    "brokers": {"jitter_ms": 0, "missed_rounds": 1, "verify_bytes_per_round": 0},
    "zookeeper": {"jitter_ms": 0, "missed_rounds": 1},
}
"""Who looks for some seconds tells what is wrong in the first round, and leaves comparing contents
(and the file that says how far) to the monitor."""
_HEADER_FETCHES: Final = 20
_TOPIC: Final = re.compile(r"[A-Za-z0-9._-]{1,249}")


def configure(parser: CommandParser, _: Sequence[str]) -> None:
    parser.add_argument("question", metavar="QUESTION", help=", ".join(_QUESTIONS))
    parser.add_argument("what", metavar="WHAT", help="brokers, rack:NAME, all, a file, or on")
    where = parser.add_argument_group("which cluster")
    where.add_argument("--bootstrap-server", metavar="HOST:PORT", help="a live one")
    where.add_argument("--command-config", metavar="FILE", help="client properties")
    where.add_argument("--zookeeper", metavar="HOST:PORT/CHROOT", help="where it has one")
    where.add_argument("--config", type=Path, metavar="FILE", help="as the monitor knows it")
    where.add_argument("--cluster", metavar="NAME", help="of --config or --recording")
    where.add_argument("--recording", type=Path, metavar="DIR", help="of 'tidestaff record'")
    where.add_argument("--scenario", metavar="NAME|FILE", help="see 'tidestaff scenarios'")
    parser.add_argument("--at", type=int, metavar="N", help="step of a scenario, ms of a recording")
    parser.add_argument("--crash", action="store_true", help="stop: without a clean shutdown")
    parser.add_argument("--topics-exclude", metavar="REGEX", help="leave these topics out")


def run(options: Options) -> int:
    from tidestaff.streaming.commands.layout import Paint, wants_colour  # noqa: PLC0415 - slow
    from tidestaff.streaming.what_if.unread import hanging_on  # noqa: PLC0415

    _check(options)
    # A file that is none, or a pattern, is told before anybody waits for a cluster.
    excluded = _pattern(options.topics_exclude)
    plan = _plan(options.what) if options.question == "reassign" else {}
    seen = _seen(options)
    if excluded is not None:
        left = [o for o in seen.partitions if not excluded.fullmatch(o.topic)]
        if not left:
            raise CommandError(
                f"--topics-exclude {options.topics_exclude!r} leaves no partition of "
                f"{len(seen.partitions)}",
                "give a pattern of the topics that may be lost",
            )
        seen.partitions = left
    unread = hanging_on(seen.problems, seen.partitions, _asked(options, seen, plan, excluded))
    told = _as_far_as_known(_answer(options, seen, plan), unread)
    if options.json:
        content = {
            "verdict": told.verdict,
            "question": f"{options.question} {options.what}",
            "source": seen.source,
            **told.value,
            "problems": [each.reason for each in seen.problems],
            "unread": unread,
            "exit_code": int(told.code),
        }
        print(json.dumps(content, indent=2))
        return told.code
    paint = Paint(colour=wants_colour())
    print(paint(told.verdict, ("green", "yellow", "red", "yellow")[told.code]))
    if told.lines:
        print("\n".join(["", *told.lines]))
    for each in seen.problems:
        print(f"not read: {each.place}: {each.reason}")
    return told.code


def _pattern(text: str | None) -> re.Pattern[str] | None:
    try:
        return re.compile(text) if text else None
    except re.error as error:
        raise UsageError(f"tidestaff what-if: --topics-exclude: {error}") from None


def _check(options: Options) -> None:
    if options.question not in _QUESTIONS:
        hint = did_you_mean(options.question, _QUESTIONS)
        raise UsageError(
            f"tidestaff what-if: found {options.question!r}, expected "
            f"{', '.join(_QUESTIONS)}{hint}",
            "see 'tidestaff what-if --help'",
        )
    if options.question == "unclean" and options.what != "on":
        raise UsageError(f"tidestaff what-if unclean: found {options.what!r}, expected on")
    given = [
        name
        for name in ("bootstrap_server", "config", "recording", "scenario")
        if getattr(options, name) is not None
    ]
    if len(given) != 1:
        raise UsageError(
            "tidestaff what-if: expected one of --bootstrap-server, --config, --recording, "
            "--scenario",
            "see 'tidestaff what-if --help'",
        )
    for name, takers in _TAKEN_WITH.items():
        if getattr(options, name) is not None and given[0] not in takers:
            with_ = " or ".join(f"--{each.replace('_', '-')}" for each in takers)
            raise UsageError(
                f"tidestaff what-if: --{name.replace('_', '-')} goes with {with_} only"
            )
    if options.crash and options.question != "stop":
        raise UsageError("tidestaff what-if: --crash goes with stop only")
    if options.scenario is not None and (options.at or 0) < 0:
        raise UsageError(f"tidestaff what-if: --at: found {options.at}, expected a step, from 0 on")


def _seen(options: Options) -> Seen:
    from tidestaff.streaming.what_if import seen as sight  # noqa: PLC0415 - slow

    if options.scenario is not None:
        return sight.played(options.scenario, options.at)
    if options.recording is not None:
        return sight.recorded(options.recording, options.at, options.cluster)
    return sight.live(_cluster(options))


def _cluster(options: Options) -> Cluster:
    from tidestaff.streaming.settings import Cluster  # noqa: PLC0415 - slow

    if options.config is not None:
        return _configured(options)
    asked = {
        "bootstrap_servers": options.bootstrap_server,
        **_AT_ONCE["brokers"],
        "header_fetches": _HEADER_FETCHES,
        **({"command_config": options.command_config} if options.command_config else {}),
        **({"zookeeper_connect": options.zookeeper} if options.zookeeper else {}),
        # Or a topic that may not be read would count, though nobody asks about it.
        **({"exclude": options.topics_exclude} if options.topics_exclude else {}),
    }
    source = {"type": "direct", "collector": "brokers", "options": asked}
    return Cluster.model_validate({"name": "live", "source": source})


def _configured(options: Options) -> Cluster:
    from tidestaff.streaming.settings import DirectSource, SimulatorSource  # noqa: PLC0415 - slow
    from tidestaff.streaming.settings_loading import load  # noqa: PLC0415

    clusters = {each.name: each for each in load(options.config).clusters}
    name = options.cluster or (next(iter(clusters)) if len(clusters) == 1 else None)
    if name not in clusters:
        raise CommandError(
            f"{options.config}: which cluster? It has {', '.join(clusters)}", "--cluster NAME"
        )
    cluster, source = clusters[name], clusters[name].source
    if isinstance(source, SimulatorSource):
        return cluster
    if not isinstance(source, DirectSource):
        raise CommandError(
            f"{options.config}: cluster {name} is not read from here, its source is of type "
            f"{source.type}: expected direct",
            "give --bootstrap-server, or --recording DIR for what a recording shows",
        )
    asked = {**source.options, **_AT_ONCE.get(source.collector, {})}
    if source.collector == "brokers":
        asked = {"header_fetches": _HEADER_FETCHES, **asked}
    return cluster.model_copy(update={"source": source.model_copy(update={"options": asked})})


def _answer(options: Options, seen: Seen, plan: Mapping[TopicPartition, tuple[int, ...]]) -> Told:
    from tidestaff.consistency import what_if  # noqa: PLC0415 - slow
    from tidestaff.streaming.what_if import told, told_changes  # noqa: PLC0415

    rejoining = told.Rejoining.of(seen.earlier, seen.partitions)
    voters = told.Voters(seen.voters, seen.silent_voters)
    if options.question == "stop":
        brokers = _brokers(options.what, seen)
        found = what_if.stop(seen.partitions, brokers, controlled=not options.crash)
        return told.of_stop(found, rejoining, seen.unsettled, voters)
    if options.question == "restart":
        steps = what_if.restart(seen.partitions, _brokers(options.what, seen), seen.active)
        return told.of_restart(steps, rejoining, voters, seen.unsettled)
    if options.question == "reassign":
        moves = what_if.reassign(seen.partitions, plan, seen.active)
        return told_changes.of_reassign(moves, seen.unsettled)
    return told_changes.of_unclean(
        what_if.unclean_on(seen.partitions),
        what_if.unclean_risk(seen.partitions),
        sum(o.state.leader < 0 and not o.deleting for o in seen.partitions),
        seen.unsettled,
    )


def _asked(
    options: Options,
    seen: Seen,
    plan: Mapping[TopicPartition, tuple[int, ...]],
    excluded: re.Pattern[str] | None,
) -> Asked:
    from tidestaff.streaming.what_if.unread import Asked  # noqa: PLC0415 - slow

    def wants(topic: str) -> bool:
        return excluded is None or not excluded.fullmatch(topic)

    if options.question == "reassign":
        named = {partition.topic for partition in plan}
        targets = frozenset(broker for replicas in plan.values() for broker in replicas)
        return Asked(lambda topic: topic in named and wants(topic), targets=targets, named=True)
    if options.question == "unclean":
        return Asked(wants)
    brokers = frozenset(_brokers(options.what, seen))
    # In a rolling restart each must be there while another is away.
    together = options.question == "stop" or len(brokers) == 1
    return Asked(wants, brokers, brokers if together else frozenset())


def _as_far_as_known(told: Told, unread: Sequence[str]) -> Told:
    """What is not safe by what was read is not safe; what is safe by it may not be."""
    if not unread or told.code not in (Exit.OK, Exit.WARNING):
        return told
    more = f" (and {len(unread) - 1} more)" if len(unread) > 1 else ""
    return told._replace(verdict=f"CANNOT TELL: {unread[0]}{more}", code=Exit.UNKNOWN)


def _brokers(text: str, seen: Seen) -> list[int]:
    known = seen.brokers
    if text == "all":
        return known
    found: list[int] = []
    for word in text.split(","):
        name = word.strip()
        if name.startswith("rack:"):
            rack = name.removeprefix("rack:")
            racks = {b: r.rack for b, r in seen.registrations.items()}
            mine = [b for b, each in racks.items() if each == rack]
            if not mine:
                there = sorted({str(each) for each in racks.values() if each})
                raise CommandError(
                    f"no broker of rack {rack!r} is registered",
                    f"racks: {', '.join(there) or 'none is told'}",
                )
            found += mine
        elif name.isascii() and name.isdigit() and len(name) <= 10 and int(name) in known:
            found.append(int(name))
        else:
            raise CommandError(
                f"found {name!r}, expected a broker of {', '.join(map(str, known))}, rack:NAME "
                "or all"
            )
    return sorted(set(found))


def _plan(name: str) -> dict[TopicPartition, tuple[int, ...]]:
    """As kafka-reassign-partitions.sh takes it."""
    try:
        content = json.loads(Path(name).read_text(encoding="utf-8"))
        moves = [
            (TopicPartition(_topic(each["topic"]), _number(each["partition"])), each["replicas"])
            for each in content["partitions"]
        ]
        plan = {partition: tuple(map(_number, replicas)) for partition, replicas in moves}
    except OSError as error:
        raise CommandError(
            f"{name} cannot be read: {error.strerror}",
            "give the file that kafka-reassign-partitions.sh would take",
        ) from None
    except (ValueError, KeyError, TypeError, RecursionError):
        raise CommandError(
            f"{name}: no reassignment, expected "
            '{"partitions": [{"topic": "t", "partition": 0, "replicas": [1, 2]}]}'
        ) from None
    # What Kafka's own tool refuses.
    if not plan:
        raise CommandError(f"{name}: it names no partition")
    if len(plan) < len(moves):
        raise CommandError(f"{name}: it names a partition twice")
    for partition, replicas in plan.items():
        if not replicas or len(set(replicas)) < len(replicas):
            found = ",".join(map(str, replicas)) or "none"
            raise CommandError(
                f"{name}: replicas of {partition}: found {found}, expected brokers, each once"
            )
    return plan


def _topic(found: object) -> str:
    if not isinstance(found, str) or not _TOPIC.fullmatch(found):
        raise TypeError(found)
    return found


def _number(found: object) -> int:
    """Kafka's own are of 32 bits."""
    if not isinstance(found, int) or isinstance(found, bool) or not 0 <= found < 1 << 31:
        raise TypeError(found)
    return found
