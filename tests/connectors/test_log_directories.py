"""What log directories hold, and what is said of files that vanish, are torn or cannot be read."""

from __future__ import annotations

import os
import shutil
import tempfile
import threading
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from tidestaff.connectors.log_directories import Disk, LogDirectories
from tidestaff.connectors.log_directories_problems import MOST_OF_A_KIND
from tidestaff.consistency.checkpoint_files import DirectoryKind, encode_partition_metadata
from tidestaff.consistency.model import EpochEntry, ProblemKind, TopicPartition

from tests.connectors.disk import TOPIC_ID, write_log_dir, write_offsets, write_replica
from tests.connectors.segment_bytes import v2

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

T0, T1 = TopicPartition("t", 0), TopicPartition("t", 1)
NOBODY = 65_534


def reading(*log_dirs: Path) -> LogDirectories:
    return LogDirectories(
        [str(each) for each in log_dirs], lambda: 1_700_000_000_000, lambda _: None
    )


def read(*log_dirs: Path) -> Disk:
    return reading(*log_dirs).read(None, log_ends=True)


def kinds(disk: Disk) -> dict[str, ProblemKind]:
    return {problem.place: problem.kind for problem in disk.problems}


@pytest.fixture
def log_dir(tmp_path: Path) -> Path:
    return write_log_dir(tmp_path / "data", t_0=7, t_1=9)


def test_a_replica_is_read_from_all_its_files(log_dir: Path) -> None:
    write_offsets(log_dir, "log-start-offset-checkpoint", t_0=3)
    write_offsets(log_dir, "recovery-point-offset-checkpoint", t_0=5)
    disk = read(log_dir)

    found = disk.replicas[T0]
    assert found.log_dir == str(log_dir)
    assert found.topic_id == TOPIC_ID
    assert (found.log_start_offset, found.high_watermark, found.log_end_offset) == (3, 7, 10)
    assert found.recovery_point == 5
    assert found.lineage == (EpochEntry(0, 0),)
    assert found.read_at_ms == 1_700_000_000_000
    assert found.online
    assert disk.replicas[T1].log_start_offset == 0
    assert disk.problems == ()


def test_the_directory_says_whose_it_is_and_how_it_was_left(log_dir: Path) -> None:
    (log_dir / ".kafka_cleanshutdown").write_text('{"version":0,"brokerEpoch":5}')
    write_offsets(log_dir, "cleaner-offset-checkpoint", t_1=4)
    (found,) = read(log_dir).directories
    assert found.online
    assert found.meta is not None
    assert (found.meta.version, found.meta.broker, found.meta.cluster_id) == (1, 1, "abc")
    assert found.clean_shutdown
    assert found.cleaner_offsets == {T1: 4}
    assert found.partitions == 2


def test_without_a_mark_the_broker_runs_or_was_killed(log_dir: Path) -> None:
    assert not read(log_dir).directories[0].clean_shutdown


def test_several_log_directories_are_one_broker(tmp_path: Path, log_dir: Path) -> None:
    second = write_log_dir(tmp_path / "data2", u_0=4)
    disk = read(log_dir, second)
    assert {str(p): r.log_dir for p, r in disk.replicas.items()} == {
        "t-0": str(log_dir),
        "t-1": str(log_dir),
        "u-0": str(second),
    }
    assert disk.problems == ()


def test_only_what_is_wanted_is_read_and_the_others_are_named(log_dir: Path) -> None:
    (log_dir / "t-1" / "leader-epoch-checkpoint").write_text("garbage")
    disk = reading(log_dir).read({T0, TopicPartition("none", 3)}, log_ends=False)
    assert set(disk.replicas) == {T0}
    assert disk.replicas[T0].log_end_offset is None
    assert disk.replicas[T0].lineage == (EpochEntry(0, 0),)
    assert disk.others == (T1,)
    assert disk.problems == ()


def test_marked_directories_and_kafkas_own_are_not_replicas(log_dir: Path) -> None:
    write_replica(log_dir, "gone-0.0123456789abcdef0123456789abcdef-delete")
    write_replica(log_dir, "t-2.0123456789abcdef0123456789abcdef-future")
    write_replica(log_dir, "left-0.0123456789abcdef0123456789abcdef-stray")
    write_replica(log_dir, "__cluster_metadata-0", topic_id=None)
    (log_dir / "remote-log-index-cache").mkdir()
    disk = read(log_dir)
    assert set(disk.replicas) == {T0, T1}
    assert disk.directories[0].marked == {
        DirectoryKind.DELETE: 1,
        DirectoryKind.FUTURE: 1,
        DirectoryKind.STRAY: 1,
    }
    assert disk.problems == ()


