"""The files of a log directory are read exactly as a broker reads them."""

from __future__ import annotations

import base64
import contextlib

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tidestaff.consistency import checkpoint_files as files
from tidestaff.consistency.checkpoint_files import (
    DirectoryKind,
    MetaProperties,
    parse_meta_properties,
)
from tidestaff.consistency.errors import FormatError
from tidestaff.consistency.model import EpochEntry, TopicPartition

ID = "DNNw-hXqQCOW61shM7zZ2Q"
HEX = "0123456789abcdef0123456789abcdef"
INT32 = st.integers(-(2**31), 2**31 - 1)
INT64 = st.integers(-(2**63), 2**63 - 1)
TOPICS = st.from_regex(r"[A-Za-z0-9._-]{1,20}", fullmatch=True)
# Mostly the characters these files are made of, so that a search gets past the first line.
NEARLY = st.text(st.one_of(st.sampled_from("0123 +-\n\r\tab"), st.characters()), max_size=40)


@pytest.mark.parametrize(
    ("text", "entries"),
    [
        pytest.param("", [], id="an empty file has no entries"),
        pytest.param("0", [], id="a version without line end has no entries"),
        pytest.param("0\n", [], id="a version alone has no entries"),
        pytest.param("0\n0\n", [], id="a count of zero has no entries"),
        pytest.param("0\n0", [], id="the last line end is optional"),
        pytest.param("0\n1\n2 0\n", [(2, 0)], id="S-13: the epoch file after S-11"),
        pytest.param("0\n1\n29 2485991681\n", [(29, 2485991681)], id="S-31: offsets have 64 bits"),
        pytest.param("0\n2\n0 0\n3 1\n", [(0, 0), (3, 1)], id="two entries in order"),
        pytest.param("0\r\n1\r\n0 1\r\n", [(0, 1)], id="CRLF is a line end"),
        pytest.param("0\r1\r0 1", [(0, 1)], id="CR is a line end"),
        pytest.param("0\n1\n0\t \x0b1  \n", [(0, 1)], id="blanks between and after fields"),
        pytest.param("+0\n+1\n+0 +1\n", [(0, 1)], id="a plus sign is Java syntax"),
        pytest.param("-0\n01\n00 0001\n", [(0, 1)], id="minus zero and leading zeros are too"),
        pytest.param("0\n1\n٣ 4\n", [(3, 4)], id="decimal digits of any script are too"),
        pytest.param("0\n2\n1 5\n0 -5\n", [(1, 5), (0, -5)], id="order and sign are not checked"),
        pytest.param("0\n2\n1 5\n1 5\n", [(1, 5), (1, 5)], id="nor is repetition"),
        pytest.param(f"0\n1\n0 {'0' * 9000}7\n", [(0, 7)], id="any number of leading zeros"),
        pytest.param(
            f"0\n1\n{2**31 - 1} {2**63 - 1}\n", [(2**31 - 1, 2**63 - 1)], id="largest values"
        ),
    ],
)
def test_leader_epochs_that_kafka_reads(text: str, entries: list[tuple[int, int]]) -> None:
    assert list(files.parse_leader_epochs(text)) == entries


@pytest.mark.parametrize(
    ("text", "line", "field"),
    [
        pytest.param("\n", 1, "version", id="a blank first line"),
        pytest.param("x\n", 1, "version", id="a version that is no number"),
        pytest.param("1\n1\n0 1\n", 1, "version", id="another version"),
        pytest.param(" 0\n1\n0 1\n", 1, "version", id="a blank before the version"),
        pytest.param("0 \n1\n0 1\n", 1, "version", id="a blank after the version"),
        pytest.param("\ufeff0\n0\n", 1, "version", id="a byte order mark"),
        pytest.param("0\n\n", 2, "number of entries", id="a blank count"),
        pytest.param("0\n1 \n0 1\n", 2, "number of entries", id="a blank after the count"),
        pytest.param("0\n1\n", 2, "number of entries", id="fewer entries than counted"),
        pytest.param("0\n1\n0 1\n1 2\n", 2, "number of entries", id="more entries than counted"),
        pytest.param("0\n-1\n", 2, "number of entries", id="a negative count"),
        pytest.param("0\n0\n\n", 3, "entry", id="a blank line at the end"),
        pytest.param("0\n1\n0\n", 3, "entry", id="one field"),
        pytest.param("0\n1\n0 1 2\n", 3, "entry", id="three fields"),
        pytest.param("0\n1\n 0 1\n", 3, "entry", id="a leading blank"),
        pytest.param("0\n1\n 1\n", 3, "epoch", id="a leading blank before one field"),
        pytest.param("0\n1\n0,1 2\n", 3, "epoch", id="S-30: commas are notation, not a file"),
        pytest.param("0\n1\n0\u00a01\n", 3, "entry", id="a no-break space is no blank in Java"),
        pytest.param("0\n1\na 1\n", 3, "epoch", id="an epoch that is no number"),
        pytest.param("0\n1\n0 1_0\n", 3, "start offset", id="underscores"),
        pytest.param("0\n1\n2147483648 1\n", 3, "epoch", id="an epoch of more than 32 bits"),
        pytest.param(f"0\n1\n0 {2**63}\n", 3, "start offset", id="an offset of more than 64 bits"),
        pytest.param(f"0\n1\n0 {'9' * 9000}\n", 3, "start offset", id="an absurdly long number"),
        pytest.param("0\n1\n0 \U0001d7ce\n", 3, "start offset", id="digits beyond the basic plane"),
    ],
)
def test_leader_epochs_that_kafka_refuses(text: str, line: int, field: str) -> None:
    with pytest.raises(FormatError) as caught:
        files.parse_leader_epochs(text, "/data/t-0/leader-epoch-checkpoint")
    assert (caught.value.line, caught.value.field) == (line, field)
    assert str(caught.value).startswith(f"/data/t-0/leader-epoch-checkpoint, line {line}: {field}")
    assert len(str(caught.value)) < 300


