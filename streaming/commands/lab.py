"""`tidestaff lab`: one line to a real cluster to learn on, and its faults."""

from __future__ import annotations

import argparse
import json
import os
import time
from typing import TYPE_CHECKING, Any, Final

from tidestaff.streaming.commands.arguments import did_you_mean, one_of
from tidestaff.streaming.commands.exits import CommandError, Exit, UsageError
from tidestaff.streaming.commands.run import count
from tidestaff.streaming.lab.places import DEFAULT_NAME, lab_folder, labs
from tidestaff.streaming.lab.plan import (
    ZOOKEEPER_NODE,
    holds_anything,
    load_plan,
    make_plan,
    node_name,
)
from tidestaff.streaming.lab.properties import settings_to_give
from tidestaff.streaming.lab.releases import KRAFT, NEWEST, RELEASES, ZOOKEEPER

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from pathlib import Path

    from tidestaff.streaming.commands.arguments import CommandParser, Options
    from tidestaff.streaming.lab.cluster import Lab

EXAMPLES: Final = f"""\
actions:
  up                 start a cluster and show how to watch it
  status             its brokers and its topics
  topic NAME         make a topic (--partitions, --replication-factor)
  produce TOPIC      write records, acknowledged by the whole ISR (--count, --acks, --partition)
  stop N ...         end brokers cleanly          start N ...  start them again
  kill N ...         end brokers at once          pause N ...  stop their processes; resume N ...
  partition N M      cut the wire between two brokers, or between a broker and zookeeper
  heal               mend all wires
  log N              the last lines a broker has logged (--count)
  down               end the cluster and remove it (--keep: leave its files)

examples:
  tidestaff lab up --version 3.9.1 --brokers 3 --mode zookeeper
  tidestaff lab topic orders --partitions 3
  tidestaff lab produce orders --count 100
  tidestaff lab kill 2
  tidestaff lab partition 1 zookeeper
  tidestaff lab down

versions: {", ".join(RELEASES)}. It needs Java 17 on the PATH or in JAVA_HOME; jars are fetched
once. Everything listens on loopback only. Several labs at once have names: --name.
exit codes: 0 done, 1 not all brokers run (status), 3 could not
"""
_NUMBERED: Final = ("stop", "start", "kill", "pause", "resume")
ACTIONS: Final = (
    "up",
    "status",
    "topic",
    "produce",
    *_NUMBERED,
    "partition",
    "heal",
    "log",
    "down",
)


def configure(parser: CommandParser, _: Sequence[str]) -> None:
    parser.add_argument("action", metavar="ACTION", type=_action, help=", ".join(ACTIONS))
    parser.add_argument("what", metavar="WHAT", nargs="*", help="brokers, or a topic")
    parser.add_argument("--name", default=DEFAULT_NAME, help=f"of the lab ({DEFAULT_NAME})")
    parser.add_argument("--version", default=NEWEST, help=f"up: Kafka's version ({NEWEST})")
    parser.add_argument("--mode", type=one_of(KRAFT, ZOOKEEPER), help="up: where both can be had")
    parser.add_argument("--brokers", type=int, default=3, metavar="COUNT", help="up: how many (3)")
    parser.add_argument(
        "--set",
        action="append",
        default=[],
        metavar="[N:]KEY=VALUE",
        help="up: a property of all brokers, or of broker N; may be given again",
    )
    parser.add_argument("--partitions", type=count, default=1, metavar="COUNT", help="topic: (1)")
    parser.add_argument("--replication-factor", type=count, metavar="COUNT", help="topic: (3)")
    parser.add_argument("--count", type=count, default=10, help="produce, log: how many (10)")
    parser.add_argument(
        "--acks", type=one_of("all", "1", "0"), default="all", help="produce: (all)"
    )
    parser.add_argument("--partition", type=int, default=0, metavar="N", help="produce: (0)")
    parser.add_argument("--keep", action="store_true", help="down: leave files and logs")


def _action(text: str) -> str:
    if text not in ACTIONS:
        hint = did_you_mean(text, ACTIONS)
        raise argparse.ArgumentTypeError(f"found {text!r}, expected {', '.join(ACTIONS)}{hint}")
    return text


def run(options: Options) -> int:
    folder = lab_folder(options.name, os.environ)
    if options.action == "up":
        return _up(folder, options)
    try:
        plan = load_plan(folder)
    except CommandError as error:
        known = labs(os.environ)
        others = f"labs that are there: {', '.join(known)}" if known else ""
        raise CommandError(*error.problems, *([others] if others else [])) from None
    from tidestaff.streaming.lab.cluster import Lab  # noqa: PLC0415 - slow

    lab = Lab(plan, say=_progress(options))
    if options.action in _NUMBERED:
        return _numbered(lab, options)
    return _ACTIONS[options.action](lab, options)


def _progress(options: Options) -> Callable[[str], None]:
    began = time.monotonic()

    def say(text: str) -> None:
        if not options.json:
            print(f"{time.monotonic() - began:6.1f} s  {text}", flush=True)

    return say


