"""The job's own source without Spark around it: offsets, restarts, ticks."""

from __future__ import annotations

import json
import pickle
import time
from typing import TYPE_CHECKING, Any

import pytest
from tidestaff.connectors.wire import TICK, Row, WireError, observation_of
from tidestaff.consistency.model import HealthObservation, ProblemKind
from tidestaff.streaming.commands.exits import CommandError
from tidestaff.streaming.settings import Cluster
from tidestaff.streaming.sources import collecting as collecting_module
from tidestaff.streaming.sources import reader
from tidestaff.streaming.sources.collecting import STORY, Collecting, collector_of, number_of
from tidestaff.streaming.sources.reader import RowReader
from tidestaff.streaming.sources.row_files import (
    UnreadFileError,
    batches,
    file_name,
    listed,
    to_rows,
    write,
)
from tidestaff.streaming.sources.simulated import STORIES, SimulatedCollector, written
from tidestaff.streaming.sources.steady_clock import SelfWatch, SteadyClock

if TYPE_CHECKING:
    from pathlib import Path

    from tidestaff.consistency.model import Observation
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


def test_a_file_that_another_recorder_ends_after_a_later_one_is_read_too(tmp_path: Path) -> None:
    """Each recorder writes its own files in order; together they do not."""
    folder = tmp_path / "rec"
    folder.mkdir()
    told = [{"name": "r", "source": {"type": "recording", "path": str(folder)}}]

    def ends(at_ms: int, cluster: str) -> None:
        name = file_name(at_ms, 1, "parquet").replace(".", f"-{cluster}.")
        write(folder / name, [row(at_ms)])

    source, start, seen = reader_of(tmp_path, told), {}, []
    order = [(9, "b"), (8, "a"), (19, "b"), (18, "a"), (17, "new-3.9"), (29, "b"), (28, "a")]
    for number, (at_ms, cluster) in enumerate(order):
        ends(at_ms, cluster)
        if number % 2:
            source = reader_of(tmp_path, told, start)
        end = source.latestOffset()
        seen += [each.observed_at_ms for each in rows_between(source, start, end)]
        assert source.latestOffset() == end
        start = end
    assert seen == [at_ms for at_ms, _ in order]
    assert start["r"] > max(path.name for path in folder.iterdir())


@pytest.mark.parametrize("suffix", ["parquet", "avro"])
def test_a_broken_file_is_told_and_the_rest_goes_on(tmp_path: Path, suffix: str) -> None:
    folder = tmp_path / "rec"
    folder.mkdir()
    for at_ms in range(4):
        write(folder / file_name(at_ms, 1, suffix), [row(at_ms)])
    broken = folder / file_name(2, 1, suffix)
    broken.write_bytes(broken.read_bytes()[:40])
    source = reader_of(
        tmp_path, [{"name": "r", "source": {"type": "recording", "path": str(folder)}}]
    )
    found = rows_between(source, {}, source.latestOffset())
    assert [(each.kind, each.observed_at_ms) for each in found] == [
        ("gone", 0),
        ("gone", 1),
        ("refused", 2),
        ("gone", 3),
    ]
    assert found[2][2:5] == ("r", str(folder), broken.name)
    with pytest.raises(WireError, match=r"file of rows .*: remove it or record it again"):
        observation_of(found[2])


@pytest.mark.parametrize("suffix", ["parquet", "avro"])
def test_a_file_that_the_system_does_not_give_is_tried_again(tmp_path: Path, suffix: str) -> None:
    folder = tmp_path / "rec"
    (folder / file_name(1, 1, suffix)).mkdir(parents=True)
    source = reader_of(
        tmp_path, [{"name": "r", "source": {"type": "recording", "path": str(folder)}}]
    )
    end = source.latestOffset()
    with pytest.raises(OSError if suffix == "avro" else UnreadFileError, match="irectory"):
        rows_between(source, {}, end)


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


def test_a_story_begins_when_the_program_does_and_goes_on_at_its_pace(tmp_path: Path) -> None:
    """`make run` is to show a loss within 90 s, and Spark takes half of that to start."""
    hands = Hands(100_000)
    source = {"type": "simulator", "scenario": "story-0.10.2", "round_interval_ms": 1_000}
    cluster = Cluster.model_validate({"name": "c", "source": source})
    story = Collecting(cluster, tmp_path / "c", clock=hands.clock, since_ms=88_000)
    story.start()
    until = time.monotonic() + 60
    while story.newest < 13 and time.monotonic() < until:
        time.sleep(0.005)
    story.stop()
    story.join()
    assert 13 <= story.newest <= 15, "twelve rounds are over at once, then one a second"
    found = [
        r for n in listed(tmp_path / "c") for b in batches(tmp_path / "c" / n) for r in to_rows(b)
    ]
    first = min(r.observed_at_ms for r in found if r.round == 1)
    assert first == 89_000
    assert max(r.observed_at_ms for r in found if r.round == 12) == 100_000
    told = [json.loads(line) for line in (tmp_path / "c" / STORY).read_text().splitlines()]
    assert "Act 1" in told[1]["text"]

    again = Collecting(cluster, tmp_path / "c", clock=hands.clock, since_ms=88_000)
    assert again._catch_up(SimulatedCollector("c", cluster.source), 1_000.0) == 0


@pytest.mark.parametrize("given", [{}, {"scenario": "s23-loss-0.10.2"}])
def test_only_a_story_has_lived_before_it_was_watched(
    tmp_path: Path, given: dict[str, str]
) -> None:
    cluster = Cluster.model_validate({"name": "c", "source": {**FAST, **given}})
    hands = Hands(100_000)
    collecting = Collecting(cluster, tmp_path, clock=hands.clock, since_ms=88_000)
    assert collecting._catch_up(SimulatedCollector("c", cluster.source), 1_000.0) == 0


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


