"""`tidestaff verify` against real brokers: bytes altered behind their backs, a replica that lags,
one that was cleaned alone, a broker that is down, transactions, tiered storage; retention, a new
leader, a broker that goes in the middle of a run; by the protocol, by agents, from directories.

Files are altered by the test; the command only reads. One cluster lives through all of it.
"""

from __future__ import annotations

import json
import time
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, Final

import pytest
from tidestaff.streaming.cli import main

from tests.field.agents import agents_of
from tests.field.lab import need_jars, running
from tests.field.verify_changes import (
    MANY,
    RECORDS_A_WRITE,
    SEGMENTS,
    InTheMiddle,
    begin_to_move,
    first_offset,
    move_leader,
    retention,
    tiered_settings,
    transactions,
    until_moved,
    wait_until,
    write,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    from tests.field.lab import Lab

pytestmark = pytest.mark.filterwarnings("ignore:.*_text is deprecated:DeprecationWarning")

RECORDS: Final = 40
CHECKSUM_AT, PAYLOAD_AT = 20, 63
NEVER_MS: Final = "600000"
SETTINGS: Final = {
    0: {
        "replica.lag.time.max.ms": "4000",
        "log.cleaner.backoff.ms": NEVER_MS,
        "log.initial.task.delay.ms": "500",
        "log.retention.check.interval.ms": "300",
    },
    # Only this one cleans while the test runs.
    1: {"log.cleaner.backoff.ms": "300"},
}
COMPACTED: Final = {
    "cleanup.policy": "compact",
    "segment.bytes": "1048576",
    "segment.ms": "1000",
    "min.cleanable.dirty.ratio": "0.01",
}


class Verify:
    """The command, as one partition of a topic is asked for; its exit code and its findings."""

    def __init__(self, lab: Lab, capsys: pytest.CaptureFixture[str]) -> None:
        self.lab, self._capsys = lab, capsys

    def __call__(self, topic: str, *more: str, where: tuple[str, ...] = ()) -> tuple[int, Any]:
        where = where or ("--bootstrap-server", self.lab.answering)
        code = main(["verify", "--json", "--topic", topic, *where, *more])
        found = json.loads(self._capsys.readouterr().out)
        self.requests: int = found["requests"]
        (partition,) = found["partitions"]
        return code, partition

    @contextmanager
    def meanwhile(self, act: Callable[[], None], *, after: int = 1) -> Iterator[None]:
        """What is asked within finds the cluster changed after so many rounds of questions."""
        with pytest.MonkeyPatch.context() as patch:
            middle = InTheMiddle(patch, act, after=after)
            yield
        assert middle.was_there, "it was over before anything had changed"


def make_topic(lab: Lab, name: str, assignment: tuple[int, ...] = (1, 2, 3)) -> None:
    lab.clients.create_topic(name, assignment=[list(assignment)])
    for _ in range(4):
        lab.clients.produce(name, [b"record"] * (RECORDS // 4))


def flip(lab: Lab, name: str, broker: int, byte: int) -> None:
    """One bit of the first batch that is there."""
    path = lab.replica_dir(broker, name, 0) / f"{first_offset(lab, broker, name):020d}.log"
    with path.open("r+b") as file:
        file.seek(byte)
        found = file.read(1)[0]
        file.seek(byte)
        file.write(bytes([found ^ 1]))


def check_equal(lab: Lab, verify: Verify) -> None:
    make_topic(lab, "equal")
    # Followers hear of the last commit with their next fetch.
    wait_until(lambda: verify("equal")[1]["equal_up_to"] == RECORDS, "not equal up to the end")
    code, found = verify("equal")
    assert (code, found["verdict"], found["equal_up_to"]) == (0, "equal", RECORDS), found
    code, found = verify("equal", "--quick")
    assert (code, found["verdict"], found["by"]) == (0, "equal", "lineage"), found


def check_a_batch_that_differs(lab: Lab, verify: Verify) -> None:
    make_topic(lab, "odd")
    flip(lab, "odd", 3, CHECKSUM_AT)
    code, found = verify("odd")
    assert (code, found["verdict"], found["equal_up_to"]) == (2, "diverged", 0), found
    assert found["differences"][0]["wrong"] == [3]


def check_rot_that_all_share(lab: Lab, verify: Verify) -> None:
    make_topic(lab, "rot")
    for broker in lab.brokers:
        flip(lab, "rot", broker, PAYLOAD_AT)
    assert verify("rot")[0] == 0
    code, found = verify("rot", "--scrub")
    assert (code, found["verdict"]) == (2, "corrupt"), found
    assert {each["broker"] for each in found["corrupt"]} == {1, 2, 3}


def check_a_replica_that_lags(lab: Lab, verify: Verify) -> None:
    """Behind is not diverged. The controller leads, so that the ISR can be shrunk."""
    leader = lab.clients.controller()
    last, other = (broker for broker in lab.brokers if broker != leader)
    make_topic(lab, "behind", (leader, other, last))
    lab.cut(leader, last)
    wires = lab.plan.folder / "wires.log"
    wait_until(lambda: "cut: [(" in wires.read_text(), "the wire is not cut")
    # Acknowledged once the ISR has shrunk; before anything is written nobody lags.
    lab.clients.produce("behind", [b"more"] * 5)
    lab.clients.until("behind", lambda seen: last not in seen[0].isr)
    code, found = verify("behind")
    assert (code, found["verdict"]) == (1, "behind"), found
    (lagging,) = found["behind"]
    assert lagging == {"broker": last, "ends_at": RECORDS, "committed": RECORDS + 5}
    lab.heal()
    lab.clients.until("behind", lambda seen: last in seen[0].isr)
    assert verify("behind")[0] == 0


def begin_to_clean(lab: Lab) -> None:
    """Each segment holds one record of each key; what is closed can be cleaned."""
    lab.clients.create_topic("cleaned", assignment=[[1, 2, 3]], configs=COMPACTED)
    for _ in range(3):
        _write_keys(lab)
        time.sleep(1.1)
    _write_keys(lab)


def _write_keys(lab: Lab) -> None:
    from kafka import KafkaProducer  # type: ignore[import-untyped] # noqa: PLC0415 - slow

    producer = KafkaProducer(bootstrap_servers=lab.answering, acks="all")
    for number in range(20):
        producer.send("cleaned", key=b"key-%d" % number, value=b"x" * 100, partition=0)
    producer.flush()
    producer.close()


def check_replicas_cleaned_at_different_times(lab: Lab, verify: Verify, agents: str) -> None:
    """No alarm; by agents it is known how far the cleaner came, and the rest is compared."""
    checkpoint = lab.log_dir(1) / "cleaner-offset-checkpoint"
    wait_until(
        lambda: checkpoint.exists() and "cleaned" in checkpoint.read_text(),
        "the cleaner of broker 1 has not come by",
    )
    size = {b: _size(lab, b) for b in lab.brokers}
    assert size[1] < size[2] == size[3], size
    both = ("--bootstrap-server", lab.answering, "--agents", agents)
    for where in ((), both):
        code, found = verify("cleaned", where=where)
        assert (code, found["verdict"]) == (3, "not comparable"), found
        assert not found["differences"]
        assert "cleaned at different times" in found["not_compared"][0]["why"]


def _size(lab: Lab, broker: int) -> int:
    folder = lab.replica_dir(broker, "cleaned", 0)
    return sum(each.stat().st_size for each in folder.glob("*.log"))


def check_agents(lab: Lab, verify: Verify, agents: str) -> None:
    both = ("--bootstrap-server", lab.answering, "--agents", agents)
    for where in (both, ("--agents", agents)):
        assert verify("equal", where=where)[1]["equal_up_to"] == RECORDS
        code, found = verify("equal", "--quick", where=where)
        assert (code, found["verdict"], found["by"]) == (0, "equal", "lineage"), found
        code, found = verify("odd", where=where)
        assert (code, found["differences"][0]["wrong"]) == (2, [3]), found
        assert verify("rot", where=where)[0] == 0
        assert verify("rot", "--scrub", where=where)[0] == 2


def check_transactions(lab: Lab, verify: Verify) -> None:
    """Markers are batches like others, and what is open is as committed as the rest."""
    lab.clients.create_topic("bank", assignment=[[1, 2, 3]])
    end = 3 * RECORDS_A_WRITE + 2
    for _ in transactions(lab, "bank"):
        wait_until(lambda: verify("bank")[1]["equal_up_to"] == end, "not equal up to the end")
        for more in ((), ("--scrub",), ("--quick",)):
            code, found = verify("bank", *more)
            assert (code, found["verdict"], found["equal_up_to"]) == (0, "equal", end), found


def check_a_tiered_log(lab: Lab, verify: Verify, agents: str) -> None:
    """Compared where it is local on all copies; the older part is nobody's copy."""
    until_moved(lab, "tiered")
    both = ("--bootstrap-server", lab.answering, "--agents", agents)
    for where in ((), both, ("--agents", agents)):
        code, found = verify("tiered", where=where)
        assert (code, found["verdict"], found["equal_up_to"]) == (0, "equal", MANY), found
    code, found = verify("tiered", "--quick")
    assert (code, found["verdict"], found["differences"]) == (3, "not comparable", []), found
    assert "lineages are known" in found["not_compared"][0]["why"]
    assert verify("tiered", "--quick", where=both)[0] == 0
    begins = max(first_offset(lab, broker, "tiered") for broker in lab.brokers)
    assert begins > 0
    flip(lab, "tiered", 3, CHECKSUM_AT)
    for where in ((), both, ("--agents", agents)):
        code, found = verify("tiered", where=where)
        assert (code, found["verdict"], found["differences"][0]["wrong"]) == (2, "diverged", [3])
        assert found["differences"][0]["start"] >= begins


def check_retention_in_the_middle(lab: Lab, verify: Verify, agents: str) -> None:
    """Agents are asked for everything at once, so theirs changes before they are asked."""
    both = ("--bootstrap-server", lab.answering, "--agents", agents)
    check_retention(lab, verify, "trimmed", after=1)
    check_retention(lab, verify, "trimmed-too", after=0, where=both)


def check_retention(
    lab: Lab, verify: Verify, topic: str, *, after: int, where: tuple[str, ...] = ()
) -> None:
    """What is gone is not asked for one by one, and the rest is compared."""
    lab.clients.create_topic(topic, assignment=[[1, 2, 3]], configs=SEGMENTS)
    write(lab, topic)
    wait_until(lambda: verify(topic)[1]["equal_up_to"] == MANY, "not equal up to the end")
    with verify.meanwhile(lambda: retention(lab, topic), after=after):
        code, found = verify(topic, where=where)
    assert (code, found["verdict"], found["equal_up_to"]) == (0, "equal", MANY), found
    gone = min(first_offset(lab, broker, topic) for broker in lab.brokers)
    assert gone > 2 * RECORDS_A_WRITE
    assert verify.requests < gone, "each record that is gone was asked for"


def check_a_new_leader_in_the_middle(lab: Lab, verify: Verify) -> None:
    make_topic(lab, "moved")
    wait_until(lambda: verify("moved")[1]["equal_up_to"] == RECORDS, "not equal up to the end")
    with verify.meanwhile(lambda: move_leader(lab, "moved", 2)):
        code, found = verify("moved")
    assert (code, found["verdict"], found["equal_up_to"]) == (0, "equal", RECORDS), found
    end = RECORDS + RECORDS_A_WRITE
    wait_until(lambda: verify("moved")[1]["equal_up_to"] == end, "not equal up to the end")
    code, found = verify("moved", "--quick")
    assert (code, found["verdict"], found["leader"], found["equal_up_to"]) == (0, "equal", 2, end)
    assert found["epoch"] > 0


def check_a_broker_that_goes_in_the_middle(lab: Lab, verify: Verify) -> None:
    """It leads, so another one does from then on; the two that stay are compared to the end."""
    make_topic(lab, "going", (3, 1, 2))
    wait_until(lambda: verify("going")[1]["equal_up_to"] == RECORDS, "not equal up to the end")
    with verify.meanwhile(lambda: lab.stop(3)):
        code, found = verify("going")
    assert (code, found["differences"], found["corrupt"]) == (3, [], []), found
    assert (list(found["unread"]), found["equal_up_to"]) == (["3"], RECORDS), found


def check_a_broker_that_is_down(lab: Lab, verify: Verify, agents: str) -> None:
    """The rest goes on; by its agent even the replica of the broker that is down is compared."""
    code, found = verify("equal")
    assert (code, found["verdict"], found["copies"]) == (3, "equal", [1, 2]), found
    assert list(found["unread"]) == ["3"]
    code, found = verify("equal", where=("--agents", agents))
    assert (code, found["copies"], found["equal_up_to"]) == (0, [1, 2, 3], RECORDS), found


def check_directories(lab: Lab, verify: Verify) -> None:
    """Nobody runs any more."""
    lab.down()
    where = tuple(word for b in lab.brokers for word in ("--log-dir", str(lab.log_dir(b))))
    assert verify("equal", where=where)[1]["equal_up_to"] == RECORDS
    code, found = verify("odd", where=where)
    assert (code, found["differences"][0]["wrong"]) == (2, [3]), found
    code, found = verify("cleaned", where=where)
    assert (code, found["verdict"], found["differences"]) == (3, "not comparable", []), found
    code, found = verify("tiered", where=where)
    assert (code, found["differences"][0]["wrong"]) == (2, [3]), found


@pytest.mark.slow
def test_real_replicas_are_compared(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    need_jars("3.9.1")
    monkeypatch.chdir(tmp_path)
    settings = {**SETTINGS, 0: {**SETTINGS[0], **tiered_settings(tmp_path / "remote")}}
    lab_of = running(tmp_path / "lab", "3.9.1", "zookeeper", cuttable=True, settings=settings)
    with lab_of as lab, agents_of(lab) as (agents, _):
        verify = Verify(lab, capsys)
        begin_to_clean(lab)
        begin_to_move(lab, "tiered")
        check_equal(lab, verify)
        check_a_batch_that_differs(lab, verify)
        check_rot_that_all_share(lab, verify)
        check_a_replica_that_lags(lab, verify)
        check_replicas_cleaned_at_different_times(lab, verify, agents)
        check_agents(lab, verify, agents)
        check_transactions(lab, verify)
        check_a_tiered_log(lab, verify, agents)
        check_retention_in_the_middle(lab, verify, agents)
        check_a_new_leader_in_the_middle(lab, verify)
        check_a_broker_that_goes_in_the_middle(lab, verify)
        check_a_broker_that_is_down(lab, verify, agents)
        check_directories(lab, verify)
