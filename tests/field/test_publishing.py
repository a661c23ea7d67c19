"""`tidestaff collect` from one real cluster to a topic of another: every row arrives, decodes to
what was seen, in order; a transport that goes away costs nothing but time."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from typing import TYPE_CHECKING, Any, NamedTuple

import pytest
from tidestaff.connectors.wire import CLUSTER, HEALTH, PARTITION, from_bytes, observation_of
from tidestaff.consistency.model import HealthObservation, PartitionObservation, ProblemKind
from tidestaff.streaming.jars import JarError, jars
from tidestaff.streaming.lab.cluster import Lab
from tidestaff.streaming.lab.plan import make_plan
from tidestaff.streaming.lab.releases import release_of

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    from tidestaff.connectors.wire import Row

pytestmark = [
    pytest.mark.slow,
    pytest.mark.filterwarnings("ignore:.*_text is deprecated:DeprecationWarning"),
]

VERSION, TOPIC, RECORDS = "3.9.1", "orders", 10


class Clusters(NamedTuple):
    """The one that is watched, and the one that has the transport topic."""

    watched: Lab
    transport: Lab


@pytest.fixture(scope="module")
def clusters(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Clusters]:
    try:
        jars(release_of(VERSION).lock)
    except JarError as error:
        pytest.skip(f"the jars of Kafka {VERSION} cannot be had: {error}")
    folders = [tmp_path_factory.mktemp(name) for name in ("watched", "transport")]
    made = [Lab(make_plan(folder, version=VERSION, brokers=1)) for folder in folders]
    with ExitStack() as stack:
        for each in made:
            stack.callback(each.down)
        with ThreadPoolExecutor(len(made)) as pool:
            list(pool.map(Lab.up, made))
        made[0].clients.create_topic(TOPIC, partitions=3)
        made[0].clients.produce(TOPIC, [b"a record"] * RECORDS)
        yield Clusters(*made)


class Collect:
    """The command as a process; ended by its id."""

    def __init__(self, clusters: Clusters, folder: Path, topic: str, *more: str) -> None:
        config = folder / "tidestaff.yaml"
        if not config.exists():
            source = {
                "type": "direct",
                "collector": "brokers",
                "round_interval_ms": 500,
                "options": {"bootstrap_servers": clusters.watched.bootstrap, "version": VERSION},
            }
            content = {
                "work_dir": str(folder / "work"),
                "clusters": [{"name": "west", "source": source}],
                "transport": {"bootstrap_servers": clusters.transport.bootstrap, "topic": topic},
            }
            config.write_text(json.dumps(content), encoding="utf-8")
        command = ["collect", "--config", str(config), "--json", *more]
        self.process = subprocess.Popen(
            [sys.executable, "-m", "tidestaff.streaming.cli", *command],
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )

    def end(self) -> tuple[int, str, str]:
        """Exit code and what it said."""
        try:
            out, err = self.process.communicate(timeout=180)
        finally:
            self.process.kill()
            self.process.wait()
        return self.process.returncode, out, err

    def stop(self) -> tuple[int, str, str]:
        self.process.send_signal(signal.SIGTERM)
        return self.end()


def published(clusters: Clusters, topic: str) -> list[tuple[int, Row]]:
    """All rows of the topic with their partitions, in the order of each partition."""
    counts = len(clusters.transport.clients.describe(topic))
    return [
        (number, from_bytes(value))
        for number in range(counts)
        for value in clusters.transport.clients.read(topic, number)
    ]


def until(done: Callable[[], bool], within_s: float = 120.0) -> None:
    end = time.monotonic() + within_s
    while not done():
        assert time.monotonic() < end
        time.sleep(0.5)


def writers(lab: Lab, topic: str) -> set[int]:
    """Producer ids of all batches on the disk, by Kafka's own layout; -1 of one without any, whose
    batches come twice when an answer is lost."""
    found = set()
    for file in lab.log_dir(1).glob(f"{topic}-*/*.log"):
        data, at = file.read_bytes(), 0
        while at + 61 <= len(data):
            found.add(int.from_bytes(data[at + 43 : at + 51], "big", signed=True))
            at += 12 + int.from_bytes(data[at + 8 : at + 12], "big")
    return found


def topics(lab: Lab) -> set[str]:
    return {each.topic for each in lab.clients.describe()}


def test_a_topic_that_is_not_there_is_told_and_not_made(clusters: Clusters, tmp_path: Path) -> None:
    code, out, err = Collect(clusters, tmp_path, "absent").end()
    assert code == 3
    assert "topic absent does not exist" in err
    assert "kafka-topics" in err
    assert json.loads(out)["exit_code"] == 3
    assert "absent" not in topics(clusters.transport)


def test_every_row_arrives_in_order_and_nothing_is_written_where_is_watched(
    clusters: Clusters, tmp_path: Path
) -> None:
    before = topics(clusters.watched)
    arguments = ("--create-topic", "--partitions", "4", "--rounds", "4")
    code, out, err = Collect(clusters, tmp_path, "rows", *arguments).end()
    assert code == 0, err
    assert topics(clusters.watched) == before

    found = published(clusters, "rows")
    told = json.loads(out)
    assert told["rounds"] >= 4
    assert told["rows"] == len(found)
    assert {row.kind for _, row in found} == {CLUSTER, PARTITION}
    producers = writers(clusters.transport, "rows")
    assert producers
    assert -1 not in producers
    places: dict[str, set[int]] = {}
    for number, row in found:
        places.setdefault(row.subject, set()).add(number)
    assert set(places) == {"", *(f"{TOPIC}-{n}" for n in range(3))}
    assert {len(each) for each in places.values()} == {1}
    for subject in places:
        mine = [row for _, row in found if row.subject == subject]
        assert [row.previous_at_ms for row in mine[1:]] == [row.observed_at_ms for row in mine[:-1]]
    last: Any = [row for _, row in found if row.subject == f"{TOPIC}-0"][-1]
    seen = observation_of(last)
    assert isinstance(seen, PartitionObservation)
    assert [r.log_end_offset for r in seen.replicas] == [RECORDS]
    assert [r.high_watermark for r in seen.replicas] == [RECORDS]

    # Started again it goes on: the first row follows the last one.
    code, _, err = Collect(clusters, tmp_path, "rows", "--rounds", "2").end()
    assert code == 0, err
    mine = [row for _, row in published(clusters, "rows") if row.subject == f"{TOPIC}-0"]
    assert [row.previous_at_ms for row in mine[1:]] == [row.observed_at_ms for row in mine[:-1]]


def test_a_transport_that_goes_away_loses_nothing_and_is_told_afterwards(
    clusters: Clusters, tmp_path: Path
) -> None:
    clusters.transport.clients.create_topic("restless")
    collect = Collect(clusters, tmp_path, "restless")
    try:
        until(lambda: len(published(clusters, "restless")) > 4)
        clusters.transport.kill(1)
        time.sleep(4)
        clusters.transport.start(1)

        def told() -> list[HealthObservation]:
            rows = [row for _, row in published(clusters, "restless") if row.kind == HEALTH]
            found = [observation_of(row) for row in rows]
            return [each for each in found if isinstance(each, HealthObservation)]

        until(lambda: any(each.problem is ProblemKind.OK for each in told()), 90)
        first = told()[0]
    finally:
        code, _, err = collect.stop()
    assert code == 0, err
    assert (first.source, first.place) == ("collect", "transport")
    assert "nothing could be published for" in first.reason
    assert "given up" not in first.reason
    # Rows may have come twice, but none is missing.
    mine = [row for _, row in published(clusters, "restless") if row.subject == f"{TOPIC}-0"]
    times = sorted({row.observed_at_ms for row in mine})
    assert {row.previous_at_ms for row in mine if row.observed_at_ms > times[0]} == set(times[:-1])
