"""What people and tests do with a lab's cluster: topics, records, and a look at what is there."""

from __future__ import annotations

import contextlib
import logging
import re
import time
from typing import TYPE_CHECKING, Any, Final, NamedTuple, TypeVar

from tidestaff.streaming.lab.errors import LabError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence

    from tidestaff.streaming.lab.cluster import Lab

WITHIN_S: Final = 60.0
_LOOK_EVERY_S: Final = 0.2
_BROKER_SAYS: Final = re.compile(r"error_message=(?P<mark>['\"])(?P<text>.+?)(?P=mark), ")
Found = TypeVar("Found")


class PartitionSeen(NamedTuple):
    """A partition as the brokers' metadata tell it; the epoch is -1 before Kafka 2.4 tells it."""

    topic: str
    partition: int
    leader: int
    leader_epoch: int
    replicas: tuple[int, ...]
    isr: tuple[int, ...]


class Clients:
    """Clients of one lab, by kafka-python; each call connects anew, so it sees what is there.

    Brokers die in a lab, and for some seconds the others still name the dead one to clients. A call
    that meets it is made again, by a new client of the brokers that answer, until its time is over.
    """

    def __init__(self, lab: Lab) -> None:
        self._lab = lab
        logging.getLogger("kafka").addHandler(logging.NullHandler())

    def create_topic(
        self,
        topic: str,
        *,
        partitions: int = 1,
        replication_factor: int | None = None,
        assignment: Sequence[Sequence[int]] | None = None,
        configs: Mapping[str, str] | None = None,
    ) -> None:
        """By numbers, or with the brokers of each partition, preferred leader first. Returns when
        every partition has its leader and its whole ISR."""
        copies = replication_factor or min(3, len(self._lab.brokers))
        configs = dict(configs or {})
        if assignment is not None and self._lab.release.topics_by_zookeeper:
            self._create_by_tool(topic, assignment, configs)
        else:
            wanted: dict[str, Any] = {"configs": configs}
            if assignment is None:
                wanted |= {"num_partitions": partitions, "replication_factor": copies}
            else:
                wanted["assignments"] = {n: list(each) for n, each in enumerate(assignment)}
            self._create(topic, wanted)
        count = partitions if assignment is None else len(assignment)

        def whole(seen: list[PartitionSeen]) -> bool:
            return len(seen) == count and all(
                each.leader >= 0 and set(each.isr) == set(each.replicas) for each in seen
            )

        self.until(topic, whole)

    def _create(self, topic: str, wanted: Mapping[str, Any]) -> None:
        from kafka import errors as kafka_errors  # type: ignore[import-untyped] # noqa: PLC0415

        tries = 0

        def create(admin: Any) -> None:
            nonlocal tries
            tries += 1
            try:
                admin.create_topics({topic: wanted})
            except kafka_errors.TopicAlreadyExistsError:
                # The answer to the first try was lost, the topic was not.
                if tries == 1:
                    raise

        self.ask("make topic", topic, create)

    def delete_topic(self, topic: str) -> None:
        from kafka import errors as kafka_errors  # noqa: PLC0415 - slow

        tries = 0

        def delete(admin: Any) -> None:
            nonlocal tries
            tries += 1
            try:
                admin.delete_topics([topic])
            except kafka_errors.UnknownTopicOrPartitionError:
                if tries == 1:
                    raise

        self.ask("delete topic", topic, delete)

    def describe(self, *topics: str) -> list[PartitionSeen]:
        """All topics, where none is named."""
        return self.ask("describe", ", ".join(topics) or "all topics", _described(topics))

    def ask(
        self,
        what: str,
        place: str,
        question: Callable[[Any], Found],
        within_s: float = WITHIN_S,
    ) -> Found:
        """The answer to a question to an admin client, asked again while connections fail."""

        def once() -> Found:
            with self._admin() as admin, _named(what, place):
                return question(admin)

        return _again(once, within_s)

    def controller(self) -> int:
        """As the brokers tell it, once they know; with KRaft they name any of them."""
        until = time.monotonic() + WITHIN_S
        while True:
            found = self.ask("ask for", "the controller", _controller)
            if found >= 0:
                return found
            if time.monotonic() > until:
                raise LabError(f"no controller within {WITHIN_S:.0f} s")
            time.sleep(_LOOK_EVERY_S)

    def until(
        self,
        topic: str,
        done: Callable[[list[PartitionSeen]], bool],
        within_s: float = WITHIN_S,
    ) -> list[PartitionSeen]:
        """Looks again and again until the topic is there and as wanted."""
        until = time.monotonic() + within_s
        seen: list[PartitionSeen] | LabError = []
        while True:
            try:
                with self._admin() as admin, _named("describe", topic):
                    seen = _described([topic])(admin)
            except LabError as error:
                seen = error
            # Of a topic that nobody shows, `all` would be true of anything.
            if isinstance(seen, list) and seen and done(seen):
                return seen
            if time.monotonic() > until:
                raise LabError(f"{topic} is not as expected within {within_s:.0f} s: {seen}")
            time.sleep(_LOOK_EVERY_S)

    def produce(
        self,
        topic: str,
        values: Sequence[bytes],
        *,
        partition: int = 0,
        acks: int | str = "all",
        within_s: float = WITHIN_S,
        **more: Any,
    ) -> list[int]:
        """The offsets, once every record is acknowledged as `acks` asks (-1 where acks is 0)."""
        place = (topic, partition)
        return self.produce_many({place: values}, acks=acks, within_s=within_s, **more)[place]

    def produce_many(
        self,
        batches: Mapping[tuple[str, int], Sequence[bytes]],
        *,
        acks: int | str = "all",
        at: str | None = None,
        within_s: float = WITHIN_S,
        **more: Any,
    ) -> dict[tuple[str, int], list[int]]:
        """Records for several partitions at once; `at` names the broker that is asked first."""
        from kafka import KafkaProducer  # noqa: PLC0415 - slow
        from kafka import errors as kafka_errors  # noqa: PLC0415

        where = ", ".join(f"{topic}-{n}" for topic, n in batches)

        def connected() -> Any:
            with _named("write to", where):
                return KafkaProducer(
                    bootstrap_servers=at or self._lab.answering,
                    acks=acks,
                    enable_idempotence=False,
                    max_block_ms=int(within_s * 1_000),
                    **more,
                )

        # Only this is tried again by us: what was sent may be there, and the producer itself sends
        # it again until it is acknowledged.
        producer = _again(connected, within_s)
        with _named("write to", where):
            try:
                sent = {
                    (topic, number): [producer.send(topic, v, partition=number) for v in values]
                    for (topic, number), values in batches.items()
                }
                producer.flush(within_s)
                told = {
                    place: [each.get(within_s).offset for each in futures]
                    for place, futures in sent.items()
                }
                # Nobody tells them with acks=0: the library counts from 0 then.
                return told if acks != 0 else {p: [-1] * len(told[p]) for p in told}
            finally:
                # What is still on its way must not hide why it was not acknowledged.
                with contextlib.suppress(kafka_errors.KafkaError):
                    producer.close(timeout=1)

    def read(self, topic: str, partition: int = 0, within_s: float = WITHIN_S) -> list[bytes]:
        """Every record up to the end a consumer is told."""
        return _again(lambda: self._read(topic, partition, within_s), within_s)

    def _read(self, topic: str, partition: int, within_s: float) -> list[bytes]:
        from kafka import KafkaConsumer, TopicPartition  # noqa: PLC0415 - slow
        from kafka import errors as kafka_errors  # noqa: PLC0415

        place, until = TopicPartition(topic, partition), time.monotonic() + within_s
        with _named("read", f"{topic}-{partition}"):
            consumer = KafkaConsumer(
                bootstrap_servers=self._lab.answering, consumer_timeout_ms=int(within_s * 1_000)
            )
            try:
                consumer.assign([place])
                consumer.seek_to_beginning(place)
                end = consumer.end_offsets([place])[place]
                found: list[bytes] = []
                while consumer.position(place) < end:
                    if time.monotonic() > until:
                        raise kafka_errors.KafkaTimeoutError(f"{len(found)} records of {end}")
                    for records in consumer.poll(timeout_ms=500).values():
                        found += [each.value for each in records]
                return found
            finally:
                consumer.close()

    def close(self) -> None:
        """Nothing is held between calls."""

    @contextlib.contextmanager
    def _admin(self) -> Iterator[Any]:
        from kafka import KafkaAdminClient  # noqa: PLC0415 - slow

        with _named("reach", self._lab.answering):
            admin = KafkaAdminClient(
                bootstrap_servers=self._lab.answering, request_timeout_ms=10_000
            )
        try:
            yield admin
        finally:
            admin.close()

    def _create_by_tool(
        self, topic: str, assignment: Sequence[Sequence[int]], configs: Mapping[str, str]
    ) -> None:
        """Old brokers take an assignment only without numbers, which the client always sends."""
        brokers = ",".join(":".join(map(str, each)) for each in assignment)
        more = [word for pair in configs.items() for word in ("--config", "=".join(pair))]
        self._lab.topics_tool("--create", "--topic", topic, "--replica-assignment", brokers, *more)