@pytest.mark.parametrize("name", ["lost+found", "t-007", "t-0.x", "-0", "a b-0"])
def test_a_directory_that_is_not_kafkas_is_told(log_dir: Path, name: str) -> None:
    (log_dir / name).mkdir()
    disk = read(log_dir)
    assert kinds(disk) == {f"{log_dir}/{name}": ProblemKind.STRAY_DIRECTORY}
    assert set(disk.replicas) == {T0, T1}


def test_a_name_that_is_no_text_is_told_as_text(log_dir: Path) -> None:
    os.mkdir(os.fsencode(log_dir) + b"/\xff\xfe")  # noqa: PTH102 - bytes
    (problem,) = read(log_dir).problems
    assert problem.place.encode("utf-8").endswith(b"\\udcff\\udcfe")


def test_a_partition_in_two_directories_is_nobodys(tmp_path: Path, log_dir: Path) -> None:
    second = write_log_dir(tmp_path / "data2", t_0=4)
    disk = read(log_dir, second)
    assert kinds(disk) == {f"{second}/t-0": ProblemKind.STRAY_DIRECTORY}
    assert set(disk.replicas) == {T1}


# -- files that are not as they should be


@pytest.mark.parametrize(
    ("name", "text"),
    [
        pytest.param("replication-offset-checkpoint", "0\n2\nt 0 5\n", id="fewer-than-counted"),
        pytest.param("log-start-offset-checkpoint", "1\n0\n", id="another-version"),
        pytest.param("recovery-point-offset-checkpoint", "\x00" * 40, id="zeros-after-a-crash"),
        pytest.param("cleaner-offset-checkpoint", "0\n1\nt zero 5\n", id="no-number"),
        pytest.param("meta.properties", "version=9\n", id="version-of-the-future"),
        pytest.param("t-0/leader-epoch-checkpoint", "0\n2\n0 0\n", id="torn-epochs"),
        pytest.param("t-0/partition.metadata", "version: 0\n", id="no-topic-id"),
    ],
)
def test_a_malformed_file_is_told_at_once_and_the_rest_is_read(
    log_dir: Path, name: str, text: str
) -> None:
    (log_dir / name).write_text(text)
    disk = read(log_dir)
    (problem,) = disk.problems
    assert (problem.place, problem.kind) == (f"{log_dir}/{name}", ProblemKind.MALFORMED)
    assert problem.at_once
    assert problem.reason
    assert problem.remedy
    assert set(disk.replicas) == {T0, T1}
    assert disk.replicas[T1].lineage == (EpochEntry(0, 0),)
    assert disk.replicas[T0].log_end_offset == 10


def test_a_torn_epoch_file_gives_no_lineage(log_dir: Path) -> None:
    (log_dir / "t-0" / "leader-epoch-checkpoint").write_text("0\n2\n0 0\n")
    disk = read(log_dir)
    assert disk.replicas[T0].lineage is None
    assert (disk.problems[0].topic, disk.problems[0].partition) == ("t", 0)


def test_a_file_that_is_whole_the_second_time_is_no_problem(log_dir: Path) -> None:
    epochs = log_dir / "t-0" / "leader-epoch-checkpoint"
    epochs.write_text("0\n2\n0 0\n")
    found = LogDirectories(
        [str(log_dir)], lambda: 0, lambda _: epochs.write_text("0\n2\n0 0\n4 9\n") and None
    ).read(None, log_ends=False)
    assert found.replicas[T0].lineage == (EpochEntry(0, 0), EpochEntry(4, 9))
    assert found.problems == ()


@pytest.mark.parametrize("name", ["leader-epoch-checkpoint", "partition.metadata"])
def test_files_of_old_versions_may_be_missing(log_dir: Path, name: str) -> None:
    (log_dir / "t-0" / name).unlink()
    disk = read(log_dir)
    assert disk.problems == ()
    replica = disk.replicas[T0]
    assert (replica.lineage is None) == (name == "leader-epoch-checkpoint")
    assert (replica.topic_id is None) == (name == "partition.metadata")


