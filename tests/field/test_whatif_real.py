"""Forecasts against real brokers in short; tests/field/field_whatif.py plays many stops."""

from __future__ import annotations

import json
import random
from typing import TYPE_CHECKING

import pytest
from tidestaff.streaming.cli import main

from tests.field.field_whatif import PLAIN, SETTINGS, TAIL, make_topics, play_on
from tests.field.lab import Kind, need_jars, running

if TYPE_CHECKING:
    from pathlib import Path

pytestmark = pytest.mark.filterwarnings("ignore:.*_text is deprecated:DeprecationWarning")

ZOOKEEPER = Kind("3.9.1", "zookeeper")


@pytest.mark.slow
def test_what_was_foretold_is_what_happened(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    need_jars("3.9.1")
    chance = random.Random(4)  # noqa: S311 - which broker is next
    with running(tmp_path / "lab", *ZOOKEEPER, cuttable=True, settings=SETTINGS) as lab:
        make_topics(lab)
        where = ("--bootstrap-server", lab.bootstrap, "--zookeeper", lab.zookeeper_connect)
        code = main(["what-if", "stop", "rack:b", "--json", *where])
        found = json.loads(capsys.readouterr().out)
        assert (code, found["stopping"]) == (2, [2, 3])
        assert set(found["offline"]) == {"pair-1", "loose-1", "single-1", "single-2"}
        cuts = 0
        for outcome in play_on(lab, ZOOKEEPER, (TAIL, PLAIN), chance):
            assert outcome.equal, outcome
            cuts += len(outcome.cuts)
        assert cuts, "a tail was written and nobody has cut it"
