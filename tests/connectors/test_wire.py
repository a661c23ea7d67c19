"""The wire gives every observation back as it was, and refuses what it does not know."""

from __future__ import annotations

import json
from dataclasses import fields, replace
from typing import TYPE_CHECKING

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tidestaff.connectors import bodies, wire
from tidestaff.connectors.linking import Linker
from tidestaff.connectors.wire import MISSING, Row, WireError, from_bytes, row_of, to_bytes
from tidestaff.consistency.model import (
    Assignment,
    ClusterObservation,
    PartitionObservation,
    PartitionSettings,
    PartitionState,
    Registration,
    ReplicaReading,
    SettingSource,
)
from tidestaff.consistency.versions import rules_for

from tests.connectors.observations import observations, partitions
from tests.connectors.old_rows import version_1

if TYPE_CHECKING:
    from tidestaff.consistency.model import Observation


@settings(max_examples=300, deadline=None)
@given(observation=observations, previous=st.none() | st.integers(-(2**62), 2**62))
def test_what_is_sent_is_what_arrives(observation: Observation, previous: int | None) -> None:
    row = row_of(observation, previous)
    again = from_bytes(to_bytes(row))
    assert again == row
    assert wire.observation_of(again) == observation
    assert row.previous_at_ms == (MISSING if previous is None else previous)


@settings(max_examples=100, deadline=None)
@given(observation=partitions)
def test_the_body_changes_exactly_when_something_besides_offsets_does(
    observation: PartitionObservation,
) -> None:
    moved = replace(
        observation,
        observed_at_ms=7,
        round=9,
        replicas=tuple(
            r._replace(log_start_offset=1, high_watermark=2, log_end_offset=3, read_at_ms=4)
            for r in observation.replicas
        ),
    )
    assert bodies.unchanging_of(moved) == bodies.unchanging_of(observation)
    assert row_of(moved).body == row_of(observation).body
    other = replace(observation, deleting=not observation.deleting)
    assert bodies.unchanging_of(other) != bodies.unchanging_of(observation)
    assert row_of(other).body != row_of(observation).body


def test_every_field_of_an_observation_is_either_in_the_body_or_in_the_row() -> None:
    in_the_row = {"cluster", "observed_at_ms", "round"}
    body = set(bodies.partition_body(_observation()))
    assert body | in_the_row == {each.name for each in fields(PartitionObservation)}


def _observation(at_ms: int = 1_000, **changes: object) -> PartitionObservation:
    known = PartitionObservation(
        "c",
        "orders",
        3,
        at_ms,
        rules_for("3.9.1"),
        PartitionState(1, 4, (1, 2), 9, 2),
        Assignment((1, 2)),
        (Registration(1, 11), Registration(2, 12)),
        replicas=(
            ReplicaReading(1, 0, 10, 10, leads=True, leader_epoch=4),
            ReplicaReading(2, 0, 10, 10, leads=False, leader_epoch=4),
        ),
        source="brokers",
    )
    return replace(known, **changes)  # type: ignore[arg-type]


def _cluster(at_ms: int) -> ClusterObservation:
    return ClusterObservation("c", at_ms, rules_for("3.9.1"), 1, 2, 2, (), source="brokers")


@pytest.mark.parametrize(
    ("data", "says"),
    [
        pytest.param(b"", "single-object", id="nothing"),
        pytest.param(b"{}", "single-object", id="json"),
        pytest.param(b"\xc3\x01" + b"x" * 8, "7878787878787878", id="another-schema"),
        pytest.param(to_bytes(row_of(_observation()))[:40], "decoded", id="torn"),
        pytest.param(to_bytes(row_of(_observation())) + b"\0", "too many", id="something-behind"),
    ],
)
def test_a_record_that_is_none_is_refused_with_a_remedy(data: bytes, says: str) -> None:
    with pytest.raises(WireError, match=says) as caught:
        from_bytes(data)
    assert caught.value.remedy


@pytest.mark.parametrize(
    ("changes", "says"),
    [
        pytest.param({"schema_version": 3}, "version 3", id="newer-version"),
        pytest.param({"schema_version": 0}, "version 0", id="no-version"),
        pytest.param({"kind": "gone"}, "kind 'gone'", id="kind-without-observation"),
        pytest.param({"subject": "orders-4"}, "about 'orders-4'", id="body-of-another-partition"),
        pytest.param({"log_end_offsets": [1]}, "offsets for 2 replicas", id="offset-missing"),
        pytest.param({"leader_again": [1, 2]}, "second reading", id="half-a-reading"),
        pytest.param({"body": b"\0\1\2"}, "decoded", id="body-torn"),
    ],
)
def test_a_row_that_does_not_fit_together_is_refused(changes: dict[str, object], says: str) -> None:
    row = row_of(_observation())._replace(**changes)  # type: ignore[arg-type]
    with pytest.raises(WireError, match=says):
        wire.observation_of(row)


