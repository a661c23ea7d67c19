"""Contents compared round by round: turns, limits, restarts, and what the rules make of it."""

from __future__ import annotations

from dataclasses import replace
from itertools import count
from typing import TYPE_CHECKING, Any

import pytest
from tidestaff.connectors.broker_options import BrokerOptions
from tidestaff.connectors.brokers import BrokerConnector
from tidestaff.connectors.digest_rounds import DigestRounds
from tidestaff.connectors.digest_wire import PARTITION_BYTES, FetchedRecords, WireRanges
from tidestaff.consistency.model import OffsetRange, ProblemKind, TopicPartition
from tidestaff.consistency.monitor import step

from tests.connectors.fake_brokers import FakeCluster
from tests.connectors.segment_bytes import v2
from tests.connectors.test_digests import Broker
from tests.connectors.watched import health
from tests.consistency.watch import Watch

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

    from tidestaff.connectors.broker_answers import ListedOffset
    from tidestaff.consistency.model import PartitionObservation

RECORDS = 10
T0 = TopicPartition("t", 0)


class Brokers:
    """Three brokers; what each hands out may differ."""

    def __init__(self, count: int = 1, odd: int | None = None) -> None:
        self.by_broker: dict[int, Broker] = {}
        self.asked: list[TopicPartition] = []
        for broker in (1, 2, 3):
            batches = [v2(offset) for offset in range(RECORDS)]
            if broker == odd:
                batches[4] = v2(4, value=b"other")
            logs = {TopicPartition("t", n): batches for n in range(count)}
            self.by_broker[broker] = Broker(logs)

    def records(
        self, broker: int, positions: Mapping[TopicPartition, int], *rest: Any, **more: Any
    ) -> Mapping[TopicPartition, FetchedRecords]:
        self.asked += positions
        return self.by_broker[broker].records(broker, positions, *rest, **more)

    def list_offsets(self, broker: int, *rest: Any) -> Mapping[TopicPartition, ListedOffset]:
        return self.by_broker[broker].list_offsets(broker, *rest)


def seen(partition: int = 0, **fields: Any) -> PartitionObservation:
    return replace(Watch(**fields).observation(), partition=partition)


def test_equal_contents_raise_nothing_and_are_covered() -> None:
    rounds = DigestRounds(WireRanges(Brokers()), 1 << 20)
    (found,) = rounds.add_to([seen()], now_ms=5)
    assert {d.broker for d in found.digests} == {1, 2, 3}
    assert rounds.coverage[T0].verified_to == RECORDS
    _, verdicts = step(None, found)
    assert [v.code for v in verdicts.violated if v.code.startswith("LOG")] == []


def test_a_batch_that_differs_is_a_finding_with_the_odd_broker() -> None:
    rounds = DigestRounds(WireRanges(Brokers(odd=3)), 1 << 20)
    (found,) = rounds.add_to([seen()], now_ms=5)
    _, verdicts = step(None, found)
    accused = {(v.code, v.broker) for v in verdicts.violated if v.code == "LOG001"}
    assert accused == {("LOG001", 3)}


def test_partitions_take_turns_and_not_all_at_once() -> None:
    brokers = Brokers(count=6)
    rounds = DigestRounds(WireRanges(brokers), 1 << 20)
    partitions = [seen(n) for n in range(6)]
    with_digests = [bool(o.digests) for o in rounds.add_to(partitions, now_ms=5)]
    assert with_digests == [True] * 4 + [False] * 2
    with_digests = [bool(o.digests) for o in rounds.add_to(partitions, now_ms=6)]
    assert with_digests[4:] == [True] * 2


def test_a_partition_that_lags_or_is_cleaned_is_left_alone() -> None:
    brokers = Brokers()
    rounds = DigestRounds(WireRanges(brokers), 1 << 20)
    compacted = Watch().setting(compacted=True).observation()
    rounds.add_to([seen(isr=(1, 2)), compacted], now_ms=5)
    assert brokers.asked == []


def test_a_restart_goes_on_and_after_a_day_it_begins_anew(tmp_path: Path) -> None:
    file = str(tmp_path / "coverage.json")
    DigestRounds(WireRanges(Brokers()), 1 << 20, file).add_to([seen()], now_ms=5)
    brokers = Brokers()
    again = DigestRounds(WireRanges(brokers), 1 << 20, file)
    again.add_to([seen()], now_ms=6)
    assert brokers.asked == []
    for now_ms in (90_000_000, 90_000_001):
        again.add_to([seen()], now_ms=now_ms)
    assert brokers.asked == [T0] * 3


