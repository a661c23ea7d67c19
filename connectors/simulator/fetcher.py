"""A fetcher thread: one request at a time to one leader, for all partitions it leads
(kafka.server.AbstractFetcherThread)."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from tidestaff.connectors.simulator import following
from tidestaff.connectors.simulator.standing import Asked, OldNews

if TYPE_CHECKING:
    from tidestaff.connectors.simulator.broker import Broker
    from tidestaff.connectors.simulator.leading import Answer, Ask
    from tidestaff.connectors.simulator.replica import Replica
    from tidestaff.consistency.model import BrokerId, TopicPartition


class FetchRequest(NamedTuple):
    """What goes to the leader; `correlation` lets a late answer be told from the awaited one."""

    follower: BrokerId
    broker_epoch: int | None
    correlation: int
    asks: tuple[Ask, ...]


class Fetcher:
    """Belongs to one process: a restarted broker has new fetchers."""

    def __init__(self, broker: Broker, leader: BrokerId) -> None:
        self.broker, self.leader = broker, leader
        self.incarnation = broker.incarnation
        self.partitions: dict[TopicPartition, Replica] = {}
        self.correlation = 0
        self.in_flight = False
        self._asked: Asked | None = None
        self._old_news: OldNews | None = None
        self._armed = False

    def add(self, replica: Replica) -> None:
        self.partitions[replica.partition] = replica
        self.start_anew()
        self.wake(1)

    def remove(self, partition: TopicPartition) -> None:
        if self.partitions.pop(partition, None) is not None:
            self.start_anew()

    def wake(self, delay_ms: int) -> None:
        """Send the next request soon, unless one is under way already."""
        if not self._armed and not self.in_flight and self.partitions:
            self._armed = True
            self.broker.loop.after(delay_ms, self._send)

    @property
    def _alive(self) -> bool:
        return self.broker.up and self.broker.incarnation == self.incarnation

    def _send(self) -> None:
        self._armed = False
        if not self._alive or self.broker.paused or self.in_flight:
            return
        asks = self._asks()
        if not asks:
            if any(r.not_before_ms > self.broker.now_ms for r in self.partitions.values()):
                self.wake(self.broker.settings.replica_fetch_backoff_ms)
            return
        self.correlation += 1
        self.in_flight = True
        correlation = self.correlation
        request = FetchRequest(self.broker.id, self.broker.broker_epoch, correlation, asks)
        leader = self.broker.cluster.brokers[self.leader]
        addressee = leader.incarnation
        self.broker.network.send(
            self.broker.place,
            leader.place,
            lambda: leader.receive(lambda: leader.handle_fetch(request, self._reply), addressee),
        )
        patience = self.broker.settings.request_timeout_ms
        self.broker.loop.after(patience, lambda: self._give_up(correlation))

    def _asks(self) -> tuple[Ask, ...]:
        broker, now_ms, limit = self.broker, self.broker.now_ms, self.broker.fetch_limit
        changes, asked, held = broker.cluster.changes, self._asked, broker.held
        if asked is not None and (asked.changes, asked.limit) == (changes, limit) and not held:
            return asked.asks
        ask, found = following.ask, []
        for partition, replica in self.partitions.items():
            if held and broker.holds(partition):
                continue
            question = ask(replica, now_ms, limit)
            if question is not None:
                found.append(question)
        asks = tuple(found)
        if asked is not None and asked.asks == asks:
            asks = asked.asks
        self._asked = None
        if changes is not None and len(asks) == len(self.partitions):
            self._asked = Asked(changes, limit, asks)
        return asks

    def _give_up(self, correlation: int) -> None:
        if self.in_flight and self.correlation == correlation and self._alive:
            self.in_flight = False
            self.wake(self.broker.settings.replica_fetch_backoff_ms)

    def _reply(self, request: FetchRequest, answers: tuple[Answer, ...]) -> None:
        leader = self.broker.cluster.brokers[self.leader]
        self.broker.network.send(
            leader.place,
            self.broker.place,
            lambda: self.broker.receive(
                lambda: self._take(request.correlation, answers), self.incarnation
            ),
        )

    def _take(self, correlation: int, answers: tuple[Answer, ...]) -> None:
        if not self._alive or correlation != self.correlation or not self.in_flight:
            return
        self.in_flight = False
        old, changes = self._old_news, self.broker.cluster.changes
        if old is None or old.answers is not answers or old.changes != changes:
            self._take_each(answers)
            if self.broker.fetchers.get(self.leader) is not self:
                # The process has ended over an answer.
                return
        self.wake(1 + self.broker.fetch_pause_ms)

    def _take_each(self, answers: tuple[Answer, ...]) -> None:
        broker, partitions, is_old_news = self.broker, self.partitions, following.is_old_news
        all_old = True
        for answer in answers:
            replica = partitions.get(answer.ask.partition)
            if replica is None or is_old_news(replica, answer):
                continue
            all_old = False
            if not (broker.held and broker.holds(replica.partition)):
                following.take(broker, replica, answer)
                if broker.fetchers.get(self.leader) is not self:
                    return
        changes = broker.cluster.changes
        if all_old and changes is not None:
            self._old_news = OldNews(changes, answers)
        elif not all_old:
            self.start_anew()

    def start_anew(self) -> None:
        """An answer may have changed what to ask next although nothing is to be seen of it."""
        self._asked = self._old_news = None