def test_an_empty_epoch_file_is_a_lineage_without_entries(log_dir: Path) -> None:
    (log_dir / "t-0" / "leader-epoch-checkpoint").write_text("0\n0\n")
    assert read(log_dir).replicas[T0].lineage == ()


def test_partitions_without_a_watermark_entry_are_named(log_dir: Path) -> None:
    write_offsets(log_dir, "replication-offset-checkpoint", t_1=9)
    disk = read(log_dir)
    (problem,) = disk.problems
    assert problem.kind is ProblemKind.CHECKPOINT_ENTRY_MISSING
    assert problem.place == f"{log_dir}/replication-offset-checkpoint"
    assert "t-0" in problem.reason
    assert "t-1" not in problem.reason
    assert disk.replicas[T0].high_watermark is None


def test_a_missing_watermark_file_leaves_every_partition_without_an_entry(log_dir: Path) -> None:
    (log_dir / "replication-offset-checkpoint").unlink()
    (problem,) = read(log_dir).problems
    assert problem.kind is ProblemKind.CHECKPOINT_ENTRY_MISSING
    assert "t-0, t-1" in problem.reason


def test_a_partition_made_just_now_may_wait_for_its_entry(log_dir: Path) -> None:
    written = (log_dir / "replication-offset-checkpoint").stat().st_mtime
    new = write_replica(log_dir, "new-0")
    for path in new.iterdir():
        os.utime(path, (written - 30, written - 30))
    assert read(log_dir).problems == ()
    for path in new.iterdir():
        os.utime(path, (written - 90, written - 90))
    assert [p.kind for p in read(log_dir).problems] == [ProblemKind.CHECKPOINT_ENTRY_MISSING]


def test_a_corrupt_newest_segment_is_told_with_its_place(log_dir: Path) -> None:
    segment = log_dir / "t-0" / f"{0:020d}.log"
    segment.write_bytes(v2(0, 5) + b"\xff" * 100)
    disk = read(log_dir)
    assert kinds(disk) == {str(segment): ProblemKind.UNREADABLE}
    assert "byte" in disk.problems[0].reason
    assert disk.replicas[T0].log_end_offset is None
    assert disk.replicas[T0].lineage is not None


def test_a_tail_that_is_being_written_is_no_problem(log_dir: Path) -> None:
    (log_dir / "t-0" / f"{0:020d}.log").write_bytes(v2(0, 5) + v2(5)[:-1])
    (log_dir / "t-1" / f"{0:020d}.log").write_bytes(v2(0, 5) + bytes(1_000))
    disk = read(log_dir)
    assert disk.problems == ()
    assert {disk.replicas[T0].log_end_offset, disk.replicas[T1].log_end_offset} == {5}


# -- links, pipes, permissions


def test_no_link_is_followed(tmp_path: Path, log_dir: Path) -> None:
    outside = write_replica(tmp_path / "elsewhere", "x-0")
    (log_dir / "x-0").symlink_to(outside)
    (log_dir / "t-0" / "leader-epoch-checkpoint").unlink()
    (log_dir / "t-0" / "leader-epoch-checkpoint").symlink_to(outside / "leader-epoch-checkpoint")
    (log_dir / "cleaner-offset-checkpoint").symlink_to(outside / "leader-epoch-checkpoint")
    disk = read(log_dir)
    assert kinds(disk) == {
        f"{log_dir}/x-0": ProblemKind.UNREADABLE,
        f"{log_dir}/t-0/leader-epoch-checkpoint": ProblemKind.UNREADABLE,
        f"{log_dir}/cleaner-offset-checkpoint": ProblemKind.UNREADABLE,
    }
    assert all("symbolic link" in problem.reason for problem in disk.problems)
    assert disk.replicas[T0].lineage is None


def test_the_log_directory_itself_may_be_a_link(tmp_path: Path, log_dir: Path) -> None:
    (tmp_path / "link").symlink_to(log_dir)
    assert set(read(tmp_path / "link").replicas) == {T0, T1}


def test_a_pipe_does_not_keep_the_reader_waiting(log_dir: Path) -> None:
    (log_dir / "t-0" / "leader-epoch-checkpoint").unlink()
    os.mkfifo(log_dir / "t-0" / "leader-epoch-checkpoint")
    found: list[Disk] = []
    thread = threading.Thread(target=lambda: found.append(read(log_dir)), daemon=True)
    thread.start()
    thread.join(10)
    assert not thread.is_alive()
    assert kinds(found[0]) == {f"{log_dir}/t-0/leader-epoch-checkpoint": ProblemKind.UNREADABLE}


