"""What can be configured: every key, its type and its default. conf/tidestaff.yaml shows them all;
a test keeps the two in step."""

from __future__ import annotations

from ipaddress import ip_network
from pathlib import Path
from re import Pattern  # noqa: TC003 - pydantic reads it
from typing import Annotated, Final, Literal

from pydantic import BaseModel, ConfigDict, Field, SecretStr, field_validator, model_validator
from tidestaff.connectors.loopback import is_loopback
from tidestaff.consistency.catalogue import BY_CODE
from tidestaff.consistency.verdict import FindingClass
from tidestaff.streaming.alerts.outbox import Retention
from tidestaff.streaming.alerts.policy import HOLD_DOWN_BY_CODE_MS, HOLD_DOWN_MS, AlertPolicy
from tidestaff.streaming.view.limits import HistoryLimits

# Scenarios of this name are told on the console while they are played.
STORY: Final = "story-"


class Section(BaseModel):
    """A key that is not known is an error: a misspelt one must not be ignored silently."""

    model_config = ConfigDict(extra="forbid", frozen=True, populate_by_name=True)


class SimulatorSource(Section):
    """A simulated cluster: a scenario, or faults by chance from a seed."""

    type: Literal["simulator"] = "simulator"
    scenario: str | None = None
    version: str = "3.9.1"
    seed: int = 1
    brokers: int = Field(default=3, ge=1, le=100)
    topics: int = Field(default=2, ge=1, le=100_000)
    partitions: int = Field(default=3, ge=1, le=100_000)
    replication_factor: int = Field(default=3, ge=1, le=10)
    faults: Literal["none", "harmless", "all"] = "harmless"
    fault_interval_ms: int = Field(default=2_000, ge=50)
    round_interval_ms: int = Field(default=1_000, ge=10)
    speed: float = Field(default=1.0, gt=0, le=1_000)
    rounds: int | None = Field(default=None, ge=1)


class RecordingSource(Section):
    """Files that `tidestaff record` wrote, in the order of their event times."""

    type: Literal["recording"] = "recording"
    path: str
    files_per_batch: int = Field(default=10, ge=1)


class KafkaSource(Section):
    """Topics of observations, read by Spark's own Kafka source."""

    type: Literal["kafka"] = "kafka"
    bootstrap_servers: str
    topics: tuple[str, ...] = Field(min_length=1)
    starting_offsets: str = "latest"
    max_offsets_per_trigger: int | None = Field(default=200_000, ge=1)
    properties: dict[str, SecretStr] = Field(default_factory=dict)


class DirectSource(Section):
    """A collector that runs inside the job, without a topic in between."""

    type: Literal["direct"] = "direct"
    collector: str
    round_interval_ms: int = Field(default=5_000, ge=100)
    options: dict[str, str | int | float | bool] = Field(default_factory=dict)
    secrets: dict[str, SecretStr] = Field(default_factory=dict)


Source = Annotated[
    SimulatorSource | RecordingSource | KafkaSource | DirectSource, Field(discriminator="type")
]


class Cluster(Section):
    """One Kafka cluster, or one stream of observations that may name several."""

    name: str = Field(pattern=r"^[A-Za-z0-9][A-Za-z0-9._-]*$", max_length=100)
    source: Source


class SparkSettings(Section):
    """How Spark itself runs."""

    master: str = "local[*]"
    driver_memory: str = Field(default="2g", pattern=r"^[1-9][0-9]*[mg]$")
    quick_start: bool = False
    shuffle_partitions: int | None = Field(default=None, ge=1)
    conf: dict[str, str | int | float | bool] = Field(default_factory=dict)


class OperatorSettings(Section):
    """The stateful operator that judges observations."""

    buckets: int = Field(default=32, ge=1, le=4_096)
    lateness_ms: int = Field(default=10_000, ge=0)
    silence_ms: int = Field(default=60_000, ge=1_000)
    trigger_interval_ms: int = Field(default=1_000, ge=0)
    tick_interval_ms: int = Field(default=5_000, ge=500)
    future_ms: int = Field(default=300_000, ge=1_000)