def covered_to(rounds: DigestRounds) -> int:
    return rounds.coverage[T0].verified_to


def test_another_topic_of_the_name_begins_anew() -> None:
    rounds = DigestRounds(WireRanges(Brokers()), 1 << 20)
    rounds.add_to([seen()], now_ms=5)
    (found,) = rounds.add_to([seen(topic_id="topic-id-0000000000002")], now_ms=6)
    assert found.digests[0].offsets == (0, RECORDS)


def test_another_replica_begins_anew() -> None:
    brokers = Brokers()
    brokers.by_broker[4] = brokers.by_broker[3]
    rounds = DigestRounds(WireRanges(brokers), 1 << 20)
    rounds.add_to([seen()], now_ms=5)
    (found,) = rounds.add_to([seen(replicas=(1, 2, 4))], now_ms=6)
    assert found.digests[0].offsets == (0, RECORDS)


def test_what_was_cut_is_compared_again_once_it_is_written_anew() -> None:
    rounds = DigestRounds(WireRanges(Brokers()), 1 << 20)
    rounds.add_to([seen()], now_ms=5)
    cut = Watch().change(isr=(1, 2)).log(3, leo=4, hw=4).observation()
    rounds.add_to([cut], now_ms=6)
    assert covered_to(rounds) == 4
    (found,) = rounds.add_to([seen()], now_ms=7)
    assert found.digests[0].offsets == (4, RECORDS)


def test_a_partition_that_is_always_written_to_begins_anew_too() -> None:
    """It is never seen to its end: something has been added each time."""
    rounds = DigestRounds(WireRanges(Brokers()), 1 << 20)
    for now_ms, end in ((5, 6), (6, 7), (90_000_000, 8)):
        (found,) = rounds.add_to([Watch().all_logs(leo=end, hw=end).observation()], now_ms=now_ms)
    assert found.digests[0].offsets == (0, 8)


def test_a_file_of_an_earlier_release_is_begun_anew(tmp_path: Path) -> None:
    file = tmp_path / "coverage.json"
    file.write_text('{"coverage": [["t", 0, [10, 5, 5, 1000]]]}')
    rounds = DigestRounds(WireRanges(Brokers()), 1 << 20, str(file))
    (found,) = rounds.add_to([seen()], now_ms=6)
    assert found.digests[0].offsets == (0, RECORDS)


class Copies:
    """Three copies of one log in batches of ten records; what one broker has may be exchanged."""

    def __init__(self, batches: int) -> None:
        self.logs = {b: {T0: [v2(10 * n, 10) for n in range(batches)]} for b in (1, 2, 3)}
        self.brokers = {broker: Broker(logs) for broker, logs in self.logs.items()}

    def records(
        self, broker: int, positions: Mapping[TopicPartition, int], *rest: Any, **more: Any
    ) -> Mapping[TopicPartition, FetchedRecords]:
        return self.brokers[broker].records(broker, positions, *rest, **more)

    def list_offsets(self, broker: int, *rest: Any) -> Mapping[TopicPartition, ListedOffset]:
        return self.brokers[broker].list_offsets(broker, *rest)

    def exchange(self, broker: int, number: int, batch: bytes) -> None:
        self.logs[broker][T0][number] = batch

    def observation(self, start: int = 0) -> PartitionObservation:
        end = 10 * len(self.logs[1][T0])
        return Watch().all_logs(start=start, leo=end, hw=end).observation()


def contents_found(observation: PartitionObservation) -> list[tuple[str, int | None, int]]:
    _, verdicts = step(None, observation)
    return [
        (v.code, v.broker, v.offsets.start)
        for v in verdicts.violated
        if v.code.startswith("LOG") and v.offsets is not None
    ]


def broken(batch: bytes) -> bytes:
    return batch[:-1] + bytes([batch[-1] ^ 1])


