"""Headers found side by side are those of a walk alone, whatever sizes, indexes and cuts there are.

Segments have holes where payloads would be: nobody reads them.
"""

from __future__ import annotations

import os
import random
import struct
from typing import TYPE_CHECKING, Any, NamedTuple

import pytest
from tidestaff.connectors import gathering, header_chains, large_batches
from tidestaff.connectors.digest_files import RangeReader
from tidestaff.connectors.digests import Fold
from tidestaff.connectors.gathering import Pieces
from tidestaff.consistency.model import OffsetRange

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from tidestaff.consistency.batches import RangeDigest

_V2 = struct.Struct(">qiibIhiqqqhii")
_BASE = 1_000


class Batch(NamedTuple):
    """A batch by its header."""

    header: bytes
    at: int
    size: int
    last_offset: int


class Appends(NamedTuple):
    """A segment, and the batches that begin an append: those are in its index."""

    batches: list[Batch]
    index: list[tuple[int, int]]


def appends(chance: random.Random, count: int, *, small: float, together: int) -> Appends:
    batches: list[Batch] = []
    index: list[tuple[int, int]] = []
    at, offset, since = 0, _BASE, 0
    while len(batches) < count:
        begins = at
        for _ in range(chance.randint(1, together)):
            size = (
                chance.randint(100, 8_000)
                if chance.random() < small
                else chance.choice((8_204, 16_300, 16_384, chance.randint(8_204, 70_000)))
            )
            records = chance.randint(1, 9)
            numbers = (offset, size - 12, 3, 2, chance.getrandbits(32), 0, records - 1)
            header = _V2.pack(*numbers, 5, 6, -1, -1, -1, records)
            batches.append(Batch(header, at, size, offset + records - 1))
            at += size
            offset += records + (chance.random() < 0.02) * 7
        if since > 4_096:
            index.append((batches[-1].last_offset - _BASE, begins))
            since = 0
        since += at - begins
    return Appends(batches, index)


def written(folder: Path, batches: Sequence[Batch], cut_to: int | None = None) -> Path:
    folder.mkdir()
    path = folder / f"{_BASE:020d}.log"
    with path.open("wb") as file:
        for each in batches:
            file.seek(each.at)
            file.write(each.header)
        file.truncate(batches[-1].at + batches[-1].size if cut_to is None else cut_to)
    return path


def plainly(batches: Sequence[Batch], offsets: OffsetRange, size: int) -> RangeDigest:
    """What a walk over batches in memory says, one window for each. A file may end within one."""
    fold, torn = Fold(offsets), False
    for each in batches:
        if each.at + each.size > size:
            # Of one that ends behind the range nothing is missing in it.
            torn = each.at < size and each.last_offset < offsets.end
            break
        _, stop = fold.scan(each.header, 0, position=each.at, limit=each.size)
        if stop.value == "past":
            break
    missing_from = max(fold.last_offset + 1, offsets.start)
    return fold.digest(unreadable_at=missing_from if torn and missing_from < offsets.end else None)


