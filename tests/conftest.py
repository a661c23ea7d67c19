"""`pytest --rewrite`: write what tests compare with (scenarios, manifests) anew; read the diff."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import pytest


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption(
        "--rewrite", action="store_true", help="write expected states and manifests anew"
    )
