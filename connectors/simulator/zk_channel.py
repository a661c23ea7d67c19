"""The controller's queue of requests to one broker: in order, one at a time, repeated until heard
(kafka.controller.ControllerChannelManager)."""

from __future__ import annotations

from collections import deque
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from tidestaff.connectors.simulator.broker import Broker
    from tidestaff.connectors.simulator.replica import LeadershipOrder, StopOrder

_RETRY_MS = 100


class Channel:
    """Requests carry the controller's epoch and the broker epoch they were meant for."""

    def __init__(self, source: Broker, target: Broker, controller_epoch: int) -> None:
        self.source, self.target, self.controller_epoch = source, target, controller_epoch
        self.source_incarnation = source.incarnation
        self.broker_epoch = -1
        self.closed = False
        self._queue: deque[list[LeadershipOrder | StopOrder]] = deque()
        self._sequence = 0
        self._busy = False

    def put(self, orders: list[LeadershipOrder | StopOrder]) -> None:
        self._queue.append(orders)
        if not self._busy:
            self._pump()

    def _pump(self) -> None:
        alive = self.source.up and self.source.incarnation == self.source_incarnation
        if self.closed or not self._queue or not alive:
            self._busy = False
            return
        self._busy = True
        self._sequence += 1
        sequence = self._sequence
        self.source.loop.after(
            _RETRY_MS + 2 * self.source.settings.delay_ms[1], lambda: self._again(sequence)
        )
        if self.source.paused:
            return
        target, incarnation = self.target, self.target.incarnation
        orders = self._queue[0]
        self.source.network.send(
            self.source.place,
            target.place,
            lambda: target.receive(lambda: self._arrive(sequence, orders), incarnation),
        )

    def _again(self, sequence: int) -> None:
        if self._busy and sequence == self._sequence:
            self._pump()

    def _arrive(self, sequence: int, orders: list[LeadershipOrder | StopOrder]) -> None:
        target = self.target
        stale_broker_epoch = (
            target.preset.bounce_noticed and self.broker_epoch != target.broker_epoch
        )
        if self.controller_epoch >= target.controller_epoch and not stale_broker_epoch:
            target.controller_epoch = self.controller_epoch
            target.obey(orders)
        source = self.source
        target.network.send(
            target.place,
            source.place,
            lambda: source.receive(lambda: self._heard(sequence), self.source_incarnation),
        )

    def _heard(self, sequence: int) -> None:
        if self._busy and sequence == self._sequence:
            self._queue.popleft()
            self._pump()