def test_a_file_larger_than_kafka_writes_is_not_read(log_dir: Path) -> None:
    (log_dir / "t-0" / "partition.metadata").write_bytes(b"x" * 100_000)
    assert kinds(read(log_dir)) == {f"{log_dir}/t-0/partition.metadata": ProblemKind.UNREADABLE}


@contextmanager
def unprivileged() -> Iterator[None]:
    """Root may read everything: for a while, be nobody."""
    mine = os.geteuid()
    if mine == 0:
        os.seteuid(NOBODY)
    try:
        yield
    finally:
        os.seteuid(mine)


@pytest.fixture
def open_dir() -> Iterator[Path]:
    """Everybody may come here; pytest's own folders are for their owner."""
    folder = Path(tempfile.mkdtemp())
    folder.chmod(0o755)
    yield write_log_dir(folder / "data", t_0=7, t_1=9)
    shutil.rmtree(folder)


@pytest.mark.parametrize(
    ("name", "mode"),
    [
        ("replication-offset-checkpoint", 0o000),
        ("t-0/leader-epoch-checkpoint", 0o000),
        ("t-0/00000000000000000000.log", 0o000),
        ("t-0", 0o000),
    ],
)
def test_what_may_not_be_read_is_told_with_the_remedy(open_dir: Path, name: str, mode: int) -> None:
    (open_dir / name).chmod(mode)
    try:
        with unprivileged():
            disk = read(open_dir)
    finally:
        (open_dir / name).chmod(0o755)
    (problem,) = disk.problems
    assert (problem.place, problem.kind) == (f"{open_dir}/{name}", ProblemKind.UNREADABLE)
    assert "user" in problem.remedy
    assert T1 in disk.replicas


def test_a_log_directory_that_may_not_be_read_is_not_said_to_be_offline(open_dir: Path) -> None:
    open_dir.chmod(0o000)
    try:
        with unprivileged():
            disk = read(open_dir)
    finally:
        open_dir.chmod(0o755)
    assert kinds(disk) == {str(open_dir): ProblemKind.UNREADABLE}
    assert disk.replicas == {}


# -- what happens meanwhile


def test_a_log_directory_that_goes_offline_takes_its_replicas_along(
    tmp_path: Path, log_dir: Path
) -> None:
    second = write_log_dir(tmp_path / "data2", u_0=4)
    reader = reading(log_dir, second)
    assert len(reader.read(None, log_ends=True).replicas) == 3
    log_dir.rename(tmp_path / "unmounted")

    disk = reader.read({T0, TopicPartition("u", 0)}, log_ends=True)
    assert kinds(disk) == {str(log_dir): ProblemKind.LOG_DIR_OFFLINE}
    assert not disk.replicas[T0].online
    assert disk.replicas[T0].lineage is None
    assert disk.replicas[TopicPartition("u", 0)].online
    assert [each.online for each in disk.directories] == [False, True]

    (tmp_path / "unmounted").rename(log_dir)
    back = reader.read(None, log_ends=True)
    assert back.problems == ()
    assert back.replicas[T0].online


def test_a_replica_that_moves_away_is_not_kept(tmp_path: Path, log_dir: Path) -> None:
    second = write_log_dir(tmp_path / "data2", u_0=4)
    reader = reading(log_dir, second)
    reader.read(None, log_ends=True)
    (log_dir / "t-0").rename(second / "t-0")
    log_dir.rename(tmp_path / "unmounted")
    disk = reader.read(None, log_ends=True)
    assert disk.replicas[T0].online
    assert not disk.replicas[T1].online


@pytest.mark.parametrize(
    "change",
    [
        pytest.param(shutil.rmtree, id="deleted"),
        pytest.param(lambda at: at.rename(f"{at}.0123-delete"), id="renamed"),
        pytest.param(lambda at: (at / f"{0:020d}.log").unlink(), id="segment-gone"),
    ],
)
def test_a_replica_that_vanishes_between_listing_and_reading_is_left_out(
    log_dir: Path, monkeypatch: pytest.MonkeyPatch, change: Callable[[Path], object]
) -> None:
    reader = reading(log_dir)
    replica = LogDirectories._replica

    def after_the_change(self: LogDirectories, *given: object, **more: object) -> object:
        if (log_dir / "t-0" / f"{0:020d}.log").exists():
            change(log_dir / "t-0")
        return replica(self, *given, **more)  # type: ignore[arg-type]

    monkeypatch.setattr(LogDirectories, "_replica", after_the_change)
    disk = reader.read(None, log_ends=True)
    assert disk.problems == ()
    assert T1 in disk.replicas
    assert T0 not in disk.replicas or disk.replicas[T0].log_end_offset is None


