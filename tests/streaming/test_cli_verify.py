"""`tidestaff verify` on directories and through agents, as a user calls it."""

from __future__ import annotations

import json
import shutil
import struct
from typing import TYPE_CHECKING, Any

import pytest
from tidestaff.connectors import agent_answers, agent_server
from tidestaff.connectors.agent_answers import Question, decode_question
from tidestaff.connectors.errors import ConnectorError
from tidestaff.streaming.cli import main
from tidestaff.streaming.verify import agents as verify_agents
from tidestaff.streaming.verify.agents import AgentDigests, AgentSource
from tidestaff.streaming.verify.directories import DirectorySource
from tidestaff.streaming.verify.progress import line
from tidestaff.streaming.verify.report import as_json
from tidestaff.streaming.verify.running import Progress, Verification

from tests.connectors.agents import agents
from tests.connectors.disk import write_log_dir, write_offsets
from tests.connectors.segment_bytes import v2

if TYPE_CHECKING:
    from collections.abc import Callable, Collection
    from pathlib import Path

    from tidestaff.connectors.disk_replica import DiskReplica
    from tidestaff.consistency.partitions import OffsetRange

SEGMENT = f"{0:020d}.log"


@pytest.fixture
def brokers(tmp_path: Path) -> list[Path]:
    return [write_log_dir(tmp_path / f"b{b}", broker=b, t_0=10, t_1=8) for b in (1, 2, 3)]


