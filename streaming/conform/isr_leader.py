"""Runs the recorded facts about a leader's whole reign, step by step, through our rules."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from tidestaff.consistency import isr, watermark
from tidestaff.consistency.isr import FollowerState, IsrState
from tidestaff.consistency.model import UNKNOWN_BROKER_EPOCH, BrokerId, Registration
from tidestaff.consistency.versions import Mode, RuleSet
from tidestaff.consistency.watermark import LocalLog, RemoteReplica
from tidestaff.streaming.conform.isr import fetched as after_fetch
from tidestaff.streaming.conform.isr import state_fields
from tidestaff.streaming.conform.replica_fields import rules_of, steps_of, understanding_all
from tidestaff.streaming.conform.vectors import (
    CannotRunError,
    Difference,
    Vector,
    as_set,
    differences,
)

_START_MS: Final = 1_000_000_000


class _Leader:
    """A leader in one leader epoch: its log, its ISR and what it remembers of its followers."""

    def __init__(self, setup: Mapping[str, Any], rules: RuleSet) -> None:
        self.rules = rules
        self.now_ms = _START_MS
        self.max_lag_ms: int = setup.get("max_lag_ms", 30_000)
        self.min_isr: int = setup.get("min_isr", 1)
        self.leader: BrokerId = setup["leader"]
        self.log = LocalLog(setup.get("log_start", 0), setup.get("hw", 0), setup["leo"])
        self.epoch_start: int | None = setup.get("leader_epoch_start", setup["leo"])
        self.isr = IsrState(tuple(setup["isr"]))
        self.retry = False
        self.fetched: BrokerId | None = None
        self.active = {
            broker: Registration(broker, broker_epoch=UNKNOWN_BROKER_EPOCH)
            for broker in setup["replicas"]
        }
        self.followers = {
            broker: isr.reset_follower(
                FollowerState(),
                leader_log_end_offset=self.log.log_end_offset,
                new_leader=True,
                in_sync=broker in self.isr.committed,
                now_ms=self.now_ms,
            )
            for broker in setup["replicas"]
            if broker != self.leader
        }

    def step(self, step: Mapping[str, Any]) -> None:
        match step["op"]:
            case "noop":
                pass
            case "advance_ms":
                self.now_ms += step.get("ms", step.get("by", 0))
            case "follower_fetch":
                self._follower_fetch(step)
            case "maybe_shrink":
                self._shrink()
            case "leader_append":
                count = next((step[n] for n in ("records", "count", "n") if n in step), 1)
                self.log = watermark.append(self.log, records=count)
                self._advance()
            case "alter_partition_ok":
                self.isr, self.retry = isr.on_isr_answer(self.isr)
                if "isr" in step:
                    self.isr = IsrState(tuple(step["isr"]))
                self._advance()
            case "alter_partition_error":
                self.isr, self.retry = isr.on_isr_answer(self.isr, step["error"])
                self._advance()
            case "fence" | "shutdown" | "shutting_down" | "unfence" as what:
                broker = step["replica"]
                self.active[broker] = self.active[broker]._replace(fenced=what != "unfence")
            case other:
                raise CannotRunError(f"operation {other!r}")

    def _eligible(self, broker: BrokerId) -> bool:
        known = self.active[broker]
        alive = None if self.rules.mode is Mode.ZOOKEEPER and known.fenced else known
        fetched = self.followers[broker].broker_epoch
        return isr.is_eligible(registration=alive, fetch_broker_epoch=fetched, rules=self.rules)

    def _follower_fetch(self, step: Mapping[str, Any]) -> None:
        broker = self.fetched = step["replica"]
        if broker not in self.followers:
            raise CannotRunError(f"{broker} is not assigned")
        if "broker_epoch" in step and "cached_broker_epoch" in step:
            known = self.active[broker]
            self.active[broker] = known._replace(broker_epoch=step["cached_broker_epoch"])
        before = self.followers[broker]
        fetch = {"t": self.now_ms, "leader_leo": self.log.log_end_offset, **step}
        after = self.followers[broker] = after_fetch(before, fetch, self.rules)
        refused = isr.why_not_joining(
            replica=broker,
            isr=self.isr,
            log_end_offset=after.log_end_offset,
            high_watermark=self.log.high_watermark,
            leader_epoch_start_offset=self.epoch_start,
            eligible=self._eligible(broker),
            rules=self.rules,
        )
        if refused is None:
            self.isr = isr.propose_join(self.isr, broker, rules=self.rules)
        if before.log_end_offset != after.log_end_offset:
            self._advance()

    def _shrink(self) -> None:
        leaving = isr.out_of_sync(
            isr=self.isr.committed,
            leader=self.leader,
            followers=self.followers,
            leader_log_end_offset=self.log.log_end_offset,
            now_ms=self.now_ms,
            max_lag_ms=self.max_lag_ms,
            rules=self.rules,
        )
        self.isr = isr.propose_shrink(self.isr, leaving, rules=self.rules)

    def _caught_up(self, broker: BrokerId) -> bool:
        return isr.is_caught_up(
            self.followers[broker],
            leader_log_end_offset=self.log.log_end_offset,
            now_ms=self.now_ms,
            max_lag_ms=self.max_lag_ms,
            rules=self.rules,
        )

    def _advance(self) -> None:
        remote = {
            broker: RemoteReplica(
                state.log_end_offset,
                caught_up=self._caught_up(broker),
                eligible=self._eligible(broker),
            )
            for broker, state in self.followers.items()
        }
        to = watermark.advance(
            high_watermark=self.log.high_watermark,
            log_end_offset=self.log.log_end_offset,
            followers=remote,
            committed_isr=self.isr.committed,
            maximal_isr=self.isr.maximal,
            min_insync_replicas=self.min_isr,
            rules=self.rules,
        )
        self.log = watermark.increment(self.log, to=to)

    def shown(self) -> dict[str, object]:
        under_min = isr.is_under_min_isr(
            isr_size=len(self.isr.committed),
            min_insync_replicas=self.min_isr,
            replica_count=len(self.active),
            rules=self.rules,
        )
        fetched = {} if self.fetched is None else state_fields(self.followers[self.fetched])
        return {
            **fetched,
            "isr": as_set(self.isr.committed),
            "maximal_isr": as_set(self.isr.maximal),
            "pending_isr": as_set(self.isr.pending),
            "inflight": self.isr.in_flight,
            "hw": self.log.high_watermark,
            "leader_leo": self.log.log_end_offset,
            "retry": self.retry,
            "under_min_isr": under_min,
        }


def _leader_scenario(vector: Vector) -> list[Difference]:
    leader = _Leader(vector.input["setup"], rules_of(vector))
    found: list[Difference] = []
    for number, step in enumerate(steps_of(vector)):
        leader.step(step)
        expected = step.get("expect", {})
        if not isinstance(expected, Mapping):
            raise CannotRunError(f"{vector.id}: step {number} expects {expected!r}")
        wanted = {name: as_set(value) for name, value in expected.items()}
        found += differences(wanted, leader.shown(), f"steps[{number}]")
    return found


HANDLERS: Final = understanding_all(
    {
        "isr.leader_scenario": _leader_scenario,
    }
)
