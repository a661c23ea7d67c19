"""From the journal to the transport: bounded, resumed, in order; and the command as far as it goes
without a broker."""

from __future__ import annotations

import threading
import time
from typing import TYPE_CHECKING, Any

import pytest
from tidestaff.connectors.errors import TransportAwayError
from tidestaff.connectors.wire import HEALTH, PARTITION, from_bytes
from tidestaff.streaming.cli import main
from tidestaff.streaming.publishing import KEPT_FILES, Publishing
from tidestaff.streaming.settings import Cluster
from tidestaff.streaming.sources.row_files import listed

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from pathlib import Path

    from tidestaff.connectors.publishing import Record
    from tidestaff.connectors.wire import Row

pytestmark = pytest.mark.filterwarnings("ignore:.*_text is deprecated:DeprecationWarning")


class Topic:
    """Implements Transport; lets go of nothing while it is away."""

    def __init__(self, *, away: bool = False) -> None:
        self.away = away
        self.rows: list[Row] = []

    def publish(self, records: Sequence[Record]) -> int:
        if self.away:
            raise TransportAwayError("rows", "here:1", "timed out")
        self.rows += [from_bytes(each.value) for each in records]
        return 0

    def close(self) -> None:
        """Nothing is held."""


def cluster(rounds: int) -> Cluster:
    options: dict[str, Any] = {"rounds": rounds, "topics": 1, "partitions": 2, "faults": "none"}
    source = {
        "type": "direct",
        "collector": "simulator",
        "round_interval_ms": 100,
        "options": options,
    }
    return Cluster.model_validate({"name": "west", "source": source})


def until(done: Callable[[], bool], within_s: float = 20.0) -> None:
    end = time.monotonic() + within_s
    while not done():
        assert time.monotonic() < end
        time.sleep(0.02)


def finished(publishing: Publishing) -> Publishing:
    publishing.start()
    publishing.join(30)
    assert not publishing.is_alive()
    assert publishing.error is None
    return publishing


def test_every_round_is_published_once_and_in_order(tmp_path: Path) -> None:
    topic = Topic()
    done = finished(Publishing(cluster(5), tmp_path, topic, buffer_rounds=100))
    assert (done.rounds, done.waiting) == (5, 0)
    assert [row.kind for row in topic.rows].count(PARTITION) == 10
    times = [row.observed_at_ms for row in topic.rows if row.kind == PARTITION]
    assert times == sorted(times)


def test_what_waits_is_published_after_a_restart_and_nothing_twice(tmp_path: Path) -> None:
    away = Topic(away=True)
    first = Publishing(cluster(4), tmp_path, away, buffer_rounds=100)
    first.start()
    until(lambda: first.waiting == 4)
    first.stop()
    first.join(30)
    assert away.rows == []

    topic = Topic()
    finished(Publishing(cluster(6), tmp_path, topic, buffer_rounds=100))
    rounds = [row.round for row in topic.rows if row.subject.endswith("-0")]
    assert len(rounds) == len(set(rounds)) == 6
    again = Topic()
    finished(Publishing(cluster(6), tmp_path, again, buffer_rounds=100))
    assert again.rows == []


def test_the_buffer_is_bounded_and_what_is_given_up_is_told(tmp_path: Path) -> None:
    said: list[str] = []
    topic = Topic(away=True)
    publishing = Publishing(cluster(12), tmp_path, topic, buffer_rounds=3, say=said.append)
    publishing.start()
    until(lambda: publishing.collecting.ended and publishing.waiting == 3)
    topic.away = False
    publishing.join(60)
    assert not publishing.is_alive()
    assert publishing.rounds == 3
    (told, *_) = [row for row in topic.rows if row.kind == HEALTH]
    assert told.subject == "collect/transport"
    assert said == [
        "west: topic rows on here:1 takes no records (timed out); what is seen meanwhile is kept",
        "west: published again",
    ]


