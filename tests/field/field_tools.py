"""Kafka's own tools, for comparison."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from tests.field.lab import Lab

VERIFIES_FOR_S: Final = 12.0
_EARLIEST: Final = "-2"


def replica_verification(lab: Lab, topic: str, for_s: float = VERIFIES_FOR_S) -> str:
    """What ReplicaVerificationTool prints of all records within some seconds; it never ends."""
    said = lab.tool(*verification_arguments(lab, topic), check=False, for_s=for_s)
    lines = [line for line in said.splitlines() if line.strip()]
    return "\n".join(line for n, line in enumerate(lines) if line not in lines[:n])


def verification_arguments(lab: Lab, topic: str) -> tuple[str, ...]:
    """Its class and options: all records of a topic from the first on, a report every 2 s."""
    package = (
        "kafka.tools" if lab.release.tools_package == "kafka.admin" else "org.apache.kafka.tools"
    )
    old = lab.plan.version.startswith(("0.", "1.", "2."))
    which = ("--topic-white-list" if old else "--topics-include", topic)
    return (
        f"{package}.ReplicaVerificationTool",
        *("--broker-list", lab.bootstrap, "--time", _EARLIEST, *which),
        *("--report-interval-ms", "2000"),
    )
