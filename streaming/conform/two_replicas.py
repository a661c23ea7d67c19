"""Two replicas replayed from sentences: how Kafka's acceptance tests of truncation tell it.

A sentence is a list of clauses ("100 down; 1 record to 101"). Each clause is one event; elections,
epoch entries, truncation and high watermarks come from the rules, nothing is decided here.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final

from tidestaff.consistency.election import elect_offline
from tidestaff.consistency.epochs import EMPTY, assign, truncate_from_end
from tidestaff.consistency.truncation import ReplicaLog, predict_truncation
from tidestaff.consistency.watermark import LocalLog, follow
from tidestaff.streaming.conform.vectors import CannotRunError

if TYPE_CHECKING:
    from collections.abc import Sequence

    from tidestaff.consistency.model import BrokerId, Lineage
    from tidestaff.consistency.versions import RuleSet

_NUMBERS: Final = {"one": 1, "two": 2, "three": 3, "five": 5, "ten": 10, "a": 1, "an": 1}
_NUMBER: Final = r"[0-9]{1,6}"
_COUNT: Final = rf"({_NUMBER}|one|two|three|five|ten|an?)"
_BROKER: Final = rf"(?:broker )?({_NUMBER}|both|all|(?:the )?leader|(?:the )?follower)"
_DOWN: Final = r"(?:goes |is |are )?(?:down|stopped|stops?|crash(?:es|ed)?|dies|killed|shuts? down)"
_UP: Final = r"(?:comes |is |are )?(?:up|back|restart(?:s|ed)?|start(?:s|ed)?(?: up)?|returns?)\b.*"
_IDLE: Final = re.compile(
    r"(and |both |all |logs? |nothing |wait|until |unclean|clean|no data|leader epoch|in |is |are |"
    r"back |it |which |as |await)"
)


@dataclass
class Replica:
    """One broker's log: records as (leader epoch, number), and what goes with them."""

    records: list[tuple[int, int]] = field(default_factory=list)
    lineage: Lineage = EMPTY
    high_watermark: int = 0

    @property
    def log(self) -> ReplicaLog:
        return ReplicaLog(0, self.high_watermark, len(self.records), self.lineage)

    def cut(self, to: int) -> None:
        del self.records[to:]
        self.lineage = truncate_from_end(self.lineage, to)
        self.high_watermark = min(self.high_watermark, to)


def _total(first: str, rest: str) -> int:
    """Read 77 + 77 as 154, and 2 x 77 too."""
    total = _NUMBERS.get(first) or int(first)
    if times := re.match(rf" ?[x*] ?({_NUMBER})\b", rest):
        return total * int(times[1])
    return total + sum(map(int, re.findall(rf"\+ ?({_NUMBER})\b", rest)))


