"""Where an interrupted verification goes on: partitions that are equal, and how far others came."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any, Final

from tidestaff.consistency.partitions import TopicPartition
from tidestaff.streaming.commands.exits import CommandError
from tidestaff.streaming.verify.copies import Reached

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

VERSION: Final = 3
"""Up to 2 some ranges below the latest log start were taken as compared."""
DEFAULT_NAME: Final = "tidestaff-verify.state"


class State:
    """`about` is what was asked for: another question cannot be gone on with."""

    def __init__(
        self,
        about: dict[str, Any],
        equal: dict[TopicPartition, dict[str, Any]] | None = None,
        done_to: dict[TopicPartition, Reached] | None = None,
    ) -> None:
        self.about, self.equal, self.done_to = about, equal or {}, done_to or {}

    def save(self, path: Path) -> None:
        """Beside and renamed: whoever reads sees the old one or the new one."""
        content = {
            "version": VERSION,
            "about": self.about,
            "equal": list(self.equal.values()),
            "done_to": [[*partition, *reached] for partition, reached in self.done_to.items()],
        }
        beside = path.with_name(f"{path.name}.tmp")
        beside.write_text(json.dumps(content, indent=1), encoding="utf-8")
        beside.replace(path)


def load(path: Path, about: Mapping[str, Any]) -> State:
    """Refuses a file that is none, or that belongs to another question."""
    try:
        content = json.loads(path.read_text(encoding="utf-8"))
        found = State(
            content["about"],
            {TopicPartition(e["topic"], int(e["partition"])): e for e in content["equal"]},
            {
                TopicPartition(t, int(n)): Reached(int(offset), epoch, topic_id)
                for t, n, offset, epoch, topic_id in content["done_to"]
            },
        )
        version = content["version"]
    except FileNotFoundError:
        raise CommandError(
            f"{path}: there is no such file, expected one that Ctrl-C left", "leave out --resume"
        ) from None
    except (ValueError, KeyError, TypeError):
        raise CommandError(
            f"{path}: found no state of a verification", "leave out --resume to begin anew"
        ) from None
    if version != VERSION:
        raise CommandError(
            f"{path}: another release left it (version {version}, this one's is {VERSION})",
            "leave out --resume to begin anew",
        )
    if found.about != dict(about):
        raise CommandError(
            f"{path}: it belongs to another verification: {found.about}",
            "give the same sources, topics and depth, or leave out --resume to begin anew",
        )
    return found
