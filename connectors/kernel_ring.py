"""Many short reads in one call of the system: Linux's io_uring, by its numbers in linux/io_uring.h.

Every read is told not to wait: what is in memory is copied within the call, what is not is left to
who asked. So nothing is ever on its way when the call returns, and a disk is never asked for
hundreds of places at once.

Pieces go to memory that is made known to the kernel beforehand, where it allows that. A piece costs
up to a quarter less so on a quiet machine, a tenth less on a busy one; probably because copying to
any other address has a guard against speculation, and waits for each piece to arrive.
"""

from __future__ import annotations

import ctypes
import mmap
import os
from typing import Any, Final

import numpy as np

ENTRIES: Final = 512
"""Reads of one call. For each the kernel has a request of its own: so many stay in the nearest
caches; as one of thousands each costs a tenth more."""
ROWS: Final = 4_096
"""Pieces a table has room for."""
_SETUP, _ENTER, _REGISTER = 425, 426, 427
_READ, _READ_TO_KNOWN = 22, 4
_FIXED_FILE: Final = 1
_NOT_WAITING: Final = 8
_WITH_RESULTS: Final = 1
_MEMORY, _NOT_MEMORY, _FILES, _OTHER_FILE = 0, 1, 2, 6
_COMPLETIONS_AT, _SUBMISSIONS_AT = 0x8000000, 0x10000000
_SUBMISSION: Final = np.dtype(
    {
        "names": ("what", "how", "file", "position", "into", "length", "waiting", "row"),
        "formats": ("u1", "u1", "<i4", "<u8", "<u8", "<u4", "<u4", "<u8"),
        "offsets": (0, 1, 4, 8, 16, 24, 28, 32),
        "itemsize": 64,
    }
)
_COMPLETION: Final = np.dtype([("row", "<u8"), ("result", "<i4"), ("flags", "<u4")])


class RingBrokenError(OSError):
    """The ring did not do what was asked; nothing can be said of it any more."""


