"""Brokers on loopback that speak two requests of the wire protocol: what they know, and who there
is. Each of them may be exchanged for one of another release."""

from __future__ import annotations

import socket
import struct
import threading
import uuid
from contextlib import suppress
from typing import Any, Final

from kafka.protocol.broker_version_data import (  # type: ignore[import-untyped]
    BROKER_API_VERSIONS,
)
from kafka.protocol.metadata import (  # type: ignore[import-untyped]
    ApiVersionsResponse,
    MetadataResponse,
)

METADATA, API_VERSIONS = 3, 18
OLD: Final = BROKER_API_VERSIONS[2, 7]
"""Without topic ids."""
NEW: Final = BROKER_API_VERSIONS[4, 1]
TOPIC_ID: Final = uuid.UUID(int=7)
_UNSUPPORTED_VERSION: Final = 35


class WireBroker:
    """`knows` are the versions it tells, by request. `denies` so many times that it knows
    Metadata, as one whose answer was damaged on the way does."""

    def __init__(self, number: int) -> None:
        self.number = number
        self.knows: dict[int, tuple[int, int]] = dict(OLD)
        self.denies = 0
        self.null_partitions = False
        self.cluster: tuple[WireBroker, ...] = (self,)
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.port = int(self._listener.getsockname()[1])
        self._open: list[socket.socket] = []
        threading.Thread(target=self._listen, daemon=True).start()

    @property
    def place(self) -> str:
        return f"127.0.0.1:{self.port}"

    def restart(self, knows: dict[int, tuple[int, int]]) -> None:
        """As another release: whoever was connected has to come again."""
        self.knows = dict(knows)
        self._hang_up()

    def close(self) -> None:
        with suppress(OSError):
            self._listener.shutdown(socket.SHUT_RDWR)
        self._listener.close()
        self._hang_up()

    def _hang_up(self) -> None:
        while self._open:
            with suppress(OSError):
                self._open.pop().shutdown(socket.SHUT_RDWR)

    def _listen(self) -> None:
        with suppress(OSError):
            while True:
                connection, _ = self._listener.accept()
                self._open.append(connection)
                threading.Thread(target=self._serve, args=(connection,), daemon=True).start()

    def _serve(self, connection: socket.socket) -> None:
        with connection, suppress(OSError, struct.error), connection.makefile("rb") as asked:
            while True:
                (size,) = struct.unpack(">i", asked.read(4))
                key, version, correlation = struct.unpack_from(">hhi", asked.read(size))
                answer, answer.API_VERSION = self._answer(key, version)
                answer.with_header(correlation_id=correlation)
                connection.sendall(answer.encode(header=True, framed=True))

    def _answer(self, key: int, version: int) -> tuple[Any, int]:
        if key == METADATA:
            return self._metadata(), version
        assert key == API_VERSIONS
        if version > self.knows[API_VERSIONS][1]:
            return ApiVersionsResponse(error_code=_UNSUPPORTED_VERSION, api_keys=[]), 0
        known = dict(self.knows)
        if self.denies:
            self.denies -= 1
            del known[METADATA]
        kind = ApiVersionsResponse.ApiVersion
        told = [kind(api_key=k, min_version=a, max_version=b) for k, (a, b) in known.items()]
        return ApiVersionsResponse(error_code=0, api_keys=told, throttle_time_ms=0), version

    def _metadata(self) -> Any:
        topic = MetadataResponse.MetadataResponseTopic
        broker = MetadataResponse.MetadataResponseBroker
        partition = topic.MetadataResponsePartition(
            error_code=0,
            partition_index=0,
            leader_id=1,
            leader_epoch=3,
            replica_nodes=[1],
            isr_nodes=[1],
            offline_replicas=[],
        )
        return MetadataResponse(
            throttle_time_ms=0,
            brokers=[
                broker(node_id=each.number, host="127.0.0.1", port=each.port, rack=None)
                for each in self.cluster
            ],
            cluster_id="west",
            controller_id=1,
            topics=[
                topic(
                    error_code=0,
                    name="orders",
                    topic_id=TOPIC_ID,
                    is_internal=False,
                    partitions=None if self.null_partitions else [partition],
                )
            ],
        )


class WireCluster:
    """So many brokers, each at a port of its own; they all know each other."""

    def __init__(self, brokers: int) -> None:
        self.brokers = tuple(WireBroker(number) for number in range(1, brokers + 1))
        for each in self.brokers:
            each.cluster = self.brokers

    @property
    def bootstrap(self) -> str:
        return ",".join(each.place for each in self.brokers)

    def __enter__(self) -> WireCluster:
        return self

    def __exit__(self, *_: object) -> None:
        for each in self.brokers:
            each.close()
