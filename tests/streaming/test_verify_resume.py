"""What an interrupted `tidestaff verify` has seen of some copies is not told of all of them."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import pytest
from tidestaff.consistency.checkpoint_files import encode_partition_metadata
from tidestaff.streaming.cli import main
from tidestaff.streaming.verify.running import Verification

from tests.connectors.disk import write_log_dir, write_offsets

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    Brokers = list[Path]

OTHER_ID = "Zx4ohhIER6aDpDZgTy10tQ"
INTERRUPTED_AT = 6


@pytest.fixture
def brokers(tmp_path: Path) -> Brokers:
    return [write_log_dir(tmp_path / f"b{b}", broker=b, t_0=10) for b in (1, 2, 3)]


def verify(capsys: pytest.CaptureFixture[str], brokers: Brokers, *more: str) -> tuple[int, Any]:
    where = [word for path in brokers for word in ("--log-dir", str(path))]
    code = main(["verify", "--json", *where, *more])
    found = json.loads(capsys.readouterr().out)
    return code, found["partitions"]


def interrupted(
    capsys: pytest.CaptureFixture[str], patch: pytest.MonkeyPatch, brokers: Brokers, state: Path
) -> None:
    """By Ctrl-C, when most of the ten records were looked at, one by one."""
    plain = Verification._round

    def until_there(self: Verification) -> None:
        plain(self)
        if any(item.comparison.done_to >= INTERRUPTED_AT for item in self.active):
            self._stop.set()

    with patch.context() as patched:
        patched.setattr("tidestaff.streaming.verify.directories._BYTES_AT_ONCE", 1)
        patched.setattr(Verification, "_round", until_there)
        code, _ = verify(capsys, brokers, "--state", str(state))
    assert code == 130


def spoil(path: Path, batch: int) -> None:
    data = bytearray(path.read_bytes())
    data[batch * (len(data) // 10) + 20] ^= 1
    path.write_bytes(data)


def nobody_knew_its_watermark(brokers: Brokers) -> Callable[[], None]:
    checkpoint = brokers[2] / "replication-offset-checkpoint"
    kept = checkpoint.read_text()
    checkpoint.unlink()
    return lambda: checkpoint.write_text(kept) and None


def it_was_behind(brokers: Brokers) -> Callable[[], None]:
    write_offsets(brokers[2], "replication-offset-checkpoint", t_0=1)
    return lambda: write_offsets(brokers[2], "replication-offset-checkpoint", t_0=10)


def it_was_added_since(brokers: Brokers) -> Callable[[], None]:
    """In KRaft mode that leaves the leader epoch as it was."""
    (brokers[2] / "t-0").rename(brokers[2] / "kept")
    write_offsets(brokers[2], "replication-offset-checkpoint")

    def added() -> None:
        (brokers[2] / "kept").rename(brokers[2] / "t-0")
        write_offsets(brokers[2], "replication-offset-checkpoint", t_0=10)

    return added


def it_began_above_what_was_compared(brokers: Brokers) -> Callable[[], None]:
    write_offsets(brokers[2], "log-start-offset-checkpoint", t_0=9)
    return lambda: write_offsets(brokers[2], "log-start-offset-checkpoint")


def the_topic_is_another_now(brokers: Brokers) -> Callable[[], None]:
    def made_again() -> None:
        for path in brokers:
            named = encode_partition_metadata(OTHER_ID)
            (path / "t-0" / "partition.metadata").write_text(named)

    return made_again


@pytest.mark.parametrize(
    "happens",
    [
        nobody_knew_its_watermark,
        it_was_behind,
        it_was_added_since,
        it_began_above_what_was_compared,
        the_topic_is_another_now,
    ],
)
def test_what_was_not_compared_before_the_interruption_is_compared_after_it(
    brokers: Brokers,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
    happens: Callable[[Brokers], Callable[[], None]],
) -> None:
    state = tmp_path / "state"
    afterwards = happens(brokers)
    interrupted(capsys, monkeypatch, brokers, state)
    afterwards()
    spoil(brokers[2] / "t-0" / f"{0:020d}.log", 3)
    code, (found,) = verify(capsys, brokers, "--resume", str(state))
    assert (code, found["verdict"]) == (2, "diverged"), found
    assert found["differences"][0]["wrong"] == [3]


def test_what_was_cleaned_at_different_times_stays_not_comparable(
    brokers: Brokers,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    log = brokers[0] / "t-0" / f"{0:020d}.log"
    data = log.read_bytes()
    size = len(data) // 10
    log.write_bytes(data[:size] + data[3 * size :])  # offsets 1 and 2 are cleaned away
    write_offsets(brokers[0], "cleaner-offset-checkpoint", t_0=5)
    interrupted(capsys, monkeypatch, brokers, tmp_path / "state")
    code, (found,) = verify(capsys, brokers, "--resume", str(tmp_path / "state"))
    assert (code, found["verdict"]) == (3, "not comparable"), found


def test_what_was_compared_on_all_copies_is_not_read_again(
    brokers: Brokers,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    interrupted(capsys, monkeypatch, brokers, tmp_path / "state")
    spoil(brokers[2] / "t-0" / f"{0:020d}.log", 3)
    code, (found,) = verify(capsys, brokers, "--resume", str(tmp_path / "state"))
    assert (code, found["equal_up_to"]) == (0, 10), found


def test_what_was_equal_before_a_copy_was_added_is_compared_with_that_copy(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    brokers = [write_log_dir(tmp_path / f"b{b}", broker=b, t_0=10, u_0=10) for b in (1, 2, 3)]
    afterwards = it_was_added_since(brokers)
    plain = Verification._round

    def until_one_is_equal(self: Verification) -> None:
        plain(self)
        if self.results:
            self._stop.set()

    with monkeypatch.context() as patched:
        patched.setattr("tidestaff.streaming.verify.directories.DirectorySource.at_once", 1)
        patched.setattr(Verification, "_round", until_one_is_equal)
        assert verify(capsys, brokers, "--state", str(tmp_path / "state"))[0] == 130
    afterwards()
    spoil(brokers[2] / "t-0" / f"{0:020d}.log", 3)
    code, found = verify(capsys, brokers, "--resume", str(tmp_path / "state"))
    assert (code, [each["verdict"] for each in found]) == (2, ["diverged", "equal"])


def _kept(content: str) -> str:
    """A state in which one thing is not as it should be."""
    return f'{{"version": 4, "about": {{}}, "equal": [], "done_to": {content}}}'


@pytest.mark.parametrize(
    "content",
    [
        pytest.param("[" * 100_000, id="brackets-without-end"),
        pytest.param(_kept('[["t", 0, 1e400, 0, null, []]]'), id="an-offset-that-is-infinite"),
        pytest.param(_kept('[["t", 1e400, 0, 0, null, []]]'), id="a-partition-that-is-infinite"),
        pytest.param(_kept(f'[["t", 0, {1 << 70}, 0, null, []]]'), id="an-offset-beyond-all"),
        pytest.param(_kept('[["t", 0, -5, 0, null, []]]'), id="an-offset-below-zero"),
        pytest.param(_kept('[["t", 0, 5, "x", null, []]]'), id="an-epoch-that-is-none"),
        pytest.param(_kept('[["t", 0, 5]]'), id="half-of-it"),
        pytest.param(_kept("null"), id="nothing"),
        pytest.param("[]", id="a-list"),
    ],
)
def test_what_is_no_state_is_refused_with_its_name(
    brokers: Brokers, tmp_path: Path, capsys: pytest.CaptureFixture[str], content: str
) -> None:
    (tmp_path / "state").write_text(content)
    where = [word for path in brokers for word in ("--log-dir", str(path))]
    assert main(["verify", "--json", *where, "--resume", str(tmp_path / "state")]) == 3
    told = " ".join(json.loads(capsys.readouterr().out)["errors"])
    assert "found no state of a verification" in told
    assert "leave out --resume" in told