class Ring:
    """One ring, for one caller at a time. Pieces have one length. OSError where there is none to be
    had: another system, an old one, or one that forbids it."""

    def __init__(self, length: int) -> None:
        self.length = length
        self.usable = True
        self._call = ctypes.CDLL(None, use_errno=True).syscall
        self._call.restype = ctypes.c_long
        told = np.zeros(30, np.uint32)
        self._number = self._system(_SETUP, ENTRIES, told)
        try:
            self._lay_out([int(each) for each in told])
        except BaseException:
            os.close(self._number)
            raise

    def _lay_out(self, told: list[int]) -> None:
        asked, answered = told[:2]
        if asked != ENTRIES or answered % ENTRIES:
            raise RingBrokenError("a ring of another size")
        tail, places = told[11] // 4, told[16] // 4
        head, tail_of_results, results = told[20] // 4, told[21] // 4, told[25]
        ring = self._mapped(4 * (places + asked), 0, np.uint32)
        # Which read comes next: they are taken in turn.
        ring[places : places + asked] = range(asked)
        self._tail = memoryview(ring[tail : tail + 1])
        room = results + answered * _COMPLETION.itemsize
        answers = self._mapped(room, _COMPLETIONS_AT, np.uint8)
        numbers = answers[: results - results % 4].view(np.uint32)
        self._taken = memoryview(numbers[head : head + 1])
        self._answered = memoryview(numbers[tail_of_results : tail_of_results + 1])
        told_of = answers[results:room].view(_COMPLETION)
        self._results, self._answering = told_of["result"], told_of["row"]
        self._all_whole = np.full(asked, self.length, self._results.dtype).tobytes()
        self._reads = self._mapped(asked * 64, _SUBMISSIONS_AT, _SUBMISSION)
        self._reads["how"] = _FIXED_FILE
        self._reads["length"], self._reads["waiting"] = self.length, _NOT_WAITING
        self._reads["row"] = range(asked)
        self._into, self._positions = self._reads["into"], self._reads["position"]
        self._known = False
        self._new_table()
        self._so_far = 0
        # A file is known to the ring by its place in a table, which has one.
        self._file = np.array([-1], np.int32)
        self._system(_REGISTER, self._number, _FILES, self._file, 1)
        self._other_file = np.array([0, self._file.ctypes.data], np.uint64)
        self._other_file_at = ctypes.c_void_p(self._other_file.ctypes.data)

    def _new_table(self) -> None:
        """What was read so far stays with who has it."""
        # Shared, so that its pages stay the same when the process forks.
        memory = mmap.mmap(-1, ROWS * self.length)
        self._table = np.frombuffer(memory, np.uint8).reshape(ROWS, self.length)
        self._used = 0
        begin, length = self._table.ctypes.data, self._table.nbytes
        self._addresses = np.arange(begin, begin + length, self.length, dtype=np.uint64)
        try:
            if self._known:
                self._system(_REGISTER, self._number, _NOT_MEMORY, None, 0)
            place = np.array([begin, length], np.uint64)
            self._system(_REGISTER, self._number, _MEMORY, place, 1)
            self._known = True
        except OSError:
            # An old system, or one that lets us hold no more memory.
            self._known = False
        self._reads["what"] = _READ_TO_KNOWN if self._known else _READ

    @property
    def rows(self) -> Any:
        """What was read since a file is held, unless that is more than a table has room for: then
        the last of it."""
        return self._table[: self._used]

    def _mapped(self, length: int, at: int, dtype: Any) -> Any:
        shared = mmap.MAP_SHARED | mmap.MAP_POPULATE
        both = mmap.PROT_READ | mmap.PROT_WRITE
        return np.frombuffer(mmap.mmap(self._number, length, shared, both, offset=at), dtype)

    def _system(self, call: int, *arguments: Any) -> int:
        plain = [
            ctypes.c_void_p(each.ctypes.data) if isinstance(each, np.ndarray) else each
            for each in arguments
        ]
        found: int = self._call(call, *plain)
        if found < 0:
            number = ctypes.get_errno()
            raise OSError(number, os.strerror(number))
        return found

    def hold(self, descriptor: int) -> None:
        """The file that is read from now on; -1: none. A file that is held stays on its disk. What
        was read before is gone."""
        self._file[0], self._used = descriptor, 0
        if self._call(_REGISTER, self._number, _OTHER_FILE, self._other_file_at, 1) < 0:
            raise RingBrokenError("the file was not taken")

    def read(self, positions: Any) -> tuple[Any, list[int]]:
        """The pieces at these positions as rows of a table, and the numbers of those that were not
        read: they are not in memory, or the file is shorter, or cannot be read."""
        count = len(positions)
        if count > ROWS:
            table, left = self.read(positions[:ROWS])
            rest, more = self.read(positions[ROWS:])
            return np.concatenate((table, rest)), left + [ROWS + each for each in more]
        if count > ROWS - self._used:
            self._new_table()
        begin, done = self._used, 0
        left = []
        while done < count:
            # A ring goes round: what would reach over its end is asked for in parts.
            number = min(count - done, ENTRIES - self._so_far % ENTRIES)
            left += [done + each for each in self._part(positions[done : done + number])]
            done += number
        return self._table[begin : begin + count], left

    def _part(self, positions: Any) -> list[int]:
        """The next rows are filled; the numbers of those that were not."""
        number, row = len(positions), self._used
        slot, first = self._so_far % ENTRIES, self._so_far % len(self._results)
        self._positions[slot : slot + number] = positions
        self._into[slot : slot + number] = self._addresses[row : row + number]
        self._so_far += number
        self.usable = False
        self._tail[0] = behind = self._so_far & 0xFFFFFFFF
        if self._call(_ENTER, self._number, number, number, _WITH_RESULTS, None, 0) != number:
            raise RingBrokenError("not all reads were taken")
        if self._answered[0] != behind:
            raise RingBrokenError("not all reads were answered")
        results = self._results[first : first + number]
        missing: list[int] = []
        if results.tobytes() != self._all_whole[: results.itemsize * number]:
            answering = self._answering[first : first + number]
            missing = (answering[results != self.length] - slot).tolist()
        self._taken[0] = behind
        self._used += number
        self.usable = True
        return missing

    def close(self) -> None:
        os.close(self._number)
