"""The life of an alert, story by story."""

from __future__ import annotations

import pytest
from tidestaff.streaming.alerts.alert import Ack, Status
from tidestaff.streaming.alerts.book import Book, advance
from tidestaff.streaming.alerts.life import acknowledge
from tidestaff.streaming.alerts.policy import AlertPolicy

from tests.streaming.alerts.lives import GROUPED, LATCHED, PLAIN, POLICY, Diary, event


def test_a_finding_fires_at_once_and_resolves_after_its_hold_down() -> None:
    diary = Diary().batch(event("raised", 1_000)).batch(event("cleared", 2_000), clock=71_999)
    assert diary.steps == [("firing", 1_000)]
    diary.batch(clock=72_000)
    assert diary.steps == [("firing", 1_000), ("resolved", 62_000)]


def test_raised_again_within_the_hold_down_the_alert_goes_on_as_if_nothing_had_happened() -> None:
    diary = Diary().batch(event("raised", 1_000), event("cleared", 2_000), event("raised", 62_000))
    assert diary.batch(clock=500_000).steps == [("firing", 1_000)]


def test_raised_again_after_the_hold_down_it_is_a_new_life_with_the_next_number() -> None:
    diary = Diary().batch(event("raised", 1_000), event("cleared", 2_000), event("raised", 62_001))
    assert diary.steps == [("firing", 1_000), ("resolved", 62_000), ("firing", 62_001)]
    assert [each.number for each in diary.told] == [1, 2, 3]
    assert len({each.fingerprint for each in diary.told}) == 1


def test_a_suspicion_in_the_hold_down_keeps_the_alert_open() -> None:
    diary = Diary().batch(event("raised", 1_000), event("cleared", 2_000), event("pending", 3_000))
    assert diary.batch(clock=500_000).steps == [("firing", 1_000)]
    diary.batch(event("cleared", 500_000), clock=570_000)
    assert diary.steps[-1] == ("resolved", 560_000)


def test_a_suspicion_that_did_not_last_is_told_as_such() -> None:
    diary = Diary().batch(event("pending", 1_000), event("cleared", 4_000))
    assert diary.steps == [("pending", 1_000), ("resolved", 4_000)]
    assert diary.told[-1].fields["reason"] == "did not last"


def test_a_suspicion_that_lasts_fires_under_the_same_fingerprint() -> None:
    diary = Diary().batch(event("pending", 1_000), event("raised", 4_000, since_ms=900))
    assert diary.steps == [("pending", 1_000), ("firing", 4_000)]
    assert diary.told[-1].fields["since_ms"] == 900
    assert diary.told[-1].fields["started_at_ms"] == 1_000


def test_a_change_is_kept_without_a_transition() -> None:
    diary = Diary().batch(
        event("raised", 1_000, offsets=(8, 10), evidence={"round": 1}),
        event("changed", 2_000, offsets=(8, 12), observed="more", evidence={"round": 2}),
    )
    assert diary.steps == [("firing", 1_000)]
    (alert,) = diary.book.alerts.values()
    assert (alert.offsets, alert.observed, alert.evidence) == ((8, 12), "more", {"round": 2})
    assert alert.last_seen_ms == 2_000


def test_what_is_cleared_without_having_been_raised_tells_nothing() -> None:
    assert Diary().batch(event("cleared", 1_000), event("cleared", 1, GROUPED)).steps == []


def test_raised_twice_is_raised_once() -> None:
    diary = Diary().batch(event("raised", 1_000), event("raised", 2_000, observed="later"))
    assert diary.steps == [("firing", 1_000)]


def test_an_event_later_than_the_bound_does_not_rewrite_the_past() -> None:
    diary = Diary().batch(event("raised", 1_000), event("cleared", 2_000), clock=200_000)
    diary.batch(event("raised", 30_000))
    assert diary.steps == [("firing", 1_000), ("resolved", 62_000), ("firing", 62_000)]


# --- groups -------------------------------------------------------------------------------------


def test_a_dead_broker_is_one_alert_with_a_count() -> None:
    raised = [event("raised", 1_000 + n, GROUPED, partition=n, broker=3) for n in range(4_000)]
    diary = Diary().batch(*raised, clock=30_000)
    (told,) = diary.told
    assert (told.at_ms, told.fields["cause"]) == (6_000, "broker 3")
    assert told.fields["members_count"] == 4_000
    assert [each["partition"] for each in told.fields["members"]] == list(range(20))
    assert told.fields["topic"] is None


