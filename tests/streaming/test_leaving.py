"""A signal in the middle of starting ends the program as told, wherever it comes."""

from __future__ import annotations

import signal
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from types import FrameType, SimpleNamespace
from typing import TYPE_CHECKING, Any, cast

import pytest
from tidestaff.streaming import pipeline, session
from tidestaff.streaming.commands.exits import INTERRUPTED
from tidestaff.streaming.commands.leaving import ending_as_told, leave_if, set_when_told
from tidestaff.streaming.pipeline import Job
from tidestaff.streaming.running import Limits, run, stopped_by_signals
from tidestaff.streaming.settings import Settings, WebSettings

if TYPE_CHECKING:
    from pathlib import Path

Start = Callable[[list[int]], int]


def told_while(where: Callable[[Callable[[], None]], object], number: int) -> Start:
    def start(told: list[int]) -> int:
        where(lambda: signal.raise_signal(number))
        leave_if(told)
        return 7

    return start


def in_plain_code(tell: Callable[[], None]) -> None:
    tell()


def while_a_class_is_made(tell: Callable[[], None]) -> object:
    """Python would turn what `__set_name__` raises into a RuntimeError: so with every enum."""

    class Named:
        def __set_name__(self, *_: object) -> None:
            tell()

    return type("Made", (), {"member": Named()})


def in_a_destructor(tell: Callable[[], None]) -> None:
    """Python would drop what it raises, and print it."""

    class Dropped:
        def __del__(self) -> None:
            tell()

    Dropped()


def in_a_library_that_catches_all(tell: Callable[[], None]) -> None:
    with suppress(BaseException):
        tell()


def while_something_else_fails(tell: Callable[[], None]) -> None:
    tell()
    raise OSError("a port that is half closed")


@pytest.mark.parametrize(("number", "code"), [(signal.SIGTERM, 0), (signal.SIGINT, 130)])
@pytest.mark.parametrize(
    "where",
    [
        in_plain_code,
        while_a_class_is_made,
        in_a_destructor,
        in_a_library_that_catches_all,
        while_something_else_fails,
    ],
)
def test_it_ends_with_the_code_of_the_signal(
    where: Callable[[Callable[[], None]], object],
    number: int,
    code: int,
    capsys: pytest.CaptureFixture[str],
) -> None:
    before = signal.getsignal(number)
    assert ending_as_told(told_while(where, number)) == code
    assert signal.getsignal(number) is before
    assert capsys.readouterr().err == ""


def test_nothing_is_broken_off_where_the_signal_comes() -> None:
    done = []

    def start(told: list[int]) -> int:
        for _ in range(3):
            if not told:
                signal.raise_signal(signal.SIGTERM)
            done.append(len(told))
        leave_if(told)
        return 7

    assert ending_as_told(start) == 0
    assert done == [1, 1, 1]


def test_a_second_signal_ends_the_program_at_once() -> None:
    program = (
        "import os, signal, time\n"
        "from tidestaff.streaming.commands.leaving import ending_as_told\n"
        "def start(told):\n"
        "    for _ in range(2):\n"
        "        os.kill(os.getpid(), signal.SIGTERM)\n"
        "        time.sleep(0.01)\n"
        "    time.sleep(60)\n"
        "    return 7\n"
        "raise SystemExit(ending_as_told(start))\n"
    )
    done = subprocess.run([sys.executable, "-c", program], check=False, timeout=50)
    assert done.returncode == -signal.SIGTERM


def test_half_a_replay_is_no_answer_whatever_signal_ended_it() -> None:
    start = told_while(in_plain_code, signal.SIGTERM)
    assert ending_as_told(start, lambda _: INTERRUPTED) == 130


def test_an_error_that_no_signal_caused_is_an_error() -> None:
    def start(_: list[int]) -> int:
        raise OSError("disk")

    with pytest.raises(OSError, match="disk"):
        ending_as_told(start)


def test_what_failed_because_all_were_told_to_stop_is_no_failure() -> None:
    def start(_: list[int]) -> int:
        with session._signals_later():
            signal.raise_signal(signal.SIGTERM)
            raise OSError("the JVM was told, too, and has not started")

    assert ending_as_told(start) == 0


class Waiting(Job):
    """A job whose query has nothing to do."""

    def start(self) -> Any:
        self.query = cast("Any", SimpleNamespace(isActive=True, status={"isTriggerActive": False}))
        self.query.stop = lambda: setattr(self.query, "isActive", False)


@contextmanager
def told_at_line(number: int, told: list[int]) -> Iterator[None]:
    """SIGTERM before the so manieth line that threading.py or pipeline.py runs in this thread."""
    files = (threading.__file__, pipeline.__file__)
    lines = 0

    def trace(frame: FrameType, what: str, _: object) -> Any:
        nonlocal lines
        if frame.f_code.co_filename not in files:
            return None
        lines += what == "line"
        if what == "line" and lines == number:
            sys.settrace(None)
            told.append(number)
            signal.raise_signal(signal.SIGTERM)
        return trace

    sys.settrace(trace)
    try:
        yield
    finally:
        sys.settrace(None)


@contextmanager
def within(seconds: float) -> Iterator[None]:
    def too_long(*_: object) -> None:
        raise AssertionError("it waits for itself")

    before = signal.signal(signal.SIGALRM, too_long)
    signal.setitimer(signal.ITIMER_REAL, seconds)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)


@pytest.mark.parametrize("line", range(1, 50))
def test_a_job_that_waits_ends_at_whatever_line_it_is_told_to(tmp_path: Path, line: int) -> None:
    job = Waiting(cast("Any", None), Settings(work_dir=str(tmp_path)), ())
    looks, told = iter(range(3)), list[int]()
    with within(20), stopped_by_signals(job, []), told_at_line(line, told):
        job.watch(lambda: next(looks, None) is None, lambda _: None)
    # Told at its first lines it does not begin.
    assert job.query is None if line < 3 else job.query is not None
    assert job.query is None or not job.query.isActive


def test_what_was_told_before_spark_is_started_keeps_it_from_starting(tmp_path: Path) -> None:
    settings = Settings(work_dir=str(tmp_path), web=WebSettings(enabled=False))

    def start(told: list[int]) -> int:
        told.append(signal.SIGINT)
        return run(settings, Limits(), told)

    assert ending_as_told(start) == 130
    assert not (tmp_path / "logs" / "jvm.log").exists()


def test_a_job_that_was_told_before_it_began_does_not_begin(tmp_path: Path) -> None:
    job = Waiting(cast("Any", None), Settings(work_dir=str(tmp_path)), ())
    job.stop()
    job.watch(lambda: False, lambda _: None)
    assert job.query is None


def test_an_event_is_set_at_whatever_line_it_is_waited_for() -> None:
    before = {each: signal.getsignal(each) for each in (signal.SIGINT, signal.SIGTERM)}
    try:
        for line in range(1, 30):
            stopping, told = threading.Event(), list[int]()
            set_when_told(stopping)
            with within(20):
                with told_at_line(line, told):
                    stopping.wait(0.01)
                assert not told or stopping.wait(10)
    finally:
        for each, handler in before.items():
            signal.signal(each, handler)
