"""`pytest --rewrite`: write the states that scenarios lead to into their files; read the diff."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import pytest


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption(
        "--rewrite", action="store_true", help="write the scenarios' expected states anew"
    )