class HoldDownSettings(Section):
    """How long a finding must be gone before its alert is resolved, by what is at stake; `codes`
    has the last word."""

    loss_ms: int = Field(default=HOLD_DOWN_MS[FindingClass.LOSS], ge=0)
    divergence_ms: int = Field(default=HOLD_DOWN_MS[FindingClass.DIVERGENCE], ge=0)
    exposure_ms: int = Field(default=HOLD_DOWN_MS[FindingClass.EXPOSURE], ge=0)
    protocol_ms: int = Field(default=HOLD_DOWN_MS[FindingClass.PROTOCOL], ge=0)
    availability_ms: int = Field(default=HOLD_DOWN_MS[FindingClass.AVAILABILITY], ge=0)
    forecast_ms: int = Field(default=HOLD_DOWN_MS[FindingClass.FORECAST], ge=0)
    sight_ms: int = Field(default=HOLD_DOWN_MS[FindingClass.SIGHT], ge=0)
    codes: dict[str, int] = Field(default_factory=lambda: dict(HOLD_DOWN_BY_CODE_MS))

    @field_validator("codes")
    @classmethod
    def _codes_are_known(cls, found: dict[str, int]) -> dict[str, int]:
        for code in found:
            if code not in BY_CODE:
                raise ValueError(f"there is no code {code!r}; 'tidestaff rules' lists them")
        return found


class AlertSettings(Section):
    """The life of an alert, and where it is kept."""

    store: str | None = None
    group_wait_ms: int = Field(default=AlertPolicy().group_wait_ms, ge=0)
    hold_down: HoldDownSettings = Field(default_factory=HoldDownSettings)
    retention_days: int = Field(default=Retention().days, ge=1)
    retention_rows: int = Field(default=Retention().rows, ge=1_000)
    spool_rows: int = Field(default=Retention().spool_rows, ge=100)


StatusName = Literal["pending", "firing", "acknowledged", "resolved"]
_PEOPLE: Final[tuple[StatusName, ...]] = ("firing", "acknowledged", "resolved")
_ALL: Final[tuple[StatusName, ...]] = ("pending", *_PEOPLE)


class ConsoleSink(Section):
    """Alerts for people, on standard output."""

    type: Literal["console"] = "console"
    name: str = "console"
    statuses: tuple[StatusName, ...] = _PEOPLE


class JsonLinesSink(Section):
    """One JSON object a transition."""

    type: Literal["jsonl"] = "jsonl"
    name: str = "jsonl"
    statuses: tuple[StatusName, ...] = _ALL
    path: str
    rotate_bytes: int = Field(default=100_000_000, ge=10_000)
    keep_files: int = Field(default=5, ge=1)


class ParquetSink(Section):
    """Transitions as Parquet files."""

    type: Literal["parquet"] = "parquet"
    name: str = "parquet"
    statuses: tuple[StatusName, ...] = _ALL
    path: str


class KafkaSink(Section):
    """Transitions as Avro records of a topic."""

    type: Literal["kafka"] = "kafka"
    name: str = "kafka"
    statuses: tuple[StatusName, ...] = _ALL
    bootstrap_servers: str
    topic: str
    properties: dict[str, SecretStr] = Field(default_factory=dict)


class AlertmanagerSink(Section):
    """Alertmanager's v2 API."""

    type: Literal["alertmanager"] = "alertmanager"
    name: str = "alertmanager"
    statuses: tuple[StatusName, ...] = _PEOPLE
    url: str
    labels: dict[str, str] = Field(default_factory=dict)
    headers: dict[str, SecretStr] = Field(default_factory=dict)
    runbook_base: str = ""
    refresh_interval_ms: int = Field(default=60_000, ge=1_000)
    timeout_ms: int = Field(default=5_000, ge=100)


