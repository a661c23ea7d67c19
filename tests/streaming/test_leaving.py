"""A signal in the middle of starting ends the program as told, whatever becomes of the exception
that it raises."""

from __future__ import annotations

import signal
from collections.abc import Callable

import pytest
from tidestaff.streaming.commands.leaving import ending_as_told

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
