"""Some of the injected faults, on a real cluster; `make field` has all of them."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from tests.field import field_injected
from tests.field.lab import Kind, need_jars

if TYPE_CHECKING:
    from pathlib import Path

    from tests.field.field_report import Row

pytestmark = [
    pytest.mark.slow,
    pytest.mark.filterwarnings("ignore:.*_text is deprecated:DeprecationWarning"),
]


def test_faults_of_contents_and_epoch_files_are_found_and_named_in_time(tmp_path: Path) -> None:
    need_jars("2.8.2")
    rows: list[Row] = []
    parts = ("contents", "epochs")
    field_injected.play(tmp_path, Kind("2.8.2", "zookeeper"), rows.append, parts)
    assert len(rows) == 5
    for row in rows:
        assert row.holds, row
