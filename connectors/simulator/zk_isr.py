"""How a leader before 2.7 changes the ISR: it writes the state node itself."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tidestaff.connectors.simulator import leading
from tidestaff.connectors.simulator.network import ZOOKEEPER
from tidestaff.consistency.model import RecoveryState

if TYPE_CHECKING:
    from tidestaff.connectors.simulator.broker import Broker
    from tidestaff.connectors.simulator.replica import Replica
    from tidestaff.connectors.simulator.zk_mode import ZooKeeperMode
    from tidestaff.consistency.model import BrokerId


def write_isr(
    mode: ZooKeeperMode, broker: Broker, replica: Replica, isr: tuple[BrokerId, ...]
) -> None:
    """Compare-and-set on the zkVersion the leader knows; if that is old, it waits to be told.

    The controller epoch stays that of the controller that made it the leader, whoever told it so.
    """
    if not mode.cluster.network.talks(broker.place, ZOOKEEPER):
        return
    node = mode.zk.states.get(replica.partition)
    if node is None or mode.zk.topics[replica.partition.topic].topic_id != replica.topic_id:
        return
    if node.state.partition_epoch != replica.partition_epoch:
        return
    state = node.state._replace(
        leader=broker.id,
        leader_epoch=replica.leader_epoch,
        isr=isr,
        controller_epoch=max(replica.controller_epoch, 0),
        recovery=RecoveryState.RECOVERED,
    )
    written = mode.zk.set_state(replica.partition, state)
    mode.cluster.wrote(replica.partition, written)
    mode.cluster.touched.add(replica.partition)
    replica.isr, replica.partition_epoch = isr, written.partition_epoch
    leading.maybe_raise_high_watermark(broker, replica)
    term = mode.active_term()
    if term is not None:
        topics, partition = mode.topics_of(term), replica.partition
        mode.cluster.loop.after(
            mode.cluster.network.delay(),
            lambda: term.handle(lambda: topics.isr_changed(partition)),
        )