@settings(max_examples=100, deadline=None)
@given(observation=partitions)
def test_a_row_of_the_first_version_is_read_with_settings_of_unknown_source(
    observation: PartitionObservation,
) -> None:
    unknown = replace(
        observation.settings,
        **{
            each.name: SettingSource.UNKNOWN
            for each in fields(PartitionSettings)
            if each.name.endswith("_source")
        },
    )
    old = from_bytes(to_bytes(version_1(observation)))
    assert wire.observation_of(old) == replace(observation, settings=unknown)


def test_every_source_of_a_setting_has_its_name_on_the_wire_and_its_words() -> None:
    schema = json.loads(wire.schema_text(wire.PARTITION))
    (of_settings,) = [f["type"]["fields"] for f in schema["fields"] if f["name"] == "settings"]
    (symbols,) = [f["type"]["symbols"] for f in of_settings if isinstance(f["type"], dict)]
    assert set(symbols) == {each.value for each in SettingSource}
    words = [each.words for each in SettingSource if each is not SettingSource.UNKNOWN]
    assert len(set(words)) == len(words)
    assert all(words)


def test_a_version_that_no_rules_cover_is_refused_not_guessed() -> None:
    body = bodies.partition_body(_observation())
    body["rules"] = {**body["rules"], "version": "9.0"}
    row = row_of(_observation())._replace(body=wire.encode(wire.PARTITION, body))
    with pytest.raises(WireError, match="too new"):
        wire.observation_of(row)


@settings(max_examples=300, deadline=None)
@given(data=st.binary(max_size=80), kind=st.sampled_from(["partition", "cluster", "health"]))
def test_garbage_is_refused_and_nothing_else_happens(data: bytes, kind: str) -> None:
    row = row_of(_observation())._replace(kind=kind, body=data)
    with pytest.raises(WireError):
        wire.observation_of(row)


def _linked(linker: Linker, at_ms: int, *names: int) -> list[Row]:
    seen = [_observation(at_ms, partition=name) for name in names]
    return linker.link([_cluster(at_ms), *seen])


def test_every_row_names_the_one_before_it() -> None:
    linker = Linker()
    first = _linked(linker, 1_000, 1, 2)
    second = _linked(linker, 6_000, 1, 2)
    assert [row.previous_at_ms for row in first] == [MISSING] * 3
    assert [row.previous_at_ms for row in second] == [1_000] * 3


def test_a_partition_that_is_no_longer_listed_is_gone_not_silent() -> None:
    linker = Linker()
    _linked(linker, 1_000, 1, 2)
    rows = _linked(linker, 6_000, 1)
    assert [(r.kind, r.subject, r.previous_at_ms) for r in rows[2:]] == [
        ("gone", "orders-2", 1_000)
    ]
    assert [r.kind for r in _linked(linker, 11_000, 1)] == ["cluster", "partition"]
    again = _linked(linker, 16_000, 1, 2)[2]
    assert (again.subject, again.previous_at_ms) == ("orders-2", MISSING)


def test_the_last_partition_of_a_cluster_can_be_gone_too() -> None:
    linker = Linker()
    _linked(linker, 1_000, 1)
    assert [row.kind for row in _linked(linker, 6_000)] == ["cluster", "gone"]


def test_a_round_that_saw_no_metadata_declares_nothing_gone() -> None:
    linker = Linker()
    _linked(linker, 1_000, 1)
    assert linker.link([]) == []
    assert [row.kind for row in _linked(linker, 6_000, 1)] == ["cluster", "partition"]


def test_a_body_is_encoded_anew_only_when_something_changed() -> None:
    linker = Linker()
    first = linker.link([_observation(1_000)])[0]
    same = linker.link([_observation(6_000)])[0]
    other = linker.link([_observation(11_000, deleting=True)])[0]
    assert same.body is first.body
    assert other.body == row_of(_observation(11_000, deleting=True)).body != first.body


def test_a_restarted_source_goes_on_as_if_it_had_not_stopped() -> None:
    linker, restarted = Linker(), Linker()
    _linked(linker, 1_000, 1, 2)
    restarted.resume(_linked(linker, 6_000, 1, 3))
    for at_ms, names in ((11_000, (1, 4)), (16_000, (1, 3, 4)), (21_000, ())):
        assert _linked(restarted, at_ms, *names) == _linked(linker, at_ms, *names)


def test_what_was_gone_before_a_restart_begins_anew_after_it() -> None:
    linker, restarted = Linker(), Linker()
    for rows in (_linked(linker, 1_000, 1, 2), _linked(linker, 6_000, 1)):
        restarted.resume(rows)
    assert _linked(restarted, 11_000, 1, 2) == _linked(linker, 11_000, 1, 2)
