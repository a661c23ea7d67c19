"""The words of a scenario file: each command as a table row, read into actions of the simulator."""

from __future__ import annotations

import difflib
import re
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from tidestaff.connectors.simulator.network import CONTROLLER, ZOOKEEPER
from tidestaff.connectors.simulator.scenario_settings import (
    SETTINGS,
    TOPIC_SETTINGS,
    expected_value,
    is_switch,
    value_of,
    whole_number,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from tidestaff.consistency.model import BrokerId

    Action = dict[str, Any]

_DURATION: Final = re.compile(r"([0-9]{1,9})(ms|s|m)\Z")
_MS: Final = {"ms": 1, "s": 1_000, "m": 60_000}
# A day passes in a minute; what is longer is a slip, and would seem to hang.
_LONGEST_MS: Final = 24 * 60 * 60_000
_TOPIC: Final = re.compile(r"[a-zA-Z0-9._-]{1,249}\Z")
_LONGEST_FOUND: Final = 80
# Offsets have 63 bits, in Kafka and in recordings: no story has so many commands that it ends them.
_MOST_RECORDS: Final = 1_000_000_000


def shortened(found: str) -> str:
    return f"{found[: _LONGEST_FOUND - 3]}..." if len(found) > _LONGEST_FOUND else found


class WrongWordError(Exception):
    """A word of a line that does not fit: what was found and what was expected."""

    def __init__(self, found: str, expected: str, after: str = "") -> None:
        found = shortened(found)
        super().__init__(f"found {found}{after}, expected {expected}")
        self.found, self.expected = found, expected


class Step(NamedTuple):
    """What a command does: actions at one moment, then time. With `until_down` the time lasts until
    that broker's process has ended."""

    actions: tuple[Action, ...] = ()
    wait_ms: int | None = None
    until_down: tuple[BrokerId, ...] = ()


class Setting(NamedTuple):
    """What a scenario's head has declared so far; `create-topic` adds to it."""

    brokers: list[BrokerId]
    topics: dict[str, int]
    acks: str | None = None


def did_you_mean(word: str, known: Iterable[str]) -> str:
    close = difflib.get_close_matches(word.lower(), list(known), n=1, cutoff=0.5)
    return f"; did you mean {close[0]}?" if close else ""


class Words:
    """The words of one line after its first, taken one after the other."""

    def __init__(self, words: list[str], setting: Setting) -> None:
        self.words, self.setting = list(words), setting

    def take(self, expected: str) -> str:
        if not self.words:
            raise WrongWordError("the end of the line", expected)
        return self.words.pop(0)

    def one_of(self, known: Iterable[str], what: str) -> str:
        known = list(known)
        expected = f"{what} ({', '.join(known)})"
        word = self.take(expected)
        if word not in known:
            raise WrongWordError(repr(word), expected + did_you_mean(word, known))
        return word

    def end(self) -> None:
        if self.words:
            raise WrongWordError(repr(" ".join(self.words)), "the end of the line")

    def number(self, what: str) -> int:
        word = self.take(what)
        number = whole_number(word)
        if number is None:
            raise WrongWordError(repr(word), what)
        return number

    def broker(self) -> BrokerId:
        return int(self.one_of(map(str, self.setting.brokers), "a broker"))

    def brokers(self) -> list[BrokerId]:
        """One or more, to the end of the line."""
        found = [self.broker()]
        while self.words:
            found.append(self.broker())
        return found

    def replicas(self) -> tuple[BrokerId, ...]:
        expected = "replicas as 1,2,3, each a broker of the head"
        word = self.take(expected)
        parts = word.split(",")
        known = {str(broker) for broker in self.setting.brokers}
        if not set(parts) <= known or len(set(parts)) < len(parts):
            raise WrongWordError(repr(word), expected)
        return tuple(map(int, parts))

    def topic(self) -> str:
        return self.one_of(self.setting.topics, "a topic")

    def partition(self) -> dict[str, Any]:
        known = [
            f"{topic}-{n}" for topic, count in self.setting.topics.items() for n in range(count)
        ]
        topic, _, number = self.one_of(known, "a partition").rpartition("-")
        return {"topic": topic, "partition": int(number)}

    def partitions(self) -> list[dict[str, Any]]:
        """All that are known."""
        return [
            {"topic": topic, "partition": number}
            for topic, count in self.setting.topics.items()
            for number in range(count)
        ]

    def place(self) -> str:
        places = [*map(str, self.setting.brokers), ZOOKEEPER, CONTROLLER]
        return self.one_of(places, "a broker, zookeeper or controller")

    def duration_ms(self) -> int:
        expected = "a time like 500ms, 10s or 2m, a day (1440m) at most"
        word = self.take(expected)
        match = _DURATION.match(word)
        duration_ms = int(match[1]) * _MS[match[2]] if match else _LONGEST_MS + 1
        if duration_ms > _LONGEST_MS:
            raise WrongWordError(repr(word), expected)
        return duration_ms

    def value_of(self, name: str) -> Any:
        if is_switch(name):
            return self.one_of(("true", "false"), f"{name} as") == "true"
        expected = expected_value(name)
        word = self.take(expected)
        value = value_of(name, word)
        if value is None:
            raise WrongWordError(repr(word), expected)
        return value


def _each(verb: str, *, until_down: bool = False) -> Callable[[Words], Step]:
    def build(words: Words) -> Step:
        brokers = words.brokers()
        actions = tuple({"do": verb, "broker": broker} for broker in brokers)
        return Step(actions, until_down=tuple(brokers) if until_down else ())

    return build


def _alone(verb: str) -> Callable[[Words], Step]:
    return lambda _: Step(({"do": verb},))


def _at_partitions(*verbs: str, every: bool = False) -> Callable[[Words], Step]:
    """Of some brokers; a partition at the end narrows it. With `every` each partition is named."""

    def build(words: Words) -> Step:
        known = {f"{t}-{n}" for t, count in words.setting.topics.items() for n in range(count)}
        where: list[dict[str, Any]] = [{}]
        if words.words and words.words[-1] in known:
            where = [Words([words.words.pop()], words.setting).partition()]
        elif every:
            where = Words([], words.setting).partitions()
        brokers = words.brokers()
        return Step(
            tuple(
                {"do": verb, "broker": broker, **partition}
                for broker in brokers
                for partition in where
                for verb in verbs
            )
        )

    return build


def _produce(words: Words) -> Step:
    action: Action = {"do": "produce", **words.partition()}
    if len(words.words) >= 2 and words.words[-2] == "to":
        to = Words([words.words.pop()], words.setting)
        words.words.pop()
        action["broker"] = to.broker()
    if words.setting.acks is not None:
        action["acks"] = words.setting.acks
    first = words.take("names of records, or a number and the word records")
    if words.words == ["records"]:
        words.words.clear()
        what = f"how many records, {_MOST_RECORDS} at most, as in: 5 records"
        count = Words([first], words.setting).number(what)
        if not 0 < count <= _MOST_RECORDS:
            raise WrongWordError(repr(first), what)
        return Step(({**action, "records": count},))
    if words.words == ["record"] and whole_number(first) is not None:
        raise WrongWordError("'record'", "the word records, as in: 5 records")
    names = [first, *words.words]
    words.words.clear()
    return Step(({**action, "records": len(names), "names": names},))


def _elect(words: Words) -> Step:
    kind = words.one_of(("preferred", "unclean"), "a kind of election")
    return Step(({"do": f"{kind}_election", **words.partition()},))


def _other_end(words: Words, source: str) -> str:
    target = words.place()
    if target == source:
        ends = [str(b) for b in words.setting.brokers if str(b) != source]
        others = ", ".join(place for place in (*ends, ZOOKEEPER, CONTROLLER) if place != source)
        raise WrongWordError(repr(target), f"the other end of a link from {source} ({others})")
    return target


def _cut(words: Words) -> Step:
    source = words.place()
    actions: list[Action] = []
    while words.words or not actions:
        target = _other_end(words, source)
        actions.append({"do": "cut", "source": source, "target": target})
    return Step(tuple(actions))


def _heal(words: Words) -> Step:
    if not words.words:
        return Step(({"do": "heal"},))
    source = words.place()
    return Step(({"do": "heal", "source": source, "target": _other_end(words, source)},))


def _reassign(words: Words) -> Step:
    where = words.partition()
    return Step(({"do": "reassign", **where, "replicas": list(words.replicas())},))


def topic_of(words: Words) -> tuple[str, tuple[tuple[BrokerId, ...], ...]]:
    """`NAME replicas 1,2,3 [2,3,1 ...]`, one list for each partition."""
    expected = "the name of a topic: up to 249 of letters, digits, '.', '_' and '-'"
    name = words.take(expected)
    if not _TOPIC.match(name) or name in (".", ".."):
        raise WrongWordError(repr(name), expected)
    words.one_of(("replicas",), "the word")
    partitions = [words.replicas()]
    while words.words:
        partitions.append(words.replicas())
    words.setting.topics[name] = len(partitions)
    return name, tuple(partitions)


def _create(words: Words) -> Step:
    topic, partitions = topic_of(words)
    return Step(
        ({"do": "create_topic", "topic": topic, "partitions": [list(p) for p in partitions]},)
    )


def _set(words: Words) -> Step:
    action: Action = {"do": "change_settings"}
    names: Iterable[str] = SETTINGS
    if words.words and words.words[0] in words.setting.topics:
        action["topic"] = words.topic()
        names = TOPIC_SETTINGS
    name = words.one_of(names, "a setting")
    return Step(({**action, "settings": {SETTINGS[name]: words.value_of(name)}},))


def _slow(words: Words) -> Step:
    broker = words.broker()
    return Step(
        ({"do": "slow_follower", "broker": broker, "records": words.number("records a fetch")},)
    )


def _slow_removal(words: Words) -> Step:
    action: Action = {"do": "slow_fetcher_removal", "broker": words.broker()}
    return Step(({**action, "removal_ms": words.duration_ms()},))


def _retention(words: Words) -> Step:
    broker, where = words.broker(), words.partition()
    offset = words.number("an offset")
    return Step(({"do": "retention", "broker": broker, **where, "offset": offset},))


def _delete_records(words: Words) -> Step:
    where = words.partition()
    return Step(({"do": "delete_records", **where, "offset": words.number("an offset")},))


class Command(NamedTuple):
    """One command: how it is written, what it does, and how its words are read."""

    usage: str
    help: str
    build: Callable[[Words], Step]


# fmt: off
COMMANDS: Final[dict[str, Command]] = {
    "produce": Command("PARTITION NAME... [to BROKER] | PARTITION N records",
                       "write records to the leader, or to a broker that believes to lead",
                       _produce),
    "crash": Command("BROKER...", "kill -9; what the page cache holds survives", _each("crash")),
    "power-loss": Command("BROKER...", "the machine goes, and what was not flushed with it",
                          _each("power_loss")),
    "stop": Command("BROKER...", "controlled shutdown, until the process has ended",
                    _each("clean_stop", until_down=True)),
    "start": Command("BROKER...", "start the process", _each("start")),
    "bounce": Command("BROKER...", "die and come back before anybody noticed", _each("bounce")),
    "expire-session": Command("BROKER...", "its session ends; a living process is now a zombie",
                              _each("session_expiry")),
    "pause": Command("BROKER...", "SIGSTOP, or a very long garbage collection", _each("pause")),
    "resume": Command("BROKER...", "SIGCONT", _each("resume")),
    "slow-fetches": Command("BROKER RECORDS", "at most so many records a fetch", _slow),
    "usual-fetches": Command("BROKER...", "undo slow-fetches", _each("slow_follower")),
    "slow-fetcher-removal": Command(
        "BROKER TIME",
        "told of a new leader, it takes over the epoch and ends its old fetches so much later",
        _slow_removal),
    "usual-fetcher-removal": Command("BROKER...", "undo slow-fetcher-removal",
                                     _each("slow_fetcher_removal")),
    "hold-fetches": Command("BROKER... [PARTITION]", "from now on it fetches only by `fetch`",
                            _at_partitions("hold_fetches")),
    "release-fetches": Command("BROKER... [PARTITION]", "it fetches by itself again",
                               _at_partitions("release_fetches")),
    "fetch": Command("BROKER... [PARTITION]", "one whole round of a held follower",
                     _at_partitions("fetch_request", "fetch_response", every=True)),
    "fetch-request": Command("BROKER... [PARTITION]",
                             "its request arrives, the answer stays under way",
                             _at_partitions("fetch_request", every=True)),
    "fetch-response": Command("BROKER... [PARTITION]", "the answer arrives",
                              _at_partitions("fetch_response", every=True)),
    "cut": Command("PLACE PLACE...", "cut the links from the first to the others", _cut),
    "heal": Command("[PLACE PLACE]", "mend one link, or all", _heal),
    "fail-controller": Command("", "the controller's term ends", _alone("controller_failover")),
    "elect": Command("preferred|unclean PARTITION", "kafka-leader-election.sh", _elect),
    "reassign": Command("PARTITION REPLICAS", "kafka-reassign-partitions.sh", _reassign),
    "set": Command("[TOPIC] SETTING VALUE", "change a setting of a topic or of all brokers", _set),
    "wipe-disk": Command("BROKER...", "a broker that is down loses its log directories",
                         _each("wipe_disk")),
    "delete-topic": Command("TOPIC", "delete a topic",
                            lambda words: Step(({"do": "delete_topic", "topic": words.topic()},))),
    "create-topic": Command("TOPIC replicas REPLICAS...", "create a topic", _create),
    "delete-records": Command("PARTITION OFFSET", "drop what lies before an offset",
                              _delete_records),
    "retention": Command("BROKER PARTITION OFFSET", "one broker drops old segments", _retention),
    "wait": Command("TIME", "let time pass: 500ms, 10s, 2m",
                    lambda words: Step(wait_ms=words.duration_ms())),
    "sample": Command("", "one more look of the monitor, nothing else", lambda _: Step(wait_ms=1)),
}
# fmt: on


def build(words: list[str], setting: Setting) -> Step:
    """The step that a line's words mean."""
    name, *rest = words
    if name not in COMMANDS:
        known = did_you_mean(name, COMMANDS) or f" ({', '.join(COMMANDS)})"
        raise WrongWordError(f"{name!r}", f"a command{known}")
    command = COMMANDS[name]
    given = Words(rest, setting)
    try:
        step = command.build(given)
        given.end()
    except WrongWordError as error:
        usage = f"{name} {command.usage}".strip()
        expected = f"{error.expected} (usage: {usage})"
        raise WrongWordError(error.found, expected, f" after {name!r}") from None
    return step
