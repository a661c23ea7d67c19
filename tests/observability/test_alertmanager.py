"""The real Alertmanager with the example of conf/ and the sink's own alerts: told, grouped,
silenced, resolved, and consequences kept back while their cause is told.

What must not be told is asserted once something that was sent later has been told.
"""

from __future__ import annotations

import json
import time
import urllib.request
from typing import TYPE_CHECKING, Any, NamedTuple

import pytest
from tidestaff.streaming.sinks.alertmanager import AlertmanagerSink

from tests.observability.programs import alertmanager, asked, until
from tests.streaming.alerts.lives import Diary, event
from tests.streaming.sinks.parcels import STORE, Outgoing
from tests.streaming.sinks.receiver import receiving

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tidestaff.streaming.alerts.event import Event

    from tests.streaming.sinks.receiver import Receiver

pytestmark = pytest.mark.slow
PATIENCE_S = 60
AGO_MS = 200_000


def now_ms() -> int:
    return time.time_ns() // 1_000_000


class Managed(NamedTuple):
    """A running Alertmanager, the sink that feeds it, and what its receiver was told."""

    url: str
    sink: AlertmanagerSink
    told: Receiver

    def send(self, diary: Diary, *events: Event) -> None:
        """Events as the job's store would send them on, some time after they happened."""
        before = len(diary.told)
        clocks = {each.cluster: now_ms() - AGO_MS // 2 for each in events}
        diary.batch(*events, **clocks)
        steps = diary.told[before:]
        assert steps, "nothing to send"
        self.sink.deliver([Outgoing(seq, each, STORE) for seq, each in enumerate(steps, 1)])

    def notifications(self, cluster: str) -> list[Any]:
        bodies = [json.loads(request.body) for request in self.told.requests]
        return [each for each in bodies if each["commonLabels"]["cluster"] == cluster]

    def codes(self, cluster: str, status: str = "firing") -> list[str]:
        """Of everything that was told of a cluster, in order."""
        return [
            alert["labels"]["code"]
            for body in self.notifications(cluster)
            for alert in body["alerts"]
            if alert["status"] == status
        ]

    def held(self, cluster: str, code: str) -> Any:
        alerts = asked(f"{self.url}/api/v2/alerts")
        found = [a for a in alerts if a["labels"]["cluster"] == cluster]
        return next((a for a in found if a["labels"]["code"] == code), None)

    def until_told(self, cluster: str, code: str, status: str = "firing") -> None:
        until(lambda: code in self.codes(cluster, status), PATIENCE_S, f"{code} is {status}")

    def until_kept_back(self, cluster: str, code: str, by: str) -> None:
        def so() -> bool:
            found = self.held(cluster, code)
            return found is not None and bool(found["status"][by])

        until(so, PATIENCE_S, f"{code} of {cluster} is {by}")


@pytest.fixture(scope="module")
def managed(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Managed]:
    folder = tmp_path_factory.mktemp("managed") / "alertmanager"
    with receiving() as told, alertmanager(folder, f"{told.url}/hook") as url:
        yield Managed(url, AlertmanagerSink(url), told)


def raised(code: str, cluster: str, **fields: Any) -> Event:
    return event("raised", now_ms() - AGO_MS, code, cluster=cluster, **fields)


def cleared(code: str, cluster: str, **fields: Any) -> Event:
    return event("cleared", now_ms() - AGO_MS + 1, code, cluster=cluster, **fields)


def test_replicas_that_diverge_are_one_message_and_a_loss_is_its_own(managed: Managed) -> None:
    many = [raised("TRN004", "grouped", partition=number, broker=3) for number in range(5)]
    loss = raised("TRN001", "grouped", partition=9, offsets=(8, 10))
    managed.send(Diary(), *many, loss)
    managed.until_told("grouped", "TRN001")

    # Alertmanager tells at once what began longer ago than it waits for a group: its first message
    # may hold a part of what was posted together, the next one holds all.
    def of_all() -> list[Any]:
        return [b for b in managed.notifications("grouped") if len(b["alerts"]) == len(many)]

    until(of_all, PATIENCE_S, "all that diverge are in one message")
    groups = [
        {alert["labels"]["code"] for alert in body["alerts"]}
        for body in managed.notifications("grouped")
    ]
    assert all(codes in ({"TRN001"}, {"TRN004"}) for codes in groups), "classes are never mixed"
    assert groups.count({"TRN001"}) == 1
    assert groups.count({"TRN004"}) <= 2, "not one message an alert"
    (body,) = of_all()
    assert body["groupLabels"] == {"cluster": "grouped", "class": "divergence"}
    assert body["commonLabels"]["broker"] == "3"
    assert {alert["annotations"]["next_step"] for alert in body["alerts"]} != {""}


def test_what_is_over_is_told_as_resolved(managed: Managed) -> None:
    diary = Diary()
    managed.send(diary, raised("TRN004", "over"))
    managed.until_told("over", "TRN004")
    managed.send(diary, cleared("TRN004", "over"))
    managed.until_told("over", "TRN004", "resolved")
    assert managed.held("over", "TRN004") is None


def test_what_is_silenced_waits_until_the_silence_ends(managed: Managed) -> None:
    silence = {
        "matchers": [
            {"name": "cluster", "value": "silent", "isRegex": False, "isEqual": True},
            {"name": "topic", "value": "t", "isRegex": False, "isEqual": True},
        ],
        "startsAt": "2020-01-01T00:00:00Z",
        "endsAt": "2999-01-01T00:00:00Z",
        "createdBy": "Ada",
        "comment": "being repaired",
    }
    number = asked(f"{managed.url}/api/v2/silences", silence)["silenceID"]
    managed.send(Diary(), raised("TRN004", "silent"))
    managed.until_kept_back("silent", "TRN004", "silencedBy")
    managed.send(Diary(), raised("TRN003", "silent", topic="other"))
    managed.until_told("silent", "TRN003")
    assert managed.codes("silent") == ["TRN003"]
    end = urllib.request.Request(  # noqa: S310 - loopback
        f"{managed.url}/api/v2/silence/{number}", method="DELETE"
    )
    urllib.request.urlopen(end, timeout=10).close()  # noqa: S310
    managed.until_told("silent", "TRN004")


@pytest.mark.parametrize(
    ("cause", "consequence", "told_all_the_same"),
    [
        pytest.param(
            ("SRC001", {"topic": None, "partition": None, "place": "brokers"}),
            ("ISR008", {"broker": 3}),
            ("TRN004", {}),
            id="not-seen-so-warnings-are-old-but-divergence-is-told",
        ),
        pytest.param(
            ("CTL001", {"topic": None, "partition": None}),
            ("ELE004", {"broker": 3}),
            ("ELE001", {}),
            id="no-controller-so-nobody-is-elected",
        ),
        pytest.param(
            ("ELE012", {"broker": 3}),
            ("ISR008", {"broker": 3}),
            ("ISR008", {"broker": 4, "partition": 1}),
            id="offline-for-a-broker-so-short-of-replicas-for-it",
        ),
    ],
)
def test_a_cause_keeps_its_consequences_back(
    managed: Managed,
    cause: tuple[str, dict[str, Any]],
    consequence: tuple[str, dict[str, Any]],
    told_all_the_same: tuple[str, dict[str, Any]],
) -> None:
    cluster, diary = f"{cause[0]}-{consequence[0]}", Diary()
    managed.send(diary, raised(cause[0], cluster, **cause[1]))
    until(lambda: managed.held(cluster, cause[0]), PATIENCE_S, "the cause is there")
    managed.send(diary, raised(consequence[0], cluster, **consequence[1]))
    managed.until_kept_back(cluster, consequence[0], "inhibitedBy")
    kept = managed.held(cluster, consequence[0])
    assert kept["status"]["inhibitedBy"] == [managed.held(cluster, cause[0])["fingerprint"]]
    managed.send(diary, raised(told_all_the_same[0], cluster, **told_all_the_same[1]))
    managed.send(Diary(), raised(consequence[0], f"{cluster}-elsewhere", **consequence[1]))
    managed.until_told(cluster, cause[0])
    managed.until_told(cluster, told_all_the_same[0])
    managed.until_told(f"{cluster}-elsewhere", consequence[0])
    fingerprint = kept["labels"]["fingerprint"]
    told = [a for body in managed.notifications(cluster) for a in body["alerts"]]
    assert fingerprint not in {alert["labels"]["fingerprint"] for alert in told}
    managed.send(diary, cleared(cause[0], cluster, **cause[1]))

    def told_at_last() -> bool:
        bodies = managed.notifications(cluster)
        return fingerprint in {a["labels"]["fingerprint"] for b in bodies for a in b["alerts"]}

    until(told_at_last, PATIENCE_S, "without its cause the consequence is told")