def test_members_that_come_after_the_wait_are_counted_but_not_told() -> None:
    diary = Diary().batch(event("raised", 1_000, GROUPED), clock=20_000)
    diary.batch(event("raised", 15_000, GROUPED, partition=1), clock=40_000)
    assert diary.steps == [("firing", 6_000)]
    (alert,) = diary.book.alerts.values()
    assert alert.active_members == 2


def test_a_group_resolves_when_its_last_member_has() -> None:
    diary = Diary().batch(*(event("raised", 1_000, GROUPED, partition=n) for n in range(3)))
    diary.batch(*(event("cleared", 9_000 + n, GROUPED, partition=n) for n in range(2)))
    assert diary.batch(clock=300_000).steps == [("firing", 6_000)]
    diary.batch(event("cleared", 300_000, GROUPED, partition=2), clock=400_000)
    assert diary.steps[-1] == ("resolved", 360_000)
    assert diary.told[-1].fields["members_affected"] == 3
    assert diary.told[-1].fields["members_count"] == 0


def test_a_group_that_cleared_before_it_fired_is_told_nevertheless() -> None:
    diary = Diary().batch(event("raised", 1_000, GROUPED), event("cleared", 2_000, GROUPED))
    assert diary.batch(clock=200_000).steps == [("firing", 6_000), ("resolved", 62_000)]
    assert diary.told[0].fields["members_count"] == 0
    assert diary.told[0].fields["members"][0]["topic"] == "t"


def test_causes_are_apart() -> None:
    diary = Diary().batch(
        event("raised", 1_000, GROUPED, broker=1),
        event("raised", 1_000, GROUPED, broker=2),
        event("raised", 1_000, GROUPED, cluster="d"),
        event("raised", 1_000, "ISR008", broker=1),
        clock=50_000,
        d=50_000,
    )
    assert len({each.fingerprint for each in diary.told}) == 4


def test_a_group_of_suspicions_comes_to_nothing_when_the_last_is_gone() -> None:
    diary = Diary().batch(
        event("pending", 1_000, GROUPED),
        event("pending", 1_500, GROUPED, partition=1),
        event("cleared", 2_000, GROUPED),
        event("cleared", 3_000, GROUPED, partition=1),
        clock=50_000,
    )
    assert diary.steps == [("pending", 1_000), ("resolved", 3_000)]


def test_a_group_waits_for_its_cluster_to_be_heard() -> None:
    diary = Diary().batch(event("raised", 1_000, GROUPED), d=500_000)
    assert diary.told == []
    assert diary.batch(clock=500_000).steps == [("firing", 6_000)]


# --- losses -------------------------------------------------------------------------------------


def test_every_loss_is_a_fact_of_its_own() -> None:
    diary = Diary().batch(
        event("raised", 1_000, LATCHED, offsets=(8, 10)),
        event("raised", 2_000, LATCHED, offsets=(20, 30)),
    )
    assert len({each.fingerprint for each in diary.told}) == 2


def test_a_loss_stays_until_somebody_has_taken_it_on_and_it_is_over() -> None:
    diary = Diary().batch(
        event("raised", 1_000, LATCHED, offsets=(8, 10)),
        event("cleared", 2_000, LATCHED),
        clock=10_000_000,
    )
    assert diary.steps == [("firing", 1_000)]
    (alert,) = diary.book.alerts.values()
    told = acknowledge(alert, Ack("ann", 77, "restored from backup"))
    assert [(each.status, each.at_ms) for each in told] == [
        (Status.ACKNOWLEDGED, 77),
        (Status.RESOLVED, 77),
    ]
    assert told[0].fields["acknowledged"] == {
        "who": "ann",
        "at_ms": 77,
        "why": "restored from backup",
    }


def test_a_loss_taken_on_while_it_lasts_is_resolved_when_it_is_over() -> None:
    diary = Diary().batch(event("raised", 1_000, LATCHED, offsets=(8, 10)))
    (alert,) = diary.book.alerts.values()
    assert [each.status for each in acknowledge(alert, Ack("ann", 77, ""))] == [Status.ACKNOWLEDGED]
    diary.batch(event("cleared", 2_000, LATCHED), clock=72_000)
    assert diary.steps[-1] == ("resolved", 62_000)


