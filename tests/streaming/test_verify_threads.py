"""Questions asked at once: answers keep their order, and nothing that was raised is lost."""

from __future__ import annotations

import threading

import pytest
from tidestaff.streaming.verify.threads import in_threads


def test_answers_come_in_the_order_of_the_questions() -> None:
    assert in_threads(lambda n: n * n, range(50), most=8) == [n * n for n in range(50)]
    assert in_threads(str, [], most=8) == []


def test_questions_are_asked_at_once() -> None:
    """Each waits for all the others: one after the other they would never come back."""
    together = threading.Barrier(4, timeout=20)
    in_threads(lambda _: together.wait(), range(4), most=4)


@pytest.mark.parametrize("error", [IndexError, ValueError, KeyboardInterrupt])
def test_what_one_of_them_raises_is_raised(error: type[BaseException]) -> None:
    def ask(number: int) -> int:
        if number == 3:
            raise error
        return number

    with pytest.raises(error):
        in_threads(ask, range(9), most=2)
