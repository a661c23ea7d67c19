"""AlterPartition as a leader sends it (2.7+): one change at a time, again until there is an
answer."""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

from tidestaff.connectors.simulator import leading
from tidestaff.consistency.model import PartitionState

if TYPE_CHECKING:
    from collections.abc import Callable

    from tidestaff.connectors.simulator.broker import Broker
    from tidestaff.connectors.simulator.replica import Replica
    from tidestaff.consistency.model import BrokerId, TopicPartition

_RETRY_MS = 50


class Controller(Protocol):
    """Whoever handles the request."""

    def alter_partition(
        self, sender: Broker, sender_epoch: int, replica: Replica, asked: PartitionState
    ) -> str: ...
    def version(self, partition: TopicPartition) -> int: ...


class Way(Protocol):
    """The way to the controller of the moment, and back; False if there is none."""

    def call_controller(
        self,
        broker: Broker,
        request: Callable[[Controller], tuple[str, int]],
        answered: Callable[[tuple[str, int]], None],
    ) -> bool: ...


def propose_isr(way: Way, broker: Broker, replica: Replica, isr: tuple[BrokerId, ...]) -> None:
    """Until it is answered the leader counts both the old and the proposed members."""
    replica.pending_isr = isr
    replica.pending_id += 1
    _send(way, broker, replica, replica.pending_id)


def _send(way: Way, broker: Broker, replica: Replica, number: int) -> None:
    if not broker.up or replica.pending_isr is None or replica.pending_id != number:
        return
    asked = PartitionState(
        broker.id, replica.leader_epoch, replica.pending_isr, replica.partition_epoch
    )
    sender_epoch = broker.broker_epoch

    def handle(controller: Controller) -> tuple[str, int]:
        error = controller.alter_partition(broker, sender_epoch, replica, asked)
        return error, controller.version(replica.partition)

    sent = not broker.paused and way.call_controller(
        broker, handle, lambda result: _heard(way, broker, replica, number, result)
    )
    patience = broker.settings.request_timeout_ms if sent else _RETRY_MS
    broker.loop.after(patience, lambda: _send(way, broker, replica, number))


def _heard(
    way: Way, broker: Broker, replica: Replica, number: int, result: tuple[str, int]
) -> None:
    error, version = result
    if replica.pending_isr is None or replica.pending_id != number:
        return
    if not error:
        replica.isr, replica.pending_isr = replica.pending_isr, None
        replica.partition_epoch = version
        replica.touched.add(replica.partition)
        leading.maybe_raise_high_watermark(broker, replica)
    elif error == "INELIGIBLE_REPLICA":
        replica.pending_isr = None
    else:
        # This attempt is over. Most errors say that newer metadata is on its way: stay pending.
        replica.pending_id += 1
        again = replica.pending_id
        if error in {"NOT_CONTROLLER", "STALE_BROKER_EPOCH"}:
            broker.loop.after(_RETRY_MS, lambda: _send(way, broker, replica, again))
