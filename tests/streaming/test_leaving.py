"""A signal in the middle of starting ends the program as told, whatever becomes of the exception
that it raises."""

from __future__ import annotations

import signal
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import FrameType, SimpleNamespace
from typing import TYPE_CHECKING, Any, cast

import pytest
from tidestaff.streaming import pipeline, session
from tidestaff.streaming.commands.exits import INTERRUPTED
from tidestaff.streaming.commands.leaving import ending_as_told, set_when_told
from tidestaff.streaming.pipeline import Job
from tidestaff.streaming.running import Limits, run, stopped_by_signals
from tidestaff.streaming.settings import Settings, WebSettings

if TYPE_CHECKING:
    from pathlib import Path

Start = Callable[[list[int]], int]


def told_while(where: Callable[[Callable[[], None]], object], number: int) -> Start:
    def start(_: list[int]) -> int:
        where(lambda: signal.raise_signal(number))
        return 7

    return start


def in_plain_code(raise_it: Callable[[], None]) -> None:
    raise_it()


def while_a_class_is_made(raise_it: Callable[[], None]) -> object:
    """Python turns what `__set_name__` raises into a RuntimeError: so with every enum."""

    class Named:
        def __set_name__(self, *_: object) -> None:
            raise_it()

    return type("Made", (), {"member": Named()})


def while_something_else_fails(raise_it: Callable[[], None]) -> None:
    try:
        raise_it()
    finally:
        raise OSError("a port that is half closed")


@pytest.mark.parametrize(("number", "code"), [(signal.SIGTERM, 0), (signal.SIGINT, 130)])
@pytest.mark.parametrize(
    "where", [in_plain_code, while_a_class_is_made, while_something_else_fails]
)
def test_it_ends_with_the_code_of_the_signal(
    where: Callable[[Callable[[], None]], object], number: int, code: int
) -> None:
    before = signal.getsignal(number)
    assert ending_as_told(told_while(where, number)) == code
    assert signal.getsignal(number) is before


def test_half_a_replay_is_no_answer_whatever_signal_ended_it() -> None:
    start = told_while(in_plain_code, signal.SIGTERM)
    assert ending_as_told(start, lambda _: INTERRUPTED) == 130


def test_what_a_destructor_drops_is_in_the_list_and_on_no_screen(
    capsys: pytest.CaptureFixture[str],
) -> None:
    class Dropped:
        def __del__(self) -> None:
            signal.raise_signal(signal.SIGTERM)

    def start(told: list[int]) -> int:
        Dropped()
        assert told == [signal.SIGTERM]
        return 0

    assert ending_as_told(start) == 0
    assert capsys.readouterr().err == ""


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


def test_what_was_told_and_dropped_while_it_was_imported_keeps_spark_from_starting(
    tmp_path: Path,
) -> None:
    settings = Settings(work_dir=str(tmp_path), web=WebSettings(enabled=False))
    assert run(settings, Limits(), [signal.SIGINT]) == 130
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
