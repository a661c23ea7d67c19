"""Grace times to the sample: when a breach becomes an alert, and what keeps a suspicion alive."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tidestaff.consistency.judge import judge
from tidestaff.consistency.memory import MAX_SUSPICIONS
from tidestaff.consistency.model import Bracket
from tidestaff.consistency.rules import Grace, Rule, Timing
from tidestaff.consistency.verdict import FindingClass, Scope, Severity, Unknown, Violated

from tests.consistency.watch import Watch, lineage

if TYPE_CHECKING:
    from collections.abc import Iterable

    from tidestaff.consistency.checks.sight import Finding


def test_two_observations_are_not_three_however_far_apart() -> None:
    watch = Watch().settle()
    watch.stop(3).see(2, every_ms=60_000)
    assert not watch.raised
    watch.see(every_ms=60_000)
    assert set(watch.raised) == {"ISR002"}


def test_three_observations_are_not_a_session_timeout_however_many() -> None:
    watch = Watch().settle()
    watch.stop(3).see(20, every_ms=1_000)
    assert not watch.raised


def test_a_rule_with_a_long_grace_time_bears_rounds_as_long() -> None:
    watch = Watch(isr=(1, 2))
    watch.stop(3).see(8, every_ms=200_000)
    assert "ISR008" in watch.raised


def test_a_round_that_cannot_be_judged_does_not_start_the_grace_time_anew() -> None:
    watch = Watch().settle()
    since = watch.now_ms + 5_000
    watch.stop(3).see(4)
    watch.set(bracket=Bracket.STRADDLED).see()
    watch.set(bracket=Bracket.COHERENT).see(3)
    assert watch.raised["ISR002"].since_ms == since


def test_a_new_controller_does_not_start_the_grace_time_anew() -> None:
    watch = Watch().settle()
    since = watch.now_ms + 5_000
    watch.stop(3).see(3)
    watch.set(controller=2, controller_epoch=2).see(5)
    assert watch.raised["ISR002"].since_ms == since


def test_each_broker_has_its_own_grace_time() -> None:
    watch = Watch().settle()
    watch.stop(2).see(5)
    watch.stop(3)
    verdicts = watch.see(3)
    assert isinstance(verdicts.of("ISR002", 2), Violated)
    assert isinstance(verdicts.of("ISR002", 3), Unknown)


def test_suspicions_are_bounded() -> None:
    def many(_: None) -> Iterable[Finding]:
        return [Violated("XXX001", "a", "b", "c", broker=broker) for broker in range(200)]

    rule: Rule[None] = Rule(
        "XXX001",
        "many",
        Severity.INFO,
        FindingClass.PROTOCOL,
        Scope.PARTITION,
        claim="-",
        inputs="-",
        check=many,
        grace=Grace(samples=2),
    )
    judgement = judge(
        (rule,), None, may_judge=lambda _: None, suspicions=(), now_ms=1, timing=Timing()
    )
    assert len(judgement.unknown) == 200
    assert len(judgement.suspicions) == MAX_SUSPICIONS


def test_a_rebalance_is_due_after_two_checks_and_not_before() -> None:
    watch = Watch(leader=2, imbalance=0.5)
    watch.see(110)
    assert "ELE010" not in watch.raised
    watch.see(30)
    assert "ELE010" in watch.raised


def test_one_long_round_within_the_grace_time_is_no_gap() -> None:
    watch = Watch(isr=(1, 2))
    watch.stop(3)
    since = watch.now_ms + 5_000
    watch.see(40)
    watch.see(every_ms=200_000)
    watch.see(60)
    assert watch.raised["ISR008"].since_ms == since


def test_what_needs_one_replica_only_does_not_wait_for_cached_metadata() -> None:
    watch = Watch(authoritative=False).settle()
    watch.log(1, hw=9).see()
    assert "HWM002" in watch.raised


def test_metadata_that_changed_while_it_was_read_accuses_nobody() -> None:
    watch = Watch(isr=(3, 2, 1)).settle()
    watch.stop(1).change(leader=3, epoch=1, isr=(3, 2)).log(3, epochs=lineage((0, 0), (1, 10)))
    watch.set(bracket=Bracket.STRADDLED).see()
    assert not watch.raised


def test_an_unclean_election_is_told_though_metadata_changed_while_it_was_read() -> None:
    watch = Watch(isr=(1,)).settle()
    watch.stop(1).change(leader=2, epoch=1, isr=(2,), recovering=True)
    watch.log(2, epochs=lineage((0, 0), (1, 10))).set(bracket=Bracket.STRADDLED).see()
    assert set(watch.raised) == {"ELE009"}
