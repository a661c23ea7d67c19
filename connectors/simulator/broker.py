"""A broker process: starts, serves, is paused, dies; its replicas' disks outlive it."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tidestaff.connectors.simulator import following, leading
from tidestaff.connectors.simulator.fetcher import Fetcher, FetchRequest
from tidestaff.connectors.simulator.replica import HandOver, LeadershipOrder, Replica, StopOrder
from tidestaff.connectors.simulator.standing import Heard
from tidestaff.consistency.model import UNKNOWN_BROKER_EPOCH

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from tidestaff.connectors.simulator.clock import Event, EventLoop
    from tidestaff.connectors.simulator.cluster import SimulatedCluster
    from tidestaff.connectors.simulator.leading import Answer
    from tidestaff.connectors.simulator.network import Network
    from tidestaff.connectors.simulator.presets import Preset
    from tidestaff.connectors.simulator.settings import Settings
    from tidestaff.consistency.model import BrokerId, TopicPartition

    Reply = Callable[[FetchRequest, tuple[Answer, ...]], None]


class Broker:
    """One broker id. `incarnation` is the number of its latest process, unique in the cluster."""

    def __init__(self, cluster: SimulatedCluster, broker: BrokerId) -> None:
        self.cluster, self.id = cluster, broker
        self.place = str(broker)
        self.preset: Preset = cluster.preset
        self.loop: EventLoop = cluster.loop
        self.network: Network = cluster.network
        self.up = self.paused = self.stopping = False
        self.incarnation = 0
        self.broker_epoch = UNKNOWN_BROKER_EPOCH
        self.clean_shutdown_epoch = UNKNOWN_BROKER_EPOCH
        self.controller_epoch = -1
        self.metadata_offset = -1
        self.replicas: dict[TopicPartition, Replica] = {}
        self.fetchers: dict[BrokerId, Fetcher] = {}
        self.held: set[TopicPartition | None] = set()
        self.fetch_cap: int | None = None
        self.fetch_pause_ms = 0
        # From taking over a leader epoch to removing the partition from the old leader's fetcher.
        self.fetcher_removal_ms = 0
        self.mailbox: dict[TopicPartition, Answer] = {}
        self._inbox: list[Event] = []
        self._parked: dict[BrokerId, tuple[FetchRequest, Reply]] = {}
        self._heard: dict[BrokerId, Heard] = {}

    @property
    def now_ms(self) -> int:
        return self.loop.now_ms

    @property
    def settings(self) -> Settings:
        return self.cluster.settings

    @property
    def fetch_limit(self) -> int:
        return self.settings.fetch_max_records if self.fetch_cap is None else self.fetch_cap

    @property
    def answers(self) -> bool:
        """A process is there and scheduled."""
        return self.up and not self.paused

    def holds(self, partition: TopicPartition) -> bool:
        """A story keeps this follower from fetching."""
        return partition in self.held or None in self.held

    def min_isr(self, topic: str) -> int:
        return self.cluster.min_isr(topic)

    def unclean_allowed(self, topic: str) -> bool:
        return self.cluster.unclean_allowed(topic)

    def sees_active(self, replica: Replica, follower: BrokerId) -> bool:
        """Whether a follower may be (or become) a member of the ISR, as this broker knows it."""
        epoch = replica.followers[follower].broker_epoch
        return self.cluster.mode.is_active(follower, epoch)

    def propose_isr(self, replica: Replica, isr: tuple[BrokerId, ...]) -> None:
        self.cluster.mode.propose_isr(self, replica, isr)

    # -- life and death

    def boot(self) -> None:
        """A process starts: it reads its log directories and knows no role yet."""
        assert not self.up
        self.incarnation = self.cluster.next_incarnation()
        self.up, self.paused, self.stopping = True, False, False
        self.broker_epoch = UNKNOWN_BROKER_EPOCH
        self.controller_epoch = self.metadata_offset = -1
        self._forget()
        for replica in self.replicas.values():
            replica.recover()
        settings = self.settings
        self.every(lambda: settings.high_watermark_checkpoint_interval_ms, self.checkpoint)
        self.every(lambda: settings.page_cache_flush_ms, self._flush)
        self.every(lambda: max(1, self.settings.lag_ms // 2), self._shrink)

    def die(self) -> None:
        """The process is gone, whatever the reason."""
        self.up = self.paused = self.stopping = False
        self._forget()
        self.cluster.touch_all(self.replicas)

    def exit(self, reason: str) -> None:
        """The process ends by its own decision."""
        self.cluster.note("exit", broker=self.id, reason=reason)
        self.die()

    def _forget(self) -> None:
        self.mailbox = {}
        self.fetchers = {}
        self._inbox = []
        self._parked = {}
        self._heard = {}

    def resume(self) -> None:
        """SIGCONT: what arrived meanwhile is handled now, in order, before anything newer."""
        self.paused = False
        # What it leads is led again: whatever others committed meanwhile may be lost by that.
        self.cluster.touched.update(self.replicas)
        self.loop.after(0, self._handle_next)
        for fetcher in [self.fetchers[leader] for leader in sorted(self.fetchers)]:
            fetcher.wake(1)

    def _handle_next(self) -> None:
        if self.answers and self._inbox:
            event = self._inbox.pop(0)
            event()
            self.loop.after(0, self._handle_next)

    def every(self, period: Callable[[], int], action: Event) -> None:
        """Repeat while this process lives."""
        incarnation = self.incarnation

        def tick() -> None:
            if self.up and self.incarnation == incarnation:
                if not self.paused:
                    action()
                self.loop.after(period(), tick)

        self.loop.after(period(), tick)

    def receive(self, event: Event, incarnation: int) -> None:
        """A message for one process: a paused one handles it later, another one never."""
        if not self.up or self.incarnation != incarnation:
            return
        if self.paused or self._inbox:
            self._inbox.append(event)
        else:
            event()

    def checkpoint(self) -> None:
        for replica in self.replicas.values():
            replica.checkpoint()

    def _flush(self) -> None:
        for replica in self.replicas.values():
            replica.flush()

    def _shrink(self) -> None:
        for partition in sorted(self.replicas):
            leading.shrink_isr(self, self.replicas[partition])

    # -- as leader

    def append(self, partition: TopicPartition, records: int) -> None:
        replica = self.replicas[partition]
        assert replica.leads
        replica.append_own(self.incarnation, records)
        leading.maybe_raise_high_watermark(self, replica)
        self.serve_waiting(partition)

    def handle_fetch(self, request: FetchRequest, reply: Reply) -> None:
        """Answer news at once; a request without news waits for replica.fetch.wait.max.ms."""
        heard = self._heard.get(request.follower)
        if heard is not None and heard.is_again(request, self.cluster.changes):
            heard.renew(self.now_ms)
        else:
            answers, news = self._hear(request)
            if news:
                reply(request, answers)
                return
        self._parked[request.follower] = (request, reply)
        incarnation = self.incarnation

        def expire() -> None:
            parked = self._parked.get(request.follower)
            if parked is not None and parked[0] is request and self.incarnation == incarnation:
                self.receive(lambda: self._serve(request.follower), incarnation)

        self.loop.after(self.settings.replica_fetch_wait_max_ms, expire)

    def _hear(self, request: FetchRequest) -> tuple[tuple[Answer, ...], bool]:
        answers, at_rest, news = leading.hear(self, request)
        changes = self.cluster.changes
        self._heard.pop(request.follower, None)
        if changes is not None and len(at_rest) == len(answers):
            self._heard[request.follower] = Heard(changes, request, answers, at_rest)
        return answers, news

    def _serve(self, follower: BrokerId) -> None:
        parked = self._parked.pop(follower, None)
        if parked is None:
            return
        request, reply = parked
        heard = self._heard.get(follower)
        if heard is not None and heard.is_again(request, self.cluster.changes):
            reply(request, heard.answers)
        else:
            reply(request, tuple([leading.answer(self, follower, ask) for ask in request.asks]))

    def serve_waiting(self, partition: TopicPartition) -> None:
        """Records came, or the role changed: requests that wait for this partition are answered."""
        for follower in sorted(self._parked):
            if any(ask.partition == partition for ask in self._parked[follower][0].asks):
                self._serve(follower)

    # -- orders of the controller

    def obey(self, orders: Sequence[LeadershipOrder | StopOrder]) -> None:
        for order in orders:
            if isinstance(order, StopOrder):
                self._stop(order)
            else:
                self._take_role(order)

    def _stop(self, order: StopOrder) -> None:
        replica = self.replicas.get(order.partition)
        if replica is None or replica.topic_id != order.topic_id:
            return
        self._stop_fetching(order.partition)
        if order.delete:
            self.drop(order.partition)

    def drop(self, partition: TopicPartition) -> None:
        """Delete the partition's directory."""
        self._stop_fetching(partition)
        self.replicas.pop(partition, None)
        self.serve_waiting(partition)
        self.cluster.touched.add(partition)

    def _take_role(self, order: LeadershipOrder) -> None:
        partition, state = order.partition, order.state
        replica = self.replicas.get(partition)
        if replica is not None and replica.topic_id != order.topic_id:
            self.drop(partition)
            replica = None
        if self.id not in order.assignment.replicas:
            if replica is not None:
                self.drop(partition)
            return
        if replica is None:
            replica = Replica(partition, self.id, order.topic_id, self.preset, self.cluster.touched)
            self.replicas[partition] = replica
        if not self.cluster.mode.accepts(replica, order):
            return
        if state.leader == self.id:
            self._stop_fetching(partition)
            leading.become_leader(self, replica, order)
        else:
            self._follow(replica, order)
        self.serve_waiting(partition)

    def _follow(self, replica: Replica, order: LeadershipOrder) -> None:
        fetches = replica.hand_over or HandOver(replica.leader_epoch)
        if not following.become_follower(self, replica, order):
            return
        if self.fetcher_removal_ms > 0:
            self._start_over_later(replica, fetches.epoch)
        else:
            self._start_over(replica)

    def _start_over_later(self, replica: Replica, epoch: int) -> None:
        """A busy broker: the fetcher of the old leader is not yet told, so an answer to what it has
        asked is still taken (ReplicaManager.makeFollowers, applyLocalFollowersDelta)."""
        replica.hand_over = hand_over = HandOver(epoch)
        incarnation = self.incarnation

        def end() -> None:
            # Whatever was ordered meanwhile has ended it, or put another in its place.
            if replica.hand_over is hand_over:
                self.mailbox.pop(replica.partition, None)
                self._start_over(replica)

        self.loop.after(self.fetcher_removal_ms, lambda: self.receive(end, incarnation))

    def _start_over(self, replica: Replica) -> None:
        """End the fetches from the old leader, then begin with the one that is believed in now."""
        self._stop_fetching(replica.partition)
        if replica.leader >= 0:
            following.start_over(replica)
            fetcher = self.fetchers.get(replica.leader)
            if fetcher is None:
                fetcher = self.fetchers[replica.leader] = Fetcher(self, replica.leader)
            fetcher.add(replica)

    def _stop_fetching(self, partition: TopicPartition) -> None:
        replica = self.replicas.get(partition)
        if replica is not None:
            replica.hand_over = None
        for leader in sorted(self.fetchers):
            self.fetchers[leader].remove(partition)

    def wake_fetchers(self) -> None:
        for leader in sorted(self.fetchers):
            self.fetchers[leader].wake(1)
