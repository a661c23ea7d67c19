"""Several questions at once. The library's pools take longer to import than most answers take."""

from __future__ import annotations

import threading
from collections import deque
from typing import TYPE_CHECKING, Final, TypeVar

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

Asked = TypeVar("Asked")
Answer = TypeVar("Answer")

_EVERY_S: Final = 0.2


def in_threads(
    function: Callable[[Asked], Answer],
    asked: Iterable[Asked],
    most: int,
    meanwhile: Callable[[], None] = lambda: None,
) -> list[Answer]:
    """The answers in the order of the questions; what one of them raises is raised here. What is
    to be done meanwhile is done now and then, in the caller's thread."""
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
        while worker.is_alive():
            worker.join(_EVERY_S)
            meanwhile()
    if failed:
        raise failed[0]
    return [found[number] for number in range(count)]
