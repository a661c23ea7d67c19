"""Fast tests first, then the longest, then the rest. `pytest --rewrite` writes what tests compare
with (scenarios, manifests) anew; read the diff."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import pytest


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption(
        "--rewrite", action="store_true", help="write expected states and manifests anew"
    )


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """A test of minutes that began last would keep one worker busy while the other has nothing."""
    items.sort(key=_turn)


def _turn(item: pytest.Item) -> int:
    marks = {mark.name for mark in item.iter_markers()}
    if not marks & {"slow", "spark"}:
        return 0
    return 1 if "longest" in marks else 2
