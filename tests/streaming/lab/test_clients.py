"""Clients of a lab in which a broker has just died: they ask again, and only what can pass."""

from __future__ import annotations

import contextlib
from typing import TYPE_CHECKING, Any

import pytest
from tidestaff.streaming.lab import clients as lab_clients
from tidestaff.streaming.lab.clients import Clients
from tidestaff.streaming.lab.cluster import Lab
from tidestaff.streaming.lab.errors import LabError
from tidestaff.streaming.lab.plan import make_plan

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

pytestmark = pytest.mark.filterwarnings("ignore:.*_text is deprecated:DeprecationWarning")

SEEN: list[dict[str, Any]] = [
    {
        "name": "orders",
        "partitions": [
            {
                "partition_index": 0,
                "leader_id": 1,
                "leader_epoch": 4,
                "replica_nodes": [1, 2],
                "isr_nodes": [1],
            }
        ],
    }
]


class Admin:
    """Answers with the next of its answers; an exception is raised."""

    def __init__(self, *answers: Any) -> None:
        self.answers, self.clients = list(answers), 0

    def _next(self, *_: Any) -> Any:
        answer = self.answers.pop(0)
        if isinstance(answer, Exception):
            raise answer
        return answer

    describe_topics = create_topics = delete_topics = describe_cluster = _next


@pytest.fixture
def asked(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[..., Clients]:
    """Clients whose admin gives these answers; each client counts."""
    monkeypatch.setattr(lab_clients, "_LOOK_EVERY_S", 0)

    def of(admin: Admin) -> Clients:
        @contextlib.contextmanager
        def connected(_: Clients) -> Iterator[Admin]:
            admin.clients += 1
            yield admin

        monkeypatch.setattr(Clients, "_admin", connected)
        return Lab(make_plan(tmp_path, version="3.9.1", brokers=3)).clients

    return of


def test_a_question_that_met_the_dead_broker_is_asked_again_by_a_new_client(
    asked: Callable[..., Clients],
) -> None:
    from kafka.errors import KafkaConnectionError, KafkaTimeoutError  # noqa: PLC0415 - slow

    admin = Admin(KafkaConnectionError("refused"), KafkaTimeoutError(), OSError("reset"), SEEN)
    (seen,) = asked(admin).describe("orders")
    assert (seen.leader, seen.leader_epoch, seen.isr) == (1, 4, (1,))
    assert admin.clients == 4


def test_a_controller_that_moves_is_asked_for_again(asked: Callable[..., Clients]) -> None:
    moved = RuntimeError("Failed to find active controller id!")
    admin = Admin(moved, {"controller_id": -1}, {"controller_id": 2})
    assert asked(admin).controller() == 2


def test_a_broker_that_has_just_registered_is_soon_known(asked: Callable[..., Clients]) -> None:
    from kafka.errors import UnknownBrokerIdError  # noqa: PLC0415 - slow

    admin = Admin(UnknownBrokerIdError(3), {"controller_id": 3})
    assert asked(admin).controller() == 3


def test_what_is_an_answer_is_not_asked_again(asked: Callable[..., Clients]) -> None:
    from kafka.errors import TopicAuthorizationFailedError  # noqa: PLC0415 - slow

    admin = Admin(TopicAuthorizationFailedError(), SEEN)
    with pytest.raises(LabError, match="could not describe orders: TopicAuthorization"):
        asked(admin).describe("orders")
    assert admin.clients == 1


@pytest.mark.parametrize(
    ("text", "said"),
    [
        pytest.param(
            "[Error 36] TopicAlreadyExistsError: Request 'CreateTopicsRequest(version=7)' failed "
            "with response 'CreateTopicsResponse(topics=[CreatableTopicResult(name='t', "
            "error_message=\"Topic 't' already exists.\", num_partitions=-1)])'.",
            "TopicAlreadyExistsError: Topic 't' already exists.",
            id="the-broker-says-why",
        ),
        pytest.param(
            "[Error 36] TopicAlreadyExistsError: Request 'CreateTopicsRequest(version=1)' failed "
            "with response 'CreateTopicsResponse(topics=[CreatableTopicResult(name='t', "
            "error_message=None, num_partitions=-1)])'.",
            "TopicAlreadyExistsError: [Error 36] TopicAlreadyExistsError",
            id="an-old-broker-says-nothing",
        ),
        pytest.param(
            "TopicAlreadyExistsError: it is there",
            "TopicAlreadyExistsError: it is there",
            id="its-name-stands-there-already",
        ),
    ],
)
def test_a_refusal_is_told_in_the_brokers_words(
    asked: Callable[..., Clients], text: str, said: str
) -> None:
    from kafka.errors import TopicAlreadyExistsError  # noqa: PLC0415 - slow

    class RefusedError(TopicAlreadyExistsError):  # type: ignore[misc]
        def __str__(self) -> str:
            return text

    RefusedError.__name__ = "TopicAlreadyExistsError"
    with pytest.raises(LabError) as told:
        asked(Admin(RefusedError())).create_topic("t")
    assert str(told.value) == f"could not make topic t: {said}"


def test_a_topic_made_by_a_try_whose_answer_was_lost_is_made(
    asked: Callable[..., Clients],
) -> None:
    from kafka.errors import KafkaTimeoutError, TopicAlreadyExistsError  # noqa: PLC0415 - slow

    whole = [{**SEEN[0], "partitions": [{**SEEN[0]["partitions"][0], "isr_nodes": [1, 2]}]}]
    asked(Admin(KafkaTimeoutError(), TopicAlreadyExistsError(), whole)).create_topic("orders")
    with pytest.raises(LabError, match="TopicAlreadyExists"):
        asked(Admin(TopicAlreadyExistsError())).create_topic("orders")


def test_a_topic_deleted_by_a_try_whose_answer_was_lost_is_deleted(
    asked: Callable[..., Clients],
) -> None:
    from kafka.errors import KafkaTimeoutError, UnknownTopicOrPartitionError  # noqa: PLC0415

    asked(Admin(KafkaTimeoutError(), UnknownTopicOrPartitionError())).delete_topic("orders")
    with pytest.raises(LabError, match="UnknownTopicOrPartition"):
        asked(Admin(UnknownTopicOrPartitionError())).delete_topic("orders")


def test_a_topic_that_nobody_shows_is_not_as_wanted(asked: Callable[..., Clients]) -> None:
    from kafka.errors import KafkaConnectionError  # noqa: PLC0415 - slow

    admin = Admin(KafkaConnectionError("refused"), [], SEEN)
    seen = asked(admin).until("orders", lambda found: all(p.leader == 1 for p in found))
    assert len(seen) == 1


def test_time_that_is_over_tells_the_last_fault(asked: Callable[..., Clients]) -> None:
    from kafka.errors import KafkaConnectionError  # noqa: PLC0415 - slow

    clients = asked(Admin(KafkaConnectionError("refused"), KafkaConnectionError("refused")))
    with pytest.raises(LabError, match=r"could not describe orders: .*refused"):
        clients.until("orders", bool, within_s=0)
    with pytest.raises(LabError, match=r"could not ask for it: .*refused"):
        clients.ask("ask for", "it", lambda admin: admin.describe_cluster(), within_s=0)
