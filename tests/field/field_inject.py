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

from tests.field import field_beside, field_disks, field_report
from tests.field.field_beside import Beside
from tests.field.field_lawful import Since, at_once
from tests.field.field_report import Row

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
EARLY_S: Final = 1.0
"""A round bears the time of its beginning, and may read what is put in while it is under way: the
clocks of monitor and test differ by a round at the most."""


class Fault(NamedTuple):
    """`where` is part of the alert's subject, `says` of what it says was observed; `first` is the
    first offset it must name. Before `begun` there is nothing to see: a session must end first,
    say; `needs_s` is about how long it takes. Kafka's tools are asked about `topic`."""

    name: str
    code: str
    where: str
    put_in: Callable[[], object]
    broker: int | None = None
    first: int | None = None
    mend: Callable[[], object] = lambda: None
    topic: str = ""
    begun: Callable[[], bool] = at_once
    needs_s: float = 0.0
    why: str = ""
    says: str = ""

    def is_told_by(self, alert: Alert) -> bool:
        return (
            alert.code == self.code
            and self.where in alert.subject
            and self.says in alert.observed
            and self.broker in (None, alert.broker)
            and self.first in (None, alert.first)
        )


class Times(NamedTuple):
    """Seconds from the injection to the alert, and to the end of what may be lawful; and the rounds
    that were judged between that end and the alert, its own one counted."""

    took_s: float
    lawful_s: float
    rounds: int
    found: bool = True

    @property
    def in_time(self) -> bool:
        return self.found and self.rounds <= ROUNDS and not self.too_early

    @property
    def too_early(self) -> bool:
        """Told while it may have been lawful. Without a grace there is no such time: then it may be
        told while a fault is still being put in."""
        return self.found and self.took_s < self.lawful_s - EARLY_S and self.lawful_s > EARLY_S

    def figures(self) -> dict[str, str]:
        names = field_report.FIGURES["injected"]
        if not self.found:
            none = ("not found", f"{self.lawful_s:.1f}", "-", "-", "**no**")
            return dict(zip(names, none, strict=True))
        late_s = self.took_s - self.lawful_s
        told = "yes" if self.in_time else "**too early**" if self.too_early else "**no**"
        numbers = (f"{self.took_s:.1f}", f"{self.lawful_s:.1f}", f"{late_s:.1f}", f"{self.rounds}")
        return dict(zip(names, (*numbers, told), strict=True))


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
        if not self._beside:
            self._find(fault, None)
            return
        with Beside(self.lab, [fault.topic]) as tools:
            found, took_s = self._find(fault, tools)
            self._compare(fault, found, took_s, tools.end(field_beside.AT_LEAST_S))

    def _find(self, fault: Fault, tools: Beside | None) -> tuple[Alert | None, float]:
        before = set(self.watch.alerts)

        def mine(alert: Alert) -> bool:
            return fault.is_told_by(alert) and alert not in before

        fault.put_in()
        at_s = time.monotonic() - self.watch.began
        if tools is not None:
            tools.begin()
        grace = self._grace(fault.code)
        waits_s = grace.ms(TIMING) / 1_000 + fault.needs_s
        with Since(fault.begun) as since:
            self.watch.wait_until(
                lambda: any(map(mine, self.watch.alerts)), waits_s + 60, must=False
            )
        new = [alert for alert in self.watch.alerts if alert not in before]
        found = next((alert for alert in new if mine(alert)), None)
        # A state that never came about, by the test's own clock, cannot have been found.
        begun_s = fault.needs_s if since.at_s is None else since.at_s
        times = self._times(found, at_s, begun_s + grace.ms(TIMING) / 1_000)
        told = ", ".join(dict.fromkeys(str(alert) for alert in new)) or "nothing"
        clock = "" if since.at_s is not None else "; the test itself did not see the state begin"
        self.keep(
            Row(
                "injected",
                fault.name,
                str(self.kind),
                _wanted(fault, grace),
                f"{'found' if found else 'not found'}; told in all: {told}{clock}",
                times.in_time and since.at_s is not None,
                max(times.took_s, 0.0),
                figures=times.figures(),
            )
        )
        return found, times.took_s

    def _times(self, found: Alert | None, at_s: float, lawful_s: float) -> Times:
        """A finding of the round that is under way at that moment counts as one of the first."""
        before = sum(judged <= at_s + lawful_s for judged in self.watch.judged)
        if found is None:
            took_s = time.monotonic() - self.watch.began - at_s
            return Times(took_s, lawful_s, self.watch.rounds - before, found=False)
        # Where there is no grace it may be found while the fault is still being put in.
        return Times(found.at_s - at_s, lawful_s, found.round - before)

    def _compare(
        self, fault: Fault, found: Alert | None, took_s: float, tools: list[field_beside.Asked]
    ) -> None:
        mine = f"{took_s:.1f} s" if found else f"nothing in {took_s:.0f} s"
        self.keep(
            Row(
                "tools",
                fault.name,
                str(self.kind),
                "who names it, and when",
                f"Tidestaff: {found or '(nothing)'}<br>{field_beside.words(tools)}",
                found is not None,
                0,
                figures=field_beside.figures(mine, tools),
            )
        )


def _wanted(fault: Fault, grace: Grace) -> str:
    wanted = f"{fault.code} {BY_CODE[fault.code].name} {fault.where}"
    wanted += "" if fault.broker is None else f", broker {fault.broker}"
    wanted += "" if fault.first is None else f", from offset {fault.first} on"
    wanted += f', saying "{fault.says}"' if fault.says else ""
    fixed_s = grace.ms(TIMING) / 1_000
    parts = [f"within {ROUNDS - 1} rounds and a batch"]
    if fault.why:
        parts.append(f"after {fault.why}")
    if fixed_s:
        parts.append(f"and a lawful grace of {fixed_s:.0f} s")
    return f"{wanted}; {', '.join(parts)}"
