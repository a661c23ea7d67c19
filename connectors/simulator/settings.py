"""What a simulated cluster is made of: brokers, topics, settings, seed; all JSON-able."""

from __future__ import annotations

from dataclasses import asdict, dataclass, field, replace
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from tidestaff.connectors.simulator.presets import Preset


@dataclass(frozen=True, slots=True)
class Settings:
    """Broker settings with Kafka's names, and how the simulated network behaves.

    None stands for the default of the preset's version.
    """

    unclean_leader_election_enable: bool | None = None
    min_insync_replicas: int = 1
    replica_lag_time_max_ms: int | None = None
    replica_lag_max_messages: int = 4_000
    session_timeout_ms: int | None = None
    replica_fetch_wait_max_ms: int = 500
    replica_fetch_backoff_ms: int = 1_000
    high_watermark_checkpoint_interval_ms: int = 5_000
    auto_leader_rebalance_enable: bool = True
    leader_imbalance_check_interval_ms: int = 300_000
    leader_imbalance_per_broker_percentage: int = 10
    request_timeout_ms: int = 2_000
    page_cache_flush_ms: int = 30_000
    fetch_max_records: int = 1_000
    delay_ms: tuple[int, int] = (1, 5)
    loss: float = 0.0
    controller_pause_ms: int = 50
    start_ms: int = 20

    def effective(self, preset: Preset) -> Settings:
        """With the version's own defaults filled in."""
        return replace(
            self,
            unclean_leader_election_enable=preset.unclean_default
            if self.unclean_leader_election_enable is None
            else self.unclean_leader_election_enable,
            replica_lag_time_max_ms=self.replica_lag_time_max_ms or preset.replica_lag_time_max_ms,
            session_timeout_ms=self.session_timeout_ms or preset.session_timeout_ms,
        )

    @property
    def lag_ms(self) -> int:
        assert self.replica_lag_time_max_ms is not None
        return self.replica_lag_time_max_ms

    @property
    def session_ms(self) -> int:
        assert self.session_timeout_ms is not None
        return self.session_timeout_ms


QUICK: Final = Settings(
    unclean_leader_election_enable=False,
    replica_lag_time_max_ms=1_500,
    session_timeout_ms=1_200,
    replica_fetch_wait_max_ms=200,
    replica_fetch_backoff_ms=100,
    high_watermark_checkpoint_interval_ms=1_000,
    leader_imbalance_check_interval_ms=5_000,
    request_timeout_ms=500,
    page_cache_flush_ms=2_000,
)
"""Short timeouts: a history of a few simulated seconds is full of elections."""


@dataclass(frozen=True, slots=True)
class ClusterConfig:
    """All that a run starts from. With the list of actions it determines the run."""

    preset: str
    brokers: tuple[int, ...]
    topics: dict[str, tuple[tuple[int, ...], ...]]
    settings: Settings = field(default_factory=Settings)
    seed: int = 0
    cluster: str = "simulated"

    def as_value(self) -> dict[str, Any]:
        """A JSON-able value that `of_value` reads back."""
        return asdict(self)

    @staticmethod
    def of_value(value: dict[str, Any]) -> ClusterConfig:
        settings = dict(value["settings"])
        low, high = settings["delay_ms"]
        settings["delay_ms"] = (low, high)
        return ClusterConfig(
            preset=value["preset"],
            brokers=tuple(value["brokers"]),
            topics={
                topic: tuple(tuple(replicas) for replicas in partitions)
                for topic, partitions in value["topics"].items()
            },
            settings=Settings(**settings),
            seed=value["seed"],
            cluster=value["cluster"],
        )
