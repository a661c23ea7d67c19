"""`tidestaff verify` and `tidestaff what-if` as a user who logs in by SASL over TLS, with the ACLs
of docs/permissions.md and ordinary client properties, on real brokers."""

from __future__ import annotations

import json
import time
from typing import TYPE_CHECKING, Any

import pytest
from tidestaff.streaming.cli import main
from tidestaff.streaming.commands.exits import Exit

from tests.field.lab import need_jars
from tests.field.secured import PASSWORD, VERSION, needed, secured
from tests.field.secured_settings import USER

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from tests.field.secured import SecuredLab

pytestmark = [
    pytest.mark.slow,
    pytest.mark.filterwarnings("ignore:.*_text is deprecated:DeprecationWarning"),
    # The library leaves the socket of a handshake that failed to the garbage collector.
    pytest.mark.filterwarnings("ignore:unclosed .ssl.SSLSocket:ResourceWarning"),
]

RECORDS, CHECKSUM_AT = 30, 20


@pytest.fixture(scope="module")
def lab(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SecuredLab]:
    need_jars(VERSION)
    with secured(tmp_path_factory.mktemp("secured"), brokers=2) as found:
        for topic in ("equal", "other"):
            found.lab.clients.create_topic(topic, assignment=[[1, 2]])
            for _ in range(3):
                found.lab.clients.produce(topic, [b"a record"] * (RECORDS // 3))
        found.allow(*needed(VERSION))
        folder = tmp_path_factory.mktemp("first")
        until = time.monotonic() + 60
        # Brokers hear of users and ACLs one after the other.
        while main(["verify", "--topic", "equal", *access(found, folder)]) == Exit.UNKNOWN:
            assert time.monotonic() < until, "the user is not known to all brokers"
            time.sleep(0.5)
        yield found


def access(lab: SecuredLab, tmp_path: Path, password: str = PASSWORD) -> list[str]:
    """Where the brokers are, and the properties as people have them in a file."""
    escaped = password.replace('"', '\\\\"')
    lines = {
        "security.protocol": "SASL_SSL",
        "sasl.mechanism": "SCRAM-SHA-512",
        "sasl.jaas.config": "org.apache.kafka.common.security.scram.ScramLoginModule required "
        f'username="{USER}" password="{escaped}";',
        "ssl.truststore.type": "PEM",
        "ssl.truststore.location": str(lab.folder / "ca.pem"),
    }
    file = tmp_path / "client.properties"
    file.write_text("".join(f"{name}={value}\n" for name, value in lines.items()))
    return ["--bootstrap-server", lab.listeners["BOTH"], "--command-config", str(file)]


def called(capsys: pytest.CaptureFixture[str], *arguments: str) -> tuple[int, Any]:
    code = main([*arguments, "--json"])
    return code, json.loads(capsys.readouterr().out)


@pytest.mark.parametrize("more", [[], ["--quick"], ["--scrub"]], ids=["deep", "quick", "scrub"])
def test_contents_are_compared(
    lab: SecuredLab, tmp_path: Path, capsys: pytest.CaptureFixture[str], more: list[str]
) -> None:
    asked = ["verify", "--topic", "equal", *access(lab, tmp_path), *more]
    code, found = called(capsys, *asked)
    (partition,) = found["partitions"]
    assert (code, partition["verdict"], partition["equal_up_to"]) == (0, "equal", RECORDS)


def test_a_copy_that_differs_is_named(
    lab: SecuredLab, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = lab.lab.replica_dir(2, "other", 0) / f"{0:020d}.log"
    with path.open("r+b") as file:
        file.seek(CHECKSUM_AT)
        byte = file.read(1)[0]
        file.seek(CHECKSUM_AT)
        file.write(bytes([byte ^ 1]))
    code, found = called(capsys, "verify", "--topic", "other", *access(lab, tmp_path))
    (partition,) = found["partitions"]
    assert (code, partition["verdict"]) == (2, "diverged")
    assert partition["differences"][0]["start"] == 0


def test_a_stop_is_forecast(
    lab: SecuredLab, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Two controllers have no majority without one of them."""
    code, found = called(capsys, "what-if", "stop", "1", *access(lab, tmp_path))
    assert (code, found["quorum_lost"], found["voters"]) == (2, True, [1, 2])
    assert found["verdict"].startswith("NOT SAFE: stopping broker 1: no quorum of controllers")
    assert [each["leader"] for each in found["partitions"]] == [[1, 2], [1, 2]]


def test_a_wrong_password_could_not_tell_and_says_what_to_do(
    lab: SecuredLab, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    code = main(["verify", "--topic", "equal", *access(lab, tmp_path, "another")])
    told = capsys.readouterr().err
    assert code == 3
    assert "another" not in told
    assert "refuses the credentials" in told
