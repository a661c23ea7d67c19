"""Settings and version of a cluster as brokers tell them, kept and asked anew now and then."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Final, NamedTuple, Protocol

from tidestaff.connectors.broker_answers import Software, TopicValues
from tidestaff.connectors.broker_health import Problem
from tidestaff.connectors.errors import (
    ConnectorError,
    NotAuthorizedError,
    UnsupportedRequestError,
    VersionNotCoveredError,
)
from tidestaff.connectors.setting_values import PROTOCOL, Told, from_one_place, sorted_out
from tidestaff.consistency.errors import UnknownVersionError
from tidestaff.consistency.model import NO_LEADER, PartitionSettings, ProblemKind, SettingSource
from tidestaff.consistency.versions import KafkaVersion, Mode, ProtocolVersion, rules_for

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping, Sequence

    from tidestaff.connectors.broker_options import BrokerOptions
    from tidestaff.connectors.cluster_view import ChangedValues
    from tidestaff.consistency.model import BrokerId
    from tidestaff.consistency.versions import RuleSet

TOPIC_KEYS: Final = (
    "unclean.leader.election.enable",
    "min.insync.replicas",
    "cleanup.policy",
    "remote.storage.enable",
)
BROKER_KEYS: Final = (
    "replica.lag.time.max.ms",
    "replica.fetch.wait.max.ms",
    "replica.high.watermark.checkpoint.interval.ms",
    "broker.session.timeout.ms",
    "zookeeper.session.timeout.ms",
    "auto.leader.rebalance.enable",
    "leader.imbalance.check.interval.seconds",
    "leader.imbalance.per.broker.percentage",
    PROTOCOL,
)

TOPIC_SETTINGS: Final = "settings of topic"
"""How the places of their problems begin."""
_TRUE: Final = Told("true")

# metadata.version by its feature level, from 1.
METADATA_LEVELS: Final = (
    *("3.0-IV1", "3.1-IV0", "3.2-IV0", "3.3-IV0", "3.3-IV1", "3.3-IV2", "3.3-IV3", "3.4-IV0"),
    *("3.5-IV0", "3.5-IV1", "3.5-IV2", "3.6-IV0", "3.6-IV1", "3.6-IV2", "3.7-IV0", "3.7-IV1"),
    *("3.7-IV2", "3.7-IV3", "3.7-IV4", "3.8-IV0", "3.9-IV0", "4.0-IV0", "4.0-IV1", "4.0-IV2"),
    *("4.0-IV3", "4.1-IV0", "4.1-IV1"),
)


class SettingsReader(Protocol):
    """The questions on settings and version; part of BrokerReader."""

    def software(self) -> Software: ...
    def topic_values(self, topics: Sequence[str], keys: Sequence[str]) -> TopicValues: ...
    def broker_values(self, broker: BrokerId, keys: Sequence[str]) -> Mapping[str, Told]: ...


class _Said(NamedTuple):
    """What is known of a topic, and which making of it: one made anew by its name is another."""

    making: object
    values: Mapping[str, Told]


class ClusterSettings:
    """What hardly changes: the rule set, brokers' settings, topics' settings.

    Of one setting counts, first to last: what the metadata source says was changed for the topic,
    then for brokers; what brokers answer (0.11+); what was `given`; the default of the version.
    """

    def __init__(
        self,
        reader: SettingsReader,
        options: BrokerOptions,
        given: Mapping[str, str] | None = None,
    ) -> None:
        self._reader, self._options = reader, options
        self._given = from_one_place(given or {}, SettingSource.GIVEN)
        self._changed: ChangedValues | None = None
        self._due_ms: int | None = None
        self._rules: RuleSet | None = None
        self._brokers: dict[BrokerId, Mapping[str, Told]] = {}
        self._topics: dict[str, _Said] = {}
        self._made: dict[str, PartitionSettings] = {}
        self._problems: dict[str, Problem] = {}

    @property
    def rules(self) -> RuleSet:
        assert self._rules is not None
        return self._rules

    @property
    def problems(self) -> Collection[Problem]:
        """What could not be read at the last attempt: it stays one until it can be."""
        return self._problems.values()

    @property
    def session_timeout_ms(self) -> int:
        return self._shared().session_timeout_ms

    def refresh(
        self,
        brokers: Collection[BrokerId],
        topics: Mapping[str, object],
        now_ms: int,
        changed: ChangedValues | None = None,
    ) -> bool:
        """Ask for what is due or new; whether everything was asked anew.

        `topics` by name have what tells one making of a topic from the next; None is not known.
        """
        due = self._due_ms is None or now_ms >= self._due_ms or changed != self._changed
        self._changed = changed
        software = self._software() if due else None
        if software is None:
            due = False
        else:
            self._problems.clear()
            self._ask_brokers(brokers)
            self._rules = self._rules_anew(software)
            self._due_ms = now_ms + self._options.settings_refresh_ms
        self._forget_topics(topics)
        wanted = sorted(topics.keys() if due else topics.keys() - self._topics.keys())
        if wanted:
            self._ask_topics(wanted, topics)
        if due or wanted or topics.keys() != self._made.keys():
            shared = self._shared()
            self._made = {topic: self._settings_of(topic, shared) for topic in topics}
        return due

    def _forget_topics(self, topics: Mapping[str, object]) -> None:
        """Those that are gone, and those that are another topic by the same name now."""
        for name, said in list(self._topics.items()):
            making = topics.get(name)
            if name not in topics or (None not in (making, said.making) and making != said.making):
                del self._topics[name]
                self._problems.pop(_place(name), None)
            elif said.making is None:
                self._topics[name] = said._replace(making=making)

    def _settings_of(self, topic: str, shared: PartitionSettings) -> PartitionSettings:
        overrides = self._changed.topics if self._changed is not None else {}
        said = self._topics[topic].values if topic in self._topics else {}
        mine = from_one_place(overrides.get(topic, {}), SettingSource.TOPIC)
        values = {**self._topic_defaults(), **said, **mine}
        return topic_settings(values, shared, self.rules)

    def _rules_anew(self, software: Software) -> RuleSet:
        """A protocol that the version cannot speak is told; then the version's own counts."""
        self._problems.pop(PROTOCOL, None)
        try:
            spoken = [b[PROTOCOL].value for b in self._effective_brokers() if PROTOCOL in b]
            return rules_of(software, self._options, spoken)
        except UnknownVersionError as error:
            found = _rules_of_release(software, self._options)
            self._problems[PROTOCOL] = Problem(
                *(PROTOCOL, ProblemKind.MALFORMED, error.text, error.remedy), at_once=True
            )
            return found

    def _shared(self) -> PartitionSettings:
        return broker_settings(self._effective_brokers(), self.rules)

    def _effective_brokers(self) -> list[Mapping[str, Told]]:
        changed = self._changed.brokers if self._changed is not None else {}
        for_all = self._for_all_brokers()
        return [
            {
                **self._given,
                **told,
                **for_all,
                **from_one_place(changed.get(broker, {}), SettingSource.BROKER),
            }
            for broker, told in (self._brokers or {NO_LEADER: {}}).items()
        ]

    def _for_all_brokers(self) -> dict[str, Told]:
        changed = self._changed.brokers.get(None, {}) if self._changed is not None else {}
        return from_one_place(changed, SettingSource.CLUSTER)

    def _topic_defaults(self) -> dict[str, Told]:
        """Of topics that say nothing themselves, as far as brokers cannot be asked for it."""
        values = {**self._given, **self._for_all_brokers()}
        return {
            key: values[name]
            for key in TOPIC_KEYS
            if (name := f"log.{key}" if key == "cleanup.policy" else key) in values
        }

    def _software(self) -> Software | None:
        """None if it is not told now, and was told before: then the next round asks again."""
        try:
            return self._reader.software()
        except ConnectorError:
            if self._rules is not None:
                return None
            if self._options.version is not None and self._changed is not None:
                # ZooKeeper tells the rest of what must be known.
                return Software(self._options.version, kraft=False)
            raise

    def of(self, topic: str) -> PartitionSettings:
        known = self._made.get(topic)
        return self._settings_of(topic, self._shared()) if known is None else known

    def _ask_brokers(self, brokers: Collection[BrokerId]) -> None:
        for broker in sorted(brokers):
            self._brokers.setdefault(broker, {})
            try:
                said = self._reader.broker_values(broker, BROKER_KEYS)
            except UnsupportedRequestError:
                return  # before 0.11 nobody can be asked
            except NotAuthorizedError as error:
                self._note("settings of brokers", error)
                return
            except ConnectorError:
                continue  # whoever reads its replicas will tell
            self._brokers[broker] = self._good(f"settings of broker {broker}", said, broker=broker)
        self._brokers = {b: found for b, found in self._brokers.items() if b in brokers}

    def _ask_topics(self, topics: Sequence[str], makings: Mapping[str, object]) -> None:
        try:
            found = self._reader.topic_values(topics, TOPIC_KEYS)
        except UnsupportedRequestError:
            found = TopicValues({topic: {} for topic in topics})
        except ConnectorError as error:
            self._note(f"{TOPIC_SETTINGS}s", error)
            return
        self._problems.pop(f"{TOPIC_SETTINGS}s", None)
        for topic, values in found.found.items():
            good = self._good(_place(topic), values, topic=topic)
            self._topics[topic] = _Said(makings.get(topic), good)
        for topic in found.refused:
            # Not asked again before the next refresh; the defaults of the version count.
            self._topics.setdefault(topic, _Said(makings.get(topic), {}))
            self._note(_place(topic), _may_not(topic), topic)

    def _good(
        self,
        place: str,
        values: Mapping[str, Told],
        *,
        broker: BrokerId | None = None,
        topic: str | None = None,
    ) -> dict[str, Told]:
        """What is understood of an answer; of the rest the defaults count, and it is told."""
        good, odd = sorted_out({name: told.value for name, told in values.items()})
        if odd:
            self._problems[place] = Problem(
                place,
                ProblemKind.MALFORMED,
                f"{place}: {', '.join(odd)} is nothing that Kafka takes",
                "the default of the version counts until it is set anew",
                *(broker, topic),
                at_once=True,
            )
        return {name: values[name]._replace(value=value) for name, value in good.items()}

    def _note(self, place: str, error: ConnectorError, topic: str | None = None) -> None:
        self._problems[place] = Problem(
            place,
            ProblemKind.UNREADABLE,
            error.reason,
            error.remedy,
            topic=topic,
            at_once=isinstance(error, NotAuthorizedError),
        )