def test_the_first_batch_that_differs_is_named_among_many() -> None:
    copies = Copies(batches=300)
    copies.exchange(3, 217, v2(2_170, 10, value=b"other"))
    copies.exchange(3, 250, v2(2_500, 10, value=b"other"))
    rounds = DigestRounds(WireRanges(copies), 1 << 24)
    rounds.coverage[T0] = rounds._covered(copies.observation())._replace(span=10_000)
    (found,) = rounds.add_to([copies.observation()], now_ms=5)
    assert contents_found(found) == [("LOG001", 3, 2_170)]
    assert {digest.offsets for digest in found.digests} == {(2_170, 2_180)}


def test_a_batch_that_was_another_size_is_named_too() -> None:
    """From there on the copies are cut into other batches."""
    copies = Copies(batches=20)
    copies.logs[2][T0][7:9] = [v2(70, 20)]
    (found,) = DigestRounds(WireRanges(copies), 1 << 24).add_to([copies.observation()], now_ms=5)
    assert contents_found(found) == [("LOG001", 2, 70)]


def test_a_finding_stays_until_the_batch_is_mended() -> None:
    copies = Copies(batches=20)
    right = copies.logs[3][T0][7]
    copies.exchange(3, 7, broken(right))
    rounds = DigestRounds(WireRanges(copies), 1 << 24)
    for now_ms in (5, 6, 7):
        (found,) = rounds.add_to([copies.observation()], now_ms=now_ms)
        assert contents_found(found) == [("LOG002", 3, 70)]
    copies.exchange(3, 7, right)
    for now_ms in (8, 9):
        (found,) = rounds.add_to([copies.observation()], now_ms=now_ms)
        assert contents_found(found) == []
    assert rounds.coverage[T0].wrong_to == 0


def test_a_finding_is_known_after_a_restart(tmp_path: Path) -> None:
    copies, file = Copies(batches=20), str(tmp_path / "coverage.json")
    copies.exchange(3, 7, v2(70, 10, value=b"other"))
    DigestRounds(WireRanges(copies), 1 << 24, file).add_to([copies.observation()], now_ms=5)
    again = DigestRounds(WireRanges(copies), 1 << 24, file)
    (found,) = again.add_to([copies.observation()], now_ms=6)
    assert contents_found(found) == [("LOG001", 3, 70)]


def test_a_finding_ends_with_its_records() -> None:
    copies = Copies(batches=20)
    copies.exchange(3, 7, v2(70, 10, value=b"other"))
    rounds = DigestRounds(WireRanges(copies), 1 << 24)
    rounds.add_to([copies.observation()], now_ms=5)
    (found,) = rounds.add_to([copies.observation(start=100)], now_ms=6)
    assert contents_found(found) == []
    assert rounds.coverage[T0].wrong_to == 0


def test_a_finding_waits_while_a_broker_is_silent() -> None:
    copies = Copies(batches=20)
    copies.exchange(3, 7, v2(70, 10, value=b"other"))
    rounds = DigestRounds(WireRanges(copies), 1 << 24)
    rounds.add_to([copies.observation()], now_ms=5)
    copies.brokers[3].refuses[T0] = 29
    (found,) = rounds.add_to([copies.observation()], now_ms=6)
    assert found.digests == ()
    copies.brokers[3].refuses.clear()
    (found,) = rounds.add_to([copies.observation()], now_ms=7)
    assert contents_found(found) == [("LOG001", 3, 70)]


def test_a_difference_that_is_gone_when_it_is_looked_at_again_is_none() -> None:
    copies = Copies(batches=20)
    right = copies.logs[3][T0][7]
    copies.exchange(3, 7, v2(70, 10, value=b"other"))

    class Mending(WireRanges):
        """The batch is as it should be from the second look on."""

        def marks(self, *asked: Any) -> Any:
            copies.exchange(3, 7, right)
            return super().marks(*asked)

    rounds = DigestRounds(Mending(copies), 1 << 24)
    (found,) = rounds.add_to([copies.observation()], now_ms=5)
    assert found.digests == ()
    (found,) = rounds.add_to([copies.observation()], now_ms=6)
    assert {digest.offsets for digest in found.digests} == {(0, 200)}


def test_contents_may_be_compared_over_and_over() -> None:
    copies = Copies(batches=20)
    rounds = DigestRounds(WireRanges(copies), 1 << 24, again_after_ms=0)
    rounds.add_to([copies.observation()], now_ms=5)
    copies.exchange(2, 3, v2(30, 10, value=b"other"))
    (found,) = rounds.add_to([copies.observation()], now_ms=6)
    assert contents_found(found) == [("LOG001", 2, 30)]