def test_a_topic_made_again_is_another_directory(log_dir: Path) -> None:
    reader = reading(log_dir)
    assert reader.read(None, log_ends=True).replicas[T0].log_end_offset == 10
    shutil.rmtree(log_dir / "t-0")
    made = write_replica(log_dir, "t-0", records=2, epochs=((0, 0),))
    other = "AAAAAAAAAAAAAAAAAAAAAQ"
    (made / "partition.metadata").write_text(encode_partition_metadata(other))
    replica = reader.read(None, log_ends=True).replicas[T0]
    assert (replica.topic_id, replica.log_end_offset) == (other, 2)


def test_nothing_is_written(log_dir: Path) -> None:
    before = {path: path.stat().st_mtime_ns for path in log_dir.rglob("*")}
    read(log_dir)
    assert {path: path.stat().st_mtime_ns for path in log_dir.rglob("*")} == before


def test_thousands_of_problems_of_one_kind_are_not_listed_one_by_one(log_dir: Path) -> None:
    for number in range(MOST_OF_A_KIND + 30):
        (log_dir / f"strange{number}").mkdir()
    problems = read(log_dir).problems
    assert len(problems) == MOST_OF_A_KIND + 1
    assert problems[-1].reason == "30 more of this kind"


@pytest.mark.parametrize("log_ends", [False, True], ids=["plain", "with-log-ends"])
def test_files_that_have_not_changed_are_not_opened_again(
    log_dir: Path, monkeypatch: pytest.MonkeyPatch, log_ends: bool
) -> None:
    reader = reading(log_dir)
    before = reader.read(None, log_ends=log_ends)
    opened: list[str] = []
    really = os.open

    def noting(name: str, *given: object, **more: object) -> int:
        opened.append(name)
        return really(name, *given, **more)  # type: ignore[arg-type]

    monkeypatch.setattr(os, "open", noting)
    assert reader.read(None, log_ends=log_ends).replicas == before.replicas
    assert "leader-epoch-checkpoint" not in opened
    assert "replication-offset-checkpoint" in opened


@pytest.mark.parametrize("log_ends", [False, True], ids=["plain", "with-log-ends"])
@pytest.mark.parametrize("renamed", [True, False])
def test_a_file_with_another_content_is_read_whatever_its_length(
    log_dir: Path, renamed: bool, log_ends: bool
) -> None:
    reader = reading(log_dir)
    reader.read(None, log_ends=log_ends)
    epochs = log_dir / "t-0" / "leader-epoch-checkpoint"
    target = log_dir / "t-0" / "leader-epoch-checkpoint.tmp" if renamed else epochs
    target.write_text("0\n1\n7 0\n")
    target.rename(epochs)
    assert reader.read(None, log_ends=log_ends).replicas[T0].lineage == (EpochEntry(7, 0),)
    assert reader.read(None, log_ends=log_ends).replicas[T1].lineage == (EpochEntry(0, 0),)


def test_a_malformed_file_is_told_every_time_until_it_is_well(log_dir: Path) -> None:
    reader = reading(log_dir)
    reader.read(None, log_ends=False)
    epochs = log_dir / "t-0" / "leader-epoch-checkpoint"
    epochs.write_text("torn")
    for _ in range(2):
        disk = reader.read(None, log_ends=False)
        assert [each.kind for each in disk.problems] == [ProblemKind.MALFORMED]
        assert disk.replicas[T0].lineage is None
    epochs.write_text("0\n1\n7 0\n")
    assert reader.read(None, log_ends=False).problems == ()


def test_a_directory_swapped_for_a_link_is_not_followed_later_either(
    tmp_path: Path, log_dir: Path
) -> None:
    reader = reading(log_dir)
    reader.read(None, log_ends=False)
    (log_dir / "t-0").rename(tmp_path / "t-0")
    (log_dir / "t-0").symlink_to(tmp_path / "t-0")
    disk = reader.read(None, log_ends=False)
    assert T0 not in disk.replicas
    assert kinds(disk) == {f"{log_dir}/t-0": ProblemKind.UNREADABLE}
