"""Scenario files: a story in commands, each block with the state it leads to.

    # Comments tell the story.
    crash 2
    ----
    t-0 leader=1 epoch=1 isr=(1)
      1 leader   hw=1 leo=1 epochs=(0@0 1@1) log=(m1/0)

The first block is the head: version, brokers, topics, settings. A blank line ends a block.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Final, NamedTuple

from tidestaff.connectors.simulator.action_text import as_text
from tidestaff.connectors.simulator.cluster import SimulatedCluster
from tidestaff.connectors.simulator.presets import PRESETS
from tidestaff.connectors.simulator.scenario_commands import (
    COMMANDS,
    Setting,
    Step,
    Words,
    WrongWordError,
    build,
    did_you_mean,
    shortened,
    topic_of,
)
from tidestaff.connectors.simulator.scenario_settings import (
    MOST_DIGITS,
    MOST_LOST_AT_THE_START,
    SETTINGS,
)
from tidestaff.connectors.simulator.scenario_state import is_state_line
from tidestaff.connectors.simulator.settings import Settings
from tidestaff.consistency.model import ConsistencyError

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from tidestaff.consistency.model import BrokerId

RULE: Final = "----"
SHIPPED: Final = Path(__file__).parent / "scenarios"
HEAD: Final = ("version", "brokers", "topic", "set", "acks", "seed", "show")
SHOWN: Final = ("controller", "versions", "remote")
# Said again they would silently undo what was said before.
_SAID_ONCE: Final = ("version", "acks", "seed")
_LARGEST_ID: Final = 2**31 - 1
_MOST_TOLD: Final = 20
# What a terminal obeys instead of showing it: control characters, and those that turn the order of
# what stands on a line. Names and stories are printed as they are.
_UNSHOWN: Final = re.compile(r"[\x00-\x08\x0b-\x1f\x7f-\x9f\u202a-\u202e\u2066-\u2069]")
_ROUND_MS: Final = 50
_WAITING_ROUND_MS: Final = 500
_LONGEST_STOP_MS: Final = 60_000


class ScenarioError(ConsistencyError):
    """Lines of a scenario that are not understood: where, what was found, what was expected."""

    def __init__(self, problems: Sequence[str]) -> None:
        told = list(problems[:_MOST_TOLD])
        if len(problems) > len(told):
            told.append(f"and {len(problems) - len(told)} more wrong lines")
        super().__init__("\n".join(told))
        self.problems = tuple(problems)


class Line(NamedTuple):
    """A command as it stands in the file, and what it does."""

    number: int
    text: str
    step: Step


@dataclass(slots=True)
class Block:
    """Comments and commands as they stand, the commands read, and the state that is expected."""

    source: list[str] = field(default_factory=list)
    lines: list[Line] = field(default_factory=list)
    expected: list[str] | None = None

    @property
    def comment(self) -> str:
        texts = (line[1:].strip() for line in self.source if line.startswith("#"))
        return "\n".join(texts).strip()

    @property
    def commands(self) -> list[str]:
        return [line for line in self.source if not line.startswith("#")]


@dataclass(slots=True)
class Scenario:
    """A head and the blocks after it."""

    name: str
    preset: str = ""
    brokers: tuple[BrokerId, ...] = ()
    topics: dict[str, tuple[tuple[BrokerId, ...], ...]] = field(default_factory=dict)
    settings: Settings = field(default_factory=Settings)
    acks: str | None = None
    seed: int = 0
    shown: tuple[str, ...] = ()
    head: Block = field(default_factory=Block)
    blocks: list[Block] = field(default_factory=list)

    @property
    def title(self) -> str:
        """The first sentence of the story."""
        return self.head.comment.split("\n", 1)[0]

    def cluster(self) -> SimulatedCluster:
        return SimulatedCluster(
            self.preset, self.brokers, self.topics, self.settings, self.seed, cluster=self.name
        )


def read(path: Path) -> Scenario:
    try:
        # Some editors begin a file with a byte order mark.
        text = path.read_text(encoding="utf-8-sig")
    except UnicodeDecodeError as error:
        raise ScenarioError([f"{path}: not a text in UTF-8 ({error.reason})"]) from error
    except OSError as error:
        raise ScenarioError([f"{path}: cannot be read: {error.strerror}"]) from error
    return parse(text, str(path), path.stem)


def parse(text: str, place: str, name: str = "scenario") -> Scenario:
    """Every line that is wrong is told at once."""
    return _Parser(place, name).parse(text)


def rewritten(scenario: Scenario, states: Sequence[Sequence[str]]) -> str:
    """The file with these states as what is expected."""
    parts = [
        "\n".join([*block.source, RULE, *state])
        for block, state in zip([scenario.head, *scenario.blocks], states, strict=True)
    ]
    return "\n\n".join(parts) + "\n"


def shipped() -> dict[str, Path]:
    """The scenarios that come with the program, by name."""
    return {path.stem: path for path in sorted(SHIPPED.glob("*.txt"))}


def preset_like(text: str) -> str | None:
    """`0.10.2` is enough to name 0.10.2.2, `3.9-kraft` to name 3.9.1-kraft; `2`, which several
    begin with, names none."""
    version, _, mode = text.partition("-")
    found = []
    for name in PRESETS:
        known, _, its_mode = name.partition("-")
        if its_mode == mode and f"{known}.".startswith(f"{version}."):
            found.append(name)
    return found[0] if len(found) == 1 else None


def _lines(text: str) -> list[str]:
    """As an editor counts them: `str.splitlines` also ends them at form feeds and the like."""
    lines = re.split(r"\r\n|\r|\n", text)
    return lines if lines[-1] else lines[:-1]


class _Parser:
    def __init__(self, place: str, name: str) -> None:
        self.place = place
        self.scenario = Scenario(name)
        self.setting = Setting([], {})
        self.problems: list[str] = []
        self._said: set[str] = set()

    def parse(self, text: str) -> Scenario:
        block, number = Block(), 0
        for number, raw in enumerate(_lines(text), 1):
            line = raw.rstrip()
            unshown = _UNSHOWN.search(raw)
            if unshown is not None:
                self._wrong(number, f"found the character {unshown[0]!a}, expected visible text")
                continue
            if not line:
                if block.expected is not None or (block.commands and self.scenario.brokers):
                    block = self._closed(block)
                elif block.source:
                    block.source.append("#")
            elif block.expected is not None:
                self._expected(block, number, line)
            elif line == RULE:
                block.expected = []
            else:
                block.source.append(line)
                if not line.startswith("#"):
                    self._line(block, number, line)
        self._closed(block)
        self._check_head(number)
        if self.problems:
            raise ScenarioError(self.problems)
        return self.scenario

    def _expected(self, block: Block, number: int, line: str) -> None:
        """A command there would never be done, and `--rewrite` would delete it."""
        assert block.expected is not None
        if not is_state_line(line):
            word = line.split(maxsplit=1)[0]
            known = [*COMMANDS, *HEAD]
            hint = f"; {word} belongs above it" if word in known else did_you_mean(word, known)
            self._wrong(
                number,
                f"found {shortened(repr(line))} below {RULE}, expected a line of the state; "
                f"a blank line ends a block{hint}",
            )
        block.expected.append(line)

    def _closed(self, block: Block) -> Block:
        while block.source and block.source[-1] == "#":
            block.source.pop()
        if not block.source:
            return Block()
        if not self.scenario.head.source:
            self.scenario.head = block
        else:
            self.scenario.blocks.append(block)
        return Block()

    def _wrong(self, number: int, what: str) -> None:
        self.problems.append(f"{self.place}, line {number}: {what}")

    def _line(self, block: Block, number: int, line: str) -> None:
        words = line.split()
        try:
            if not self.scenario.head.source:
                self._head(words)
            elif words[0] in HEAD and words[0] not in COMMANDS:
                found = repr(words[0])
                self._wrong(number, f"found {found}, expected it in the scenario's first block")
            else:
                block.lines.append(Line(number, line, build(words, self.setting)))
        except WrongWordError as error:
            self._wrong(number, str(error))

    def _head(self, line: list[str]) -> None:
        name, *rest = line
        words, scenario = Words(rest, self.setting), self.scenario
        self._said_once(name)
        if name == "version":
            text = words.take(f"a version of {', '.join(PRESETS)}")
            found = preset_like(text)
            if found is None:
                expected = f"a version of {', '.join(PRESETS)}{did_you_mean(text, PRESETS)}"
                raise WrongWordError(repr(text), expected)
            scenario.preset = found
        elif name == "brokers":
            self._broker(words, "broker ids, as in: brokers 1 2 3")
            while words.words:
                self._broker(words, "a broker id")
            scenario.brokers = tuple(self.setting.brokers)
        elif name == "topic":
            self._topic(words)
        elif name == "set":
            known = words.one_of(SETTINGS, "a setting")
            value = words.value_of(known)
            if SETTINGS[known] == "loss" and value > MOST_LOST_AT_THE_START:
                most = f"{known} in the head as a fraction from 0 to {MOST_LOST_AT_THE_START}"
                raise WrongWordError(f"'{line[2]}'", f"{most}; a block below it may lose more")
            scenario.settings = replace(scenario.settings, **{SETTINGS[known]: value})
        elif name == "acks":
            scenario.acks = words.one_of(("all", "1"), "acks as")
            self.setting = self.setting._replace(acks=scenario.acks)
        elif name == "seed":
            scenario.seed = words.number(f"a number of at most {MOST_DIGITS} digits")
        elif name == "show":
            shown = [words.one_of(SHOWN, "what to show")]
            while words.words:
                shown.append(words.one_of(SHOWN, "what to show"))
            scenario.shown = tuple(shown)
        else:
            hint = did_you_mean(name, HEAD)
            late = "; a command follows after the head and a blank line" if name in COMMANDS else ""
            raise WrongWordError(repr(name), f"one of {', '.join(HEAD)}{late or hint}")
        words.end()

    def _said_once(self, name: str) -> None:
        if name in self._said:
            raise WrongWordError(f"{name!r} twice", "it once in the head")
        if name in _SAID_ONCE:
            self._said.add(name)

    def _topic(self, words: Words) -> None:
        topic, partitions = topic_of(words)
        if topic in self.scenario.topics:
            raise WrongWordError(f"topic {topic!r} twice", "every topic once")
        self.scenario.topics[topic] = partitions

    def _broker(self, words: Words, what: str) -> None:
        broker = words.number(what)
        if broker > _LARGEST_ID:
            raise WrongWordError(f"'{broker}'", f"{what}, none above {_LARGEST_ID}")
        if broker in self.setting.brokers:
            raise WrongWordError(f"'{broker}' twice", "every broker once")
        self.setting.brokers.append(broker)

    def _check_head(self, last: int) -> None:
        scenario = self.scenario
        missing = [
            f"'{word}'"
            for word, given in (
                ("version 3.9.1", scenario.preset),
                ("brokers 1 2 3", scenario.brokers),
                ("topic t replicas 1,2,3", scenario.topics),
            )
            if not given
        ]
        if missing and not self.problems:
            what = f"the head is incomplete, expected {' and '.join(missing)}"
            if last:
                self._wrong(last, what)
            else:
                self.problems.append(f"{self.place}: the file is empty: {what}")


class Player:
    """Plays a scenario on a cluster. `look` is called whenever a sampler should look at it."""

    def __init__(
        self, scenario: Scenario, cluster: SimulatedCluster, look: Callable[[], None]
    ) -> None:
        self.scenario, self.cluster, self.look = scenario, cluster, look
        self._notes_told = 0

    def play(self, block: Block) -> list[str]:
        """Do what the block says; what is returned are remarks an operator would read."""
        remarks: list[str] = []
        for line in block.lines:
            remarks += self._do(line.step, line.text)
        return remarks + self._notes()

    def settle(self) -> None:
        """Long enough for the controller to write and for everybody to be told."""
        settings = self.cluster.settings
        self._pass(10 * settings.delay_ms[1] + 2 * settings.controller_pause_ms, _ROUND_MS)

    def _do(self, step: Step, text: str) -> list[str]:
        done = [self.cluster.apply(action) for action in step.actions]
        if step.wait_ms is not None:
            self._pass(step.wait_ms, _WAITING_ROUND_MS)
            return []
        waited = 0
        while (
            any(self.cluster.brokers[b].up for b in step.until_down) and waited < _LONGEST_STOP_MS
        ):
            self._pass(_ROUND_MS, _ROUND_MS)
            waited += _ROUND_MS
        if any(action["do"] == "start" for action in step.actions):
            self._pass(self.cluster.settings.start_ms, _ROUND_MS)
        self.settle()
        if len(step.actions) > 1 and "partition" not in step.actions[0]:
            pairs = zip(step.actions, done, strict=True)
            return [f". {as_text(a)}: not possible now, nothing done" for a, ok in pairs if not ok]
        return [] if any(done) else [f". {text}: not possible now, nothing done"]

    def _pass(self, duration_ms: int, round_ms: int) -> None:
        """Let time pass, looking at the cluster now and then and at the end."""
        end = self.cluster.now_ms + duration_ms
        while self.cluster.now_ms < end:
            self.cluster.advance(min(round_ms, end - self.cluster.now_ms))
            self.look()

    def _notes(self) -> list[str]:
        """What the brokers logged; a line that repeats is told once."""
        notes = self.cluster.notes[self._notes_told :]
        self._notes_told = len(self.cluster.notes)
        told = []
        for note in notes:
            reason = f": {note['reason']}" if "reason" in note else ""
            told.append(f". broker {note['broker']} logs {note['note']}{reason}")
        return list(dict.fromkeys(told))