class WebhookSink(Section):
    """A POST a transition; the default body is one that Slack understands."""

    type: Literal["webhook"] = "webhook"
    name: str = "webhook"
    statuses: tuple[StatusName, ...] = _PEOPLE
    url: SecretStr
    template: str | None = None
    content_type: str = "application/json"
    headers: dict[str, SecretStr] = Field(default_factory=dict)
    runbook_base: str = ""
    timeout_ms: int = Field(default=5_000, ge=100)


Sink = Annotated[
    ConsoleSink | JsonLinesSink | ParquetSink | KafkaSink | AlertmanagerSink | WebhookSink,
    Field(discriminator="type"),
]


class MetricsSettings(Section):
    """Prometheus metrics over HTTP."""

    enabled: bool = True
    host: str = "127.0.0.1"
    port: int = Field(default=9464, ge=0, le=65_535)
    coverage_topics: Pattern[str] | None = None


class ViewSettings(Section):
    """The state of partitions, kept for the web page, and how much of its past."""

    enabled: bool = True
    store: str | None = None
    history_per_partition: int = Field(default=HistoryLimits().per_partition, ge=2, le=1_000)
    history_rows: int = Field(default=HistoryLimits().rows, ge=1_000)
    history_days: int = Field(default=HistoryLimits().days, ge=1)


class WebSettings(Section):
    """The web page. Whoever listens beyond this machine must say how people are known."""

    enabled: bool = True
    host: str = "127.0.0.1"
    port: int = Field(default=8470, ge=0, le=65_535)
    token: SecretStr | None = Field(default=None, min_length=16)
    user_header: str | None = Field(default=None, pattern=r"^[A-Za-z][A-Za-z0-9-]*$")
    trusted_proxies: tuple[str, ...] = ("127.0.0.1", "::1")
    allowed_hosts: tuple[str, ...] = ()

    @field_validator("trusted_proxies")
    @classmethod
    def _proxies_are_addresses(cls, found: tuple[str, ...]) -> tuple[str, ...]:
        for each in found:
            try:
                ip_network(each)
            except ValueError:
                raise ValueError(f"{each!r} is no address and no network (10.0.0.0/8)") from None
        return found

    @model_validator(mode="after")
    def _strangers_are_kept_out(self) -> WebSettings:
        known = self.token is not None or self.user_header is not None
        if self.enabled and not known and not is_loopback(self.host):
            raise ValueError(
                f"{self.host} can be reached from other machines: set web.token, or "
                "web.user_header behind a proxy that logs people in, or listen on 127.0.0.1"
            )
        return self


class QuarantineSettings(Section):
    """Records that could not be read, as JSON lines in files that take turns."""

    path: str | None = None
    max_bytes: int = Field(default=10_000_000, ge=10_000)
    files: int = Field(default=5, ge=1)


def _story() -> tuple[Cluster, ...]:
    old = SimulatorSource(scenario=f"{STORY}0.10.2", version="0.10.2.2", seed=1)
    new = SimulatorSource(scenario=f"{STORY}3.9", version="3.9.1", seed=1)
    return Cluster(name="old-0.10.2", source=old), Cluster(name="new-3.9", source=new)


class TransportSettings(Section):
    """The topic that `tidestaff collect` publishes to; a kafka source of `run` reads it."""

    bootstrap_servers: str | None = None
    topic: str = "tidestaff.observations"
    command_config: str | None = None
    properties: dict[str, SecretStr] = Field(default_factory=dict)
    buffer_rounds: int = Field(default=720, ge=1)


