"""Several questions at once. The library's pools take longer to import than most answers take."""

from __future__ import annotations

import threading
from collections import deque
from typing import TYPE_CHECKING, TypeVar

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

Asked = TypeVar("Asked")
Answer = TypeVar("Answer")


def in_threads(
    function: Callable[[Asked], Answer], asked: Iterable[Asked], most: int
) -> list[Answer]:
    """The answers in the order of the questions; what one of them raises is raised here."""
    waiting = deque(enumerate(asked))
    found: dict[int, Answer] = {}
    failed: list[BaseException] = []

    def work() -> None:
        while not failed:
            try:
                number, each = waiting.popleft()
            except IndexError:
                return
            try:
                found[number] = function(each)
            except BaseException as error:  # noqa: BLE001 - raised where it was asked
                failed.append(error)

    count = len(waiting)
    # Daemons: whoever presses Ctrl-C twice does not wait for the slowest.
    workers = [threading.Thread(target=work, daemon=True) for _ in range(min(count, most))]
    for worker in workers:
        worker.start()
    for worker in workers:
        worker.join()
    if failed:
        raise failed[0]
    return [found[number] for number in range(count)]
