"""Kafka's own tools, for comparison."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from tidestaff.streaming.lab.errors import LabError

if TYPE_CHECKING:
    from tests.field.lab import Lab

VERIFIES_FOR_S: Final = 12.0
_EARLIEST: Final = "-2"


def said_by_tools(lab: Lab, *topics: str) -> dict[str, str]:
    """What Kafka's own tools say now: of the cluster, and of the contents of these topics."""
    found = {
        f"kafka-topics {option}": _topics_tool(lab, option)
        for option in ("--under-replicated-partitions", "--unavailable-partitions")
    }
    found |= {
        f"ReplicaVerificationTool on {topic}": replica_verification(lab, topic) for topic in topics
    }
    return {name: short(text) for name, text in found.items()}


def _topics_tool(lab: Lab, option: str) -> str:
    """That it fails while a broker hangs is what it says."""
    try:
        return lab.topics_tool("--describe", option)
    except LabError as error:
        return f"fails: {error}"


def short(text: str, lines: int = 4) -> str:
    """The first lines, and how many more there are."""
    all_lines = text.strip().splitlines()
    more = f"\n... and {len(all_lines) - lines} lines more" if len(all_lines) > lines else ""
    return "\n".join(line[:220] for line in all_lines[:lines]) + more


def replica_verification(lab: Lab, topic: str, for_s: float = VERIFIES_FOR_S) -> str:
    """What ReplicaVerificationTool prints of all records within some seconds; it never ends."""
    package = (
        "kafka.tools" if lab.release.tools_package == "kafka.admin" else "org.apache.kafka.tools"
    )
    old = lab.plan.version.startswith(("0.", "1.", "2."))
    which = ("--topic-white-list" if old else "--topics-include", topic)
    said = lab.tool(
        f"{package}.ReplicaVerificationTool",
        *("--broker-list", lab.bootstrap, "--time", _EARLIEST, *which),
        *("--report-interval-ms", "2000"),
        check=False,
        for_s=for_s,
    )
    lines = [line for line in said.splitlines() if line.strip()]
    return "\n".join(line for n, line in enumerate(lines) if line not in lines[:n])
