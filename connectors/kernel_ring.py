"""Many short reads in one call of the system: Linux's io_uring, by its numbers in linux/io_uring.h.

Every read is told not to wait: what is in memory is copied within the call, what is not is left to
who asked. So nothing is ever on its way when the call returns, and a disk is never asked for
hundreds of places at once.
"""

from __future__ import annotations

import ctypes
import mmap
import os
from typing import Any, Final

import numpy as np

ENTRIES: Final = 4_096
_SETUP, _ENTER, _REGISTER = 425, 426, 427
_READ: Final = 22
_FIXED_FILE: Final = 1
_NOT_WAITING: Final = 8
_WITH_RESULTS: Final = 1
_FILES, _OTHER_FILE = 2, 6
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
        ring[places : places + asked] = range(asked)
        self._tail = ring[tail : tail + 1]
        room = results + answered * _COMPLETION.itemsize
        answers = self._mapped(room, _COMPLETIONS_AT, np.uint8)
        numbers = answers[: results - results % 4].view(np.uint32)
        self._taken = numbers[head : head + 1]
        self._answered = numbers[tail_of_results : tail_of_results + 1]
        told_of = answers[results:room].view(_COMPLETION)
        self._results, self._answering = told_of["result"], told_of["row"]
        self._all_whole = np.full(asked, self.length, self._results.dtype).tobytes()
        self._reads = self._mapped(asked * 64, _SUBMISSIONS_AT, _SUBMISSION)
        self._rows = np.zeros((asked, self.length), np.uint8)
        into = self._rows.ctypes.data
        self._reads["what"], self._reads["how"] = _READ, _FIXED_FILE
        self._reads["length"], self._reads["waiting"] = self.length, _NOT_WAITING
        self._reads["into"] = range(into, into + asked * self.length, self.length)
        self._reads["row"] = range(asked)
        self._positions = self._reads["position"]
        self._so_far = 0
        # A file is known to the ring by its place in a table, which has one.
        self._file = np.array([-1], np.int32)
        self._system(_REGISTER, self._number, _FILES, self._file, 1)
        self._other_file = np.array([0, self._file.ctypes.data], np.uint64)
        self._other_file_at = ctypes.c_void_p(self._other_file.ctypes.data)

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
        """The file that is read from now on; -1: none. A file that is held stays on its disk."""
        self._file[0] = descriptor
        if self._call(_REGISTER, self._number, _OTHER_FILE, self._other_file_at, 1) < 0:
            raise RingBrokenError("the file was not taken")

    def read(self, positions: Any) -> tuple[Any, list[int]]:
        """The pieces at these positions as rows of a table, and the numbers of those that were not
        read: they are not in memory, or the file is shorter, or cannot be read."""
        count = len(positions)
        slot = self._so_far % ENTRIES
        if count <= ENTRIES - slot:
            return self._part(positions, slot, count)
        # A ring goes round: what would reach over its end is asked for in parts.
        table, left = np.empty((count, self.length), np.uint8), []
        at = 0
        while at < count:
            number = min(count - at, ENTRIES - slot)
            table[at : at + number], missing = self._part(positions[at : at + number], slot, number)
            left += [at + each for each in missing]
            at, slot = at + number, self._so_far % ENTRIES
        return table, left

    def _part(self, positions: Any, slot: int, number: int) -> tuple[Any, list[int]]:
        self._positions[slot : slot + number] = positions
        first = self._so_far % len(self._results)
        self._so_far += number
        self.usable = False
        self._tail[0] = self._so_far & 0xFFFFFFFF
        if self._call(_ENTER, self._number, number, number, _WITH_RESULTS, None, 0) != number:
            raise RingBrokenError("not all reads were taken")
        if self._answered[0] != self._tail[0]:
            raise RingBrokenError("not all reads were answered")
        results = self._results[first : first + number]
        missing: list[int] = []
        if results.tobytes() != self._all_whole[: results.itemsize * number]:
            rows = self._answering[first : first + number][results != self.length]
            missing = (rows.astype(np.int64) - slot).tolist()
        self._taken[0] = self._answered[0]
        self.usable = True
        return self._rows[slot : slot + number].copy(), missing

    def close(self) -> None:
        os.close(self._number)
