"""`tidestaff predict`: a replication calculator. JSON in, prediction and reasons out."""

from __future__ import annotations

import json
from importlib import import_module
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from tidestaff.consistency.versions import KafkaVersion, Mode, rules_for
from tidestaff.streaming.commands.arguments import one_of
from tidestaff.streaming.commands.reader import InputReader, read_json

if TYPE_CHECKING:
    from collections.abc import Sequence

    from tidestaff.consistency.versions import RuleSet
    from tidestaff.streaming.commands.arguments import CommandParser, Options

KINDS: Final = {
    "election": "predict_election",
    "truncation": "predict_truncation",
    "watermark": "predict_watermark",
}
_MODE_NAMES: Final = {Mode.ZOOKEEPER: "ZooKeeper mode", Mode.KRAFT: "KRaft mode"}

EXAMPLES: Final = """\
examples:
  tidestaff predict election   --version 3.9 --input partition.json
  tidestaff predict election   --version 4.1 --elr on --input - --json < partition.json
  tidestaff predict truncation --version 0.10.2 --input logs.json
  tidestaff predict watermark  --version 3.7 --input leader.json

'tidestaff predict election --help' (truncation, watermark) shows what the input looks like;
docs/predict.md has every key.
"""


class Prediction(NamedTuple):
    """What is shown to people and to machines, and the exit code of both."""

    text: str
    content: dict[str, Any]
    exit_code: int


def configure(parser: CommandParser, arguments: Sequence[str]) -> None:
    kind = next((argument for argument in arguments if argument in KINDS), None)
    if kind is not None:
        parser.epilog = _module(kind).EXAMPLES
    parser.add_argument(
        "what", metavar="|".join(KINDS), type=one_of(*KINDS), help="what to predict"
    )
    parser.add_argument("--version", required=True, help="the brokers' Kafka version, such as 3.9")
    parser.add_argument(
        "--mode",
        type=one_of(*(mode.value for mode in Mode)),
        help="zookeeper or kraft (default: zookeeper up to 3.9, kraft from 4.0)",
    )
    parser.add_argument(
        "--protocol",
        metavar="X",
        help="inter.broker.protocol.version, or metadata.version in KRaft mode, such as 3.6-IV0",
    )
    parser.add_argument(
        "--elr",
        type=one_of("on", "off"),
        help="eligible leader replicas (KRaft, 4.0 and later; default: as a new cluster has it)",
    )
    parser.add_argument("--input", required=True, metavar="FILE|-", help="JSON, - reads stdin")


def run(options: Options) -> int:
    rules = rule_set(options.version, options.mode, options.protocol, options.elr)
    reader = InputReader(options.input)
    value = read_json(options.input)
    if isinstance(value, dict):
        _refuse_other_kind(reader, options.what, value)
    prediction: Prediction = _module(options.what).predict(reader, value, rules)
    print(json.dumps(prediction.content, indent=2) if options.json else prediction.text)
    return prediction.exit_code


def _refuse_other_kind(reader: InputReader, what: str, value: dict[str, object]) -> None:
    """An input of another prediction is told as such, not as a list of twenty problems."""
    marks = {"election": "partition", "truncation": "follower", "watermark": "followers"}
    found = [kind for kind, mark in marks.items() if mark in value]
    if found and what not in found:
        expected = f"that of predict {what}, or 'tidestaff predict {found[0]}'"
        reader.report("", f"the input of predict {found[0]}", expected)
        reader.refuse()


def rule_set(version: str, mode: str | None, protocol: str | None, elr: str | None) -> RuleSet:
    """The rules of a version; from 4.0 there is but one mode."""
    if mode is None:
        kraft_only = KafkaVersion.parse(version).at_least(4, 0)
        mode = (Mode.KRAFT if kraft_only else Mode.ZOOKEEPER).value
    asked = None if elr is None else elr == "on"
    return rules_for(version, Mode(mode), protocol=protocol, elr=asked)


def rule_set_name(rules: RuleSet) -> str:
    """Such as "Kafka 4.1.0, KRaft mode with ELR"."""
    name = f"Kafka {rules.version}, {_MODE_NAMES[rules.mode]}"
    own = rules_for(str(rules.version), rules.mode).protocol
    spoken = "" if rules.protocol == own else f", protocol {rules.protocol}"
    return name + (" with ELR" if rules.elr else "") + spoken


def rule_set_json(rules: RuleSet) -> dict[str, object]:
    return {
        "name": rule_set_name(rules),
        "version": str(rules.version),
        "mode": rules.mode.value,
        "protocol": str(rules.protocol),
        "elr": rules.elr,
    }


def claim_of(rule: object) -> str:
    """A rule's own first sentence: what is shown is what the code says of itself."""
    text = (rule.__doc__ or "").strip().split("\n\n", 1)[0]
    return " ".join(text.split())


def _module(kind: str) -> Any:
    return import_module(f"tidestaff.streaming.commands.{KINDS[kind]}")