@pytest.mark.parametrize(
    ("text", "offsets"),
    [
        pytest.param("", {}, id="an empty file"),
        pytest.param(
            "0\n2\nfoo 1 5\nbar 2 10\n", {("foo", 1): 5, ("bar", 2): 10}, id="two partitions"
        ),
        pytest.param("0\n2\nfoo 0 5\nfoo 0 6\n", {("foo", 0): 6}, id="the last of two wins"),
        pytest.param("0\n1\nfoo 0 5 \n", {("foo", 0): 5}, id="a blank at the end"),
        pytest.param("0\n1\nfoo -1 -5\n", {("foo", -1): -5}, id="signs are not checked"),
    ],
)
def test_offsets_that_kafka_reads(text: str, offsets: dict[tuple[str, int], int]) -> None:
    assert files.parse_offsets(text) == offsets


@pytest.mark.parametrize(
    ("text", "field"),
    [
        pytest.param("0\n1\n 0 5\n", "topic", id="a leading blank, which Kafka takes for topic ''"),
        pytest.param("0\n1\nfoo 0\n", "entry", id="two fields"),
        pytest.param("0\n1\nfoo x 5\n", "partition", id="a partition that is no number"),
        pytest.param("0\n1\nfoo 0 x\n", "offset", id="an offset that is no number"),
        pytest.param("0\n1\nfoo 0 5\n\n", "entry", id="a blank line"),
        pytest.param("1\n1\nfoo 0 5\n", "version", id="another version"),
    ],
)
def test_offsets_that_are_refused(text: str, field: str) -> None:
    with pytest.raises(FormatError) as caught:
        files.parse_offsets(text, files.LOG_STARTS)
    assert caught.value.field == field
    assert caught.value.place == "log-start-offset-checkpoint"


def test_the_empty_topic_can_be_had_for_comparing_with_kafka() -> None:
    read = files.parse_offsets("0\n1\n 0 5\n", allow_empty_topic=True)
    assert read == {TopicPartition("", 0): 5}


def test_a_look_up_answers_none_for_a_missing_partition_and_refuses_a_strange_directory() -> None:
    offsets = {"/data": {TopicPartition("foo", 0): 7}}
    assert files.lookup_offset(offsets, "/data", TopicPartition("foo", 0)) == 7
    assert files.lookup_offset(offsets, "/data", TopicPartition("foo", 1)) is None
    with pytest.raises(FormatError, match=r"compare log\.dirs"):
        files.lookup_offset(offsets, "/other", TopicPartition("foo", 0))


@pytest.mark.parametrize(
    ("text", "version"),
    [
        pytest.param(f"version: 0\ntopic_id: {ID}", 0, id="as Kafka writes it"),
        pytest.param(f"version: 0\r\ntopic_id: {ID}\r\n", 0, id="line ends of another system"),
        pytest.param(f"version: 7\ntopic_id: {ID}\nmore: 1\n", 7, id="a later version with more"),
        pytest.param(f"v: +0\nt: \t{ID}", 0, id="Kafka does not look at the labels"),
        pytest.param(f"version: 0\ntopic_id: {ID}==", 0, id="padding is allowed"),
    ],
)
def test_partition_metadata_that_kafka_reads(text: str, version: int) -> None:
    assert files.parse_partition_metadata(text) == (version, ID)


