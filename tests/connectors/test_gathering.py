"""Pieces of a file from many places: the same whether many are read at once or one by one."""

from __future__ import annotations

import fcntl
import os
import random
import subprocess
import sys
import threading
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
from tidestaff.connectors import gathering, kernel_ring
from tidestaff.connectors.gathering import FEW, pieces_of
from tidestaff.connectors.kernel_ring import ENTRIES, ROWS

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

LENGTH = 61


def gathered(descriptor: int, positions: Any, length: int) -> Any:
    with pieces_of(descriptor, length) as pieces:
        found = pieces.at(positions)
        return None if found is None else found.copy()


def rings() -> bool:
    """Whether this machine lets us have one."""
    gathered(os.open(__file__, os.O_RDONLY), np.zeros(1, np.int64), 1)
    return not gathering._rings.refused


needs_rings = pytest.mark.skipif(not rings(), reason="this machine has no io_uring for us")


@pytest.fixture(params=[False, True], ids=["many-at-once", "one-by-one"])
def one_by_one(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> bool:
    found: bool = request.param
    monkeypatch.setattr(gathering._rings, "refused", found or gathering._rings.refused)
    return found


@pytest.fixture
def data() -> bytes:
    return random.Random(1).randbytes(300_000)  # noqa: S311 - tests


@pytest.fixture
def descriptor(tmp_path: Path, data: bytes) -> Iterator[int]:
    (tmp_path / "file").write_bytes(data)
    opened = os.open(tmp_path / "file", os.O_RDWR)
    yield opened
    os.close(opened)


def places(count: int, size: int = 300_000) -> np.ndarray:
    chance = random.Random(count)  # noqa: S311 - tests
    return np.array([chance.randint(0, size - LENGTH) for _ in range(count)], np.int64)


@pytest.mark.usefixtures("one_by_one")
@pytest.mark.parametrize("count", [1, FEW, FEW + 1, 100, ENTRIES, ENTRIES + 1, 2 * ROWS + 3])
def test_every_piece_is_what_stands_there(descriptor: int, data: bytes, count: int) -> None:
    asked = places(count)
    found = gathered(descriptor, asked, LENGTH)
    assert [row.tobytes() for row in found] == [data[at : at + LENGTH] for at in asked.tolist()]


@pytest.mark.usefixtures("one_by_one")
@pytest.mark.parametrize("which", [0, 40, 99], ids=["first", "midst", "last"])
def test_a_file_too_short_for_one_piece_gives_none(descriptor: int, which: int) -> None:
    asked = places(100)
    asked[which] = 300_000 - LENGTH + 1
    assert gathered(descriptor, asked, LENGTH) is None
    os.ftruncate(descriptor, 1_000)
    assert gathered(descriptor, places(100), LENGTH) is None
    assert gathered(descriptor, places(100, 1_000), LENGTH) is not None


@pytest.mark.usefixtures("one_by_one")
@pytest.mark.parametrize("which", [0, 600, 1_499])
def test_one_piece_too_many_is_noticed_wherever_it_stands(descriptor: int, which: int) -> None:
    asked = places(1_500)
    asked[which] = 300_000 - LENGTH + 1
    with pieces_of(descriptor, LENGTH) as pieces:
        assert pieces.at(places(100)) is not None  # the ring is somewhere in its turn
        assert pieces.at(asked) is None


@pytest.mark.usefixtures("one_by_one")
def test_what_cannot_be_read_is_told_as_by_a_read(tmp_path: Path) -> None:
    folder = os.open(tmp_path, os.O_RDONLY)
    with pytest.raises(IsADirectoryError):
        gathered(folder, places(100), LENGTH)
    os.close(folder)
    with pytest.raises(OSError, match="Bad file descriptor"):
        gathered(folder, places(100), LENGTH)


@needs_rings
def test_pieces_in_memory_are_read_with_no_read_of_their_own(
    descriptor: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    def pread(*_: object) -> bytes:
        raise AssertionError("read one by one")

    monkeypatch.setattr(gathering.os, "pread", pread)
    assert gathered(descriptor, places(100), LENGTH) is not None


@needs_rings
def test_pieces_that_are_not_in_memory_are_read_by_themselves(descriptor: int, data: bytes) -> None:
    """Half of the file is dropped from the page cache, which the kernel may also refuse to do."""
    os.fsync(descriptor)
    os.posix_fadvise(descriptor, 0, 150_000, os.POSIX_FADV_DONTNEED)
    asked = places(700)
    found = gathered(descriptor, asked, LENGTH)
    assert [row.tobytes() for row in found] == [data[at : at + LENGTH] for at in asked.tolist()]


@needs_rings
def test_a_file_is_let_go_of_after_it_was_read(tmp_path: Path) -> None:
    """Else a segment that Kafka has deleted would keep its place on the disk."""
    path = tmp_path / "file"
    path.write_bytes(bytes(200_000))
    opened = os.open(path, os.O_RDONLY)
    with pieces_of(opened, LENGTH) as pieces:
        assert pieces.at(places(100, 200_000)) is not None
        os.close(opened)
        assert not _nobody_has(path)
    assert _nobody_has(path)


def _nobody_has(path: Path) -> bool:
    """A lease for writing is given to nobody but the only one who has a file open."""
    opened = os.open(path, os.O_RDONLY)
    try:
        fcntl.fcntl(opened, fcntl.F_SETLEASE, fcntl.F_WRLCK)
    except BlockingIOError:
        return False
    else:
        return True
    finally:
        os.close(opened)


@pytest.mark.usefixtures("one_by_one")
@pytest.mark.parametrize(
    "counts",
    [(900, 40, FEW + 1), (900, FEW, 40), (3_000, 1_000, 97), (4_096, 1), (50, 4_097, 60), (9_000,)],
    ids=["in-one-table", "some-alone", "more-than-a-table", "full", "a-large-one", "larger"],
)
def test_pieces_stay_what_they_are_while_more_are_read(
    descriptor: int, data: bytes, counts: tuple[int, ...]
) -> None:
    asked = [places(count) for count in counts]
    wanted = [[data[at : at + LENGTH] for at in each.tolist()] for each in asked]
    for _ in range(3):
        with pieces_of(descriptor, LENGTH) as pieces:
            tables = [pieces.at(each) for each in asked]
            assert [[row.tobytes() for row in table] for table in tables] == wanted
            joined = [row.tobytes() for row in pieces.joined(tables)]
            assert joined == [each for part in wanted for each in part]


@needs_rings
def test_where_no_memory_may_be_made_known_pieces_are_still_read_together(
    descriptor: int, data: bytes, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As on old systems, and where a process may hold no memory."""
    monkeypatch.setattr(kernel_ring, "_MEMORY", 9_999)
    monkeypatch.setattr(gathering, "_rings", gathering._Rings())
    monkeypatch.setattr(gathering.os, "pread", lambda *_: b"")
    asked = places(5_000)
    found = gathered(descriptor, asked, LENGTH)
    assert [row.tobytes() for row in found] == [data[at : at + LENGTH] for at in asked.tolist()]


def test_threads_do_not_mix_up_their_pieces(descriptor: int, data: bytes) -> None:
    wrong: list[int] = []

    def work(count: int) -> None:
        asked = places(count)
        wanted = [data[at : at + LENGTH] for at in asked.tolist()]
        for _ in range(20):
            found = gathered(descriptor, asked, LENGTH)
            wrong.extend([count] * ([row.tobytes() for row in found] != wanted))

    threads = [threading.Thread(target=work, args=(500 + number,)) for number in range(6)]
    for each in threads:
        each.start()
    for each in threads:
        each.join()
    assert wrong == []


_SCRIPT = """
import ctypes, os, struct, sys
import numpy as np
from tidestaff.connectors import gathering

data = os.urandom(100_000)
file = os.memfd_create("file")
os.write(file, data)
places = np.arange(0, 99_000, 90)

def right():
    with gathering.pieces_of(file, 61) as pieces:
        found = pieces.at(places).copy()
    return [row.tobytes() for row in found] == [data[at:at + 61] for at in places.tolist()]
"""

# A filter as containers have it: one call fails with EPERM, all others are allowed.
_FORBID = """
code = b"".join(struct.pack("HBBI", *each) for each in (
    (0x20, 0, 0, 0), (0x15, 0, 1, %d), (0x06, 0, 0, 0x00050001), (0x06, 0, 0, 0x7fff0000)))
kept = ctypes.create_string_buffer(code)
program = ctypes.create_string_buffer(struct.pack("HxxxxxxQ", 4, ctypes.addressof(kept)))
libc = ctypes.CDLL(None, use_errno=True)
assert libc.prctl(38, 1, 0, 0, 0) == 0
assert libc.prctl(22, 2, program, 0, 0) == 0
"""


def ran(script: str) -> str:
    done = subprocess.run(
        [sys.executable, "-c", _SCRIPT + script], capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


@needs_rings
@pytest.mark.parametrize(
    "call",
    [
        pytest.param(425, id="io_uring_setup"),
        pytest.param(426, id="io_uring_enter"),
        pytest.param(427, id="io_uring_register"),
    ],
)
@pytest.mark.parametrize("before", ["", "assert right()\n"], ids=["from-the-start", "meanwhile"])
def test_where_a_filter_forbids_it_pieces_are_read_one_by_one(call: int, before: str) -> None:
    told = ran(before + _FORBID % call + "print([right() for _ in range(3)])")
    assert told.strip() == "[True, True, True]"


def test_a_child_makes_a_ring_of_its_own() -> None:
    script = """
assert right()
child = os.fork()
if child == 0:
    os._exit(0 if right() and right() else 1)
assert os.waitpid(child, 0)[1] == 0
print(right())
"""
    assert ran(script).strip() == "True"
