"""The properties files of brokers and ZooKeeper, from the plan of a lab."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Final

from tidestaff.connectors.broker_settings import BROKER_KEYS, TOPIC_KEYS
from tidestaff.streaming.lab.plan import LOOPBACK, ZOOKEEPER_NODE
from tidestaff.streaming.lab.releases import KRAFT

if TYPE_CHECKING:
    from tidestaff.streaming.lab.plan import Plan

CLUSTER_ID: Final = "MkU3OEVBNTcwNTJENDM2Qg"
ALL_BROKERS: Final = 0
"""Settings under this number are for every broker."""

_COMMON: Final = {
    "auto.create.topics.enable": "false",
    "auto.leader.rebalance.enable": "false",
    "background.threads": "2",
    "delete.topic.enable": "true",
    "group.initial.rebalance.delay.ms": "0",
    # The default takes half of the small heap.
    "log.cleaner.dedupe.buffer.size": "4194304",
    "num.io.threads": "2",
    "num.network.threads": "1",
    "offsets.topic.num.partitions": "1",
    "transaction.state.log.num.partitions": "1",
}


def broker_properties(plan: Plan, broker: int) -> dict[str, str]:
    """Clients come by the listener PLAINTEXT, brokers by INNER: only that one can be cut."""
    copies = str(min(3, len(plan.brokers)))
    inner = (plan.inner_wires if plan.cuttable else plan.inner)[broker]
    found = {
        "listeners": f"PLAINTEXT://{LOOPBACK}:{plan.clients[broker]},"
        f"INNER://{LOOPBACK}:{plan.inner[broker]}",
        "advertised.listeners": f"PLAINTEXT://{LOOPBACK}:{plan.clients[broker]},"
        f"INNER://{LOOPBACK}:{inner}",
        "listener.security.protocol.map": "PLAINTEXT:PLAINTEXT,INNER:PLAINTEXT",
        "inter.broker.listener.name": "INNER",
        "log.dirs": str(plan.log_dir(broker)),
        "offsets.topic.replication.factor": copies,
        "transaction.state.log.replication.factor": copies,
        "transaction.state.log.min.isr": "1",
        **_COMMON,
        **(_kraft(plan, broker) if plan.mode == KRAFT else _zookeeper(plan, broker)),
        **plan.settings.get(ALL_BROKERS, {}),
        **plan.settings.get(broker, {}),
    }
    if plan.mode == KRAFT:
        found["listeners"] += f",CONTROLLER://{LOOPBACK}:{plan.controllers[broker]}"
        # The quorum's leader tells its voters where it is: by the wire, else they would pass it by.
        told = (plan.controller_wires if plan.cuttable else plan.controllers)[broker]
        found["advertised.listeners"] += f",CONTROLLER://{LOOPBACK}:{told}"
        found["listener.security.protocol.map"] += ",CONTROLLER:PLAINTEXT"
    return found


def settings_to_give(plan: Plan) -> dict[str, str]:
    """What the monitor would ask brokers for, of all of them alike: as options of its source, for
    releases whose brokers cannot be asked."""
    of_all = replace(plan, settings={ALL_BROKERS: plan.settings.get(ALL_BROKERS, {})})
    found = broker_properties(of_all, min(plan.brokers))
    return {f"settings.{key}": found[key] for key in (*BROKER_KEYS, *TOPIC_KEYS) if key in found}


def _kraft(plan: Plan, broker: int) -> dict[str, str]:
    ports = plan.controller_wires if plan.cuttable else plan.controllers
    return {
        "process.roles": "broker,controller",
        "node.id": str(broker),
        "controller.quorum.voters": ",".join(f"{n}@{LOOPBACK}:{p}" for n, p in ports.items()),
        "controller.listener.names": "CONTROLLER",
    }


def _zookeeper(plan: Plan, broker: int) -> dict[str, str]:
    port = plan.zookeeper_wires[broker] if plan.cuttable else plan.zookeeper
    return {
        "broker.id": str(broker),
        "zookeeper.connect": f"{LOOPBACK}:{port}",
        "zookeeper.connection.timeout.ms": "60000",
        "zookeeper.session.timeout.ms": "6000",
    }


def zookeeper_properties(plan: Plan) -> dict[str, str]:
    """Sessions may be as short or as long as an experiment needs."""
    return {
        "dataDir": str(plan.node_folder(ZOOKEEPER_NODE) / "data"),
        "clientPort": str(plan.zookeeper),
        "clientPortAddress": LOOPBACK,
        "tickTime": "500",
        "minSessionTimeout": "1000",
        "maxSessionTimeout": "300000",
        "maxClientCnxns": "0",
        "admin.enableServer": "false",
        "4lw.commands.whitelist": "*",
    }


def text_of(properties: dict[str, str]) -> str:
    return "".join(f"{name}={value}\n" for name, value in sorted(properties.items()))


LOG4J_1: Final = """\
log4j.rootLogger=INFO, out
log4j.appender.out=org.apache.log4j.ConsoleAppender
log4j.appender.out.layout=org.apache.log4j.PatternLayout
log4j.appender.out.layout.ConversionPattern=[%d] %p %m (%c)%n
log4j.logger.org.apache.zookeeper=WARN
log4j.logger.org.I0Itec.zkclient=WARN
log4j.logger.kafka.server.KafkaConfig=WARN
"""

SIMPLE_LOGGER: Final = (
    "-Dorg.slf4j.simpleLogger.defaultLogLevel=info",
    "-Dorg.slf4j.simpleLogger.showDateTime=true",
    "-Dorg.slf4j.simpleLogger.dateTimeFormat=[yyyy-MM-dd HH:mm:ss,SSS]",
    "-Dorg.slf4j.simpleLogger.log.org.apache.zookeeper=warn",
    "-Dorg.slf4j.simpleLogger.log.org.apache.kafka.common.config=warn",
    "-Dorg.slf4j.simpleLogger.log.kafka.server.KafkaConfig=warn",
    "-Dorg.slf4j.simpleLogger.log.kafka.cluster=info",
)