class Large:
    """Batches of 16 records of 1 kB, as producers make them; broker 3 may hold an odd first one."""

    RECORDS_A_BATCH = 16

    def __init__(self, batches: int, odd: bool = False) -> None:
        batch = [
            v2(n * self.RECORDS_A_BATCH, self.RECORDS_A_BATCH, value=b"x" * 1_000)
            for n in range(batches)
        ]
        self.size, self.log = len(batch[0]), b"".join(batch)
        assert {len(each) for each in batch} == {self.size}
        self.end = batches * self.RECORDS_A_BATCH
        first = v2(0, self.RECORDS_A_BATCH, value=b"y" * 1_000)
        self.odd_log = first + self.log[self.size :] if odd else self.log

    def records(
        self,
        broker: int,
        positions: Mapping[TopicPartition, int],
        *_: Any,
        partition_bytes: int,
        **__: Any,
    ) -> Mapping[TopicPartition, FetchedRecords]:
        """As a broker: up to so many bytes, and one batch at least."""
        log, found = self.odd_log if broker == 3 else self.log, {}
        for partition, offset in positions.items():
            at = offset // self.RECORDS_A_BATCH * self.size
            found[partition] = FetchedRecords(0, log[at : at + max(partition_bytes, self.size)])
        return found

    def list_offsets(self, *_: Any) -> Mapping[TopicPartition, ListedOffset]:
        return {}

    def observations(self, partitions: int = 1) -> list[PartitionObservation]:
        one = Watch().all_logs(leo=self.end, hw=self.end).observation()
        return [replace(one, partition=n) for n in range(partitions)]