def _tell(options: Options, content: dict[str, Any], *lines: str) -> int:
    print(json.dumps({**content, "exit_code": 0}, indent=2) if options.json else "\n".join(lines))
    return Exit.OK


# -- up and down


def _up(folder: Path, options: Options) -> int:
    from tidestaff.streaming.lab.cluster import Lab  # noqa: PLC0415 - slow

    _no_more(options, 0)
    say = _progress(options)
    if holds_anything(folder):
        old = Lab(load_plan(folder))
        if any(old.running(node) for node in old.nodes):
            raise CommandError(
                f"the lab {options.name!r} runs already, Kafka {old.plan.version}",
                "'tidestaff lab status' shows it, 'tidestaff lab down' ends it, --name makes more",
            )
        old.remove()
    plan = make_plan(
        folder,
        version=options.version,
        mode=options.mode,
        brokers=options.brokers,
        cuttable=True,
        settings=_settings(options.set, options.brokers),
    )
    say(f"Kafka {plan.version} with {plan.mode}, {len(plan.brokers)} brokers, in {folder}")
    lab = Lab(plan, say=say)
    lab.up()
    config = folder / "tidestaff.yaml"
    config.write_text(configuration(lab, options.name), encoding="utf-8")
    say("up")
    return _tell(
        options,
        {
            "bootstrap_servers": plan.bootstrap,
            "zookeeper_connect": plan.zookeeper_connect,
            "config": str(config),
        },
        "",
        f"bootstrap servers  {plan.bootstrap}",
        *([f"zookeeper          {plan.zookeeper_connect}"] if plan.zookeeper else []),
        f"files and logs     {folder}",
        "",
        "watch it:    " + f"tidestaff run --config {config}",
        "then try:    tidestaff lab topic orders; tidestaff lab produce orders",
        "             tidestaff lab kill 2",
        "end it:      tidestaff lab down",
    )


def configuration(lab: Lab, name: str) -> str:
    """A file for `tidestaff run`, ready as it is."""
    plan = lab.plan
    metadata = f"        zookeeper_connect: {plan.zookeeper_connect}\n" if plan.zookeeper else ""
    given = {} if lab.release.tells_settings else settings_to_give(plan)
    metadata += "".join(f"        {name}: {json.dumps(text)}\n" for name, text in given.items())
    return f"""\
# Watches the lab {name!r}: tidestaff run --config THIS-FILE
work_dir: {json.dumps(str(plan.folder / "monitor"))}
clusters:
  - name: {name}
    source:
      type: direct
      collector: brokers
      round_interval_ms: 1000
      options:
        bootstrap_servers: {plan.bootstrap}
        version: {plan.version}
        mode: {plan.mode}
{metadata}spark:
  quick_start: true
operator:
  buckets: 4
"""


def _settings(given: Sequence[str], brokers: int) -> dict[int, dict[str, str]]:
    found: dict[int, dict[str, str]] = {}
    for text in given:
        place, key, value = 0, *text.partition("=")[::2]
        number, colon, rest = key.partition(":")
        if colon:  # no name of a property has one
            place, key = _number_of(number), rest
        if not key or "=" not in text or not bool(colon) <= place <= brokers:
            raise UsageError(
                f"tidestaff lab: found --set {text!r}, expected KEY=VALUE or N:KEY=VALUE "
                f"with N from 1 to {brokers}"
            )
        found.setdefault(place, {})[key] = value
    return found


def _number_of(text: str) -> int:
    """Of a broker; -1 where it is none."""
    return int(text) if len(text) < 10 and text.isascii() and text.isdigit() else -1


def _down(lab: Lab, options: Options) -> int:
    _no_more(options, 0)
    if options.keep:
        lab.down()
        return _tell(options, {}, f"ended; files and logs are in {lab.plan.folder}")
    lab.remove()
    return _tell(options, {}, "ended and removed")


# -- what is there


def _status(lab: Lab, options: Options) -> int:
    from tidestaff.streaming.commands.layout import table  # noqa: PLC0415 - slow

    _no_more(options, 0)
    states = {node: _state(lab, node) for node in lab.nodes}
    seen = lab.clients.describe() if "running" in states.values() else []
    shown = [each for each in seen if not each.topic.startswith("__")]
    code = Exit.OK if set(states.values()) == {"running"} else Exit.WARNING
    if options.json:
        content = {
            "version": lab.plan.version,
            "mode": lab.plan.mode,
            "bootstrap_servers": lab.bootstrap,
            "nodes": {node_name(node): state for node, state in states.items()},
            "cuts": lab.cuts,
            "partitions": [each._asdict() for each in shown],
            "exit_code": int(code),
        }
        print(json.dumps(content, indent=2))
        return code
    print(f"Kafka {lab.plan.version} with {lab.plan.mode}, {lab.bootstrap}\n")
    rows = [(node_name(node), states[node], _address(lab, node)) for node in lab.nodes]
    print("\n".join(table(("NODE", "STATE", "ADDRESS"), rows)))
    for one, other in lab.cuts:
        print(f"cut: {node_name(one)} and {node_name(other)}; 'tidestaff lab heal' mends it")
    if shown:
        lines = [
            (
                f"{each.topic}-{each.partition}",
                str(each.leader) if each.leader >= 0 else "none",
                _listed(each.replicas),
                _listed(each.isr),
            )
            for each in shown
        ]
        print("\n" + "\n".join(table(("PARTITION", "LEADER", "REPLICAS", "ISR"), lines)))
    return code