def flip(path: Path, batch: int, byte: int) -> None:
    """One bit of one of the ten batches."""
    data = bytearray(path.read_bytes())
    data[batch * (len(data) // 10) + byte] ^= 1
    path.write_bytes(data)


def verify(capsys: pytest.CaptureFixture[str], *arguments: str) -> tuple[int, dict[str, Any]]:
    code = main(["verify", "--json", *arguments])
    return code, json.loads(capsys.readouterr().out)


def of(brokers: list[Path]) -> list[str]:
    return [word for path in brokers for word in ("--log-dir", str(path))]


def verdicts(found: dict[str, Any]) -> dict[str, str]:
    return {f"{p['topic']}-{p['partition']}": p["verdict"] for p in found["partitions"]}


def test_equal_directories_are_equal_up_to_the_watermark(
    brokers: list[Path], capsys: pytest.CaptureFixture[str]
) -> None:
    code, found = verify(capsys, *of(brokers))
    assert code == 0
    assert verdicts(found) == {"t-0": "equal", "t-1": "equal"}
    assert [p["equal_up_to"] for p in found["partitions"]] == [10, 8]


def test_a_batch_that_differs_is_named_with_the_odd_broker(
    brokers: list[Path], capsys: pytest.CaptureFixture[str]
) -> None:
    flip(brokers[2] / "t-0" / SEGMENT, 4, 20)  # the checksum in the header
    code, found = verify(capsys, *of(brokers))
    assert code == 2
    (difference,) = found["partitions"][0]["differences"]
    assert (difference["start"], difference["end"], difference["wrong"]) == (4, 5, [3])
    assert found["partitions"][0]["equal_up_to"] == 4
    assert main(["verify", *of(brokers)]) == 2
    text = capsys.readouterr().out
    assert "broker 3 is wrong: the others agree" in text


def test_rot_below_equal_headers_is_found_by_scrubbing_only(
    brokers: list[Path], capsys: pytest.CaptureFixture[str]
) -> None:
    for path in brokers:
        flip(path / "t-0" / SEGMENT, 6, 65)  # the payload, on all of them alike
    assert verify(capsys, *of(brokers))[0] == 0
    code, found = verify(capsys, "--scrub", *of(brokers))
    assert code == 2
    assert verdicts(found)["t-0"] == "corrupt"
    assert {c["offset"] for c in found["partitions"][0]["corrupt"]} == {6}


def test_a_copy_that_ends_early_is_behind(
    brokers: list[Path], capsys: pytest.CaptureFixture[str]
) -> None:
    log = brokers[1] / "t-0" / SEGMENT
    data = log.read_bytes()
    log.write_bytes(data[: len(data) // 10 * 7])
    write_offsets(brokers[1], "replication-offset-checkpoint", t_0=7, t_1=8)
    code, found = verify(capsys, *of(brokers))
    assert code == 1
    assert found["partitions"][0]["behind"] == [{"broker": 2, "ends_at": 7, "committed": 10}]


def test_unequal_cleaning_cannot_be_compared_and_accuses_nobody(
    brokers: list[Path], capsys: pytest.CaptureFixture[str]
) -> None:
    log = brokers[0] / "t-0" / SEGMENT
    data = log.read_bytes()
    size = len(data) // 10
    log.write_bytes(data[:size] + data[3 * size :])  # offsets 1 and 2 are cleaned away
    write_offsets(brokers[0], "cleaner-offset-checkpoint", t_0=5)
    code, found = verify(capsys, *of(brokers))
    assert code == 3
    assert verdicts(found)["t-0"] == "not comparable"
    assert found["partitions"][0]["differences"] == []


def test_a_directory_without_watermarks_is_said_to_be_so(
    brokers: list[Path], capsys: pytest.CaptureFixture[str]
) -> None:
    (brokers[1] / "replication-offset-checkpoint").unlink()
    code, found = verify(capsys, *of(brokers))
    assert code == 3
    assert "high watermark" in found["partitions"][0]["unread"]["2"]
    assert verdicts(found)["t-0"] == "equal"


def test_of_a_single_copy_it_is_said_who_else_should_have_one(
    brokers: list[Path], capsys: pytest.CaptureFixture[str]
) -> None:
    (brokers[1] / "replication-offset-checkpoint").unlink()
    assert main(["verify", *of(brokers[:2])]) == 3
    told = " ".join(capsys.readouterr().out.split())
    assert "there is only one copy to read; broker 2 not read: replication-offset-che" in told


def test_nothing_is_written_to_the_directories(
    brokers: list[Path], capsys: pytest.CaptureFixture[str]
) -> None:
    def state() -> dict[str, tuple[int, int]]:
        files = [p for root in brokers for p in root.rglob("*")]
        return {str(p): (p.stat().st_size, p.stat().st_mtime_ns) for p in files}

    before = state()
    verify(capsys, "--scrub", *of(brokers))
    assert state() == before


def test_topics_are_left_out_and_one_that_is_not_there_is_named(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    brokers = [write_log_dir(tmp_path / str(b), broker=b, t_0=10, other_0=3) for b in (1, 2)]
    code, found = verify(capsys, "--topics-exclude", "o.*", *of(brokers))
    assert (code, set(verdicts(found))) == (0, {"t-0"})
    code, found = verify(capsys, "--topic", "t", "--topic", "nope", *of(brokers))
    assert code == 3
    assert "no topic nope is there" in found["errors"][0]
    code, found = verify(capsys, "--topics-include", "nope.*", *of(brokers))
    assert (code, "partitions" in found) == (3, False)


def test_a_batch_is_told_in_the_singular_and_rot_without_an_empty_part(
    brokers: list[Path], capsys: pytest.CaptureFixture[str]
) -> None:
    flip(brokers[2] / "t-0" / SEGMENT, 4, 20)
    for path in brokers:
        flip(path / "t-1" / SEGMENT, 4, 65)
    assert main(["verify", "--scrub", *of(brokers)]) == 2
    told = capsys.readouterr().out
    assert "offsets [4,5): 1 record in 1 batch\n" in told
    assert "\nt-1: corrupt\n" not in told


def test_a_batch_that_is_missing_is_named_by_the_offset_it_would_end_at(
    brokers: list[Path], capsys: pytest.CaptureFixture[str]
) -> None:
    """The whole range ends with a batch that everybody has, one of them with other contents."""
    for path in brokers:
        odd = path is brokers[2]
        halves = v2(0, 4) + v2(4, 2) + v2(6, 4, value=b"other")
        (path / "t-0" / SEGMENT).write_bytes(halves if odd else v2(0, 6) + v2(6, 4))
    assert main(["verify", "--topic", "t", *of(brokers)]) == 2
    told = capsys.readouterr().out
    assert told.startswith("2 partitions: 1 equal, 1 diverged")
    assert "offsets [0,10): 10 records in 3 batches\n    broker 1  no batch that ends at" in told
    assert "no batch that ends at offset 3\n" in told
    assert "offset 9" not in told


def test_one_brokers_directories_are_refused(
    brokers: list[Path], capsys: pytest.CaptureFixture[str]
) -> None:
    code, found = verify(capsys, "--log-dir", str(brokers[0]))
    assert code == 3
    assert "belong to one broker" in found["errors"][0]


def test_an_interrupted_run_leaves_a_state_and_goes_on_from_it(
    brokers: list[Path],
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    state = tmp_path / "state"
    plain = Verification._round

    def once(self: Verification) -> None:
        plain(self)
        if len(self.results) == 1:
            self._stop.set()

    monkeypatch.setattr("tidestaff.streaming.verify.directories.DirectorySource.at_once", 1)
    with monkeypatch.context() as patched:
        patched.setattr(Verification, "_round", once)
        code, found = verify(capsys, "--state", str(state), *of(brokers))
    assert code == 130
    assert found["interrupted"]
    kept = json.loads(state.read_text())
    assert [e["told"]["partition"] for e in kept["equal"]] == [0]
    code, found = verify(capsys, "--resume", str(state), *of(brokers))
    assert code == 0
    assert verdicts(found) == {"t-0": "equal", "t-1": "equal"}
    code, found = verify(capsys, "--resume", str(state), *of(brokers[:2]))
    assert code == 3
    assert "another verification" in found["errors"][0]


def test_ctrl_c_twice_leaves_a_state_as_well(
    brokers: list[Path],
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    ask, rounds = Verification._round, iter((False, False, True))

    def twice(verification: Verification) -> None:
        if next(rounds):
            raise KeyboardInterrupt
        ask(verification)

    monkeypatch.setattr("tidestaff.streaming.verify.directories.DirectorySource.at_once", 1)
    state = tmp_path / "kept.state"
    with monkeypatch.context() as patched:
        patched.setattr(Verification, "_round", twice)
        code, found = verify(capsys, "--state", str(state), *of(brokers))
    assert (code, found["interrupted"]) == (130, True)
    code, found = verify(capsys, "--resume", str(state), *of(brokers))
    assert (code, verdicts(found)) == (0, {"t-0": "equal", "t-1": "equal"})


def test_agents_are_asked_for_digests_and_find_the_same(
    brokers: list[Path], capsys: pytest.CaptureFixture[str]
) -> None:
    flip(brokers[2] / "t-0" / SEGMENT, 4, 20)
    with agents(brokers) as urls:
        code, found = verify(capsys, "--agents", urls)
    assert code == 2
    assert verdicts(found) == {"t-0": "diverged", "t-1": "equal"}
    (difference,) = found["partitions"][0]["differences"]
    assert (difference["start"], difference["wrong"]) == (4, [3])
    assert difference["held"]["3"]["intact"] is False
    assert found["bytes_moved"] > 0


@pytest.mark.parametrize("told", [True, False])
def test_a_log_that_an_agent_cannot_read_within_its_minute_is_scrubbed_in_parts(
    brokers: list[Path],
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
    told: bool,
) -> None:
    """Of its ten batches one or two are read for a question, also of an agent of an earlier
    release, which does not tell how large its replicas are."""
    size = (brokers[0] / "t-0" / SEGMENT).stat().st_size
    if told:
        monkeypatch.setattr("tidestaff.streaming.verify.agents.CHECKED_BYTES", size // 5)
    else:
        sizes_untold(monkeypatch)
        monkeypatch.setattr("tidestaff.streaming.verify.running._UNKNOWN_SPAN", 2)
    flip(brokers[2] / "t-0" / SEGMENT, 1, 65)
    with agents(brokers, bytes_a_second=size / 2, whole_s=3.0) as urls:
        code, found = verify(capsys, "--agents", urls, "--topic", "t", "--scrub")
    assert (code, verdicts(found)) == (2, {"t-0": "corrupt", "t-1": "equal"})
    assert not found["partitions"][0]["unread"]


@pytest.mark.parametrize(("untold", "parts"), [((), 5), ((1,), 5), ((1, 3), 5), ((1, 2, 3), 1)])
def test_large_logs_are_asked_of_agents_in_parts(
    brokers: list[Path],
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
    untold: tuple[int, ...],
    parts: int,
) -> None:
    """On a cold disk an agent could not answer for the whole log within its minute. Agents of an
    earlier release do not tell how large a copy is; the others' tell it."""
    size = (brokers[0] / "t-0" / SEGMENT).stat().st_size
    monkeypatch.setattr(AgentSource, "bytes_at_once", size // 5)
    if len(untold) == 3:
        monkeypatch.setattr(AgentSource, "bytes_at_once", 1 << 32)
    sizes_untold(monkeypatch, untold)
    asked: list[OffsetRange] = []
    ask = AgentDigests.digests

    def heard(source: AgentDigests, broker: int, ranges: Any, *, check: bool) -> Any:
        asked.extend(offsets for partition, offsets in ranges if str(partition) == "t-0")
        return ask(source, broker, ranges, check=check)

    monkeypatch.setattr(AgentDigests, "digests", heard)
    with agents(brokers) as urls:
        code, found = verify(capsys, "--agents", urls)
    assert (code, verdicts(found)) == (0, {"t-0": "equal", "t-1": "equal"})
    assert len(set(asked)) == parts


def sizes_untold(monkeypatch: pytest.MonkeyPatch, brokers: Collection[int] = (1, 2, 3)) -> None:
    whole = agent_answers.replica_value

    def without(replica: DiskReplica) -> dict[str, Any]:
        mine = any(f"/b{broker}" in replica.log_dir for broker in brokers)
        return whole(replica._replace(size=None) if mine else replica)

    monkeypatch.setattr(agent_answers, "replica_value", without)


def test_an_agent_that_is_away_is_named_and_the_others_are_compared(
    brokers: list[Path], capsys: pytest.CaptureFixture[str]
) -> None:
    with agents(brokers) as urls:
        code, found = verify(capsys, "--agents", f"{urls},4=http://127.0.0.1:1")
    assert code == 3
    assert verdicts(found) == {"t-0": "equal", "t-1": "equal"}
    assert "does not answer" in found["partitions"][0]["unread"]["4"]


def test_an_agent_that_goes_in_the_middle_is_named_in_the_text_too(
    brokers: list[Path], capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    ask = AgentDigests.digests

    def gone(source: AgentDigests, broker: int, asked: Any, *, check: bool) -> Any:
        if broker == 3:
            raise ConnectorError("the agent of broker 3 hangs up", "start it")
        return ask(source, broker, asked, check=check)

    monkeypatch.setattr(AgentDigests, "digests", gone)
    with agents(brokers) as urls:
        code = main(["verify", "--agents", urls])
    told = capsys.readouterr().out
    assert code == 3
    assert told.startswith("2 partitions: 2 not comparable; of 2 a copy could not be read")
    words = " ".join(told.split())
    assert "equal up to offset 10 (epoch 0); broker 3 not read: the agent of broker 3 " in words


def test_the_bar_tells_share_rate_and_time_left() -> None:
    told = line(Progress(3, 12, 0.25, 50e6, 10.0))
    assert "25%" in told
    assert "3/12 partitions" in told
    assert "5 MB/s" in told
    assert "200 offsets/s" in line(Progress(3, 12, 0.25, 0, 10.0, 2_000))
    assert "30 s left" in told


@pytest.mark.parametrize("count", [0, 1, 3])
def test_a_document_is_read_back_as_it_was_with_each_partition_on_a_line(count: int) -> None:
    partitions = [{"topic": "t", "partition": n, "unread": {"1": 'a "b"\n'}} for n in range(count)]
    found = {"source": "agents", "partitions": partitions, "exit_code": 0, "seconds": 0.5}
    text = as_json(found)
    assert json.loads(text) == found
    assert len(text.splitlines()) == 2 + len(found) + (count + 1 if count else 0)


@pytest.fixture
def two_topics(tmp_path: Path) -> list[Path]:
    return [write_log_dir(tmp_path / f"c{b}", broker=b, t_0=10, t_1=8, u_0=3) for b in (1, 2, 3)]


def as_an_earlier_release(data: bytes) -> Question:
    return decode_question(data)._replace(topics=frozenset())


@pytest.mark.parametrize("earlier", [False, True], ids=["this-release", "an-earlier-agent"])
@pytest.mark.parametrize(
    ("words", "partitions"),
    [
        pytest.param((), ["t-0", "t-1", "u-0"], id="all"),
        pytest.param(("--topic", "u"), ["u-0"], id="by-name"),
        pytest.param(("--topics-include", "t|v"), ["t-0", "t-1"], id="by-pattern"),
        pytest.param(("--topic", "t", "--topic", "u"), ["t-0", "t-1", "u-0"], id="by-names"),
        pytest.param(("--topics-exclude", "t"), ["u-0"], id="but-one"),
    ],
)
def test_agents_are_asked_for_the_topics_that_are_wanted(
    two_topics: list[Path],
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
    words: tuple[str, ...],
    partitions: list[str],
    earlier: bool,
) -> None:
    if earlier:
        monkeypatch.setattr(agent_server, "decode_question", as_an_earlier_release)
    with agents(two_topics) as urls:
        code, found = verify(capsys, "--agents", urls, *words)
    assert code == 0
    assert verdicts(found) == dict.fromkeys(partitions, "equal")


def test_replicas_beyond_what_an_agent_lists_are_compared_or_told_but_not_left_out(
    two_topics: list[Path], capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    for module in (agent_answers, verify_agents):
        monkeypatch.setattr(module, "MOST_OTHERS", 2)
    everything = ("--topics-include", ".*")
    with agents(two_topics) as urls:
        for words in (), everything, ("--topic", "t", "--topic", "u"):
            assert len(verify(capsys, "--agents", urls, *words)[1]["partitions"]) == 3
        monkeypatch.setattr(agent_server, "decode_question", as_an_earlier_release)
        for words in (), everything:
            code, found = verify(capsys, "--agents", urls, *words)
            assert code == 3
            assert "lists 2 of its replicas and no more" in found["errors"][0]


def test_what_a_short_copy_does_not_hold_is_compared_after_an_interruption_too(
    brokers: list[Path],
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    flip(brokers[1] / "t-0" / SEGMENT, 4, 20)
    write_offsets(brokers[2], "log-start-offset-checkpoint", t_0=8)  # 3 begins above the fault
    state, plain = tmp_path / "state", Verification._round

    def once(self: Verification) -> None:
        plain(self)
        self._stop.set()

    monkeypatch.setattr("tidestaff.streaming.verify.directories._BYTES_AT_ONCE", 80)
    with monkeypatch.context() as patched:
        patched.setattr(Verification, "_round", once)
        assert verify(capsys, "--state", str(state), *of(brokers))[0] == 130
    code, found = verify(capsys, "--resume", str(state), *of(brokers))
    assert (code, verdicts(found)["t-0"]) == (2, "diverged")


def test_of_what_nobody_committed_it_is_said_that_it_was_not_compared(
    brokers: list[Path], capsys: pytest.CaptureFixture[str]
) -> None:
    for path in brokers:
        write_offsets(path, "replication-offset-checkpoint", t_0=0, t_1=8)
    flip(brokers[2] / "t-0" / SEGMENT, 4, 20)
    assert main(["verify", *of(brokers)]) == 0
    told = " ".join(capsys.readouterr().out.split())
    assert "2 equal; of 1 nothing is committed, so nothing was compared" in told
    assert "30 offsets above the high watermark not compared (brokers 1, 2, 3)" in told
    assert "t-1" not in told
    code, found = verify(capsys, *of(brokers))
    assert (code, found["partitions"][0]["above_watermark"][0]) == (
        0,
        {"broker": 1, "start": 0, "end": 10},
    )


@pytest.mark.parametrize("mode", [(), ("--quick",), ("--scrub",)])
def test_a_copy_that_holds_nothing_in_common_with_the_others_is_none_of_the_equal_ones(
    brokers: list[Path], capsys: pytest.CaptureFixture[str], mode: tuple[str, ...]
) -> None:
    """Lawful, where retention came to it first; but it was not compared."""
    (brokers[2] / "t-0" / SEGMENT).rename(brokers[2] / "t-0" / f"{10:020d}.log")
    (brokers[2] / "t-0" / f"{10:020d}.log").write_bytes(b"")
    code, found = verify(capsys, *mode, *of(brokers))
    told = found["partitions"][0]
    assert (code, told["verdict"], told["copies"]) == (3, "not comparable", [1, 2])
    assert told["apart"] == [{"broker": 3, "start": 10, "end": 10}]
    assert told["equal_up_to"] == 10
    assert main(["verify", *mode, *of(brokers)]) == 3
    assert "broker 3 not compared" in " ".join(capsys.readouterr().out.split())


def test_rot_in_what_one_copy_holds_alone_is_found_by_scrubbing(
    brokers: list[Path], capsys: pytest.CaptureFixture[str]
) -> None:
    flip(brokers[0] / "t-0" / SEGMENT, 2, 65)
    for path in brokers[1:]:
        write_offsets(path, "log-start-offset-checkpoint", t_0=5)
    assert verify(capsys, *of(brokers))[0] == 0
    with agents(brokers) as urls:
        for where in of(brokers), ["--agents", urls]:
            code, found = verify(capsys, "--scrub", *where)
            assert (code, verdicts(found)["t-0"]) == (2, "corrupt")
            (rotten,) = found["partitions"][0]["corrupt"]
            assert (rotten["broker"], rotten["offset"]) == (1, 2)


def test_copies_that_all_end_below_a_watermark_they_know_are_behind(
    brokers: list[Path], capsys: pytest.CaptureFixture[str]
) -> None:
    for path in brokers:
        log = path / "t-0" / SEGMENT
        data = log.read_bytes()
        log.write_bytes(data[: len(data) // 10 * 7])
    code, found = verify(capsys, *of(brokers))
    assert code == 1
    assert [(b["ends_at"], b["committed"]) for b in found["partitions"][0]["behind"]] == [
        (7, 10)
    ] * 3


def linked(brokers: list[Path]) -> list[Path]:
    (brokers[2] / "t-0").rename(brokers[2].parent / "elsewhere")
    (brokers[2] / "t-0").symlink_to(brokers[2].parent / "elsewhere")
    return brokers


def held_twice(brokers: list[Path]) -> list[Path]:
    second = brokers[2].parent / "second"
    shutil.copytree(brokers[2], second)
    return [*brokers, second]


@pytest.mark.parametrize(
    ("spoil", "why"), [(linked, "a symbolic link"), (held_twice, "holds t-0 as well")]
)
def test_a_copy_that_is_there_and_is_not_looked_into_is_named(
    brokers: list[Path],
    capsys: pytest.CaptureFixture[str],
    spoil: Callable[[list[Path]], list[Path]],
    why: str,
) -> None:
    code, found = verify(capsys, *of(spoil(brokers)))
    assert code == 3
    assert why in found["partitions"][0]["unread"]["3"]


def test_a_copy_that_goes_away_while_it_is_read_is_named(
    brokers: list[Path], capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    ask = DirectorySource.digests

    def gone(source: DirectorySource, broker: int, asked: Any, *, check: bool) -> Any:
        shutil.rmtree(brokers[2] / "t-0", ignore_errors=True)
        return ask(source, broker, asked, check=check)

    monkeypatch.setattr(DirectorySource, "digests", gone)
    code, found = verify(capsys, *of(brokers))
    assert code == 3
    assert "not there any more" in found["partitions"][0]["unread"]["3"]


@pytest.mark.parametrize("by_agents", [False, True], ids=["directories", "agents"])
def test_a_newest_segment_that_breaks_off_is_read_as_far_as_it_goes(
    brokers: list[Path], capsys: pytest.CaptureFixture[str], *, by_agents: bool
) -> None:
    flip(brokers[2] / "t-0" / SEGMENT, 2, 20)
    flip(brokers[2] / "t-0" / SEGMENT, 6, 16)  # the message format
    with agents(brokers) as urls:
        where = ["--agents", urls] if by_agents else of(brokers)
        code, found = verify(capsys, *where)
    broken, whole = found["partitions"]
    assert (code, broken["verdict"], whole["verdict"]) == (2, "diverged", "equal")
    assert [(d["start"], d["wrong"]) for d in broken["differences"]] == [(2, [3])]
    assert broken["unread"]["3"].startswith("from offset 6 on: no batch at byte")


def a_size_beyond_the_file(data: bytearray, batch: int) -> None:
    struct.pack_into(">i", data, batch + 8, 1 << 20)


def a_batch_of_zeros(data: bytearray, batch: int) -> None:
    data[batch : batch + len(data) // 10] = bytes(len(data) // 10)


@pytest.mark.parametrize("by_agents", [False, True], ids=["directories", "agents"])
@pytest.mark.parametrize("spoil", [a_size_beyond_the_file, a_batch_of_zeros])
def test_bytes_that_changed_below_the_copys_own_watermark_are_no_copy_that_is_behind(
    brokers: list[Path],
    capsys: pytest.CaptureFixture[str],
    spoil: Callable[[bytearray, int], None],
    *,
    by_agents: bool,
) -> None:
    """Whole batches stand behind the place, though nothing was flushed."""
    log = brokers[2] / "t-0" / SEGMENT
    data = bytearray(log.read_bytes())
    spoil(data, 4 * (len(data) // 10))
    log.write_bytes(data)
    (brokers[2] / "recovery-point-offset-checkpoint").unlink()
    with agents(brokers) as urls:
        code, found = verify(capsys, *(["--agents", urls] if by_agents else of(brokers)))
    told = found["partitions"][0]
    assert (code, told["verdict"], told["behind"]) == (2, "corrupt", [])
    assert [(c["broker"], c["offset"]) for c in told["corrupt"]] == [(3, 4)]
    assert told["equal_up_to"] == 4
    if not by_agents:
        code, found = verify(capsys, "--quick", *of(brokers))
        assert (code, verdicts(found)["t-0"]) == (3, "not comparable")


@pytest.mark.parametrize("left", [b"", b"\0" * 500, v2(7)[:-3]], ids=["none", "zeros", "a-part"])
def test_what_a_crash_took_from_a_copy_it_fetches_again_unless_it_was_flushed(
    brokers: list[Path], capsys: pytest.CaptureFixture[str], left: bytes
) -> None:
    log = brokers[2] / "t-0" / SEGMENT
    data = log.read_bytes()
    log.write_bytes(data[: len(data) // 10 * 7] + left)
    write_offsets(brokers[2], "recovery-point-offset-checkpoint", t_0=7)
    code, found = verify(capsys, *of(brokers))
    assert (code, found["partitions"][0]["verdict"]) == (1, "behind")
    write_offsets(brokers[2], "recovery-point-offset-checkpoint", t_0=8)
    code, found = verify(capsys, *of(brokers))
    expected = (2, "corrupt") if left else (1, "behind")  # cut where a batch ends: by its leader
    assert (code, found["partitions"][0]["verdict"]) == expected


def test_overlapping_segments_are_compared_as_a_broker_reads_them(
    brokers: list[Path], capsys: pytest.CaptureFixture[str]
) -> None:
    for path in brokers:
        later = b"".join(v2(offset) for offset in range(10, 20))
        (path / "t-0" / f"{10:020d}.log").write_bytes(later)
        write_offsets(path, "replication-offset-checkpoint", t_0=20, t_1=8)
    other = b"".join(v2(offset, value=b"other") for offset in range(5, 10))
    (brokers[2] / "t-0" / f"{5:020d}.log").write_bytes(other)
    with agents(brokers) as urls:
        for words in of(brokers), [*of(brokers), "--scrub"], ["--agents", urls]:
            code, found = verify(capsys, *words)
            assert (code, verdicts(found)["t-0"]) == (2, "diverged")
            (difference,) = found["partitions"][0]["differences"]
            assert (difference["start"], difference["end"], difference["wrong"]) == (5, 10, [3])


def test_an_older_segment_that_breaks_off_alike_everywhere_is_corrupt(
    brokers: list[Path], capsys: pytest.CaptureFixture[str]
) -> None:
    for path in brokers:
        first, second = (b"".join(map(v2, range(at, at + 5))) for at in (0, 5))
        (path / "t-0" / SEGMENT).write_bytes(first[:-3])
        (path / "t-0" / f"{5:020d}.log").write_bytes(second)
    code, found = verify(capsys, *of(brokers))
    assert (code, verdicts(found)["t-0"]) == (2, "corrupt")
    assert {c["offset"] for c in found["partitions"][0]["corrupt"]} == {4}


def test_what_a_crash_leaves_behind_the_watermark_hides_no_copy(
    brokers: list[Path], capsys: pytest.CaptureFixture[str]
) -> None:
    with (brokers[2] / "t-0" / SEGMENT).open("ab") as file:
        file.write(bytes(range(1, 200)))
    code, found = verify(capsys, *of(brokers))
    assert (code, found["partitions"][0]["copies"]) == (0, [1, 2, 3])


@pytest.mark.parametrize("by_agents", [False, True], ids=["directories", "agents"])
@pytest.mark.parametrize("content", ["half of a fi", "7\n1\nt 0 5\n"], ids=["torn", "version-7"])
def test_where_the_cleaners_file_cannot_be_read_nobody_is_accused(
    brokers: list[Path], capsys: pytest.CaptureFixture[str], content: str, *, by_agents: bool
) -> None:
    log = brokers[0] / "t-0" / SEGMENT
    data = log.read_bytes()
    size = len(data) // 10
    log.write_bytes(data[:size] + data[3 * size :])
    (brokers[0] / "cleaner-offset-checkpoint").write_text(content)
    with agents(brokers) as urls:
        code, found = verify(capsys, *(["--agents", urls] if by_agents else of(brokers)))
    assert (code, verdicts(found)["t-0"]) == (3, "not comparable")


def test_an_agent_that_goes_before_the_second_look_is_named(
    brokers: list[Path], capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("t-0", "t-1"):
        flip(brokers[0] / name / SEGMENT, 4, 20)
    plain = AgentSource.again
    with agents(brokers) as urls:

        def gone(source: AgentSource, partitions: Any) -> Any:
            source._urls = {**source._urls, 3: "http://127.0.0.1:1"}
            return plain(source, partitions)

        monkeypatch.setattr(AgentSource, "again", gone)
        code, found = verify(capsys, "--agents", urls)
    assert code == 2
    assert [list(each["unread"]) for each in found["partitions"]] == [["3"], ["3"]]
    assert [each["copies"] for each in found["partitions"]] == [[1, 2], [1, 2]]


def test_one_directory_by_two_names_is_no_second_copy(
    brokers: list[Path], capsys: pytest.CaptureFixture[str]
) -> None:
    (brokers[0] / "meta.properties").unlink()
    code, found = verify(capsys, "--log-dir", str(brokers[0]), "--log-dir", f"{brokers[0]}/")
    assert code == 3
    assert "belong to one broker" in found["errors"][0]


@pytest.mark.parametrize("name", ["empty", "file"])
def test_what_is_no_log_directory_is_refused(
    brokers: list[Path], tmp_path: Path, capsys: pytest.CaptureFixture[str], name: str
) -> None:
    (tmp_path / "empty").mkdir()
    (tmp_path / "file").write_text("")
    code, found = verify(capsys, *of([*brokers, tmp_path / name]))
    assert code == 3
    assert str(tmp_path / name) in found["errors"][0]


def test_where_no_state_can_be_left_it_is_told_what_was_found(
    brokers: list[Path],
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(Verification, "_round", lambda self: self._stop.set())
    assert main(["verify", "--state", str(tmp_path / "no" / "state"), *of(brokers)]) == 130
    told = capsys.readouterr()
    assert told.out.startswith("interrupted: ")
    assert "go on with" not in told.out
    assert "cannot be written" in told.err


@pytest.mark.parametrize("rate", ["-1", "nan", "1e-300"])
def test_a_rate_at_which_nothing_ends_is_refused(
    brokers: list[Path], capsys: pytest.CaptureFixture[str], rate: str
) -> None:
    code, found = verify(capsys, f"--rate={rate}", *of(brokers))
    assert code == 3
    assert "--rate" in found["errors"][0]


def test_a_copy_that_an_agent_does_not_look_into_is_named(
    brokers: list[Path], capsys: pytest.CaptureFixture[str]
) -> None:
    with agents(linked(brokers)) as urls:
        code, found = verify(capsys, "--agents", urls)
        assert code == 3
        assert "a symbolic link" in found["partitions"][0]["unread"]["3"]
        code, found = verify(capsys, "--agents", urls, "--topics-exclude", "t")
        assert "unread" not in json.dumps(found)


def test_directories_of_two_clusters_are_not_compared(
    brokers: list[Path], capsys: pytest.CaptureFixture[str]
) -> None:
    for path, cluster in zip(brokers, "AAB", strict=True):
        file = path / "meta.properties"
        lines = [each for each in file.read_text().splitlines() if "cluster.id" not in each]
        file.write_text("\n".join([*lines, f"cluster.id={cluster}", ""]))
    code, found = verify(capsys, *of(brokers))
    assert code == 3
    assert "different clusters" in found["errors"][0]
    assert str(brokers[2]) in found["errors"][0]
    assert verify(capsys, *of(brokers[:2]))[0] == 0


@pytest.mark.parametrize("option", ["--command-config", "--agents-ca", "--agents-token-file"])
def test_options_that_directories_do_not_need_are_refused(
    brokers: list[Path], capsys: pytest.CaptureFixture[str], option: str
) -> None:
    code, found = verify(capsys, option, "file", *of(brokers))
    assert code == 3
    assert f"{option} says nothing of --log-dir" in found["errors"][0]


def test_a_state_of_an_earlier_release_is_not_gone_on_with(
    brokers: list[Path],
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    state = tmp_path / "state"
    with monkeypatch.context() as patched:
        patched.setattr(Verification, "_round", lambda self: self._stop.set())
        assert verify(capsys, "--state", str(state), *of(brokers))[0] == 130
    content = json.loads(state.read_text())
    state.write_text(json.dumps({**content, "version": 2}))
    code, found = verify(capsys, "--resume", str(state), *of(brokers))
    assert code == 3
    assert "another release left it" in found["errors"][0]
