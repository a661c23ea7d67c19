"""Scenes of the tour about truncation: loss, divergence, the leader's answer."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from tidestaff.consistency.broker_events import broker_failure
from tidestaff.consistency.epochs import end_offset_for, entry_of, latest_entry, truncate_from_end
from tidestaff.consistency.model import PartitionState
from tidestaff.consistency.versions import rules_for
from tidestaff.streaming.commands.predict import rule_set_name
from tidestaff.streaming.commands.predict_truncation import Consequences, consequences
from tidestaff.streaming.commands.scene import (
    Alert,
    Scene,
    as_leader,
    drawing,
    log,
    name_of,
)

if TYPE_CHECKING:
    from collections.abc import Callable

    from tidestaff.consistency.model import BrokerId, Lineage
    from tidestaff.consistency.truncation import ReplicaLog
    from tidestaff.consistency.versions import RuleSet

BEFORE_EPOCHS: Final = "0.10.2"
WITH_EPOCHS: Final = "3.9"


def loss_by_watermark() -> Scene:
    """KIP-101, first scenario, in its clean form: nobody restarts, every election is clean."""
    logs = {3: log(2, 2, (0, 0)), 2: log(2, 1, (0, 0)), 1: log(2, 1, (0, 0))}
    sets = [rules_for(BEFORE_EPOCHS), rules_for(WITH_EPOCHS)]
    told = [_two_failures(logs, rules) for rules in sets]
    labels = (
        "3 fails, leads next",
        "1 now follows 2 and cuts",
        "2 fails too, leads next",
        "its log ends at",
        "committed offsets lost",
    )
    return Scene(
        title="A record that three replicas had is lost, without one unclean election",
        story=(
            "Assignment [3,2,1], all in sync. Broker 3 leads and has committed offsets [0,2); its "
            "followers have both records but have not learnt the new high watermark yet. Then 3 "
            "fails, and a moment later 2."
        ),
        drawings=(drawing(logs, {3: "leader, fails first", 2: "fails second"}),),
        head=("", *map(rule_set_name, sets)),
        rows=tuple(zip(labels, *told, strict=True)),
        lesson=(
            "Before 0.11 a follower cut to its own, late, high watermark whenever its leader "
            "changed. From 0.11 it asks the leader where its epoch ended (KIP-101)."
        ),
        alerts=(
            Alert("TRN001", "as soon as 1 leads in 0.10.2, with the lost range"),
            Alert("TRN002", "at the cut itself, should a 3.9 broker ever cut like that"),
        ),
    )


def _two_failures(logs: dict[BrokerId, ReplicaLog], rules: RuleSet) -> tuple[str, ...]:
    state = PartitionState(leader=3, leader_epoch=0, isr=(3, 2, 1))
    after_3 = _after_failure(state, 3, {2, 1}, rules)
    leader = as_leader(logs[after_3.leader], after_3.leader_epoch, rules)
    first = consequences(follower=logs[1], leader=leader, rules=rules)
    cut = logs[1]._replace(log_end_offset=first.prediction.final_offset)
    after_2 = _after_failure(after_3, 2, {1}, rules)
    lost = consequences(follower=logs[3], leader=cut, rules=rules).lost
    return (
        name_of(after_3.leader),
        f"{first.cut} ({first.prediction.because})" if first.cut else "nothing",
        name_of(after_2.leader),
        str(cut.log_end_offset),
        str(lost) if lost else "none",
    )


def _after_failure(
    state: PartitionState, dead: BrokerId, live: set[BrokerId], rules: RuleSet
) -> PartitionState:
    writes = broker_failure(
        state, assignment=(3, 2, 1), dead=[dead], live=live, unclean_allowed=False, rules=rules
    )
    return writes[-1]


def divergence() -> Scene:
    """KIP-101, second scenario: equal ends, equal watermarks, different records."""
    leader, follower = log(2, 2, (0, 0), (1, 1)), log(2, 2, (0, 0))
    sets = [rules_for(BEFORE_EPOCHS), rules_for(WITH_EPOCHS)]
    found = [consequences(follower=follower, leader=leader, rules=rules) for rules in sets]
    rows = (
        ("2 returns and cuts", *(_cut(each) for each in found)),
        ("why", *(each.prediction.because for each in found)),
        ("2 then holds at offset 1", *(_record_at(1, follower, leader, each) for each in found)),
        ("logs differ from offset", *(_differs(each) for each in found)),
    )
    return Scene(
        title="Two logs differ for ever, and no offset shows it",
        story=(
            "Both brokers lost power. Broker 1 came back first, without its unflushed record 1, "
            "led, and wrote another record there. Now broker 2 returns with the old one. Log end "
            "and high watermark of the two are the same."
        ),
        drawings=(drawing({1: leader, 2: follower}, {1: "leader", 2: "returns"}),),
        head=("", *map(rule_set_name, sets)),
        rows=rows,
        lesson=(
            "Only the epochs tell the records apart: lag, log end and high watermark look healthy. "
            f"Under both rules the old record {found[1].lost} is lost, which is said as well."
        ),
        alerts=(
            Alert("TRN003", "the follower was to cut, and did not"),
            Alert("TRN004", "it has fetched since, and still holds another record"),
        ),
    )


def _cut(found: Consequences) -> str:
    return str(found.cut) if found.cut else "nothing"


def _differs(found: Consequences) -> str:
    return "none" if found.diverges_at is None else str(found.diverges_at)


def _record_at(offset: int, follower: ReplicaLog, leader: ReplicaLog, found: Consequences) -> str:
    kept = offset < found.prediction.final_offset
    holder = follower if kept else leader
    lineage = truncate_from_end(holder.lineage, offset + 1)
    return f"the record of epoch {lineage[-1].epoch}" + ("" if kept else ", fetched anew")


TEXTBOOKS: Final[tuple[tuple[str, Callable[[Lineage, int, int], int | None]], ...]] = (
    (
        '"the start of the leader\'s latest epoch"',
        lambda known, asked, end: _textbook(known, asked, end, latest_entry(known)),
    ),
    (
        '"the start of the asked epoch + 1"',
        lambda known, asked, end: _textbook(known, asked, end, entry_of(known, asked + 1)),
    ),
    (
        '"the offset of the asked epoch"',
        lambda known, asked, end: _textbook(known, asked, end, entry_of(known, asked)),
    ),
)


def _textbook(known: Lineage, asked: int, end: int, entry: tuple[int, int] | None) -> int | None:
    """Every wording agrees on the latest epoch; of the others each names another entry."""
    if known[-1].epoch == asked:
        return end
    return None if entry is None else entry[1]


def leader_answer() -> Scene:
    """The end of an epoch is the start of the first larger one, and nothing else."""
    rules = rules_for(WITH_EPOCHS)
    leader = log(170, 170, (0, 0), (1, 100), (3, 150))
    follower = log(120, 90, (0, 0))
    end, asked_first = leader.log_end_offset, follower.lineage[-1].epoch
    rows = []
    for asked in (3, 2, 1, 0):
        answer = end_offset_for(leader.lineage, asked, log_end_offset=end, rules=rules)
        guesses = (rule(leader.lineage, asked, end) for _, rule in TEXTBOOKS)
        told = (_guess(guess, answer.end_offset) for guess in guesses)
        rows.append((f"epoch {asked}", str(answer.end_offset), *told))
    cut = consequences(follower=follower, leader=leader, rules=rules)
    wrong = [rule(leader.lineage, asked_first, end) for _, rule in TEXTBOOKS]
    return Scene(
        title='"Where did my epoch end?" Three textbook answers, and the one Kafka gives',
        story=(
            "A follower asks its leader where its own latest epoch ended, and cuts there. The "
            "leader's epochs began at 0, 100 and 150, and none is numbered 2: gaps are normal."
        ),
        drawings=(drawing({1: leader, 2: follower}, {1: "leader", 2: "asks for epoch 0"}),),
        head=("asked", f"Kafka {rules.version}", *(wording for wording, _ in TEXTBOOKS)),
        rows=tuple(rows),
        lesson=(
            "The end of an epoch is the start of the first larger one. Broker 2 therefore cuts "
            f"{cut.cut}. Told {wrong[0]} it would keep records that its leader never had, told "
            f"{wrong[2]} it would throw away all it has."
        ),
        alerts=(
            Alert("TRN003", "if 2 keeps what its leader does not have"),
            Alert("TRN002", "if 2 throws away what both have"),
        ),
    )


def _guess(guess: int | None, answer: int) -> str:
    if guess is None:
        return "no answer (wrong)"
    return f"{guess}" if guess == answer else f"{guess} (wrong)"