def _listed(brokers: Sequence[int]) -> str:
    return ",".join(map(str, brokers))


def _state(lab: Lab, node: int) -> str:
    if not lab.running(node):
        return "down"
    return "paused" if lab.paused(node) else "running"


def _address(lab: Lab, node: int) -> str:
    return lab.zookeeper_connect if node == ZOOKEEPER_NODE else lab.bootstrap_of(node)


def _log(lab: Lab, options: Options) -> int:
    (node,) = _nodes(lab, _no_more(options, 1))
    lines = lab.log(node).splitlines()[-options.count :]
    return _tell(options, {"lines": lines}, *lines)


# -- what is done to it


def _topic(lab: Lab, options: Options) -> int:
    (topic,) = _no_more(options, 1)
    lab.clients.create_topic(
        topic, partitions=options.partitions, replication_factor=options.replication_factor
    )
    return _tell(options, {"topic": topic}, f"made {topic}")


def _produce(lab: Lab, options: Options) -> int:
    (topic,) = _no_more(options, 1)
    values = [f"record {number}".encode() for number in range(options.count)]
    acks = options.acks if options.acks == "all" else int(options.acks)
    if not lab.clients.describe(topic):
        raise CommandError(f"there is no topic {topic}: 'tidestaff lab topic {topic}' makes it")
    try:
        offsets = lab.clients.produce(topic, values, partition=options.partition, acks=acks)
    except ValueError as error:  # the library's word for a partition that the topic lacks
        raise CommandError(f"could not write to {topic}-{options.partition}: {error}") from None
    place = f"{topic}-{options.partition}"
    if acks == 0:
        # The broker says nothing of them, not even that they have come.
        content = {"topic": topic, "partition": options.partition, "offsets": None}
        return _tell(
            options, content, f"sent {len(values)} records to {place}, acks=0: no offset is told"
        )
    return _tell(
        options,
        {"topic": topic, "partition": options.partition, "offsets": offsets},
        f"wrote {len(offsets)} records to {place}, "
        f"offsets {offsets[0]} to {offsets[-1]}, acks={options.acks}",
    )


def _numbered(lab: Lab, options: Options) -> int:
    nodes = list(dict.fromkeys(_nodes(lab, options.what)))
    if not nodes:
        raise UsageError(f"tidestaff lab {options.action}: which? ({_listed(lab.brokers)})")
    if options.action in {"stop", "start", "kill"}:
        getattr(lab, options.action)(*nodes)
    else:
        for node in nodes:
            getattr(lab, options.action)(node)
    done = {"stop": "stopped", "start": "started", "kill": "killed", "pause": "paused"}
    word = done.get(options.action, "resumed")
    names = ", ".join(map(node_name, nodes))
    return _tell(options, {word: [node_name(node) for node in nodes]}, f"{word} {names}")


def _partition(lab: Lab, options: Options) -> int:
    one, other = _nodes(lab, _no_more(options, 2))
    lab.cut(one, other)
    names = f"{node_name(one)} and {node_name(other)}"
    return _tell(options, {"cuts": lab.cuts}, f"nothing passes between {names}")


def _heal(lab: Lab, options: Options) -> int:
    _no_more(options, 0)
    lab.heal()
    return _tell(options, {"cuts": []}, "all wires are whole")


def _no_more(options: Options, count: int) -> list[str]:
    found: list[str] = options.what
    if len(found) != count:
        expected = ("nothing more", "one name or number", "two nodes")[count]
        raise UsageError(
            f"tidestaff lab {options.action}: found {' '.join(found) or 'nothing'}, "
            f"expected {expected}",
            "see 'tidestaff lab --help'",
        )
    return found


def _nodes(lab: Lab, words: Sequence[str]) -> list[int]:
    known = {str(broker): broker for broker in lab.brokers}
    if ZOOKEEPER_NODE in lab.nodes:
        known["zookeeper"] = ZOOKEEPER_NODE
    for word in words:
        if word not in known:
            raise UsageError(f"tidestaff lab: no node {word!r}, expected {', '.join(known)}")
    return [known[word] for word in words]


_ACTIONS: Final = {
    "status": _status,
    "topic": _topic,
    "produce": _produce,
    "partition": _partition,
    "heal": _heal,
    "log": _log,
    "down": _down,
}