@pytest.mark.parametrize("bytes_a_round", [100_000, 1_000_000, 4_000_000, 8_000_000])
def test_what_is_moved_is_compared_and_on_average_no_more_than_allowed(bytes_a_round: int) -> None:
    """A fetch brings 1 MiB also where less is asked for."""
    large, number = Large(batches=400), 40
    ranges = WireRanges(large)
    rounds = DigestRounds(ranges, bytes_a_round)
    for now in range(1, number + 1):
        rounds.add_to(large.observations(6), now_ms=now * 5_000)
    compared = sum(c.verified_to for c in rounds.coverage.values()) * len(large.log) // large.end
    moved = ranges.bytes_moved // 3
    all_there_is = 6 * len(large.log)
    assert compared > min(moved * 2 // 3, all_there_is - 1)
    assert moved <= number * bytes_a_round + 2 * PARTITION_BYTES
    assert moved > min(number * bytes_a_round - 2 * PARTITION_BYTES, all_there_is)


def test_small_offsets_before_large_ones_do_not_bring_a_flood() -> None:
    rounds = DigestRounds(WireRanges(Copies(batches=1)), 1 << 24)
    assert rounds._next_span(OffsetRange(0, 1_000), 1) == 8_000


def test_batches_that_are_wrong_are_read_by_turns_within_the_limit_and_told_meanwhile() -> None:
    large, number, limit = Large(batches=80, odd=True), 60, 1_000_000
    ranges = WireRanges(large)
    rounds = DigestRounds(ranges, limit)
    for now in range(1, number + 1):
        found = rounds.add_to(large.observations(40), now_ms=now * 5_000)
        known = {p.partition for p, covered in rounds.coverage.items() if covered.wrong_to}
        told = {o.partition for o in found if any(d.offsets == (0, 16) for d in o.digests)}
        assert known <= told
    assert ranges.bytes_moved // 3 <= number * limit + 3 * PARTITION_BYTES
    assert len(known) >= 15


def test_what_is_wrong_does_not_keep_the_rest_from_being_compared() -> None:
    """Nor the other way round, however little there is for both."""
    large = Large(batches=200, odd=True)
    rounds = DigestRounds(WireRanges(large), 50_000)
    looked: set[int] = set()
    for now in range(1, 400):
        rounds.add_to(large.observations(), now_ms=now * 5_000)
        looked |= {wrong.at_ms for wrong in rounds._seen_wrong.values()}
    assert rounds.coverage[T0].verified_to == large.end
    assert len(looked) > 10


def test_under_another_leader_what_was_wrong_is_looked_at_before_it_is_told() -> None:
    large = Large(batches=80, odd=True)
    rounds = DigestRounds(WireRanges(large), 100_000)
    told = []
    for now, epoch in ((1, 0), (2, 0), (3, 1)):
        seen = large.observations()[0]
        seen = replace(seen, state=seen.state._replace(leader_epoch=epoch))
        (found,) = rounds.add_to([seen], now_ms=now * 5_000)
        told.append(bool(found.digests))
    assert told == [True, True, False]


def test_a_second_batch_that_is_wrong_is_told_once_the_first_is_mended() -> None:
    copies = Copies(batches=20)
    right = copies.logs[3][T0][2]
    copies.exchange(3, 2, v2(20, 10, value=b"other"))
    copies.exchange(3, 7, v2(70, 10, value=b"other"))
    rounds = DigestRounds(WireRanges(copies), 1 << 24)
    (found,) = rounds.add_to([copies.observation()], now_ms=5)
    assert contents_found(found) == [("LOG001", 3, 20)]
    copies.exchange(3, 2, right)
    for now_ms in (6, 7, 8):
        (found,) = rounds.add_to([copies.observation()], now_ms=now_ms)
        assert ("LOG001", 3, 70) in contents_found(found)


KEPT = '{"coverage": [[TOPIC, NUMBER, [OFFSET, 1, 1, SPAN, "", 0, 0]]]}'


def kept(topic: str = '"t"', number: str = "0", offset: str = "1", span: str = "1") -> str:
    named = KEPT.replace("TOPIC", topic).replace("NUMBER", number)
    return named.replace("OFFSET", offset).replace("SPAN", span)


@pytest.mark.parametrize(
    "content",
    [
        pytest.param("[" * 100_000, id="nested-without-end"),
        pytest.param(kept(number="1e999"), id="infinity"),
        pytest.param(kept(offset=str(2**64)), id="huge"),
        pytest.param(kept(offset="9" * 5_000), id="a-number-without-end"),
        pytest.param(kept(offset="-1"), id="below-nought"),
        pytest.param(kept(span="true"), id="no-number"),
        pytest.param(kept(topic='["t"]'), id="no-topic"),
        pytest.param('{"coverage": [["t"]]}', id="too-short"),
        pytest.param('{"coverage": [["t", 0, [10, 5, 5, 1000]]]}', id="of-an-earlier-release"),
        pytest.param("[]", id="another-file"),
    ],
)
def test_a_state_that_cannot_be_used_is_told_once_and_begun_anew(
    tmp_path: Path, content: str
) -> None:
    file = tmp_path / "coverage.json"
    file.write_text(content)
    rounds = DigestRounds(WireRanges(Brokers()), 1 << 20, str(file))
    (told,) = rounds.problems()
    assert str(file) in told.reason
    assert rounds.problems() == []
    (found,) = rounds.add_to([seen()], now_ms=6)
    assert found.digests[0].offsets == (0, RECORDS)
    assert DigestRounds(WireRanges(Brokers()), 1 << 20, str(file)).problems() == []


def test_the_collector_tells_a_state_that_cannot_be_used_and_that_it_is_over(
    tmp_path: Path,
) -> None:
    file = tmp_path / "coverage.json"
    file.write_text("[" * 100_000)
    now_ms = count(1_000_000, 5_000)
    connector = BrokerConnector(
        FakeCluster.with_topic(),
        "west",
        BrokerOptions("somewhere:9092", jitter_ms=0),
        now_ms=lambda: next(now_ms),
        digests=DigestRounds(WireRanges(Brokers()), 0, str(file)),
    )
    told = [[(h.problem, h.place) for h in health(connector.round())] for _ in range(3)]
    place = f"verify_state {file}"
    assert told == [[(ProblemKind.MALFORMED, place)], [(ProblemKind.OK, place)], []]


def test_a_state_that_is_not_there_yet_is_no_problem(tmp_path: Path) -> None:
    rounds = DigestRounds(WireRanges(Brokers()), 1 << 20, str(tmp_path / "none.json"))
    assert rounds.problems() == []


def test_a_state_is_gone_on_with_as_it_was_kept(tmp_path: Path) -> None:
    file = tmp_path / "coverage.json"
    file.write_text(kept(offset="7"))
    rounds = DigestRounds(WireRanges(Brokers()), 1 << 20, str(file))
    assert (rounds.problems(), covered_to(rounds)) == ([], 7)