def _described(topics: Sequence[str]) -> Callable[[Any], list[PartitionSeen]]:
    def question(admin: Any) -> list[PartitionSeen]:
        return sorted(
            PartitionSeen(
                each["name"],
                partition["partition_index"],
                partition["leader_id"],
                partition.get("leader_epoch", -1),
                tuple(partition["replica_nodes"]),
                tuple(partition["isr_nodes"]),
            )
            for each in admin.describe_topics(list(topics) or None)
            for partition in each["partitions"]
        )

    return question


def _controller(admin: Any) -> int:
    try:
        told = admin.describe_cluster()
    except KeyError:
        # kafka-python expects an endpoint type in the answer, which brokers before 3.7 do not give.
        told = admin._manager.run(admin._get_cluster_metadata, [])  # noqa: SLF001
    return int(told["controller_id"])


def _again(call: Callable[[], Found], within_s: float) -> Found:
    """The call's value; made again after faults of connections, until its time is over."""
    until = time.monotonic() + within_s
    while True:
        try:
            return call()
        except LabError as error:
            if not _passes(error.__cause__) or time.monotonic() > until:
                raise
        time.sleep(_LOOK_EVERY_S)


def _passes(error: BaseException | None) -> bool:
    """Whether it is a fault of a connection, or of metadata that are behind: soon it is over."""
    from kafka import errors as kafka_errors  # noqa: PLC0415 - slow

    if isinstance(error, kafka_errors.UnknownBrokerIdError):
        return True  # the controller is a broker that the library has not heard of yet
    if isinstance(error, kafka_errors.KafkaError):
        # That a topic is not there is an answer.
        return error.retriable and not isinstance(error, kafka_errors.UnknownTopicOrPartitionError)
    # The library's word for a controller that moved twice while it asked is a RuntimeError.
    return isinstance(error, OSError | RuntimeError)


@contextlib.contextmanager
def _named(what: str, place: str) -> Iterator[None]:
    """Errors of the client library say what was tried."""
    from kafka import errors as kafka_errors  # noqa: PLC0415 - slow

    try:
        yield
    except (kafka_errors.KafkaError, OSError, RuntimeError) as error:
        raise LabError(f"could not {what} {place}: {_in_words(error)}") from error


def _in_words(error: Exception) -> str:
    """What a broker says of its refusal; the library's text is a picture of question and answer."""
    name, text = type(error).__name__, str(error)
    told = _BROKER_SAYS.search(text)
    said = told["text"] if told else text.partition(": Request '")[0]
    return said if said.startswith(name) else f"{name}: {said}"