def indexed(chance: random.Random, index: list[tuple[int, int]]) -> bytes:
    """As a broker leaves it; or torn, old, of another segment, or rubbish."""
    whole = b"".join(struct.pack(">ii", *entry) for entry in index)
    cut = chance.randrange(len(whole) + 1)
    return chance.choice(
        (
            whole,
            whole + bytes(chance.choice((8, 4_096, 80_001))),
            whole[:cut],
            whole[:cut] + bytes(400),
            whole[:cut] + chance.randbytes(len(whole) - cut),
            b"".join(
                struct.pack(">ii", o, max(at + chance.choice((0, 0, 1, 8_300)), 0))
                for o, at in index
            ),
            b"".join(struct.pack(">ii", o, at) for o, at in index if chance.random() < 0.3),
            whole[8 * (cut // 8) :] + whole[: 8 * (cut // 8)],
            chance.randbytes(len(whole)),
            b"",
        )
    )


@pytest.mark.parametrize("seed", range(120))
def test_digests_are_those_of_a_walk_over_every_batch(
    tmp_path: Path, seed: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    chance = random.Random(seed)  # noqa: S311 - tests
    one_by_one = chance.random() < 0.3 or gathering._rings.refused
    monkeypatch.setattr(gathering._rings, "refused", one_by_one)
    monkeypatch.setattr(large_batches, "_SPAN", chance.choice((1 << 19, 1 << 22, 1 << 27)))
    made = appends(
        chance,
        chance.choice((20, 70, 400, 900)),
        small=chance.choice((0.0, 0.0, 0.003, 0.3)),
        together=chance.choice((1, 2, 8, 60)),
    )
    end = made.batches[-1].at + made.batches[-1].size
    size = chance.choice((end, end, chance.randint(1, end)))
    path = written(tmp_path / "t-0", made.batches, size)
    path.with_suffix(".index").write_bytes(indexed(chance, made.index))
    last = made.batches[-1].last_offset + 1
    reader = RangeReader(str(path.parent))
    starts = [_BASE, *(chance.randrange(_BASE, last) for _ in range(4))]
    for start in starts:
        offsets = OffsetRange(start, chance.choice((last, chance.randint(start + 1, last))))
        assert reader.digest(offsets)._replace(reason="") == plainly(made.batches, offsets, size)


@pytest.mark.parametrize("seed", range(40))
def test_a_file_that_is_cut_while_it_is_read_gives_what_stood_before_the_cut_and_no_other(
    tmp_path: Path, seed: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Some headers behind the cut may have been read before it; none is read twice or left out."""
    chance = random.Random(seed)  # noqa: S311 - tests
    made = appends(chance, 600, small=0.0, together=chance.choice((1, 8)))
    path = written(tmp_path / "t-0", made.batches)
    path.with_suffix(".index").write_bytes(
        b"".join(struct.pack(">ii", *entry) for entry in made.index)
    )
    monkeypatch.setattr(large_batches, "_SPAN", 1 << 22)
    cut_to = chance.randrange(made.batches[-1].at)
    turns = chance.randint(1, 3)
    gather = Pieces.at

    def at(self: Pieces, positions: Any) -> Any:
        nonlocal turns
        turns -= 1
        if turns == 0:
            os.truncate(path, cut_to)
        return gather(self, positions)

    monkeypatch.setattr(Pieces, "at", at)
    offsets = OffsetRange(_BASE, made.batches[-1].last_offset + 1)
    found = RangeReader(str(path.parent)).digest(offsets)
    assert turns <= 0
    least = sum(each.at + each.size <= cut_to for each in made.batches)
    assert least <= found.batches < len(made.batches)
    before = made.batches[: found.batches]
    assert found == plainly(before, offsets, 1 << 40)


@pytest.mark.parametrize("together", [1, 8], ids=["as-a-leader-appends", "as-a-follower-appends"])
@pytest.mark.parametrize("small", [0.0, 0.02], ids=["all-large", "some-small-ones"])
def test_no_header_is_read_twice_and_hardly_one_alone(
    tmp_path: Path, together: int, small: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A producer whose time is over sends small batches between large ones."""
    made = appends(random.Random(together), 2_000, small=small, together=together)  # noqa: S311
    path = written(tmp_path / "t-0", made.batches)
    path.with_suffix(".index").write_bytes(
        b"".join(struct.pack(">ii", *entry) for entry in made.index)
    )
    read: list[int] = []
    gather, pread = Pieces.at, os.pread

    def at(self: Pieces, positions: Any) -> Any:
        read.extend(positions.tolist())
        return gather(self, positions)

    alone: list[int] = []

    def pread_told(descriptor: int, length: int, position: int) -> bytes:
        if length == header_chains.HEADER:
            alone.append(position)
        return pread(descriptor, length, position)

    monkeypatch.setattr(Pieces, "at", at)
    monkeypatch.setattr(header_chains.os, "pread", pread_told)
    found = RangeReader(str(path.parent)).digest(
        OffsetRange(_BASE, made.batches[-1].last_offset + 1)
    )
    assert found.batches == len(made.batches)
    assert len(set(read)) == len(read)
    assert set(read) <= {each.at for each in made.batches}
    assert len(alone) < 150