class Hands:
    """A wall clock and a monotonic one, in a test's hands."""

    def __init__(self, wall_ms: float) -> None:
        self.wall_ms, self.monotonic_ms = wall_ms, 0.0
        self.clock = SteadyClock(lambda: self.wall_ms, lambda: self.monotonic_ms)

    def pass_by(self, passed_ms: float) -> int:
        self.wall_ms += passed_ms
        self.monotonic_ms += passed_ms
        return self.clock()


def test_a_clock_that_is_set_back_goes_on_and_waits_until_it_is_right_again() -> None:
    hands = Hands(100_000)
    assert hands.pass_by(1_000) == 101_000
    hands.wall_ms -= 50
    times = [hands.pass_by(1_000) for _ in range(10)]
    assert times[0] == 101_990
    assert times == sorted(set(times))
    assert times[-1] == hands.wall_ms == 110_950
    hands.wall_ms += 60_000
    assert hands.clock() == 170_950, "forward it goes at once"


class Rounds:
    """A collector that sees one partition gone by the second, or fails as it is told."""

    def __init__(self, clock: SteadyClock) -> None:
        self.clock, self.number = clock, 0
        self.trouble: Exception | None = None

    def round(self) -> list[Observation]:
        self.number += 1
        if self.trouble is not None:
            raise self.trouble
        at_ms = self.clock()
        return [HealthObservation("c", at_ms, "s", ProblemKind.OK, "p", round=self.number)]


DIRECT = {"name": "c", "source": {"type": "direct", "collector": "brokers"}}


def told_by(collecting: Collecting, collector: Rounds) -> list[tuple[str, ProblemKind]]:
    seen, _ = collecting._round_of(collector)
    own = [each for each in seen if isinstance(each, HealthObservation) and each.place != "p"]
    return [(each.place, each.problem) for each in own]


def test_a_clock_that_was_set_back_is_told_until_it_is_right_again(tmp_path: Path) -> None:
    hands = Hands(100_000)
    collecting = Collecting(Cluster.model_validate(DIRECT), tmp_path, clock=hands.clock)
    rounds = Rounds(hands.clock)
    assert told_by(collecting, rounds) == []
    hands.wall_ms -= 30_000
    hands.monotonic_ms += 1
    for _ in range(2):
        assert told_by(collecting, rounds) == [(SelfWatch.CLOCK, ProblemKind.CLOCK_SKEW)]
    hands.wall_ms += 60_000
    assert told_by(collecting, rounds) == [(SelfWatch.CLOCK, ProblemKind.OK)]
    assert told_by(collecting, rounds) == []


def test_times_of_a_collector_go_on_after_its_journal(tmp_path: Path) -> None:
    collecting = Collecting(Cluster.model_validate(DIRECT), tmp_path)
    write(collecting.journal.path(1), [row(500_000)])
    hands = Hands(100_000)
    Collecting(Cluster.model_validate(DIRECT), tmp_path, clock=hands.clock)
    assert hands.clock() > 500_000


def test_a_round_that_fails_is_told_and_the_next_is_tried(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    rounds = Rounds(SteadyClock())
    rounds.trouble = ZeroDivisionError("a word of the error")
    monkeypatch.setitem(collecting_module.COLLECTORS, "brokers", lambda _, __: rounds)
    quick = {**DIRECT["source"], "round_interval_ms": 100}  # type: ignore[dict-item]
    source = reader_of(tmp_path, [{**DIRECT, "source": quick}])
    end = wait_for(source, "c", 2)
    seen = [observation_of(each) for each in rows_between(source, {}, end)]
    assert {(e.place, e.problem) for e in seen if isinstance(e, HealthObservation)} == {
        (SelfWatch.FAILING, ProblemKind.SILENT)
    }
    assert all("ZeroDivisionError in test_sources_reader.py" in str(each) for each in seen)
    assert "a word of the error" not in str(seen)
    rounds.trouble = None
    last = int(end["c"].partition(".")[0])
    then = wait_for(source, "c", last + 2)
    places = [r.subject for r in rows_between(source, end, then)]
    assert "s/p" in places, "it sees again"
    source.stop()


def test_the_last_round_that_saw_the_cluster_is_kept(tmp_path: Path) -> None:
    cluster = Cluster.model_validate({"name": "c", "source": {**FAST, "rounds": 1}})
    collecting = Collecting(cluster, tmp_path)
    collecting.run()
    for number in range(2, 6):
        write(collecting.journal.path(number), [row(number)])
    for each in (collecting, Collecting(cluster, tmp_path)):
        each.journal.forget(4)
        assert [number_of(name) for name in listed(tmp_path)] == [1, 4, 5]


def test_a_journal_of_another_release_does_not_keep_a_collector_from_starting(
    tmp_path: Path,
) -> None:
    cluster = Cluster.model_validate(DIRECT)
    write(
        Collecting(cluster, tmp_path).journal.path(1), [row(7)._replace(kind="health", body=b"?")]
    )
    assert Collecting(cluster, tmp_path)._told == []


def test_ticks_go_on_when_the_machines_clock_is_set_back(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    hands = Hands(1_000_000)
    monkeypatch.setattr(reader, "SteadyClock", lambda: hands.clock)
    source = reader_of(tmp_path, [], after={reader.TICK_KEY: 1_200_000}, tick_ms=1_000)
    assert source.latestOffset()[reader.TICK_KEY] == 1_200_000, "set back before the start"
    hands.pass_by(10_000)
    assert source.latestOffset()[reader.TICK_KEY] == 1_209_000
    hands.wall_ms -= 600_000
    hands.pass_by(10_000)
    assert source.latestOffset()[reader.TICK_KEY] == 1_219_000


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
