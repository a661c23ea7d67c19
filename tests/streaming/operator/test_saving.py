"""State survives a release: it is read if it can be, and refused in words if not."""

from __future__ import annotations

import json
from typing import Any

import pytest
from tidestaff.consistency.memory import PartitionMemory
from tidestaff.streaming.operator import saving
from tidestaff.streaming.operator.bucket import Bucket
from tidestaff.streaming.operator.rows import block_of
from tidestaff.streaming.operator.saving import Keeper, Saved, UnreadableStateError, restore

from tests.streaming.operator.histories import LIMITS, Plain, rows_of, through_a_bucket


def _saved() -> Saved:
    bucket = Bucket(LIMITS)
    bucket.process(block_of(rows_of("3.9.1", 4, lasting_ms=15_000)))
    return Keeper(bucket).save()


def _with_layout(saved: Saved, change: Any) -> Saved:
    rest = json.loads(saving._unpacked(saved.rest))
    change(rest["layout"])
    return saved._replace(rest=saving._packed(saving._json(rest)))


def _memories(bucket: Bucket) -> dict[tuple[str, str], object]:
    for partition in bucket.partitions.values():
        bucket.catch_up(partition)
    return {key: partition.memory for key, partition in bucket.partitions.items()}


def test_saving_twice_gives_the_same_bytes() -> None:
    keeper = restore(_saved(), LIMITS)
    assert keeper.save() == restore(keeper.save(), LIMITS).save()


def test_a_field_that_has_a_default_may_be_new() -> None:
    """State of a release before the last field of the memory was kept."""
    saved = _saved()
    rest = json.loads(saving._unpacked(saved.rest))
    names = rest["layout"]["PartitionMemory"]
    dropped = {names[-1]: PartitionMemory._field_defaults[names[-1]]}

    def older(layout: dict[str, list[str]]) -> None:
        layout["PartitionMemory"] = names[:-1]

    older_saved = _with_layout(saved, older)
    lines = saving._unpacked(saved.entries).split(b"\n")
    shorter = []
    for line in lines:
        head, _, tail = line.rpartition(b"\t")
        source, kept = json.loads(tail)
        shorter.append(head + b"\t" + saving._json([source, kept[:-1]]))
    older_saved = older_saved._replace(entries=saving._packed(b"\n".join(shorter)))
    old = _memories(restore(older_saved, LIMITS).bucket)
    new = _memories(restore(saved, LIMITS).bucket)
    for key, memory in new.items():
        assert old[key] == memory._replace(**dropped)  # type: ignore[attr-defined]


@pytest.mark.parametrize(
    ("broken", "says"),
    [
        pytest.param(lambda s: s._replace(version=99), "version 99", id="another-version"),
        pytest.param(
            lambda s: _with_layout(s, lambda layout: layout["Era"].remove("leader")),
            r"Era was kept without \['leader'\]",
            id="a-field-is-missing",
        ),
        pytest.param(lambda s: s._replace(rest=b"12345678garbage"), "claims to have", id="garbage"),
        pytest.param(lambda s: s._replace(numbers=saving._packed(bytes(16))), "0 rows", id="torn"),
    ],
)
def test_state_that_cannot_be_read_says_so(broken: Any, says: str) -> None:
    with pytest.raises(UnreadableStateError, match=says):
        restore(broken(_saved()), LIMITS)


def test_a_quiet_partition_costs_little_state() -> None:
    bucket, _, _ = through_a_bucket(rows_of("3.9.1", 5, faults=False), 1)
    saved = Keeper(bucket).save()
    assert sum(map(len, saved[1:])) < 2_500


def test_shared_values_do_not_pile_up(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(saving, "MAX_SHARED", 5)
    rows = rows_of("3.9.1", 2)
    bucket, found, _ = through_a_bucket(rows, 1)
    plain = Plain().see(rows)
    assert len(found) == len(plain.findings)
    for key, memory in _memories(bucket).items():
        assert memory == plain.memories.get(("partition", *key))
