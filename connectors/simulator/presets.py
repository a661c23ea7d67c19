"""Kafka versions as data: what a broker or a controller of that version does differently.

The simulator's own table, written from Kafka's source; nothing here is taken from the rules that
judge the simulated cluster.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum
from typing import Final

from tidestaff.consistency.model import UnknownVersionError


class TruncationProtocol(Enum):
    """How a follower finds the offset from which its log is not its leader's."""

    HIGH_WATERMARK = "high-watermark"
    KIP101 = "kip101"
    KIP279 = "kip279"
    ON_FETCH = "on-fetch"


class TruncateWhen(Enum):
    """Which news of a leader makes a follower go through truncation again."""

    LEADER_DIFFERS = "leader-differs"
    EPOCHS_MISSED = "leader-differs-or-epochs-missed"
    EVERY_EPOCH = "every-epoch"


@dataclass(frozen=True, slots=True)
class Preset:
    """One Kafka version in one mode; every field is a behaviour that changed at some release."""

    name: str
    version: tuple[int, ...]
    kraft: bool
    truncation: TruncationProtocol
    truncate_when: TruncateWhen
    epoch_file: bool
    epoch_written_at_once: bool
    epoch_cache_generation: int
    epoch_answer_names_epoch: bool
    exits_when_ahead_of_leader: bool
    fetch_fenced: bool
    join_needs_epoch_start: bool
    isr_members_active: bool
    isr_broker_epochs_checked: bool
    at_leader_end_never_lags: bool
    caught_up_by_previous_fetch: bool
    lag_by_messages: bool
    hw_waits_outside_isr: bool
    hw_ignores_inactive: bool
    hw_frozen_under_min_isr: bool
    retention_stops_at_hw: bool
    delete_records: bool
    alter_partition: bool
    controller_writes_fenced: bool
    bounce_noticed: bool
    failover_removes_dead: bool
    recovery_state: bool
    last_isr_member_may_go: bool
    isr_shrink_bumps_epoch: bool
    elr: bool
    last_known_leader_must_be_active: bool
    last_known_elr_on_any_leader_loss: bool
    reassignment: bool
    reassignment_needs_whole_target: bool
    rebalance_needs_isr: bool
    rebalance_waits_for_reassignment: bool
    topic_ids: bool
    unclean_default: bool
    unclean_honoured: bool
    replica_lag_time_max_ms: int
    session_timeout_ms: int


def _truncation(version: tuple[int, ...], *, kraft: bool) -> TruncationProtocol:
    if version < (0, 11):
        return TruncationProtocol.HIGH_WATERMARK
    if version < (2, 0):
        return TruncationProtocol.KIP101
    if version < (2, 8) and not kraft:
        return TruncationProtocol.KIP279
    return TruncationProtocol.ON_FETCH


def _truncate_when(version: tuple[int, ...]) -> TruncateWhen:
    if version < (2, 0, 1):
        return TruncateWhen.LEADER_DIFFERS
    return TruncateWhen.EPOCHS_MISSED if version < (2, 1) else TruncateWhen.EVERY_EPOCH


def _session_timeout_ms(version: tuple[int, ...], *, kraft: bool) -> int:
    if kraft:
        return 9_000
    return 18_000 if version >= (2, 5) else 6_000


def preset_of(text: str, *, kraft: bool = False, elr: bool | None = None) -> Preset:
    """The preset of a Kafka version; `elr` is asked of KRaft 4.0, from 4.1 it is on by default."""
    version = tuple(int(part) for part in text.split("."))
    return Preset(
        name=f"{text}-kraft" if kraft else text,
        version=version,
        kraft=kraft,
        truncation=_truncation(version, kraft=kraft),
        truncate_when=_truncate_when(version),
        epoch_file=version >= (0, 11),
        epoch_written_at_once=version >= (2, 0, 1),
        epoch_cache_generation=2 if version >= (2, 0, 1) else 1,
        epoch_answer_names_epoch=version >= (2, 0),
        exits_when_ahead_of_leader=version < (2, 0, 1),
        fetch_fenced=version >= (2, 1),
        join_needs_epoch_start=version >= (2, 0, 1),
        isr_members_active=version >= (3, 3),
        isr_broker_epochs_checked=kraft and version >= (3, 5),
        at_leader_end_never_lags=version >= (2, 1),
        caught_up_by_previous_fetch=version >= (0, 10, 2),
        lag_by_messages=version < (0, 9),
        hw_waits_outside_isr=version >= (0, 10, 2),
        hw_ignores_inactive=version >= (3, 6),
        hw_frozen_under_min_isr=version >= (3, 7),
        retention_stops_at_hw=version >= (0, 11, 0, 1),
        delete_records=version >= (0, 11),
        alter_partition=kraft or version >= (2, 7),
        controller_writes_fenced=version >= (2, 1),
        bounce_noticed=version >= (2, 2),
        failover_removes_dead=version >= (2, 4),
        recovery_state=version >= (3, 2),
        last_isr_member_may_go=version < (1, 1),
        isr_shrink_bumps_epoch=kraft and version < (3, 6),
        elr=kraft and version >= (4, 0) and (version >= (4, 1) if elr is None else elr),
        last_known_leader_must_be_active=version >= (4, 1),
        last_known_elr_on_any_leader_loss=version >= (4, 1, 1),
        reassignment=kraft or version >= (2, 4),
        reassignment_needs_whole_target=not kraft or (3, 8) <= version < (4, 3),
        rebalance_needs_isr=version >= (2, 6),
        rebalance_waits_for_reassignment=not kraft and version < (3, 4),
        topic_ids=version >= (2, 8),
        unclean_default=version < (0, 11),
        unclean_honoured=not kraft or version >= (3, 9),
        replica_lag_time_max_ms=30_000 if version >= (2, 5) else 10_000,
        session_timeout_ms=_session_timeout_ms(version, kraft=kraft),
    )


PRESETS: Final = {
    preset.name: preset
    for preset in (
        preset_of("0.8.2.2"),
        preset_of("0.10.2.2"),
        preset_of("1.1.1"),
        preset_of("2.0.1"),
        preset_of("2.4.1"),
        preset_of("2.8.2"),
        preset_of("3.9.1"),
        preset_of("3.3.2", kraft=True),
        preset_of("3.9.1", kraft=True),
        preset_of("4.1.1", kraft=True),
    )
}


def preset_named(name: str) -> Preset:
    """A preset of the table, `-kraft` at the end for KRaft mode."""
    if name not in PRESETS:
        raise UnknownVersionError(f"no preset {name!r}", f"take one of {', '.join(PRESETS)}")
    return PRESETS[name]
