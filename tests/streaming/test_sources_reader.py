"""The job's own source without Spark around it: offsets, restarts, ticks."""

from __future__ import annotations

import json
import pickle
import time
from typing import TYPE_CHECKING, Any

import pytest
from tidestaff.connectors.wire import TICK, Row
from tidestaff.streaming.commands.exits import CommandError
from tidestaff.streaming.settings import Cluster
from tidestaff.streaming.sources import reader
from tidestaff.streaming.sources.collecting import Collecting, collector_of
from tidestaff.streaming.sources.reader import RowReader
from tidestaff.streaming.sources.row_files import file_name, listed, to_rows, write
from tidestaff.streaming.sources.simulated import STORIES, SimulatedCollector, written

if TYPE_CHECKING:
    from pathlib import Path

    from tidestaff.streaming.sources.reader import Offset


def row(at_ms: int) -> Row:
    return Row(1, "gone", "c", "s", "t-0", at_ms, 0, 0, [], [], [], [], [], b"")


def reader_of(
    folder: Path, clusters: list[dict[str, Any]], after: Offset | None = None, tick_ms: int = 0
) -> RowReader:
    return RowReader(
        {
            reader.CLUSTERS_OPTION: json.dumps(clusters),
            reader.FOLDER_OPTION: str(folder / "journal"),
            reader.AFTER_OPTION: json.dumps(after or {}),
            reader.TICK_OPTION: str(tick_ms),
        }
    )


def rows_between(source: RowReader, start: Offset, end: Offset) -> list[Row]:
    return [
        each
        for partition in source.partitions(start, end)
        for batch in source.read(partition)
        for each in to_rows(batch)
    ]


@pytest.fixture
def recording(tmp_path: Path) -> list[dict[str, Any]]:
    folder = tmp_path / "rec"
    folder.mkdir()
    for at_ms in range(7):
        write(folder / file_name(at_ms, 1, "parquet"), [row(at_ms)])
    return [
        {"name": "r", "source": {"type": "recording", "path": str(folder), "files_per_batch": 3}}
    ]


def test_a_recording_comes_in_batches_in_the_order_of_events(
    tmp_path: Path, recording: list[dict[str, Any]]
) -> None:
    source, seen, start = reader_of(tmp_path, recording), [], {}
    start = source.initialOffset()
    while (end := source.latestOffset()) != start:
        seen.append([each.observed_at_ms for each in rows_between(source, start, end)])
        start = end
    assert seen == [[0, 1, 2], [3, 4, 5], [6]]


def test_a_restarted_reader_goes_on_where_the_checkpoint_says(
    tmp_path: Path, recording: list[dict[str, Any]]
) -> None:
    first = reader_of(tmp_path, recording).latestOffset()
    again = reader_of(tmp_path, recording, first)
    end = again.latestOffset()
    assert [each.observed_at_ms for each in rows_between(again, first, end)] == [3, 4, 5]
    assert [e.observed_at_ms for e in rows_between(again, {}, first)] == [0, 1, 2], "once more"


def test_a_file_that_comes_later_is_read(tmp_path: Path, recording: list[dict[str, Any]]) -> None:
    source = reader_of(tmp_path, recording)
    for _ in range(3):
        start = source.latestOffset()
    write(tmp_path / "rec" / file_name(99, 1, "avro"), [row(99)])
    end = source.latestOffset()
    assert [each.observed_at_ms for each in rows_between(source, start, end)] == [99]


def test_nothing_starts_before_an_offset_is_asked_for_and_the_reader_can_be_pickled(
    tmp_path: Path,
) -> None:
    source = reader_of(tmp_path, [{"name": "c", "source": {"type": "simulator"}}])
    pickle.loads(pickle.dumps(source))  # noqa: S301 - our own
    assert not (tmp_path / "journal").exists()


def test_a_tick_is_a_row_with_the_time_of_its_offset(tmp_path: Path) -> None:
    source = reader_of(tmp_path, [], tick_ms=1_000)
    end = source.latestOffset()
    (tick,) = rows_between(source, {}, end)
    assert tick.kind == TICK
    assert tick.observed_at_ms == end[reader.TICK_KEY]
    assert tick.observed_at_ms % 1_000 == 0
    assert rows_between(source, end, end) == []
    assert rows_between(source, {}, end) == [tick], "the same when it is repeated"


