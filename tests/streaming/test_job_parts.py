"""The small parts of the job: the lock, the quarantine, the status line, jars, the session's
settings."""

from __future__ import annotations

import hashlib
import io
import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
from tidestaff.streaming import checkpoint, session
from tidestaff.streaming.checkpoint import CheckpointLock
from tidestaff.streaming.commands.exits import CommandError
from tidestaff.streaming.jars import JARS_DIR, LOCK, JarError, jars, locked
from tidestaff.streaming.operator.judging import judge
from tidestaff.streaming.pipeline import first_line
from tidestaff.streaming.quarantine import Quarantine
from tidestaff.streaming.running import Stories, together
from tidestaff.streaming.settings import Settings
from tidestaff.streaming.status_line import StatusLine
from tidestaff.streaming.worker_daemon import without_archives


def test_a_second_job_on_one_work_directory_is_refused_and_told_who_runs(tmp_path: Path) -> None:
    with CheckpointLock(tmp_path):
        who = checkpoint.running(tmp_path)
        with pytest.raises(CommandError, match=f"process {os.getpid()} on .* already"):
            CheckpointLock(tmp_path).__enter__()
    assert who is not None
    assert str(os.getpid()) in who
    assert checkpoint.running(tmp_path) is None
    with CheckpointLock(tmp_path):
        pass


def entry(folder: Path, number: int, offset: str) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    (folder / str(number)).write_text(f'v1\n{{"batchWatermarkMs":0}}\n{offset}\n{{"t":{{"0":1}}}}')


def test_a_planned_batch_counts_as_read_a_committed_one_as_done(tmp_path: Path) -> None:
    assert checkpoint.planned(tmp_path) == checkpoint.done(tmp_path) == {}
    for number in (9, 10, 11):
        entry(tmp_path / "offsets", number, json.dumps({"c": str(number)}))
    entry(tmp_path / "commits", 10, "{}")
    (tmp_path / "offsets" / ".12.crc").touch()
    assert checkpoint.planned(tmp_path) == {"c": "11"}
    assert checkpoint.done(tmp_path) == {"c": "10"}


def refused(number: int, size: int = 10) -> tuple[str, int, str]:
    return ("quarantine", number, json.dumps({"reason": "x" * size, "n": number}))


def test_quarantine_keeps_each_record_of_a_repeated_batch_once(tmp_path: Path) -> None:
    path = tmp_path / "q" / "records.jsonl"
    for _ in range(2):
        kept = Quarantine(path, 100_000, 3)
        kept.process_batch("query", 1, [refused(1), ("stats", 0, "{}")])
        kept.process_batch("query", 2, [refused(2)])
    found = [json.loads(line) for line in path.read_text().splitlines()]
    assert [each["n"] for each in found] == [1, 2]
    Quarantine(path, 100_000, 3).process_batch("another query", 1, [refused(3)])
    assert len(path.read_text().splitlines()) == 3


def test_quarantine_is_bounded(tmp_path: Path) -> None:
    path = tmp_path / "records.jsonl"
    kept = Quarantine(path, 1_000, 3)
    for number in range(100):
        kept.process_batch("query", number, [refused(number, 100)])
    files = sorted(p.name for p in tmp_path.iterdir())
    assert files == ["records.jsonl", "records.jsonl.1", "records.jsonl.2"]
    assert sum(p.stat().st_size for p in tmp_path.iterdir()) < 3 * 1_400
    assert json.loads(path.read_text().splitlines()[-1])["n"] == 99


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


def test_on_a_terminal_the_status_stays_in_one_line_and_gives_way() -> None:
    out, alerts = Terminal(), io.StringIO()
    status = StatusLine(out)
    status.show("1 batch")
    status.show("2 batches")
    status.below(alerts).write("ALERT\n")
    assert out.getvalue() == "1 batch\r\x1b[K2 batches\r\x1b[K"
    assert alerts.getvalue() == "ALERT\n"


def test_without_a_terminal_the_status_is_said_once_a_minute() -> None:
    out, clock = io.StringIO(), [0.0]
    status = StatusLine(out, now=lambda: clock[0])
    for now in (0.0, 1.0, 59.0, 60.0, 61.0):
        clock[0] = now
        status.show(f"at {now:.0f}")
    assert out.getvalue() == "tidestaff: at 0\ntidestaff: at 60\n"


