"""Puts faults into a cluster under watch, one after the other, and keeps a row for each."""

from __future__ import annotations

import signal
import sys
import time
import traceback
from contextlib import contextmanager
from typing import TYPE_CHECKING, Final, NamedTuple

from tidestaff.consistency.catalogue import BY_CODE
from tidestaff.consistency.rules import Timing
from tidestaff.streaming.lab.plan import LOOPBACK, free_ports
from tidestaff.streaming.lab.processes import Processes

from tests.field import field_disks
from tests.field.field_report import Row
from tests.field.field_tools import said_by_tools

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from tidestaff.consistency.rules import Grace

    from tests.field.field_report import Keep
    from tests.field.field_watch import Alert, Watch
    from tests.field.lab import Kind, Lab

SESSION_S: Final = 6
TIMING: Final = Timing(session_timeout_ms=SESSION_S * 1_000)
CACHE_LAG_MS: Final = 10_000
ROUNDS: Final = 3
"""Two rounds and one batch; a watch judges every round by itself."""


class Fault(NamedTuple):
    """`where` is part of the alert's subject; `first` the first offset it must name. Before
    `needs_s` are over there is nothing to see: a session must end, say."""

    name: str
    code: str
    where: str
    put_in: Callable[[], object]
    broker: int | None = None
    first: int | None = None
    mend: Callable[[], object] = lambda: None
    needs_s: float = 0.0
    why: str = ""
    topic: str = ""


@contextmanager
def agents_of(lab: Lab) -> Iterator[str]:
    """An agent for each broker; the option that names them."""
    processes = Processes(lab.plan.folder)
    ports = dict(zip(lab.brokers, free_ports(len(lab.brokers)), strict=True))
    try:
        for broker, port in ports.items():
            command = [sys.executable, "-m", "tidestaff.streaming.cli", "agent"]
            for place in field_disks.log_dirs(lab, broker):
                command += ["--log-dir", str(place)]
            command += ["--broker", str(broker)]
            command += ["--listen", f"{LOOPBACK}:{port}"]
            processes.start(f"agent-{broker}", command, lab.plan.folder / f"agent-{broker}.log")
        yield ",".join(f"{broker}=http://{LOOPBACK}:{port}" for broker, port in ports.items())
    finally:
        for broker in ports:
            processes.signal(f"agent-{broker}", signal.SIGKILL)
            processes.wait(f"agent-{broker}", 10)


class Injected:
    """Puts in one fault after the other and keeps a row for each."""

    def __init__(
        self,
        lab: Lab,
        watch: Watch,
        kind: Kind,
        keep: Keep,
        *,
        beside: bool = False,
    ) -> None:
        """`beside`: Kafka's own tools are asked about every fault as well."""
        self.lab, self.watch, self.kind, self.keep = lab, watch, kind, keep
        self._beside = beside

    @property
    def version(self) -> tuple[int, ...]:
        return tuple(map(int, self.kind.version.split(".")))

    def topic(self, name: str, brokers: tuple[int, ...] = (1, 2, 3)) -> None:
        """Led by the first of them, four batches of five records each."""
        self.lab.clients.create_topic(name, assignment=[list(brokers)])
        for _ in range(4):
            self.lab.clients.produce(name, [b"a record"] * 5, linger_ms=200)
        self.watch.wait_until(lambda: self._settled(name))
        self.watch.wait_rounds(2)

    def _settled(self, name: str) -> bool:
        seen = self.watch.partition(name)
        return seen is not None and all(r.high_watermark == 20 for r in seen.replicas)

    def _grace(self, code: str) -> Grace:
        """With KRaft metadata come from the brokers' caches, which may lawfully be behind."""
        return BY_CODE[code].grace_on(0 if self.kind.mode == "zookeeper" else CACHE_LAG_MS)

    def expect(self, fault: Fault) -> None:
        """A fault that cannot be put in is a row that fails, and the next one goes on."""
        try:
            try:
                self._expect(fault)
            finally:
                fault.mend()
            self.watch.wait_rounds(2)
        except Exception as error:  # noqa: BLE001 - told in the table
            traceback.print_exc()
            text = f"not judged: {type(error).__name__}: {error}"[:400]
            self.keep(
                Row(
                    "injected", fault.name, str(self.kind), fault.code, text, holds=False, seconds=0
                )
            )

    def _expect(self, fault: Fault) -> None:
        before = set(self.watch.alerts)

        def mine(alert: Alert) -> bool:
            return (
                alert.code == fault.code
                and fault.where in alert.subject
                and (fault.broker is None or alert.broker == fault.broker)
                and (fault.first is None or alert.first == fault.first)
                and alert not in before
            )

        fault.put_in()
        # A finding of the round that is under way counts as one of the first.
        put_in, at = self.watch.rounds, time.monotonic() - self.watch.began
        grace = self._grace(fault.code)
        waits_s = grace.ms(TIMING) / 1_000 + fault.needs_s
        self.watch.wait_until(lambda: any(map(mine, self.watch.alerts)), waits_s + 60, must=False)
        new = [alert for alert in self.watch.alerts if alert not in before]
        found = next((alert for alert in new if mine(alert)), None)
        a_round = sum(self.watch.took[-5:]) / max(1, len(self.watch.took[-5:]))
        took = found.at_s - at if found else time.monotonic() - self.watch.began - at
        rounds = (found.round if found else self.watch.rounds) - put_in
        in_time = rounds <= max(ROUNDS, grace.samples + 1) or (
            waits_s > 0 and took <= waits_s + ROUNDS * max(1.0, a_round)
        )
        told = ", ".join(dict.fromkeys(str(alert) for alert in new)) or "nothing"
        wanted = f"{fault.code} {BY_CODE[fault.code].name} {fault.where}"
        wanted += "" if fault.broker is None else f", broker {fault.broker}"
        wanted += "" if fault.first is None else f", from offset {fault.first} on"
        wanted += _by_when(fault, grace)
        self.keep(
            Row(
                "injected",
                fault.name,
                str(self.kind),
                wanted,
                f"{'found' if found else 'not found'} {took:.1f} s, {rounds} rounds after; "
                f"told in all: {told}",
                found is not None and in_time,
                max(took, 0.0),
            )
        )
        if self._beside:
            self._ask_tools(fault, found, took)

    def _ask_tools(self, fault: Fault, found: Alert | None, took: float) -> None:
        """After the monitor, so that they have had more time than it."""
        topics = [fault.topic] if fault.topic else []
        tools = said_by_tools(self.lab, *topics)
        alert = f"{found} after {took:.1f} s" if found else "nothing"
        said = "<br>".join(f"{tool}: {text or '(nothing)'}" for tool, text in tools.items())
        expected = "who names it"
        seen = f"Tidestaff: {alert}<br>{said}"
        holds = found is not None
        self.keep(Row("tools", fault.name, str(self.kind), expected, seen, holds, 0))


def _by_when(fault: Fault, grace: Grace) -> str:
    fixed_s = grace.ms(TIMING) / 1_000
    parts = [f"within {max(ROUNDS, grace.samples + 1)} rounds"]
    if fault.needs_s:
        parts.append(f"after {fault.needs_s:.0f} s: {fault.why}")
    if fixed_s:
        parts.append(f"and a lawful grace of {fixed_s:.0f} s")
    return "; " + ", ".join(parts)
