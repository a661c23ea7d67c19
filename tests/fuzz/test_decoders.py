"""Decoders of bytes from outside never crash, never hang, and say clearly what they refuse."""

from __future__ import annotations

import base64
import json
import struct
import tempfile
import time
import uuid
from contextlib import suppress
from typing import TYPE_CHECKING, Any

import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st
from tidestaff.connectors.cluster_view import ChangedValues
from tidestaff.connectors.errors import ConnectorError
from tidestaff.connectors.log_directories_files import opened_directory
from tidestaff.connectors.segments_in_log import log_end
from tidestaff.connectors.zookeeper_configs import decode_config
from tidestaff.consistency.errors import FormatError

from tests.connectors.segment_bytes import old, v2
from tests.fuzz.corpus import FOLDER, kept
from tests.fuzz.protocol_answers import built
from tests.fuzz.seeds import seeds
from tests.fuzz.targets import ANSWERS, BY_NAME, SETTING_KEYS, TARGETS, settings_from

if TYPE_CHECKING:
    from tests.fuzz.targets import Target

LARGEST_CORPUS = 300_000
ONE_INPUT_S = 5.0
SEEDS = seeds()

each_target = pytest.mark.parametrize(
    "target", [pytest.param(target, id=target.name) for target in TARGETS]
)
many = settings(
    deadline=None, max_examples=300, suppress_health_check=[HealthCheck.too_slow], database=None
)
few = settings(
    deadline=None, max_examples=30, suppress_health_check=[HealthCheck.too_slow], database=None
)
quietly = settings(
    deadline=None, max_examples=100, suppress_health_check=[HealthCheck.too_slow], database=None
)


@each_target
def test_the_kept_corpus_finds_nothing(target: Target) -> None:
    """What the coverage-guided runs have found, defects of old among it."""
    for data in kept(target.name):
        began = time.thread_time()
        target.run(data)
        assert time.thread_time() - began < ONE_INPUT_S, base64.b64encode(data)


def test_the_corpus_is_of_these_targets_and_small() -> None:
    files = list(FOLDER.iterdir())
    assert {path.stem for path in files} == set(BY_NAME)
    assert sum(path.stat().st_size for path in files) < LARGEST_CORPUS


@each_target
def test_what_is_valid_is_read(target: Target) -> None:
    for data in SEEDS[target.name]:
        target.run(data)


@each_target
@quietly
@given(data=st.data())
def test_valid_inputs_with_changes_are_read_or_refused(target: Target, data: st.DataObject) -> None:
    """Cut, repeated, with bytes and numbers replaced: near enough to get deep."""
    changed = bytearray(data.draw(st.sampled_from(SEEDS[target.name])))
    for _ in range(data.draw(st.integers(1, 4))):
        at = data.draw(st.integers(0, len(changed)))
        kind = data.draw(st.integers(0, 4))
        if kind == 0:
            del changed[at:]
        elif kind == 1:
            changed[at:at] = data.draw(st.binary(max_size=12))
        elif kind == 2:
            changed[at : at + 1] = data.draw(st.binary(min_size=1, max_size=1))
        elif kind == 3:
            edge = data.draw(st.sampled_from([-1, 0, 1, 2**31 - 1, -(2**31)]))
            changed[at : at + 4] = struct.pack(">i", edge)
        else:
            changed += changed[at : at + 300]
    target.run(bytes(changed))


@each_target
@quietly
@given(data=st.binary(max_size=300))
@example(data=b"\xff" * 300)
@example(data=b"\1" + b"[" * 100_000)
@example(data=b"\0" + b'{"a":' * 50_000)
@example(data=b"\4" + b"9" * 10_000)
def test_any_bytes_are_read_or_refused(target: Target, data: bytes) -> None:
    target.run(data)


# -- what the client library hands on

_PLAIN: dict[str, st.SearchStrategy[Any]] = {
    "string": st.none() | st.text(max_size=5),
    "bool": st.booleans(),
    "uuid": st.none() | st.builds(uuid.UUID, int=st.integers(0, 2**128 - 1)),
    "bytes": st.none() | st.binary(max_size=5),
    "records": st.none() | st.binary(max_size=5),
}
_NUMBER = st.sampled_from([-1, 0, 1, 2, 31, 56, 2**31 - 1, -(2**31)])


@pytest.mark.parametrize(
    ("kind", "decode"), [pytest.param(*each, id=each[0].__name__) for each in ANSWERS]
)
@few
@given(data=st.data())
def test_answers_with_any_values_and_nulls_are_decoded_or_refused(
    kind: Any, decode: Any, data: st.DataObject
) -> None:
    answer = built(
        kind,
        lambda name: data.draw(_PLAIN.get(name, _NUMBER)),
        lambda: data.draw(st.sampled_from([None, 0, 1, 2])),
    )
    with suppress(ConnectorError):
        decode(answer)