def test_the_story_is_told_from_where_it_was(tmp_path: Path) -> None:
    file = tmp_path / "c" / "story.jsonl"
    file.parent.mkdir()
    old, new = ({"cluster": "c", "at_ms": at, "text": str(at)} for at in (1, 2))
    file.write_text(json.dumps(old) + "\n")
    stories = Stories(tmp_path)
    with file.open("a") as out:
        out.write(json.dumps(new) + "\n" + '{"half')
    assert stories.new() == []
    assert stories.new() == [new]
    assert stories.new() == []


def test_clusters_that_live_through_the_same_are_told_together(tmp_path: Path) -> None:
    stories = Stories(tmp_path)
    for cluster in "ab":
        (tmp_path / cluster).mkdir()
        lines = [{"cluster": cluster, "at_ms": at, "text": f"Act {at}"} for at in (1, 2)]
        (tmp_path / cluster / "story.jsonl").write_text(
            "".join(f"{json.dumps(x)}\n" for x in lines)
        )
        assert stories.new() == [], "the other one may be about to say the same"
    said = together(stories.new())
    assert [line.partition(" ")[2] for line in said] == ["a, b: Act 1", "a, b: Act 2"]


def test_what_two_clusters_tell_alike_is_said_once() -> None:
    told = [{"cluster": c, "at_ms": 0, "text": "Act 1"} for c in ("a", "b")]
    (line,) = together(told)
    assert line.endswith("a, b: Act 1")


def lock_file(tmp_path: Path, content: bytes, digest: str | None = None) -> tuple[Path, Path]:
    folder = tmp_path / "jars"
    folder.mkdir(exist_ok=True)
    (folder / "a-1.jar").write_bytes(content)
    lock = tmp_path / "x.lock"
    lock.write_text(f"# words\ng:a:1 sha256:{digest or hashlib.sha256(content).hexdigest()}\n")
    return lock, folder


def test_jars_of_a_folder_are_taken_without_a_network(tmp_path: Path) -> None:
    lock, folder = lock_file(tmp_path, b"jar")
    assert jars(lock, {JARS_DIR: str(folder)}) == [folder / "a-1.jar"]


def test_a_jar_with_another_hash_is_refused(tmp_path: Path) -> None:
    lock, folder = lock_file(tmp_path, b"jar", "0" * 64)
    with pytest.raises(JarError, match=r"found SHA-256 .* expected 0000"):
        jars(lock, {JARS_DIR: str(folder)})


def test_a_jar_that_is_missing_is_named_with_the_remedy(tmp_path: Path) -> None:
    lock, _ = lock_file(tmp_path, b"jar")
    with pytest.raises(JarError) as raised:
        jars(lock, {JARS_DIR: str(tmp_path / "empty")})
    assert "expected the jar g:a:1" in raised.value.problems[0]
    assert JARS_DIR in raised.value.problems[1]


def test_fetching_ends_when_it_is_told_to_and_leaves_nobody_behind(tmp_path: Path) -> None:
    lock, _ = lock_file(tmp_path, b"jar")
    java = tmp_path / "home" / "bin" / "java"
    java.parent.mkdir(parents=True)
    java.write_text(f"#!/bin/sh\necho $$ > {tmp_path}/pid\nexec sleep 600\n")
    java.chmod(0o755)
    environment = {"JAVA_HOME": str(tmp_path / "home"), "XDG_CACHE_HOME": str(tmp_path / "cache")}
    pid = tmp_path / "pid"
    with pytest.raises(JarError, match="could not fetch g:a:1: told to stop"):
        jars(lock, environment, stopped=lambda: pid.exists() and pid.read_text().endswith("\n"))
    assert not Path("/proc", pid.read_text().strip()).exists()


def test_a_line_that_is_no_coordinate_is_named(tmp_path: Path) -> None:
    lock = tmp_path / "x.lock"
    lock.write_text("g:a sha256:1\n")
    with pytest.raises(JarError, match=r"x\.lock, line 1: found 'g:a sha256:1'"):
        locked(lock)


def test_the_lock_file_that_ships_is_whole() -> None:
    assert {jar.artifact.split("_2.13")[0] for jar in locked(LOCK)} == {
        *("spark-sql-kafka-0-10", "spark-token-provider-kafka-0-10", "spark-avro"),
        *("kafka-clients", "commons-pool2"),
    }


