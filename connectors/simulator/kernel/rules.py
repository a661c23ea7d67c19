"""Rule sets as data: each rule is chosen by itself, Kafka's versions are presets.

The names are those of the traces' `rules`. Rules are independent on purpose: a rule set with one of
them weakened is a mutant that the monitor has to catch.
"""

from __future__ import annotations

from enum import StrEnum
from typing import TYPE_CHECKING, Final, NamedTuple, TypeVar

from tidestaff.consistency.model import FormatError

if TYPE_CHECKING:
    from collections.abc import Mapping

_Choice = TypeVar("_Choice", bound=StrEnum)


class Truncation(StrEnum):
    """Where a replica cuts its log when it becomes a follower."""

    LOCAL_HW = "local_hw"
    LEADER_EPOCH_LOOKUP = "leader_epoch_lookup"
    LAST_MATCHING_RECORD = "last_matching_record"
    NONE_TRUNCATE_ON_TAIL_MISMATCH = "none_truncate_on_tail_mismatch"
    # As brokers have them: the specifications say the same on logs that begin in the same epoch.
    KNOWN_EPOCH_LOOKUP = "known_epoch_lookup"
    LEADER_EPOCH_ROUNDS = "leader_epoch_rounds"


class Fence(StrEnum):
    """What a leader demands of a follower before it counts or answers its fetch."""

    NONE = "none"
    SAME_LEADER_EPOCH = "same_leader_epoch"
    TAIL_EPOCH_MATCHES = "tail_epoch_matches"
    RECORD_EPOCH_MATCHES = "record_epoch_matches"


class IsrExpand(StrEnum):
    """When a leader takes a follower back into the ISR."""

    LEO_REACHED_HW = "leo_reached_hw"
    LEO_REACHED_HW_AND_HW_IN_CURRENT_EPOCH = "leo_reached_hw_and_hw_in_current_epoch"
    # As brokers have it since 2.0.1: the specifications ask for more.
    LEO_REACHED_HW_AND_EPOCH_START = "leo_reached_hw_and_epoch_start"


class RuleSet(NamedTuple):
    """One protocol: the five rules in which the versions of Kafka's replication differ."""

    truncate_on_become_follower: Truncation
    truncation_fenced: bool
    fetch_fence: Fence
    hw_fence: Fence
    isr_expand: IsrExpand


HW: Final = RuleSet(
    truncate_on_become_follower=Truncation.LOCAL_HW,
    truncation_fenced=False,
    fetch_fence=Fence.NONE,
    hw_fence=Fence.NONE,
    isr_expand=IsrExpand.LEO_REACHED_HW,
)
KIP101: Final = HW._replace(truncate_on_become_follower=Truncation.LEADER_EPOCH_LOOKUP)
KIP279: Final = HW._replace(truncate_on_become_follower=Truncation.LAST_MATCHING_RECORD)
KIP320_FIRST_TRY: Final = RuleSet(
    truncate_on_become_follower=Truncation.NONE_TRUNCATE_ON_TAIL_MISMATCH,
    truncation_fenced=False,
    fetch_fence=Fence.TAIL_EPOCH_MATCHES,
    hw_fence=Fence.RECORD_EPOCH_MATCHES,
    isr_expand=IsrExpand.LEO_REACHED_HW_AND_HW_IN_CURRENT_EPOCH,
)
KIP320: Final = RuleSet(
    truncate_on_become_follower=Truncation.LAST_MATCHING_RECORD,
    truncation_fenced=True,
    fetch_fence=Fence.SAME_LEADER_EPOCH,
    hw_fence=Fence.SAME_LEADER_EPOCH,
    isr_expand=IsrExpand.LEO_REACHED_HW_AND_HW_IN_CURRENT_EPOCH,
)

PRESETS: Final[Mapping[str, RuleSet]] = {
    "hw": HW,
    "kip101": KIP101,
    "kip279": KIP279,
    "kip320_first_try": KIP320_FIRST_TRY,
    "kip320": KIP320,
}


def rules_from(source: Mapping[str, object], place: str) -> RuleSet:
    """The rule set a trace names; every rule must be named, and none that we do not know."""
    unknown = sorted(set(source) - set(RuleSet._fields))
    missing = sorted(set(RuleSet._fields) - set(source))
    if unknown or missing:
        found = f"{sorted(source)}"
        raise FormatError(place, "rules", found, f"exactly {sorted(RuleSet._fields)}")
    fenced = source["truncation_fenced"]
    if not isinstance(fenced, bool):
        raise FormatError(place, "rules.truncation_fenced", repr(fenced), "true or false")
    return RuleSet(
        _choice(Truncation, source, "truncate_on_become_follower", place),
        fenced,
        _choice(Fence, source, "fetch_fence", place),
        _choice(Fence, source, "hw_fence", place),
        _choice(IsrExpand, source, "isr_expand", place),
    )


def _choice(kind: type[_Choice], source: Mapping[str, object], field: str, place: str) -> _Choice:
    found = source[field]
    for choice in kind:
        if choice.value == found:
            return choice
    expected = f"one of {[choice.value for choice in kind]}"
    raise FormatError(place, f"rules.{field}", repr(found), expected)