def _place(topic: str) -> str:
    return f"{TOPIC_SETTINGS} {topic}"


def _may_not(topic: str) -> NotAuthorizedError:
    return NotAuthorizedError("DescribeConfigs", "topic", topic)


def rules_of(software: Software, options: BrokerOptions, spoken: Collection[str] = ()) -> RuleSet:
    """What the options say counts; otherwise what the brokers say of themselves: their release, and
    the protocols that are `spoken` between them.

    A release is told without its last number: 3.9.1 is seen as 3.9, so giving it is better.
    """
    mode = Mode(options.mode) if options.mode else _mode(software)
    protocol, version = options.protocol, options.version or software.version
    if protocol is None and mode is Mode.KRAFT:
        level = software.metadata_level
        if level is not None and 1 <= level <= len(METADATA_LEVELS):
            protocol = METADATA_LEVELS[level - 1]
    elif protocol is None:
        # While brokers are upgraded one by one, the oldest protocol is spoken.
        protocol = min(spoken, key=ProtocolVersion.parse, default=None)
    if protocol is not None and options.version is None:
        version = _at_least(version, ProtocolVersion.parse(protocol))
    elr = software.elr if mode is Mode.KRAFT else None
    return rules_for(version, mode, protocol=protocol, elr=elr)


def _rules_of_release(software: Software, options: BrokerOptions) -> RuleSet:
    """Whatever protocol is spoken."""
    try:
        return rules_of(software._replace(metadata_level=None), options)
    except UnknownVersionError as error:
        raise VersionNotCoveredError(error.text, error.remedy) from None