def test_a_change_of_a_loss_is_of_the_newest_and_its_end_is_of_all() -> None:
    diary = Diary().batch(
        event("raised", 1_000, LATCHED, offsets=(8, 10)),
        event("raised", 2_000, LATCHED, offsets=(20, 30)),
        event("changed", 3_000, LATCHED, offsets=(20, 35)),
    )
    found = sorted(diary.book.alerts.values(), key=lambda alert: alert.started_at_ms)
    assert [alert.offsets for alert in found] == [(8, 10), (20, 35)]
    diary.batch(event("cleared", 4_000, LATCHED))
    assert [alert.cleared_at_ms for alert in diary.book.alerts.values()] == [4_000, 4_000]


def test_a_change_of_a_loss_nobody_raised_raises_it() -> None:
    assert Diary().batch(event("changed", 1_000, LATCHED, offsets=(8, 10))).steps == [
        ("firing", 1_000)
    ]


def test_a_loss_is_no_suspicion() -> None:
    assert Diary().batch(event("pending", 1_000, LATCHED)).steps == []


# --- acknowledging ------------------------------------------------------------------------------


def test_an_acknowledged_alert_resolves_like_any_other_and_a_new_life_is_not_acknowledged() -> None:
    diary = Diary().batch(event("raised", 1_000))
    (alert,) = diary.book.alerts.values()
    acknowledge(alert, Ack("ann", 77, ""))
    diary.batch(event("cleared", 2_000), event("raised", 90_000))
    assert diary.steps == [("firing", 1_000), ("resolved", 62_000), ("firing", 90_000)]
    assert [each.number for each in diary.told] == [1, 3, 4]
    assert diary.told[-1].fields["acknowledged"] is None


def test_what_is_over_cannot_be_acknowledged() -> None:
    diary = Diary().batch(event("raised", 1_000), event("cleared", 2_000), clock=100_000)
    (alert,) = diary.book.alerts.values()
    assert acknowledge(alert, Ack("ann", 77, "")) == []


def test_a_group_taken_on_as_a_suspicion_does_not_call_again() -> None:
    diary = Diary().batch(event("pending", 1_000, GROUPED), clock=12_000)
    (alert,) = diary.book.alerts.values()
    acknowledge(alert, Ack("ann", 77, ""))
    diary.batch(event("raised", 20_000, GROUPED), clock=100_000)
    assert diary.steps == [("pending", 1_000)]
    diary.batch(event("cleared", 100_000, GROUPED), clock=200_000)
    assert diary.steps[-1] == ("resolved", 160_000)


# --- the rest -----------------------------------------------------------------------------------


def test_advance_leaves_the_book_it_was_given_as_it_was() -> None:
    first = advance(Book(), [event("raised", 1_000)], {}, POLICY).book
    before = {key: alert.copy() for key, alert in first.alerts.items()}
    advance(first, [event("cleared", 2_000), event("raised", 9, GROUPED)], {"c": 10**9}, POLICY)
    assert dict(first.alerts) == before
    assert not first.waiting


def test_a_transition_carries_all_that_a_person_needs() -> None:
    raised = event("raised", 1_000, LATCHED, offsets=(8, 10), broker=2, evidence={"round": 7})
    (told,) = Diary().batch(raised).told
    fields = told.fields
    assert fields["claim"] == "A leader holds every offset that was ever committed."
    assert fields["runbook"] == "docs/runbooks/TRN001.md"
    assert fields["next_step"].startswith("Leave brokers that are down DOWN")
    assert (fields["offsets"], fields["evidence"]) == ([8, 10], {"round": 7})
    assert fields["id"] == told.id


@pytest.mark.parametrize(
    ("policy", "code", "hold_down_ms"),
    [
        pytest.param(AlertPolicy(), PLAIN, 60_000, id="by-class"),
        pytest.param(AlertPolicy(), "ISR005", 600_000, id="flapping-looks-back-ten-minutes"),
        pytest.param(
            AlertPolicy(hold_down_by_code_ms={PLAIN: 5}), PLAIN, 5, id="a-code-of-the-settings-wins"
        ),
    ],
)
def test_hold_downs(policy: AlertPolicy, code: str, hold_down_ms: int) -> None:
    assert policy.hold_down_ms(code) == hold_down_ms