class TwoReplicas:
    """One partition, its brokers, and a controller that answers every death and return at once."""

    def __init__(
        self, assignment: Sequence[BrokerId], *, rules: RuleSet, unclean_allowed: bool
    ) -> None:
        self.assignment = tuple(assignment)
        self.rules = rules
        self.unclean_allowed = unclean_allowed
        self.replicas = {broker: Replica() for broker in self.assignment}
        self.live = list(self.assignment)
        self.isr = list(self.assignment)
        self.leader: BrokerId | None = self.assignment[0]
        self.leader_epoch = -1
        self.written = 0
        self.waiting = 0
        self._take_office()

    @property
    def follower(self) -> BrokerId:
        others = [broker for broker in self.assignment if broker != self.leader]
        return others[0]

    def run(self, sentence: str) -> None:
        text = re.sub(r"\([^)]*\)", "", sentence.strip().lower())
        repeated = re.match(rf"(?:repeat )?({_NUMBER}) times:?,? (.*)", text)
        times, text = (int(repeated[1]), repeated[2]) if repeated else (1, text)
        for _ in range(times):
            verb = ""
            for raw in re.split(r"[;,.]| and then | then | and (?=[0-9]|broker|stop|start)", text):
                clause = raw.strip()
                if re.fullmatch(_NUMBER, clause) and verb:
                    clause = f"{verb} {clause}"
                verb = clause.split(" ")[0] if clause else verb
                if clause:
                    self._clause(clause, sentence)

    def _clause(self, clause: str, sentence: str) -> None:
        if found := re.match(rf"(?:{_BROKER} )?(?:loses|lose) (half|{_NUMBER})\b", clause):
            return self._lose(self._named(found[1] or "leader")[0], found[2])
        if re.match(r"half .* (?:lost|deleted)", clause):
            return self._lose(self._named(clause)[0], "half")
        found = re.match(rf"(?:write |produce |send )?{_COUNT}\b(.*)", clause)
        if found and re.search(r"\b(?:records?|messages?)\b", clause):
            return self.write(_total(found[1], found[2]))
        if found := re.match(rf"(?:bounce )?{_BROKER}(?: is)?(?: bounced?| bounces)?", clause):
            if "bounce" in clause:
                return self._bounce(found[1])
            if re.match(rf"{_BROKER} {_DOWN}", clause):
                return self._each(self.stop, found[1])
            if re.match(rf"{_BROKER} {_UP}", clause):
                return self._each(self.start, found[1])
        if found := re.match(rf"(?:stop|kill|crash|shut ?down) {_BROKER}", clause):
            return self._each(self.stop, found[1])
        if found := re.match(rf"(?:re)?start {_BROKER}", clause):
            return self._each(self.start, found[1])
        if not _IDLE.match(clause):
            raise CannotRunError(f"{clause!r} in {sentence!r} is no event this replay knows")
        return None

    def _named(self, text: str) -> tuple[BrokerId, ...]:
        if text in ("both", "all"):
            # The leader goes last and comes first, so that it stays the one to be waited for.
            return (self.follower, self.leader) if self.leader else self.assignment
        if "follower" in text:
            return (self.follower,)
        if number := re.search(_NUMBER, text):
            if int(number[0]) not in self.replicas:
                raise CannotRunError(f"broker {number[0]} is not assigned")
            return (int(number[0]),)
        return (self.assignment[0] if self.leader is None else self.leader,)

    def _each(self, event: object, text: str) -> None:
        assert callable(event)
        for broker in self._named(text):
            event(broker)

    def _bounce(self, text: str) -> None:
        for broker in self._named(text):
            self.stop(broker)
            self.start(broker)

    def _lose(self, broker: BrokerId, count: str) -> None:
        replica = self.replicas[broker]
        length = len(replica.records)
        replica.cut(max(0, length - (length // 2 if count == "half" else int(count))))

    def write(self, count: int) -> None:
        """Records go to the leader in its epoch; a live follower has them before the next event."""
        if self.leader is None:
            # A producer holds its records and tries again until there is a leader.
            self.waiting += count
            return
        replica = self.replicas[self.leader]
        for _ in range(count):
            self._append(replica, (self.leader_epoch, self.written))
            self.written += 1
        self._replicate()

    def _append(self, replica: Replica, record: tuple[int, int]) -> None:
        generation = self.rules.epoch_cache
        end = len(replica.records)
        replica.lineage = assign(replica.lineage, record[0], end, generation=generation)
        replica.records.append(record)

    def stop(self, broker: BrokerId) -> None:
        """The controller takes a dead broker out of the ISR, but never the last member."""
        if broker not in self.live:
            return
        self.live.remove(broker)
        if len(self.isr) > 1 and broker in self.isr:
            self.isr.remove(broker)
        if broker == self.leader:
            self._elect()
        elif self.leader is not None and self.rules.controller_removal_bumps_epoch:
            self._take_office()

    def start(self, broker: BrokerId) -> None:
        if broker not in self.live:
            self.live.append(broker)
        if self.leader is None:
            self._elect()
        self._replicate()

    def _elect(self) -> None:
        chosen = elect_offline(
            assignment=self.assignment,
            isr=self.isr,
            live=self.live,
            unclean_allowed=self.unclean_allowed,
        )
        self.leader = chosen.leader
        if self.leader is not None and self.leader not in self.isr:
            self.isr = [self.leader]
        self._take_office()

    def _take_office(self) -> None:
        """Every controller write raises the leader epoch; a leader from 2.0.1 notes it at once."""
        self.leader_epoch += 1
        if self.leader is None:
            return
        if self.rules.leader_writes_epoch_at_once:
            replica = self.replicas[self.leader]
            end, generation = len(replica.records), self.rules.epoch_cache
            replica.lineage = assign(replica.lineage, self.leader_epoch, end, generation=generation)
        waiting, self.waiting = self.waiting, 0
        self.write(waiting)

    def _replicate(self) -> None:
        """Every live follower truncates, fetches to the leader's end and joins the ISR."""
        if self.leader is None:
            return
        leader = self.replicas[self.leader]
        for broker in self.live:
            if broker == self.leader:
                continue
            replica = self.replicas[broker]
            predicted = predict_truncation(
                follower=replica.log, leader=leader.log, rules=self.rules
            )
            replica.cut(predicted.final_offset)
            for record in leader.records[len(replica.records) :]:
                self._append(replica, record)
            if broker not in self.isr:
                self.isr.append(broker)
        leader.high_watermark = len(leader.records)
        for broker in self.live:
            replica = self.replicas[broker]
            local = LocalLog(0, replica.high_watermark, len(replica.records))
            after = follow(local, leader_high_watermark=leader.high_watermark)
            replica.high_watermark = after.high_watermark
