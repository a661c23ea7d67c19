"""Copies behind the brokers of a live cluster: bounds from a collector's round, contents by Fetch
from every replica, or by the agents beside them."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Any, Final

from tidestaff.connectors.digest_wire import WireRanges
from tidestaff.connectors.errors import ConnectorError
from tidestaff.connectors.fetch_sockets import SocketRecords
from tidestaff.connectors.pacing import ByteRate
from tidestaff.consistency.batches import Extent
from tidestaff.consistency.model import HealthObservation, PartitionObservation, TopicPartition
from tidestaff.streaming.commands.exits import CommandError
from tidestaff.streaming.verify.agents import (
    CHECKED_AT_ONCE,
    CHECKED_BYTES,
    AgentDigests,
)
from tidestaff.streaming.verify.copies import (
    BYTES_AT_ONCE,
    NO_ANSWER,
    PartitionCopies,
    Traffic,
    bytes_a_round,
    cleaned_up_to,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Mapping, Sequence

    from tidestaff.connectors.agent_client import AgentClient, AgentUrls
    from tidestaff.connectors.disk_replica import DiskReplica
    from tidestaff.consistency.batches import BatchMark, RangeDigest
    from tidestaff.consistency.model import BrokerId, Observation, ReplicaReading
    from tidestaff.streaming.verify.copies import Asked

    Files = dict[tuple[BrokerId, TopicPartition], DiskReplica]

_WIRE_BYTES: Final = 1 << 26
_PATIENCE: Final = 4
"""Rounds that make no lineage more known, until the rest is taken as not to be known."""
_HEADER_FETCHES: Final = 100
"""Of a round and broker: who asks once need not be as sparing as who watches for weeks."""
_BETWEEN_ROUNDS_S: Final = 0.3


class BrokerSource:
    """One round gives the bounds; where a log start is that of the remote part of a tiered log,
    the local part counts."""

    live = True

    def __init__(
        self,
        collector: Any,
        reader: Any,
        *,
        bytes_a_second: float,
        agents: tuple[AgentClient, AgentUrls] | None,
        lineages: bool,
        check: bool = False,
    ) -> None:
        self._collector, self._reader, self._lineages = collector, reader, lineages
        self._rate = ByteRate(bytes_a_second, time.monotonic, time.sleep)
        self._records = SocketRecords(reader, reader)
        self._wire = WireRanges(self._records, self._rate.wait)
        self._agents = agents
        self._by_agents: AgentDigests | None = None
        self._sizes: dict[TopicPartition, int] = {}
        self._away: dict[BrokerId, str] = {}
        self.kind = "brokers" if agents is None else "brokers and agents"
        self.at_once = 64 if agents is None else 2_000
        self.bytes_at_once = _WIRE_BYTES if agents is None else BYTES_AT_ONCE
        if agents is not None and check:
            self.at_once, self.bytes_at_once = CHECKED_AT_ONCE, CHECKED_BYTES
        self.bytes_a_round = bytes_a_round(bytes_a_second if agents is None else 0)
        self.marks_at_once = 4_096 if agents is None else 64

    def partitions(self, wanted: Callable[[str], bool]) -> list[PartitionCopies]:
        seen = self._round()
        if self._lineages and self._agents is None:
            seen = self._until_lineages_are_known(seen, wanted)
        if self._agents is not None:
            client, urls = self._agents
            hosts = self._reader.hosts() if urls.pattern is not None else {}
            brokers = {b for o in seen for b in o.assignment.replicas}
            found = {b: urls.of(b, hosts.get(b)) for b in brokers}
            self._by_agents = AgentDigests(client, {b: u for b, u in found.items() if u})
        self._measure({b for o in seen for b in o.assignment.replicas})
        mine = [o for o in seen if wanted(o.topic) and not o.deleting]
        files = self._files(mine)
        return [self._copies(o, files) for o in mine]

    def _until_lineages_are_known(
        self, seen: list[PartitionObservation], wanted: Callable[[str], bool]
    ) -> list[PartitionObservation]:
        """A round reads some batches only: rounds follow as long as they make more of them known.
        Those of topics nobody asked for count as progress, too: they are read along."""
        fewest, patience = len(_without_lineage(seen)), _PATIENCE
        while patience and any(wanted(topic) for topic in _without_lineage(seen)):
            time.sleep(_BETWEEN_ROUNDS_S)
            seen = self._round()
            left = len(_without_lineage(seen))
            patience = _PATIENCE if left < fewest else patience - 1
            fewest = min(fewest, left)
        return seen

    def again(
        self, partitions: Collection[TopicPartition]
    ) -> Mapping[TopicPartition, PartitionCopies]:
        wanted, found = set(partitions), self._round()
        if self._lineages and self._agents is None:
            topics = {partition.topic for partition in wanted}
            found = self._until_lineages_are_known(found, topics.__contains__)
        seen = [each for each in found if (each.topic, each.partition) in wanted]
        files = self._files(seen, every=True)
        copies = (self._copies(each, files) for each in seen)
        return {each.partition: each for each in copies}

    def _round(self) -> list[PartitionObservation]:
        seen: list[Observation] = self._collector.round()
        found = {
            (each.topic, each.partition): each
            for each in seen
            if isinstance(each, PartitionObservation)
        }
        troubles = [each for each in seen if isinstance(each, HealthObservation)]
        if not found and troubles:
            raise CommandError(troubles[0].reason, troubles[0].remedy)
        self._away = {
            each.broker: each.reason
            for each in troubles
            if each.broker is not None and each.place == f"broker {each.broker}"
        }
        self._wire.topic_ids = {each.topic: each.topic_id for each in found.values()}
        return sorted(found.values(), key=lambda each: (each.topic, each.partition))

    def _measure(self, brokers: set[BrokerId]) -> None:
        """Sizes are for the progress bar and the size of questions: who does not tell, does not."""
        for broker in sorted(brokers - self._away.keys()):
            try:
                for directory in self._reader.log_dirs(broker):
                    for replica in directory.replicas:
                        known = self._sizes.get(replica.partition, 0)
                        self._sizes[replica.partition] = known + replica.size
            except ConnectorError:
                continue

    def _files(self, seen: Sequence[PartitionObservation], *, every: bool = False) -> Files:
        """What agents read in their files and nobody else knows or tells at once: how far cleaners
        came, and in quick mode lineages. `every`: of topics that are not compacted, too; one may
        have been compacted before."""
        found: Files = {}
        asked = [o for o in seen if every or self._lineages or o.settings.compacted]
        if self._by_agents is None or self._agents is None or not asked:
            return found
        names = [TopicPartition(each.topic, each.partition) for each in asked]
        for broker, url in self._by_agents.urls.items():
            try:
                answer = self._agents[0].ask(broker, url, names)
            except ConnectorError:
                continue
            for partition, replica in answer.replicas.items():
                found[broker, partition] = replica
        return found

    def _copies(self, seen: PartitionObservation, files: Files) -> PartitionCopies:
        partition = TopicPartition(seen.topic, seen.partition)
        leader = seen.state.leader if seen.state.leader >= 0 else None
        copies = PartitionCopies(partition, [], leader, seen.state.leader_epoch)
        copies.bytes = self._sizes.get(partition, 0)
        readings = {each.broker: each for each in seen.replicas}
        for broker in seen.assignment.replicas:
            extent = self._extent(
                seen, broker, readings.get(broker), files.get((broker, partition))
            )
            if isinstance(extent, str):
                copies.unread[broker] = extent
            else:
                copies.extents.append(extent)
        return copies

    def _extent(
        self,
        seen: PartitionObservation,
        broker: BrokerId,
        reading: ReplicaReading | None,
        file: DiskReplica | None,
    ) -> Extent | str:
        if reading is None:
            return self._away.get(broker, "the broker told nothing of this replica")
        if not reading.log_dir_online:
            return "its log directory is offline"
        start, watermark, end = (
            reading.log_start_offset,
            reading.high_watermark,
            reading.log_end_offset,
        )
        if start is None or watermark is None or end is None:
            return "the broker did not tell its log start, high watermark and log end together"
        if seen.settings.remote_storage:
            if reading.local_log_start_offset is None:
                return "tiered storage: the broker does not tell where its local log starts"
            start = max(start, reading.local_log_start_offset)
        lineage, up_to = reading.lineage, None if seen.settings.compacted else 0
        if file is not None:
            lineage = file.lineage if lineage is None else lineage
            up_to = cleaned_up_to(file, 0)
        return Extent(
            broker,
            start,
            max(watermark, start),
            max(end, start),
            lineage,
            up_to,
            in_sync=broker in seen.state.isr,
            topic_id=reading.topic_id,
        )

    def digests(
        self, broker: BrokerId, asked: Asked, *, check: bool
    ) -> Mapping[TopicPartition, RangeDigest]:
        if self._by_agents is not None and broker in self._by_agents.urls:
            return self._by_agents.digests(broker, asked, check=check)
        return self._wire.digests(broker, asked, check=check)

    def marks(self, broker: BrokerId, asked: Asked) -> Mapping[TopicPartition, Sequence[BatchMark]]:
        if self._by_agents is not None and broker in self._by_agents.urls:
            return self._by_agents.marks(broker, asked)
        return self._wire.marks(broker, asked)

    @property
    def traffic(self) -> Traffic:
        by_agents = Traffic(0, 0) if self._by_agents is None else self._by_agents.traffic
        return Traffic(
            self._wire.bytes_moved + by_agents.bytes, self._wire.requests + by_agents.requests
        )

    def why_silent(self, broker: BrokerId, partition: TopicPartition) -> str:
        return self._wire.refused.get(broker, {}).get(partition, NO_ANSWER)

    @property
    def bytes_read(self) -> int:
        return self._rate.passed

    def close(self) -> None:
        self._collector.close()
        self._records.close()
        self._reader.close()


def _without_lineage(seen: Sequence[PartitionObservation]) -> list[str]:
    """The topic of each replica whose lineage is not known; an empty log has none."""
    return [
        each.topic
        for each in seen
        for replica in each.replicas
        if replica.lineage is None and replica.log_start_offset != replica.log_end_offset
    ]


def broker_source(
    bootstrap_server: str,
    *,
    command_config: str | None = None,
    bytes_a_second: float = 0.0,
    agents: tuple[AgentClient, AgentUrls] | None = None,
    quick: bool = False,
    check: bool = False,
    more: Mapping[str, object] | None = None,
) -> BrokerSource:
    """`quick` wants lineages of followers: from agents, or by bisection over some rounds. `check`
    wants payloads read."""
    from tidestaff.connectors.broker_options import options_of  # noqa: PLC0415 - slow
    from tidestaff.connectors.brokers import BrokerConnector  # noqa: PLC0415
    from tidestaff.connectors.kafka_python_reader import KafkaPythonReader  # noqa: PLC0415

    given: dict[str, object] = {
        "bootstrap_servers": bootstrap_server,
        "jitter_ms": 0,
        "missed_rounds": 1,
        "burst_rounds": 0,
        "header_fetches": _HEADER_FETCHES if quick and agents is None else 0,
        **({"command_config": command_config} if command_config else {}),
        **(more or {}),
    }
    try:
        options = options_of(given, {})
        readers = [
            KafkaPythonReader(
                options.bootstrap_servers, options.properties, timeout_ms=options.timeout_ms
            )
            for _ in range(2)
        ]
    except ConnectorError as error:
        raise CommandError(error.reason, error.remedy) from None
    collector = BrokerConnector(
        readers[0], "verify", options, now_ms=lambda: int(time.time() * 1_000)
    )
    return BrokerSource(
        collector,
        readers[1],
        bytes_a_second=bytes_a_second,
        agents=agents,
        lineages=quick,
        check=check,
    )
