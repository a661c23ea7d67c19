"""The API against its own OpenAPI document: whatever is sent, the answer is one that is documented.

Schemathesis makes the requests, good and bad ones. The stream of events never ends and is tested
elsewhere.
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import hypothesis
import pytest
import schemathesis
from tidestaff.streaming.checkpoint import CheckpointLock
from tidestaff.streaming.settings import Settings
from tidestaff.streaming.web.app import Application
from tidestaff.streaming.web.security import Access
from tidestaff.streaming.web.server import WebServer
from tidestaff.streaming.web.stores import Places

from tests.streaming.web.watched import CALM, LOSS, Watched

if TYPE_CHECKING:
    from collections.abc import Iterator

pytestmark = pytest.mark.slow


NOWHERE = Path("nowhere")
DOCUMENT = Application(Places(NOWHERE, NOWHERE, NOWHERE), Access()).api.openapi()
schema = schemathesis.openapi.from_dict(DOCUMENT).exclude(path="/api/v1/events")


@pytest.fixture(scope="module")
def served(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    folder = tmp_path_factory.mktemp("contract")
    watched = Watched(folder).play(LOSS, "old").play(CALM, "new").finish()
    settings = Settings.model_validate({"work_dir": str(folder), "web": {"port": 0}})
    server = WebServer(settings, print)
    with CheckpointLock(folder):
        yield server.url
    server.close()
    watched.close()


@schema.parametrize()
@hypothesis.settings(
    max_examples=15,
    deadline=None,
    database=None,
    derandomize=True,
    suppress_health_check=list(hypothesis.HealthCheck),
)
def test_every_answer_is_a_documented_one(case: Any, served: str) -> None:
    case.call_and_validate(base_url=served)