def test_files_that_are_published_do_not_pile_up(tmp_path: Path) -> None:
    finished(Publishing(cluster(KEPT_FILES + 12), tmp_path, Topic(), buffer_rounds=100))
    assert len(listed(tmp_path)) <= KEPT_FILES + 1


def test_a_torn_mark_or_file_is_no_end(tmp_path: Path) -> None:
    (tmp_path / "published").write_text("seven")
    (tmp_path / "000000000001.parquet").write_bytes(b"torn")
    topic = Topic()
    finished(Publishing(cluster(3), tmp_path, topic, buffer_rounds=100))
    assert [row.round for row in topic.rows if row.subject.endswith("-0")]


def test_an_error_of_the_collector_ends_it_and_is_told(tmp_path: Path) -> None:
    broken = Cluster.model_validate(
        {"name": "west", "source": {"type": "direct", "collector": "brokers", "options": {}}}
    )
    publishing = Publishing(broken, tmp_path, Topic(), buffer_rounds=3)
    publishing.start()
    publishing.join(30)
    assert "bootstrap_servers is missing" in str(publishing.error)


def test_stopping_is_quick_while_the_transport_is_away(tmp_path: Path) -> None:
    publishing = Publishing(cluster(1_000), tmp_path, Topic(away=True), buffer_rounds=10)
    publishing.start()
    until(lambda: publishing.waiting > 0)
    publishing.stop()
    # While the transport is away its thread would try for ever.
    publishing.join(120)
    assert [t.name for t in threading.enumerate() if t.name.startswith("publishing")] == []


# -- the command

CONFIG = """\
work_dir: {work}
clusters:
  - name: north
    source:
      type: direct
      collector: simulator
      round_interval_ms: 100
      options: {{rounds: 3, topics: 1, partitions: 2, faults: none}}
  - name: told
    source: {{type: simulator}}
"""


@pytest.fixture
def config(tmp_path: Path) -> str:
    path = tmp_path / "tidestaff.yaml"
    path.write_text(CONFIG.format(work=tmp_path / "work"), encoding="utf-8")
    return str(path)


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        pytest.param([], "nothing to collect is named", id="neither"),
        pytest.param(["--config", "CONFIG", "--bootstrap-server", "a:1"], "nothing to", id="both"),
        pytest.param(["--config", "CONFIG"], "nowhere to publish is named", id="nowhere"),
        pytest.param(
            ["--config", "CONFIG", "--cluster", "nort"], "did you mean north?", id="misspelt"
        ),
        pytest.param(
            ["--config", "CONFIG", "--cluster", "told"], "no source of type direct", id="not-direct"
        ),
        pytest.param(
            ["--config", "CONFIG", "--transport", "a:1", "--transport-config", "/no/such"],
            "transport: /no/such: No such file",
            id="no-properties",
        ),
    ],
)
def test_what_is_wrong_is_told_before_anything_is_collected(
    arguments: list[str], says: str, config: str, capsys: pytest.CaptureFixture[str]
) -> None:
    given = [config if each == "CONFIG" else each for each in arguments]
    assert main(["collect", *given]) == 3
    assert says in capsys.readouterr().err


def test_to_a_folder_it_writes_what_record_writes(
    config: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    out = tmp_path / "recording"
    assert main(["collect", "--config", config, "--to", str(out), "--rounds", "2", "--json"]) == 0
    assert '"rounds": 2' in capsys.readouterr().out
    (name,) = listed(out)
    assert name.endswith("-north.parquet")


def test_a_topic_is_recorded_with_the_same_client_properties(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    source = "{type: kafka, bootstrap_servers: 'a:1', topics: [t], properties: {sasl.mecanism: x}}"
    path = tmp_path / "tidestaff.yaml"
    path.write_text(f"clusters:\n  - name: east\n    source: {source}\n", encoding="utf-8")
    assert main(["record", "--config", str(path), "--out", str(tmp_path / "out")]) == 3
    assert "did you mean sasl.mechanism?" in capsys.readouterr().err