def test_a_missing_java_is_one_sentence(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("JAVA_HOME", str(tmp_path))
    with pytest.raises(session.JavaError, match="Spark needs Java 17 or 21, and JAVA_HOME is"):
        session.check_java()
    monkeypatch.delenv("JAVA_HOME")
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(session.JavaError, match="there is no java: install it, or set JAVA_HOME"):
        session.check_java()


def test_an_old_java_is_one_sentence(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    program = tmp_path / "bin" / "java"
    program.parent.mkdir()
    program.write_text("#!/bin/sh\necho 'openjdk version \"1.8.0_402\"' >&2\n")
    program.chmod(0o755)
    monkeypatch.setenv("JAVA_HOME", str(tmp_path))
    with pytest.raises(session.JavaError, match=r"bin/java is Java 8: install it"):
        session.check_java()


@pytest.mark.parametrize(
    ("spark", "expected"),
    [
        pytest.param({"master": "local[3]"}, 3, id="as-many-as-the-master-has-cores"),
        pytest.param({"master": "local"}, 1, id="one-core"),
        pytest.param({"master": "local[8]"}, 4, id="never-more-than-buckets"),
        pytest.param({"master": "local[2]", "shuffle_partitions": 7}, 7, id="as-told"),
    ],
)
def test_shuffle_partitions(spark: dict[str, object], expected: int) -> None:
    settings = Settings.model_validate({"spark": spark, "operator": {"buckets": 4}})
    assert session.shuffle_partitions(settings) == expected


def test_a_local_session_stays_on_loopback_and_the_last_word_is_the_users(tmp_path: Path) -> None:
    spark = {"conf": {"spark.ui.enabled": True, "spark.x": 1}}
    settings = Settings.model_validate({"work_dir": str(tmp_path), "spark": spark})
    found = session.configuration(settings, [Path("/a.jar"), Path("/b.jar")])
    assert found["spark.driver.bindAddress"] == found["spark.driver.host"] == "127.0.0.1"
    assert found["spark.ui.enabled"] == "true"
    assert found["spark.x"] == "1"
    assert found["spark.jars"] == "/a.jar,/b.jar"
    away = Settings.model_validate({"spark": {"master": "spark://h:7077"}})
    assert "spark.driver.host" not in session.configuration(away)


def test_a_checkpoint_is_small_on_a_disk_and_sparing_of_requests_elsewhere() -> None:
    key = "spark.sql.streaming.minBatchesToRetain"
    assert session.configuration(Settings())[key] == "2"
    there = Settings.model_validate({"checkpoint_dir": "s3a://bucket/tidestaff"})
    assert session.configuration(there)[key] == "10"
    mine = Settings.model_validate({"spark": {"conf": {key: 7}}})
    assert session.configuration(mine)[key] == "7"


def test_workers_do_without_the_archives_spark_puts_on_their_path() -> None:
    paths = ["/s/python/lib/pyspark.zip", "/s/python/lib/py4j-0.10-src.zip", "/own/jobs.zip", "/x"]
    assert without_archives(paths) == ["/own/jobs.zip", "/x"]


def test_workers_are_forked_with_the_rules_loaded() -> None:
    script = (
        "import sys, pyspark.daemon\n"
        "from tidestaff.streaming import worker_daemon\n"
        f"pyspark.daemon.manager = lambda: print({judge.__module__!r} in sys.modules)\n"
        "worker_daemon.main()"
    )
    done = subprocess.run(
        [sys.executable, "-c", script], capture_output=True, text=True, check=False
    )
    assert done.stdout == "True\n", done.stderr


def test_of_sparks_errors_the_line_that_helps_is_told() -> None:
    text = "Job aborted\nTraceback:\ntidestaff.streaming.x.RowFileError: a: broken\n\tat org..."
    assert first_line(RuntimeError(text)) == "tidestaff.streaming.x.RowFileError: a: broken"
    assert first_line(RuntimeError("")) == "RuntimeError"
    java = "An error occurred while calling o206.collectToPython.\n: x.SparkException: aborted"
    assert first_line(RuntimeError(java)) == "x.SparkException: aborted"
    caused = "\n\tat x.y(Z.scala:1)\nCaused by: java.io.IOException: No space left on device\n\t..."
    assert first_line(RuntimeError(java + caused)) == (
        "java.io.IOException: No space left on device"
    )