class Settings(Section):
    """The whole configuration."""

    work_dir: str = "./tidestaff-data"
    checkpoint_dir: str | None = Field(default=None, pattern=r"^[a-z][a-z0-9+.-]*://.")
    log_level: Literal["debug", "info", "warning", "error"] = "warning"
    clusters: tuple[Cluster, ...] = Field(default_factory=_story)
    spark: SparkSettings = Field(default_factory=SparkSettings)
    operator: OperatorSettings = Field(default_factory=OperatorSettings)
    alerts: AlertSettings = Field(default_factory=AlertSettings)
    sinks: tuple[Sink, ...] = (ConsoleSink(),)
    metrics: MetricsSettings = Field(default_factory=MetricsSettings)
    view: ViewSettings = Field(default_factory=ViewSettings)
    web: WebSettings = Field(default_factory=WebSettings)
    quarantine: QuarantineSettings = Field(default_factory=QuarantineSettings)
    transport: TransportSettings = Field(default_factory=TransportSettings)
    _written: dict[tuple[str, ...], str] = {}

    @property
    def written(self) -> dict[tuple[str, ...], str]:
        """What stood where a value came from a variable or a file, by its keys."""
        return self._written

    @field_validator("clusters")
    @classmethod
    def _clusters_have_names_of_their_own(cls, found: tuple[Cluster, ...]) -> tuple[Cluster, ...]:
        if not found:
            raise ValueError("found none, expected at least one cluster to watch")
        _refuse_twice([cluster.name for cluster in found], "a name of its own for each cluster")
        return found

    @field_validator("sinks")
    @classmethod
    def _sinks_have_names_of_their_own(cls, found: tuple[Sink, ...]) -> tuple[Sink, ...]:
        _refuse_twice([each.name for each in found], "another name (key name) for each sink")
        return found

    @model_validator(mode="after")
    def _rounds_come_before_silence(self) -> Settings:
        most_ms = self.operator.silence_ms // 2
        for name, source in ((each.name, each.source) for each in self.clusters):
            if (every_ms := getattr(source, "round_interval_ms", 0)) > most_ms:
                known = f"a round every {every_ms} ms, half of operator.silence_ms is {most_ms} ms"
                raise ValueError(f"clusters: {name}: {known}: look more often, or allow more")
        return self

    @property
    def work(self) -> Path:
        return Path(self.work_dir).expanduser()

    @property
    def checkpoint(self) -> Path:
        return self.work / "checkpoint"

    @property
    def store_path(self) -> Path:
        return _path(self.alerts.store, self.work / "alerts.sqlite")

    @property
    def state_path(self) -> Path:
        return _path(self.view.store, self.work / "state.sqlite")

    @property
    def history(self) -> HistoryLimits:
        view = self.view
        return HistoryLimits(view.history_per_partition, view.history_rows, view.history_days)

    @property
    def quarantine_path(self) -> Path:
        return _path(self.quarantine.path, self.work / "quarantine" / "records.jsonl")

    @property
    def policy(self) -> AlertPolicy:
        held = self.alerts.hold_down
        return AlertPolicy(
            lateness_ms=self.operator.lateness_ms,
            group_wait_ms=self.alerts.group_wait_ms,
            hold_down_by_class_ms={
                finding: getattr(held, f"{finding.value}_ms") for finding in FindingClass
            },
            hold_down_by_code_ms=held.codes,
        )

    @property
    def retention(self) -> Retention:
        alerts = self.alerts
        return Retention(alerts.retention_days, alerts.retention_rows, alerts.spool_rows)

    @property
    def only_recordings(self) -> bool:
        """The past has no clock of its own: measured by today's, everybody in it is silent."""
        return all(isinstance(cluster.source, RecordingSource) for cluster in self.clusters)

    @property
    def needs_kafka(self) -> bool:
        return any(isinstance(cluster.source, KafkaSource) for cluster in self.clusters)


def _path(text: str | None, otherwise: Path) -> Path:
    return otherwise if text is None else Path(text).expanduser()


def _refuse_twice(names: list[str], expected: str) -> None:
    for name in names:
        if names.count(name) > 1:
            raise ValueError(f"{name!r} stands there twice, expected {expected}")