# -- the offset index is a hint

_BATCHES = st.lists(
    st.tuples(st.sampled_from([0, 1, 2]), st.integers(1, 3)), min_size=1, max_size=8
)


@quietly
@given(
    batches=_BATCHES,
    tail=st.sampled_from([b"", bytes(5), bytes(80), b"\0\0\0\0\0\0\0\xff\xff"]),
    index=st.lists(st.tuples(st.integers(-2, 30), st.integers(-2, 900)), max_size=6),
)
def test_whatever_the_index_says_the_log_ends_where_it_ends(
    batches: list[tuple[int, int]], tail: bytes, index: list[tuple[int, int]]
) -> None:
    data, offset = b"", 0
    for magic, records in batches:
        data += v2(offset, records) if magic == 2 else old(magic, offset, records)
        offset += records
    with tempfile.TemporaryDirectory() as folder:
        with open(f"{folder}/{0:020d}.log", "wb") as out:  # noqa: PTH123 - many times
            out.write(data + tail)
        with opened_directory(folder, None, folder) as directory:
            without = log_end(directory, folder)
            with open(f"{folder}/{0:020d}.index", "wb") as out:  # noqa: PTH123
                out.write(b"".join(struct.pack(">ii", *entry) for entry in index))
            found = log_end(directory, folder)
            again = log_end(directory, folder, found)
    assert without is not None
    assert without.log_end_offset == offset
    assert found == again == without


# -- JSON that is JSON, and not what was agreed

_KEYS = st.text(max_size=3) | st.just("\ud800")
_ODD = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-(2**70), 2**70)
    | st.floats()
    | st.text(st.characters(codec=None, categories=None), max_size=5)
    | st.sampled_from(["\ud800", "../t", "", "x" * 5_000, 2**63, -(2**63) - 1, -1, 1.0, 10**400]),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(_KEYS, inner, max_size=3),
    max_leaves=4,
)


def altered(value: Any, data: st.DataObject) -> Any:
    """The same value with one place of it replaced, left out or repeated."""
    places = list(value) if isinstance(value, dict) else list(range(len(value)))
    if not places:
        return data.draw(_ODD)
    copy = dict(value) if isinstance(value, dict) else list(value)
    place: Any = data.draw(st.sampled_from(places))
    deeper = isinstance(copy[place], dict | list) and data.draw(st.integers(0, 3)) > 0
    if deeper:
        copy[place] = altered(copy[place], data)
    elif isinstance(copy, dict) and data.draw(st.booleans()):
        copy[data.draw(_KEYS)] = copy.pop(place)
    elif data.draw(st.booleans()):
        copy[place] = data.draw(_ODD)
    else:
        del copy[place]
    return copy


@pytest.mark.parametrize("name", ["agent", "digests", "settings", "znodes"])
@many
@given(data=st.data())
def test_json_with_odd_values_is_read_or_refused(name: str, data: st.DataObject) -> None:
    seed = data.draw(st.sampled_from([each for each in SEEDS[name] if each[1:2] == b"{"]))
    found = altered(json.loads(seed[1:]), data)
    BY_NAME[name].run(seed[:1] + json.dumps(found).encode("ascii"))


# -- settings

_VALUES = st.sampled_from(
    ["", "2", " 2 ", "+2", "-1", "two", "9" * 19, "9" * 5_000, "\u0663", "true", "True", "yes"]
) | st.text(max_size=5)
_SPOKEN = st.sampled_from(["0.8.2", "2.7-IV1", "2.8", "2.8-IV99", "3.9", "9.9", "99999.1", "abc"])


@quietly
@given(
    st.dictionaries(st.sampled_from(sorted(SETTING_KEYS)), _VALUES | _SPOKEN, max_size=5),
    st.dictionaries(st.sampled_from(sorted(SETTING_KEYS)), _VALUES | _SPOKEN, max_size=5),
)
def test_whatever_settings_say_a_round_has_rules_and_settings(
    answered: dict[str, str], written: dict[str, str]
) -> None:
    """By brokers in their answers, and by whoever writes to ZooKeeper."""
    settings_from(answered, None)
    node = json.dumps({"version": 1, "config": written}).encode()
    with suppress(FormatError):
        found = decode_config(node, "/config/topics/t", SETTING_KEYS)
        settings_from(answered, ChangedValues({"t": found}, {None: found}))
