"""What people and tests do with a lab's cluster: topics, records, and a look at what is there."""

from __future__ import annotations

import contextlib
import logging
import time
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from tidestaff.streaming.lab.errors import LabError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence

    from tidestaff.streaming.lab.cluster import Lab

WITHIN_S: Final = 60.0
_LOOK_EVERY_S: Final = 0.2


class PartitionSeen(NamedTuple):
    """A partition as the brokers' metadata tell it; the epoch is -1 before Kafka 2.4 tells it."""

    topic: str
    partition: int
    leader: int
    leader_epoch: int
    replicas: tuple[int, ...]
    isr: tuple[int, ...]


class Clients:
    """Clients of one lab, by kafka-python; each call connects anew, so it sees what is there."""

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
            with self._admin() as admin, _named("make topic", topic):
                admin.create_topics({topic: wanted})
        count = partitions if assignment is None else len(assignment)

        def whole(seen: list[PartitionSeen]) -> bool:
            return len(seen) == count and all(
                each.leader >= 0 and set(each.isr) == set(each.replicas) for each in seen
            )

        self.until(topic, whole)

    def delete_topic(self, topic: str) -> None:
        with self._admin() as admin, _named("delete topic", topic):
            admin.delete_topics([topic])

    def describe(self, *topics: str) -> list[PartitionSeen]:
        """All topics, where none is named."""
        with self._admin() as admin, _named("describe", ", ".join(topics) or "all topics"):
            found = admin.describe_topics(list(topics) or None)
        return sorted(
            PartitionSeen(
                each["name"],
                partition["partition_index"],
                partition["leader_id"],
                partition.get("leader_epoch", -1),
                tuple(partition["replica_nodes"]),
                tuple(partition["isr_nodes"]),
            )
            for each in found
            for partition in each["partitions"]
        )

    def controller(self) -> int:
        """As the brokers tell it, once they know; with KRaft they name any of them."""
        until = time.monotonic() + WITHIN_S
        while True:
            with self._admin() as admin, _named("ask for", "the controller"):
                found = int(admin.describe_cluster()["controller_id"])
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
        """Looks again and again until the topic is as wanted."""
        until = time.monotonic() + within_s
        while True:
            try:
                seen = self.describe(topic)
            except LabError:
                seen = []
            if done(seen):
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
        from kafka import KafkaProducer  # type: ignore[import-untyped]  # noqa: PLC0415 - slow
        from kafka import errors as kafka_errors  # noqa: PLC0415

        with _named("write to", ", ".join(f"{topic}-{n}" for topic, n in batches)):
            producer = KafkaProducer(
                bootstrap_servers=at or self._lab.answering,
                acks=acks,
                enable_idempotence=False,
                max_block_ms=int(within_s * 1_000),
                **more,
            )
            try:
                sent = {
                    (topic, number): [producer.send(topic, v, partition=number) for v in values]
                    for (topic, number), values in batches.items()
                }
                producer.flush(within_s)
                return {
                    place: [each.get(within_s).offset for each in futures]
                    for place, futures in sent.items()
                }
            finally:
                # What is still on its way must not hide why it was not acknowledged.
                with contextlib.suppress(kafka_errors.KafkaError):
                    producer.close(timeout=1)

    def read(self, topic: str, partition: int = 0, within_s: float = WITHIN_S) -> list[bytes]:
        """Every record up to the end a consumer is told."""
        from kafka import KafkaConsumer, TopicPartition  # noqa: PLC0415 - slow

        place = TopicPartition(topic, partition)
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


@contextlib.contextmanager
def _named(what: str, place: str) -> Iterator[None]:
    """Errors of the client library say what was tried."""
    from kafka import errors as kafka_errors  # noqa: PLC0415 - slow

    try:
        yield
    except (kafka_errors.KafkaError, OSError) as error:
        said = f"{type(error).__name__}: {error}"
        raise LabError(f"could not {what} {place}: {said}") from error
