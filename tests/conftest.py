"""The longest file and the fast ones first, then longer ones, then the rest. `--rewrite` writes
what tests compare with (scenarios, manifests) anew; read the diff."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from pathlib import Path

    import pytest

# A file is what the slowest of its tests is; this is the order in which they begin. One that takes
# as long as a third of the whole goes first, beside the fast ones of the other workers.
WHOLE_RUN, LONGEST, SLOW, FAST = range(4)
ORDER: Final = (WHOLE_RUN, FAST, LONGEST, SLOW)


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption(
        "--rewrite", action="store_true", help="write expected states and manifests anew"
    )


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """A test of minutes that began last would keep one worker busy while the other has nothing.

    Files stay whole: workers are given one at a time, so that what its tests share (a cluster, an
    API server, a session of Spark) is started once.
    """
    turns: dict[Path, int] = {}
    for item in items:
        turns[item.path] = min(turns.get(item.path, FAST), _turn(item))
    items.sort(key=lambda item: ORDER.index(turns[item.path]))


def _turn(item: pytest.Item) -> int:
    marks = {mark.name for mark in item.iter_markers()}
    if "whole_run" in marks:
        return WHOLE_RUN
    if "longest" in marks:
        return LONGEST
    return SLOW if marks & {"slow", "spark"} else FAST
