"""What a scene of the tour is made of."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from tidestaff.consistency.epochs import assign
from tidestaff.consistency.model import EpochEntry
from tidestaff.consistency.truncation import ReplicaLog
from tidestaff.streaming.commands.drawing import DrawnLog

if TYPE_CHECKING:
    from tidestaff.consistency.model import BrokerId
    from tidestaff.consistency.versions import RuleSet


class Alert(NamedTuple):
    """What a wrong outcome is called."""

    code: str
    when: str


class Drawing(NamedTuple):
    """Logs side by side at one moment."""

    logs: tuple[DrawnLog, ...]
    caption: str = ""


class Scene(NamedTuple):
    """One prediction: what happens, what the logs look like, what each rule set makes of it."""

    title: str
    story: str
    drawings: tuple[Drawing, ...]
    head: tuple[str, ...]
    rows: tuple[tuple[str, ...], ...]
    lesson: str
    alerts: tuple[Alert, ...]


def log(leo: int, hw: int, *epochs: tuple[int, int]) -> ReplicaLog:
    """A replica's log from offset 0, its epochs as (epoch, start offset)."""
    return ReplicaLog(0, hw, leo, tuple(EpochEntry(*entry) for entry in epochs))


def brokers(members: tuple[BrokerId, ...]) -> str:
    return f"[{','.join(map(str, members))}]"


def name_of(leader: BrokerId) -> str:
    return "nobody: offline" if leader < 0 else f"broker {leader}"


def as_leader(log: ReplicaLog, leader_epoch: int, rules: RuleSet) -> ReplicaLog:
    """A log as its leader holds it: with an entry of its own epoch, from 2.0.1."""
    if not rules.leader_writes_epoch_at_once:
        return log
    lineage = assign(log.lineage, leader_epoch, log.log_end_offset, generation=rules.epoch_cache)
    return log._replace(lineage=lineage)


def drawing(logs: dict[BrokerId, ReplicaLog], remarks: dict[BrokerId, str]) -> Drawing:
    return Drawing(
        tuple(
            DrawnLog(f"broker {broker}", each, remarks.get(broker, ""))
            for broker, each in logs.items()
        )
    )
