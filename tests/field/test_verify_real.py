"""`tidestaff verify` against real brokers: bytes altered behind their backs, a broker that is down.

Files are altered by the test; the command only reads.
"""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import pytest
from tidestaff.streaming.cli import main

from tests.field.lab import need_jars, running

if TYPE_CHECKING:
    from pathlib import Path

    from tests.field.lab import Lab

RECORDS = 40
SEGMENT = f"{0:020d}.log"


def verify(
    capsys: pytest.CaptureFixture[str], lab: Lab, topic: str, *more: str
) -> tuple[int, dict[str, Any]]:
    arguments = ["verify", "--json", "--bootstrap-server", lab.answering, "--topic", topic]
    code = main([*arguments, *more])
    found = json.loads(capsys.readouterr().out)
    (partition,) = found["partitions"]
    return code, partition


def topic(lab: Lab, name: str) -> None:
    """Led by 1; every record is a batch of its own."""
    lab.clients.create_topic(name, assignment=[[1, 2, 3]])
    for _ in range(4):
        lab.clients.produce(name, [b"record"] * (RECORDS // 4))


def flip(lab: Lab, name: str, broker: int, byte: int) -> None:
    """One bit of the first batch."""
    path = lab.replica_dir(broker, name, 0) / SEGMENT
    with path.open("r+b") as file:
        file.seek(byte)
        found = file.read(1)[0]
        file.seek(byte)
        file.write(bytes([found ^ 1]))


def check_equal(lab: Lab, capsys: pytest.CaptureFixture[str]) -> None:
    topic(lab, "equal")
    code, found = verify(capsys, lab, "equal")
    assert (code, found["verdict"], found["equal_up_to"]) == (0, "equal", RECORDS)
    code, found = verify(capsys, lab, "equal", "--quick")
    assert (code, found["verdict"], found["by"]) == (0, "equal", "lineage")


def check_a_batch_that_differs(lab: Lab, capsys: pytest.CaptureFixture[str]) -> None:
    topic(lab, "odd")
    flip(lab, "odd", 3, 20)  # its checksum, in the header
    code, found = verify(capsys, lab, "odd")
    assert (code, found["verdict"], found["equal_up_to"]) == (2, "diverged", 0)
    assert found["differences"][0]["wrong"] == [3]


def check_rot_that_all_share(lab: Lab, capsys: pytest.CaptureFixture[str]) -> None:
    topic(lab, "rot")
    for broker in (1, 2, 3):
        flip(lab, "rot", broker, 63)  # payload
    assert verify(capsys, lab, "rot")[0] == 0
    code, found = verify(capsys, lab, "rot", "--scrub")
    assert (code, found["verdict"]) == (2, "corrupt")
    assert {each["broker"] for each in found["corrupt"]} == {1, 2, 3}


def check_a_broker_that_is_down(lab: Lab, capsys: pytest.CaptureFixture[str]) -> None:
    topic(lab, "down")
    lab.stop(3)
    code, found = verify(capsys, lab, "down")
    assert (code, found["verdict"], found["copies"]) == (3, "equal", [1, 2])
    assert list(found["unread"]) == ["3"]


@pytest.mark.slow
def test_real_replicas_are_compared(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    need_jars("3.9.1")
    with running(tmp_path / "lab", "3.9.1", "kraft") as lab:
        check_equal(lab, capsys)
        check_a_batch_that_differs(lab, capsys)
        check_rot_that_all_share(lab, capsys)
        check_a_broker_that_is_down(lab, capsys)