@pytest.mark.parametrize(
    ("text", "field", "line"),
    [
        pytest.param("", "version", 1, id="an empty file"),
        pytest.param("version: 0", "topic_id", 2, id="no topic id"),
        pytest.param(f"version: -1\ntopic_id: {ID}", "version", 1, id="a negative version"),
        pytest.param(f"version: x\ntopic_id: {ID}", "version", 1, id="a version that is no number"),
        pytest.param(f"version:0\ntopic_id: {ID}", "version", 1, id="no blank after the colon"),
        pytest.param(f"version: 0\ntopic_id:{ID}", "topic_id", 2, id="nor in line 2"),
        pytest.param(f"version: 0\ntopic_id: {'A' * 22}", "topic_id", 2, id="the zero id"),
        pytest.param(
            "version: 0\ntopic_id: CNrWfmEgSBqc9gLClmrXw", "topic_id", 2, id="S-06: 21 characters"
        ),
        pytest.param(f"version: 0\ntopic_id: {ID}A", "topic_id", 2, id="23 characters"),
        pytest.param(f"version: 0\ntopic_id: {ID[:-1]}+", "topic_id", 2, id="not URL-safe"),
        pytest.param(f"version: 0\ntopic_id: {ID}=", "topic_id", 2, id="half a padding"),
    ],
)
def test_partition_metadata_that_kafka_refuses(text: str, field: str, line: int) -> None:
    with pytest.raises(FormatError) as caught:
        files.parse_partition_metadata(text)
    assert (caught.value.field, caught.value.line) == (field, line)


def test_two_writings_of_one_topic_id_are_one_id() -> None:
    assert files.parse_topic_id(f"{ID[:-1]}R", "x") == files.parse_topic_id(ID, "x") == ID


def test_a_directory_takes_one_topic_id_only() -> None:
    assert files.record_topic_id(files.record_topic_id(None, "A"), "A") == "A"
    with pytest.raises(FormatError, match="deleted and created again"):
        files.record_topic_id("A", "B")


@pytest.mark.parametrize(
    ("text", "broker_epoch"),
    [
        pytest.param(None, None, id="no file"),
        pytest.param("", None, id="the empty file of 3.6 and before"),
        pytest.param('{"version":0,"brokerEpoch":10}', 10, id="as Kafka writes it"),
        pytest.param('{"version":0,"brokerEpoch":10,"unknown":123}', 10, id="unknown keys"),
        pytest.param('{"brokerEpoch":10}', 10, id="no version"),
        pytest.param('{"version":0}', None, id="no epoch"),
        pytest.param('{"version":0,"brokerEpoch":null}', None, id="an epoch of null"),
        pytest.param('{"version":0,"brokerEpoch":true}', None, id="an epoch that is a boolean"),
        pytest.param("[" * 100_000, None, id="absurd nesting"),
        pytest.param('{"brokerEpoch":NaN}', None, id="what Python reads and Java does not"),
        pytest.param(f'{{"brokerEpoch":{"9" * 5000}}}', None, id="an absurdly long number"),
    ],
)
def test_clean_shutdown_is_read_or_is_nothing(text: str | None, broker_epoch: int | None) -> None:
    assert files.parse_clean_shutdown(text) == broker_epoch


@pytest.mark.parametrize(
    ("name", "topic", "partition", "kind"),
    [
        pytest.param("t-0", "t", 0, DirectoryKind.LOG, id="a partition"),
        pytest.param("user_log-0", "user_log", 0, DirectoryKind.LOG, id="S-40: user_log-0"),
        pytest.param("secondTopic-1", "secondTopic", 1, DirectoryKind.LOG, id="S-13: secondTopic"),
        pytest.param("a-b.c-12", "a-b.c", 12, DirectoryKind.LOG, id="dashes and dots in the topic"),
        pytest.param("t--1", "t-", 1, DirectoryKind.LOG, id="a dash belongs to the topic"),
        pytest.param(
            "__cluster_metadata-0", "__cluster_metadata", 0, DirectoryKind.LOG, id="KRaft"
        ),
        pytest.param(f"t-0.{HEX}-delete", "t", 0, DirectoryKind.DELETE, id="being deleted"),
        pytest.param(f"a.b-3.{HEX}-future", "a.b", 3, DirectoryKind.FUTURE, id="being moved"),
        pytest.param(f"t-delete-0.{HEX}-stray", "t-delete", 0, DirectoryKind.STRAY, id="stray"),
        pytest.param("x-delete-7", "x-delete", 7, DirectoryKind.LOG, id="a topic named so"),
    ],
)
def test_directory_names(name: str, topic: str, partition: int, kind: DirectoryKind) -> None:
    assert files.parse_partition_directory(name) == (topic, partition, kind)


