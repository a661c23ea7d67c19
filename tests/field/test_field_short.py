"""The field test in short; `make field` runs the whole."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from tidestaff.connectors.disk_replica import DiskReplica
from tidestaff.consistency.model import TopicPartition

from tests.field import (
    field_injected,
    field_kip101,
    field_lively,
    field_seeds,
    field_truncation,
)
from tests.field.field_cost import Block, Quad, noise_of_p99, p99_ratio, quad_of
from tests.field.field_inject import Fault
from tests.field.field_losses import Loss, committed_end, lost, records
from tests.field.field_report import Row, merge, page
from tests.field.field_watch import Alert
from tests.field.lab import CLUSTERS, Kind, need_jars
from tests.field.run import kip101_rows, main, truncation_rows

if TYPE_CHECKING:
    from pathlib import Path

pytestmark = pytest.mark.filterwarnings("ignore:.*_text is deprecated:DeprecationWarning")


@pytest.mark.slow
def test_kip_101_on_real_brokers_of_0_10_2_2(tmp_path: Path) -> None:
    """An acknowledged record is lost and two logs differ for ever: both are named exactly."""
    need_jars("0.10.2.2")
    outcome = field_kip101.play(tmp_path, "0.10.2.2", diverge=True)
    assert outcome.lost
    assert outcome.diverged
    assert outcome.isr == (1, 2, 3)
    row = kip101_rows(outcome, Kind("0.10.2.2", "zookeeper"), diverge=True)[0]
    assert row.holds, row


@pytest.mark.slow
def test_truncation_is_as_predicted_on_real_brokers_of_3_9_1(tmp_path: Path) -> None:
    need_jars("3.9.1")
    tally = field_truncation.play(tmp_path, Kind("3.9.1", "zookeeper"), rounds=4, seed=3)
    assert tally.cuts
    for row in truncation_rows(tally):
        assert row.holds, row


def row(name: str, *, holds: bool, seen: str = "as expected") -> Row:
    return Row("kip101", name, "0.10.2.2-zookeeper", "lost", seen, holds, 1.0)


def test_the_page_counts_what_holds_and_shows_what_does_not() -> None:
    text = page([row("a", holds=True), row("b", holds=False, seen="x | y")], "2026-01-01")
    assert "1 of 2 rows hold" in text
    assert "| b | 0.10.2.2-zookeeper | lost | x \\| y | 1 | older | **no** |" in text
    assert text.count("Not run.") == 6


def test_a_row_that_is_run_again_replaces_the_old_one() -> None:
    old = [row("a", holds=False), row("b", holds=True)]
    assert merge(old, [row("a", holds=True)]) == [row("b", holds=True), row("a", holds=True)]


def test_a_loss_is_grave_and_a_silent_broker_is_not() -> None:
    def alert(code: str) -> Alert:
        return Alert(code, "t-0", "", "", 1, 1, 2, 0.0)

    codes = ("TRN001", "TRN006", "ELE002", "SRC001", "ISR008", "TRN005")
    assert [code for code in codes if alert(code).grave] == ["TRN001", "TRN006", "ELE002"]
    assert str(alert("TRN001")) == "TRN001 committed-offsets-lost t-0 broker 1 offsets [1, 2)"


def test_what_is_true_of_a_stopped_broker_is_false_while_none_is_stopped() -> None:
    def false(code: str, at_s: float) -> bool:
        alert = Alert(code, "t-0", "", "", 1, None, None, at_s)
        kind, away = Kind("3.9.1", "zookeeper"), [(10.0, 90.0), (250.0, 300.0)]
        outcome = field_lively.Outcome(kind, [], 1, 0, 1, [alert], [], 1800.0, away)
        return bool(outcome.false)

    assert not false("SRC001", 290)
    assert not false("SRC001", 305)
    assert not false("SRC001", 40)
    assert not false("ISR008", 100)
    assert false("ISR008", 5)
    assert false("ISR008", 180)
    assert false("SRC001", 900)
    assert false("ELE012", 290)
    assert false("TRN001", 290)


def test_the_documented_experiments_have_no_alert_but_of_a_stopped_broker() -> None:
    silent = Alert("SRC001", "health/broker 1", "", "", 1, None, None, 0.0)
    others = [
        silent._replace(broker=2),
        silent._replace(code="ISR002"),
        silent._replace(code="ELE001"),
    ]
    assert field_seeds.unexpected([silent, *others], {1}) == others


def test_a_part_nobody_knows_is_told_before_anything_is_started() -> None:
    with pytest.raises(SystemExit):
        main(["--only", "injected", "--part", "contents,nope"])


def test_what_drifts_evenly_is_no_cost() -> None:
    """A machine that becomes slower all the time, watched by a monitor that costs nothing."""
    order = (True, False, False, True)
    slower = [Block(records, []) for records in (400.0, 300.0, 200.0, 100.0)]
    assert quad_of(slower, order).throughput == 1
    assert quad_of(slower, order).noise < 1
    costly = [each._replace(records_s=each.records_s * (0.9 if w else 1))
              for each, w in zip(slower, order, strict=True)]  # fmt: skip
    assert quad_of(costly, order).throughput == pytest.approx(0.9)


def test_the_p99_of_all_blocks_that_were_watched_is_compared_with_that_of_the_others() -> None:
    calm, felt = Block(1, [1.0] * 99 + [5.0]), Block(1, [1.0] * 98 + [6.0, 9.0])
    assert p99_ratio([Quad((felt, felt), (calm, calm))]) == pytest.approx(9 / 5)
    assert noise_of_p99([Quad((felt, felt), (calm, calm))]) == 1


def test_a_tail_beyond_the_watermark_was_not_committed_and_is_not_lost(tmp_path: Path) -> None:
    place = TopicPartition("unclean", 0)
    dead = DiskReplica(place, "/d", high_watermark=3, log_end_offset=9)
    leader = DiskReplica(place, "/d", high_watermark=3, log_end_offset=5)
    assert lost("unclean-0", 5, dead, leader, tmp_path) is None
    assert committed_end(7, dead) == 7
    assert committed_end(2, dead) == 3


def test_records_that_a_producer_wrote_twice_are_lost_twice(tmp_path: Path) -> None:
    """Its second try is a batch of its own, and what is acknowledged is the offset of one."""
    place = TopicPartition("unclean", 0)
    segment = b"".join(batch(base, [b"tail 0", b"tail 1"]) for base in (4, 6))
    (tmp_path / "00000000000000000000.log").write_bytes(batch(0, [b"x"] * 4) + segment)
    assert records(tmp_path)[3:] == [
        (3, b"x"),
        *((4, b"tail 0"), (5, b"tail 1"), (6, b"tail 0"), (7, b"tail 1")),
    ]
    dead = DiskReplica(place, "/d", high_watermark=4, log_end_offset=8)
    loss = lost("unclean-0", 8, dead, dead._replace(log_end_offset=4), tmp_path)
    assert loss == Loss("unclean-0", 4, 8, twice=2)
    told = Alert("TRN001", "unclean-0", "", "", 1, 4, 8, 0.0)
    assert loss.told_by(told)
    assert not loss.told_by(told._replace(end=6))
    assert loss.covers(told)
    assert not loss.covers(told._replace(end=loss.end + 1))
    assert not loss.covers(told._replace(subject="unclean-9"))
    tally = field_truncation.Tally(Kind("2.8.2", "zookeeper"), losses=[loss], alerts=[told])
    assert all(each.holds for each in truncation_rows(tally))
    tally.alerts.append(told._replace(first=2))
    assert [each.holds for each in truncation_rows(tally)] == [True, False]


def batch(base: int, values: list[bytes]) -> bytes:
    from kafka.record.default_records import DefaultRecordBatchBuilder  # noqa: PLC0415 - warns

    builder = DefaultRecordBatchBuilder(2, 0, 0, -1, -1, -1, 10_000)
    for number, value in enumerate(values):
        builder.append(number, 1, None, value, [])
    made = bytearray(builder.build())
    made[:8] = base.to_bytes(8, "big")
    return bytes(made)


def test_every_kind_of_cluster_has_all_faults_it_can_have() -> None:
    everywhere = {"contents", "tail", "disk", "brokers", "acl"}
    left_out = {
        "0.10.2.2-zookeeper": {"epochs", "identity"},  # there are no leader epochs, no topic ids
        "1.1.1-zookeeper": {"identity"},
        "3.9.1-kraft": {"znodes"},
        "4.1.1-kraft": {"znodes"},
    }
    for kind in CLUSTERS:
        parts = set(field_injected.parts_of(kind))
        assert parts >= everywhere
        assert set(field_injected.ALL_PARTS) - parts == left_out.get(str(kind), set())


def test_a_finding_that_does_not_name_the_missing_acl_is_not_found() -> None:
    place, reason = "health/topic secret", "not authorised: ACL Read on topic secret is missing"
    alert = Alert("SRC002", place, "", f"brokers: {reason} at topic secret", None, None, None, 0.0)
    fault = Fault("ACL taken away", "SRC002", place, lambda: None, says="ACL Read on topic secret")
    assert fault.is_told_by(alert)
    assert not fault.is_told_by(alert._replace(observed="brokers: not authorised"))
    assert not fault.is_told_by(alert._replace(subject="health/topic open"))
    altered = Fault("altered", "LOG001", "t-0", lambda: None, 3, 10)
    found = Alert("LOG001", "t-0", "", "", 3, 10, 15, 0.0)
    assert altered.is_told_by(found)
    assert not altered.is_told_by(found._replace(first=9))
    assert not altered.is_told_by(found._replace(broker=2))
