"""`tidestaff predict election`: who leads next, what is written, and why nobody else."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from tidestaff.consistency.isr import effective_min_isr, is_under_min_isr
from tidestaff.consistency.model import (
    NO_LEADER,
    Assignment,
    PartitionState,
    RecoveryState,
)
from tidestaff.consistency.versions import Mode
from tidestaff.streaming.commands import election_kraft, election_zookeeper
from tidestaff.streaming.commands.election_input import read_question
from tidestaff.streaming.commands.election_question import is_unclean, passed_over
from tidestaff.streaming.commands.exits import Exit
from tidestaff.streaming.commands.layout import labelled
from tidestaff.streaming.commands.predict import Prediction, rule_set_json, rule_set_name

if TYPE_CHECKING:
    from tidestaff.consistency.versions import RuleSet
    from tidestaff.streaming.commands.election_question import Outcome, Question
    from tidestaff.streaming.commands.reader import InputReader

EXAMPLES: Final = """\
the input, of predict election:
  {"partition": {"replicas": [1,5,9], "isr": [9,5,1], "leader": 1, "leader_epoch": 4},
   "live": [5,9],
   "event": "leader-failure",
   "settings": {"unclean_leader_election_enable": false, "min_insync_replicas": 2}}

  partition  also partition_epoch, recovery, adding, removing; in KRaft mode elr, last_known_elr
  live       the brokers that are up; those that the event stops may be listed or not
  event      "leader-failure", "preferred", "unclean", "new-partition", or one of
             {"type": "broker-failure", "dead": [1,2]}
             {"type": "controlled-shutdown", "broker": 1}
             {"type": "broker-return", "broker": 1}      (KRaft: "restarted": "clean"|"unclean")
             {"type": "reassign", "target": [5,9,2]}

example:
  echo '{"partition": {"replicas": [1,5,9], "isr": [9,5,1], "leader": 1, "leader_epoch": 4},
         "live": [5,9], "event": "leader-failure"}' |
    tidestaff predict election --version 3.9 --input -

exit codes:
  0 clean   1 unclean, under min ISR, or refused   2 the partition ends offline   3 bad input
"""

_REFUSED: Final = ("NONE", "ELECTION_NOT_NEEDED")


def predict(reader: InputReader, value: object, rules: RuleSet) -> Prediction:
    question = read_question(reader, value, rules)
    outcome = predict_outcome(question)
    code, verdict = _verdict(question, outcome)
    content = _content(question, outcome, code, verdict)
    return Prediction("\n".join(_lines(question, outcome, code, verdict)), content, code)


def predict_outcome(question: Question) -> Outcome:
    """The controller of the question's mode decides."""
    if question.rules.mode is Mode.KRAFT:
        return election_kraft.predict(question)
    return election_zookeeper.predict(question)


def _verdict(question: Question, outcome: Outcome) -> tuple[Exit, str]:
    state = outcome.state
    if state is None:
        return Exit.CRITICAL, "no partition comes to be"
    if state.leader == NO_LEADER:
        return Exit.CRITICAL, "the partition is offline"
    found = []
    if is_unclean(question, outcome):
        found.append("unclean election: records that only others had are lost")
    if under_min_isr(question, outcome):
        found.append(f"under min ISR: the ISR has {len(state.isr)}, acks=all writes are refused")
    if outcome.answer not in _REFUSED:
        found.append(f"refused: {outcome.answer}")
    if state.leader not in question.live_after:
        found.append("the leader's broker is not live, and this event does not replace it")
    if found:
        return Exit.WARNING, "; ".join(found)
    before = question.state
    if before is None:
        return Exit.OK, "the partition is created and has a leader"
    if before.leader == state.leader:
        return Exit.OK, "the leader stays"
    return Exit.OK, "clean election: the new leader has every committed record"


def under_min_isr(question: Question, outcome: Outcome) -> bool:
    return outcome.state is not None and is_under_min_isr(
        isr_size=len(outcome.state.isr),
        min_insync_replicas=question.settings.min_insync_replicas,
        replica_count=len(outcome.assignment.replicas),
        rules=question.rules,
    )


