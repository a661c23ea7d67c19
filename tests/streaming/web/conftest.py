"""One watched life for all tests that only read."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from tests.streaming.web.watched import CALM, HTML, LOSS, Watched

if TYPE_CHECKING:
    from collections.abc import Iterator


@pytest.fixture(scope="session")
def watched(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Watched]:
    found = Watched(tmp_path_factory.mktemp("watched"))
    found.play(LOSS, "old").play(CALM, "new").play(LOSS, "odd", HTML).finish()
    yield found
    found.close()