def _mode(software: Software) -> Mode:
    return Mode.KRAFT if software.kraft else Mode.ZOOKEEPER


def _at_least(version: str, protocol: ProtocolVersion) -> str:
    """Some releases cannot be told from the one before; nobody speaks newer than he is."""
    known = ProtocolVersion.of(KafkaVersion.parse(version))
    return ".".join(map(str, protocol.release)) if known.release < protocol.release else version


def broker_settings(brokers: Sequence[Mapping[str, Told]], rules: RuleSet) -> PartitionSettings:
    """Of all brokers together: the longest times, so that nobody is called late too early."""
    session = (
        "broker.session.timeout.ms" if rules.mode is Mode.KRAFT else "zookeeper.session.timeout.ms"
    )

    def longest(key: str, otherwise: int) -> tuple[int, SettingSource]:
        told = [(int(each[key].value), each[key].source) for each in brokers if key in each]
        return max(told, key=lambda each: each[0], default=(otherwise, SettingSource.UNKNOWN))

    standard = PartitionSettings()
    lag_time = longest("replica.lag.time.max.ms", rules.replica_lag_time_max_ms_default)
    return PartitionSettings(
        unclean_leader_election_enable=rules.unclean_election_default,
        replica_lag_time_max_ms=lag_time[0],
        replica_lag_time_max_ms_source=lag_time[1],
        session_timeout_ms=longest(session, rules.session_timeout_ms_default)[0],
        replica_fetch_wait_max_ms=longest(
            "replica.fetch.wait.max.ms", standard.replica_fetch_wait_max_ms
        )[0],
        replica_high_watermark_checkpoint_interval_ms=longest(
            "replica.high.watermark.checkpoint.interval.ms",
            standard.replica_high_watermark_checkpoint_interval_ms,
        )[0],
        auto_leader_rebalance_enable=all(
            each.get("auto.leader.rebalance.enable", _TRUE).value == "true" for each in brokers
        ),
        leader_imbalance_check_interval_ms=1_000
        * longest("leader.imbalance.check.interval.seconds", 300)[0],
        leader_imbalance_per_broker_percentage=longest(
            "leader.imbalance.per.broker.percentage",
            standard.leader_imbalance_per_broker_percentage,
        )[0],
    )


def topic_settings(
    values: Mapping[str, Told], shared: PartitionSettings, rules: RuleSet
) -> PartitionSettings:
    def said(key: str, otherwise: str) -> Told:
        return values.get(key, Told(otherwise))

    unclean = said("unclean.leader.election.enable", str(rules.unclean_election_default).lower())
    minimum = said("min.insync.replicas", "1")
    return replace(
        shared,
        unclean_leader_election_enable=unclean.value == "true",
        unclean_leader_election_enable_source=unclean.source,
        min_insync_replicas=int(minimum.value),
        min_insync_replicas_source=minimum.source,
        compacted="compact" in said("cleanup.policy", "").value,
        remote_storage=said("remote.storage.enable", "").value == "true",
    )