def _lines(question: Question, outcome: Outcome, code: Exit, verdict: str) -> list[str]:
    lines = [rule_set_name(question.rules), ""]
    rows = [("event", str(question.event)), *_changes(question, outcome)]
    lines += labelled([*rows, ("result", f"{verdict} (exit {code})")], indent=2)
    lines += ["", *labelled([("why", outcome.because), ("rule", outcome.rule)], indent=2)]
    others = [(str(broker), reason) for broker, reason in passed_over(question, outcome)]
    if others:
        lines += ["", "  the other replicas, in assignment order", *labelled(others, indent=4)]
    if outcome.writes:
        lines += ["", "  writes of the controller"]
        lines += labelled(
            [
                (f"{number}. {write.occasion}", _told(write.state))
                for number, write in enumerate(outcome.writes, 1)
            ],
            indent=4,
        )
    for note in outcome.notes:
        lines += ["", *labelled([("note", note)], indent=2)]
    return lines


def _changes(question: Question, outcome: Outcome) -> list[tuple[str, str]]:
    before, after = question.state, outcome.state
    old, new = _facts(before, question.assignment), _facts(after, outcome.assignment)
    rows = [
        (name, new[name] if old[name] == new[name] else f"{old[name]} -> {new[name]}")
        for name in new
        if (old[name], new[name]) != ("[]", "[]") or name == "ISR"
    ]
    minimum = effective_min_isr(
        min_insync_replicas=question.settings.min_insync_replicas,
        replica_count=len(outcome.assignment.replicas),
        rules=question.rules,
    )
    size = 0 if after is None else len(after.isr)
    return [*rows, ("min ISR", f"{minimum}, the ISR has {size}")]


def _facts(state: PartitionState | None, assignment: Assignment) -> dict[str, str]:
    if state is None:
        state = PartitionState(NO_LEADER, -1, (), -1)
    return {
        "leader": _leader(state),
        "ISR": _list(state.isr),
        "leader epoch": _number(state.leader_epoch),
        "partition epoch": _number(state.partition_epoch),
        "recovery": state.recovery.name,
        "ELR": _list(state.elr),
        "last known ELR": _list(state.last_known_elr),
        "assignment": _list(assignment.replicas),
        "adding": _list(assignment.adding),
        "removing": _list(assignment.removing),
    }


def _told(state: PartitionState) -> str:
    told = f"leader {_leader(state)}, ISR {_list(state.isr)}, leader epoch {state.leader_epoch}"
    return told + (", RECOVERING" if state.recovery is RecoveryState.RECOVERING else "")


def _leader(state: PartitionState) -> str:
    return "none" if state.leader == NO_LEADER else str(state.leader)


def _number(value: int) -> str:
    return "none" if value < 0 else str(value)


def _list(brokers: tuple[int, ...]) -> str:
    return f"[{','.join(map(str, brokers))}]"


def _content(question: Question, outcome: Outcome, code: Exit, verdict: str) -> dict[str, Any]:
    state = outcome.state
    return {
        "prediction": "election",
        "rule_set": rule_set_json(question.rules),
        "event": str(question.event),
        "before": _json(question.state, question.assignment),
        "after": _json(state, outcome.assignment),
        "unclean": is_unclean(question, outcome),
        "offline": state is None or state.leader == NO_LEADER,
        "under_min_isr": under_min_isr(question, outcome),
        "answer": outcome.answer,
        "because": outcome.because,
        "rule": outcome.rule,
        "passed_over": [
            {"broker": broker, "because": reason}
            for broker, reason in passed_over(question, outcome)
        ],
        "writes": [
            {"occasion": write.occasion, **(_json(write.state, write.assignment) or {})}
            for write in outcome.writes
        ],
        "notes": list(outcome.notes),
        "result": verdict,
        "exit_code": int(code),
    }


def _json(state: PartitionState | None, assignment: Assignment) -> dict[str, Any] | None:
    if state is None:
        return None
    return {
        "leader": state.leader,
        "isr": list(state.isr),
        "leader_epoch": state.leader_epoch,
        "partition_epoch": state.partition_epoch,
        "recovery": state.recovery.name.lower(),
        "elr": list(state.elr),
        "last_known_elr": list(state.last_known_elr),
        "replicas": list(assignment.replicas),
        "adding": list(assignment.adding),
        "removing": list(assignment.removing),
    }