@pytest.mark.parametrize(
    "name",
    [
        pytest.param("", id="nothing"),
        pytest.param("lost+found", id="no dash"),
        pytest.param("-0", id="no topic"),
        pytest.param("t-", id="no partition"),
        pytest.param("t-x", id="a partition that is no number"),
        pytest.param("t-2147483648", id="a partition of more than 32 bits"),
        pytest.param("t-0-delete", id="a mark without an id"),
        pytest.param("t-delete", id="a mark without a partition"),
        pytest.param("t-0.-future", id="a mark with an empty id"),
        pytest.param("t-x.abc-stray", id="a marked name without a number"),
        pytest.param("a b-0.abc-delete", id="a blank in a marked name"),
    ],
)
def test_directory_names_over_which_a_broker_does_not_start(name: str) -> None:
    with pytest.raises(FormatError):
        files.parse_partition_directory(name)


@given(st.lists(st.builds(EpochEntry, INT32, INT64)))
def test_leader_epochs_come_back_as_written(entries: list[EpochEntry]) -> None:
    assert list(files.parse_leader_epochs(files.encode_leader_epochs(entries))) == entries


@given(st.dictionaries(st.builds(TopicPartition, TOPICS, INT32), INT64))
def test_offsets_come_back_as_written(offsets: dict[TopicPartition, int]) -> None:
    assert files.parse_offsets(files.encode_offsets(offsets)) == offsets


@pytest.mark.parametrize("topic", ["", "a b", "a\n"])
def test_a_topic_that_would_not_come_back_is_not_written(topic: str) -> None:
    with pytest.raises(FormatError):
        files.encode_offsets({TopicPartition(topic, 0): 0})


@given(st.binary(min_size=16, max_size=16).filter(any), st.integers(0, 2**31 - 1))
def test_partition_metadata_comes_back_as_written(raw: bytes, version: int) -> None:
    topic_id = base64.urlsafe_b64encode(raw).decode().rstrip("=")
    text = files.encode_partition_metadata(topic_id, version)
    assert files.parse_partition_metadata(text) == (version, topic_id)


@given(INT64)
def test_clean_shutdown_comes_back_as_written(epoch: int) -> None:
    assert files.parse_clean_shutdown(files.encode_clean_shutdown(epoch)) == epoch


@given(TOPICS, st.integers(0, 2**31 - 1), st.sampled_from(["delete", "future", "stray"]))
def test_directory_names_come_back_as_written(topic: str, partition: int, mark: str) -> None:
    name = files.partition_directory(topic, partition)
    assert files.parse_partition_directory(name)[:2] == (topic, partition)
    marked = files.parse_partition_directory(f"{name}.{HEX}-{mark}")
    assert marked == (topic, partition, DirectoryKind(mark))


@given(st.one_of(NEARLY, NEARLY.map("0\n1\n{}".format), NEARLY.map("version: 0\nt: {}".format)))
def test_no_text_raises_anything_but_a_format_error(text: str) -> None:
    files.parse_clean_shutdown(text)
    for parse in (
        files.parse_leader_epochs,
        files.parse_offsets,
        files.parse_partition_metadata,
        files.parse_partition_directory,
    ):
        with contextlib.suppress(FormatError):
            parse(text)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        pytest.param(
            "#\n#Tue Nov 17\ncluster.id=AbC\nversion=0\nbroker.id=3\n",
            MetaProperties(0, 3, "AbC"),
            id="zookeeper",
        ),
        pytest.param("version=0\nbroker.id=3", MetaProperties(0, 3), id="before-cluster-ids"),
        pytest.param(
            "node.id=7\ndirectory.id=X\nversion=1\ncluster.id=C\n",
            MetaProperties(1, 7, "C", "X"),
            id="kraft",
        ),
        pytest.param(
            "! x\r\nversion : 1\r\n node.id\t7\r\ncluster.id=a\\=\\u0062\\\n   c\n",
            MetaProperties(1, 7, "a=bc"),
            id="javas-properties",
        ),
    ],
)
def test_meta_properties_say_whose_directory_it_is(text: str, expected: MetaProperties) -> None:
    assert parse_meta_properties(text) == expected


@pytest.mark.parametrize(
    ("text", "field"),
    [
        ("", "version"),
        ("version=2\nnode.id=1\n", "version"),
        ("version=one\n", "version"),
        ("version=0\nnode.id=1\n", "broker.id"),
        ("version=1\nbroker.id=1\n", "node.id"),
        ("version=1\nnode.id=-1\n", "node.id"),
        ("#version=0\nbroker.id=1\n", "version"),
    ],
)
def test_meta_properties_that_say_too_little_are_refused(text: str, field: str) -> None:
    with pytest.raises(FormatError) as caught:
        parse_meta_properties(text)
    assert caught.value.field == field


@pytest.mark.parametrize("text", ['"\\ud800"', '{"a": ["x\\udfff"]}', '{"\\ud83d": 1}'])
def test_half_a_character_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match="surrogates"):
        files.first_json_value(text)


def test_two_halves_are_a_character() -> None:
    assert files.first_json_value('"\\ud83d\\ude00 \\u0041"') == "\U0001f600 A"
