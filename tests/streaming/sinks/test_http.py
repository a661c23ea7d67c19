"""Webhook and Alertmanager over real HTTP: what is sent, and what is never told."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

import pytest
from tidestaff.streaming.sinks.sink import SinkError
from tidestaff.streaming.sinks.webhook import FIELDS, WebhookSink

from tests.streaming.alerts.lives import event
from tests.streaming.sinks.parcels import ESCAPES, life_of_a_group, loss, many, parcels
from tests.streaming.sinks.receiver import Receiver, receiving

if TYPE_CHECKING:
    from collections.abc import Iterator

SECRET = "s3cr3t-t0ken"  # noqa: S105 - made up


@pytest.fixture
def receiver() -> Iterator[Receiver]:
    with receiving() as receiver:
        yield receiver


def test_the_default_is_a_message_for_slack(receiver: Receiver) -> None:
    told = parcels(loss())
    WebhookSink(receiver.url).deliver(told)
    (request,) = receiver.requests
    text = json.loads(request.body)["text"]
    assert list(json.loads(request.body)) == ["text"]
    assert text.startswith("FIRING: TRN001 committed-offsets-lost (critical, loss) c orders-0")
    assert "next: Leave brokers that are down DOWN" in text
    assert request.headers["content-type"] == "application/json"
    assert request.headers["idempotency-key"] == told[0].transition.id


def test_outside_text_can_neither_break_the_body_nor_ping_a_channel(receiver: Receiver) -> None:
    raised = event("raised", 1_000, topic='"}, {"<!channel>\\', observed=ESCAPES)
    WebhookSink(receiver.url).deliver(parcels(raised))
    text = json.loads(receiver.requests[0].body)["text"]
    assert "&lt;!channel&gt;" in text
    assert "<" not in text
    assert "\x1b" not in text


def test_a_template_may_use_every_field_that_is_documented(receiver: Receiver) -> None:
    names = ", ".join(f'"{name}": "${name}"' for name in FIELDS if name != "json")
    sink = WebhookSink(
        receiver.url, template=f'{{{names}, "all": $json}}', runbook_base="http://r/"
    )
    told = [*parcels(loss(topic=ESCAPES)), *life_of_a_group()]
    sink.deliver(told)
    bodies = [json.loads(request.body) for request in receiver.requests]
    assert [body["all"] for body in bodies] == [each.transition.fields for each in told]
    assert bodies[0]["offsets"] == "[8,10)"
    assert bodies[0]["runbook_url"] == "http://r/TRN001.md"
    assert bodies[0]["topic"] == ESCAPES
    assert bodies[1]["members"].endswith("and 5 more")


@pytest.mark.parametrize(
    ("template", "words"),
    [
        pytest.param('{"text": "$sumary"}', "its template has sumary", id="unknown-name"),
        pytest.param('{"text": "5$"}', "begins no name", id="lone-dollar"),
        pytest.param('{"text": $summary}', "does not make JSON", id="no-quotes"),
    ],
)
def test_a_template_is_checked_before_an_alert_needs_it(template: str, words: str) -> None:
    with pytest.raises(SinkError, match=words):
        WebhookSink("http://127.0.0.1:1/", template=template)


def test_a_template_need_not_be_json(receiver: Receiver) -> None:
    sink = WebhookSink(receiver.url, template="$code $status", content_type="text/plain")
    sink.deliver(parcels(loss()))
    assert receiver.requests[0].body == b"TRN001 firing"


@pytest.mark.parametrize(
    ("url", "words"),
    [
        pytest.param("file:///etc/passwd", "not http or https", id="file"),
        pytest.param("ftp://host/x", "not http or https", id="ftp"),
        pytest.param("http:///x", "not http or https", id="no-host"),
        pytest.param(f"http://me:{SECRET}@host/x", "holds a password", id="password"),
    ],
)
def test_only_http_addresses_without_passwords_are_taken(url: str, words: str) -> None:
    with pytest.raises(SinkError, match=words) as caught:
        WebhookSink(url)
    assert SECRET not in str(caught.value)


def test_what_was_taken_is_not_sent_again_when_a_later_one_failed(receiver: Receiver) -> None:
    told = many(4)
    sink = WebhookSink(receiver.url)
    receiver.answers = [(200, ""), (200, ""), (503, "busy")]
    with pytest.raises(SinkError, match="answered 503: busy"):
        sink.deliver(told)
    sink.deliver(told)
    keys = [request.headers["idempotency-key"] for request in receiver.requests]
    expected = [each.transition.id for each in told]
    assert keys == [expected[0], expected[1], expected[2], expected[2], expected[3]]


def test_secrets_are_sent_and_never_told(receiver: Receiver) -> None:
    headers = {"Authorization": f"Bearer {SECRET}"}
    sink = WebhookSink(f"{receiver.url}/hook/{SECRET}?key={SECRET}", headers=headers)
    receiver.answers = [(401, f"bad token Bearer {SECRET} at /hook/{SECRET}?key={SECRET}")]
    with pytest.raises(SinkError, match="renew the credentials") as caught:
        sink.deliver(many(1))
    assert receiver.requests[0].headers["authorization"] == f"Bearer {SECRET}"
    assert SECRET not in str(caught.value)
    assert SECRET not in repr(caught.value.__cause__)


def test_a_redirect_is_not_followed_with_the_secrets(receiver: Receiver) -> None:
    receiver.answers = [(307, f"{receiver.url}/elsewhere")]
    with pytest.raises(SinkError, match="answered 307"):
        WebhookSink(receiver.url).deliver(many(1))
    assert len(receiver.requests) == 1


def test_a_header_cannot_smuggle_another_one() -> None:
    with pytest.raises(SinkError, match="line break") as caught:
        WebhookSink("http://h/", headers={"X": f"a\r\nY: {SECRET}"})
    assert SECRET not in str(caught.value)


def test_a_receiver_that_is_not_there_is_a_failure_of_the_sink(free_port: int) -> None:
    with pytest.raises(SinkError, match="not reached"):
        WebhookSink(f"http://127.0.0.1:{free_port}/").deliver(many(1))


def test_a_receiver_that_says_nothing_is_given_up_in_time(silent_port: int) -> None:
    with pytest.raises(SinkError, match="not reached"):
        WebhookSink(f"http://127.0.0.1:{silent_port}/", timeout_s=0.2).deliver(many(1))


def test_an_answer_cannot_touch_the_terminal(receiver: Receiver) -> None:
    receiver.answers = [(500, ESCAPES)]
    with pytest.raises(SinkError) as caught:
        WebhookSink(receiver.url).deliver(many(1))
    assert "\x1b" not in str(caught.value)