def wait_for(source: RowReader, cluster: str, number: int) -> Offset:
    until = time.monotonic() + 30
    while time.monotonic() < until:
        end = source.latestOffset()
        if int(str(end.get(cluster, "0")).partition(".")[0]) >= number:
            return end
        time.sleep(0.01)
    raise AssertionError(f"nothing came: {end}")


FAST = {"type": "simulator", "round_interval_ms": 1_000, "speed": 1_000, "faults": "none"}


def test_a_collector_is_read_round_by_round_and_the_same_again(tmp_path: Path) -> None:
    source = reader_of(tmp_path, [{"name": "c", "source": FAST}])
    end = wait_for(source, "c", 5)
    first = rows_between(source, {}, end)
    assert {each.round for each in first} >= {1, 2, 3, 4, 5}
    assert rows_between(source, {}, end) == first
    source.stop()


def test_a_restarted_simulation_goes_on_with_the_next_round(tmp_path: Path) -> None:
    clusters = [{"name": "c", "source": {**FAST, "rounds": 6}}]
    before = reader_of(tmp_path, clusters)
    wait_for(before, "c", 6)
    before.stop()
    more = [{"name": "c", "source": {**FAST, "rounds": 9}}]
    end = {"c": "000000000006.parquet"}
    after = reader_of(tmp_path, more, end)
    found = rows_between(after, end, wait_for(after, "c", 9))
    assert {each.round for each in found} == {7, 8, 9}
    last = [r for r in rows_between(after, {}, end) if r.round == 6]
    first = [r for r in found if r.round == 7]
    assert {r.subject: r.previous_at_ms for r in first} == {
        r.subject: r.observed_at_ms for r in last
    }


def test_a_number_that_spark_has_seen_is_not_given_again_when_files_are_lost(
    tmp_path: Path,
) -> None:
    clusters = [{"name": "c", "source": {**FAST, "rounds": 12}}]
    source = reader_of(tmp_path, clusters, {"c": "000000000010.parquet"})
    wait_for(source, "c", 12)
    assert listed(tmp_path / "journal" / "c") == ["000000000011.parquet", "000000000012.parquet"]


def test_what_is_committed_is_forgotten_but_for_the_newest(tmp_path: Path) -> None:
    cluster = Cluster.model_validate({"name": "c", "source": FAST})
    collecting = Collecting(cluster, tmp_path)
    for number in range(1, 5):
        write(collecting.journal.path(number), [row(number)])
    collecting.journal.forget(3)
    assert listed(tmp_path) == ["000000000003.parquet", "000000000004.parquet"]


def test_a_collector_that_is_not_known_is_told_which_there_are() -> None:
    source = {"type": "direct", "collector": "simulatr"}
    cluster = Cluster.model_validate({"name": "west", "source": source})
    with pytest.raises(
        CommandError, match=r"west: no collector 'simulatr'.*did you mean simulator"
    ):
        collector_of(cluster)


def test_a_direct_source_runs_the_collector_it_names() -> None:
    source = {"type": "direct", "collector": "simulator", "options": {"brokers": 2, "topics": 1}}
    collector = collector_of(Cluster.model_validate({"name": "west", "source": source}))
    assert {each.cluster for each in collector.round()} == {"west"}


def test_an_error_of_a_collector_reaches_spark(tmp_path: Path) -> None:
    source = reader_of(tmp_path, [{"name": "c", "source": {"type": "direct", "collector": "x"}}])
    with pytest.raises(CommandError, match="no collector 'x'"):
        wait_for(source, "c", 1)


@pytest.mark.parametrize("name", sorted(path.stem for path in STORIES.glob("*.txt")))
def test_a_story_lived_round_by_round_does_what_it_does_at_once(name: str) -> None:
    script = written("c", STORIES / f"{name}.txt")
    source = {"type": "simulator", "scenario": name, "round_interval_ms": 700}
    cluster = Cluster.model_validate({"name": "c", "source": source})
    collector = collector_of(cluster)
    assert isinstance(collector, SimulatedCollector)
    told = []
    while collector.cluster.now_ms < script.end_ms:
        collector.round()
        told += [each.text for each in collector.told()]
    assert told == [each.text for each in script.told]
    done = [(a["at_ms"], a["do"]) for a in collector.cluster.actions if a["applied"]]
    assert done[: len(script.actions)] == [(a["at_ms"], a["do"]) for a in script.actions]
