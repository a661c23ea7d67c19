"""Where an interrupted verification goes on: partitions that are equal, and how far others came."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from tidestaff.consistency.partitions import TopicPartition
from tidestaff.streaming.commands.exits import CommandError
from tidestaff.streaming.verify.copies import Reached

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping
    from pathlib import Path

    from tidestaff.streaming.verify.copies import PartitionCopies

VERSION: Final = 4
"""Up to 2 some ranges below the latest log start were taken as compared, up to 3 a copy that had
been added since."""
_LONGEST_OFFSET: Final = (1 << 63) - 1
DEFAULT_NAME: Final = "tidestaff-verify.state"


class Equal(NamedTuple):
    """A partition that was found equal: what is told of it, and of which copies it was true."""

    told: dict[str, Any]
    reached: Reached


class State:
    """`about` is what was asked for: another question cannot be gone on with."""

    def __init__(
        self,
        about: dict[str, Any],
        equal: dict[TopicPartition, Equal] | None = None,
        done_to: dict[TopicPartition, Reached] | None = None,
    ) -> None:
        self.about, self.equal, self.done_to = about, equal or {}, done_to or {}

    def forget_what_changed(self, found: Iterable[PartitionCopies]) -> None:
        """What was equal is compared anew where the copies are not those that were compared."""
        for copies in found:
            known = self.equal.get(copies.partition)
            if known is not None and not known.reached.holds_for(copies):
                del self.equal[copies.partition]

    def save(self, path: Path) -> None:
        """Beside and renamed: whoever reads sees the old one or the new one."""
        content = {
            "version": VERSION,
            "about": self.about,
            "equal": [each._asdict() for each in self.equal.values()],
            "done_to": [[*partition, *reached] for partition, reached in self.done_to.items()],
        }
        beside = path.with_name(f"{path.name}.tmp")
        beside.write_text(json.dumps(content, indent=1), encoding="utf-8")
        beside.replace(path)


def load(path: Path, about: Mapping[str, Any]) -> State:
    """Refuses a file that is none, or that belongs to another question."""
    content = _content(path)
    if content.get("version") != VERSION:
        raise CommandError(
            f"{path}: another release left it (version {content.get('version')}, this one's is "
            f"{VERSION})",
            "leave out --resume to begin anew",
        )
    try:
        found = State(
            content["about"],
            {
                _partition(e["told"]): Equal(e["told"], _reached(*e["reached"]))
                for e in content["equal"]
            },
            {
                _partition({"topic": topic, "partition": number}): _reached(*reached)
                for topic, number, *reached in content["done_to"]
            },
        )
    except (ValueError, KeyError, TypeError):
        raise _no_state(path) from None
    if found.about != dict(about):
        raise CommandError(
            f"{path}: it belongs to another verification: {found.about}",
            "give the same sources, topics and depth, or leave out --resume to begin anew",
        )
    return found


def _content(path: Path) -> dict[str, Any]:
    try:
        found = json.loads(path.read_text(encoding="utf-8"))
    except FileNotFoundError:
        raise CommandError(
            f"{path}: there is no such file, expected one that Ctrl-C left", "leave out --resume"
        ) from None
    except (ValueError, RecursionError):
        raise _no_state(path) from None
    if not isinstance(found, dict) or "version" not in found:
        raise _no_state(path)
    return found


def _no_state(path: Path) -> CommandError:
    return CommandError(
        f"{path}: found no state of a verification", "leave out --resume to begin anew"
    )


def _partition(told: Mapping[str, Any]) -> TopicPartition:
    topic, number = told["topic"], told["partition"]
    if not isinstance(topic, str):
        raise TypeError("no topic")
    return TopicPartition(topic, _number(number))


def _reached(offset: Any, epoch: Any, topic_id: Any, starts: Any) -> Reached:
    """Raises TypeError or ValueError where it is none."""
    if epoch is not None:
        _number(epoch)
    if topic_id is not None and not isinstance(topic_id, str):
        raise TypeError("no topic id")
    known = tuple((_number(broker), _number(start)) for broker, start in starts)
    return Reached(_number(offset), epoch, topic_id, known)


def _number(found: Any) -> int:
    if type(found) is not int or not 0 <= found <= _LONGEST_OFFSET:
        raise TypeError("no number of Kafka's")
    return found
