"""Faults in the comparison of contents and in what-if."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from tests.mutants.fault import faults_in

if TYPE_CHECKING:
    from tests.mutants.fault import Fault

_COMPARED: Final = ("consistency/test_comparison.py",)
_WHAT_IF: Final = ("consistency/test_what_if.py",)

FAULTS: Final[tuple[Fault, ...]] = (
    *faults_in(
        "batches.py",
        _COMPARED,
        (
            "cmp-horizon-is-untouched",
            "return whole and not self.attributes & _DELETE_HORIZON",
            "return whole",
            "a cleaner writes the horizon into a batch it keeps whole",
        ),
        (
            "cmp-beyond-the-watermark",
            "return min(self.high_watermark, self.log_end_offset)",
            "return self.log_end_offset",
            "above the high watermark a replica may hold what was never committed",
        ),
    ),
    *faults_in(
        "windows.py",
        _COMPARED,
        (
            "cmp-log-start-ignored",
            "if e.log_start_offset <= start and end <= e.end]",
            "if end <= e.end]",
            "retention runs on every broker for itself",
        ),
        (
            "cmp-cleaner-ignored",
            "cleaned = any(e.cleaned_up_to is None or start < e.cleaned_up_to for e in present)",
            "cleaned = False",
            "unequal cleaning is not divergence",
        ),
        (
            "cmp-isr-member-is-behind",
            "if each.log_end_offset < (by_leader if each.in_sync else committed)",
            "if each.log_end_offset < committed",
            "a member of the ISR was only read earlier",
        ),
        (
            "cmp-isr-is-believed",
            "max((each.end for each in extents if each.broker == leader), default=0)",
            "0",
            "a member of the ISR holds what its leader had committed before it was read",
        ),
    ),
    *faults_in(
        "comparison.py",
        _COMPARED,
        (
            "cmp-later-half-first",
            "for half in (OffsetRange(middle, end), OffsetRange(start, middle)):",
            "for half in (OffsetRange(start, middle),):",
            "both halves of an unequal range may differ",
        ),
        (
            "cmp-moved-start-settles",
            "if begun < end:",
            "if begun > end:",
            "what is left above a log start that moved must still be compared",
        ),
        (
            "cmp-any-difference-where-cleaned",
            "elif question.window.cleaned and not _conflict(found):",
            "elif question.window.cleaned:",
            "batches that no cleaner touched must be alike",
        ),
    ),
    *faults_in(
        "comparison_verdict.py",
        _COMPARED,
        (
            "cmp-joined-whoever-is-wrong",
            "if last is not None and near and each.minority == last.minority:",
            "if last is not None and each.minority == last.minority:",
            "ranges that do not touch are two",
        ),
    ),
    *faults_in(
        "comparison_quick.py",
        ("consistency/test_comparison_quick.py",),
        (
            "cmp-quick-where-cleaned",
            "if window.cleaned and differs_at is not None:",
            "if False:",
            "a cleaner may take the last batch of an epoch",
        ),
    ),
    *faults_in(
        "minority.py",
        _COMPARED,
        (
            "cmp-half-is-a-majority",
            "if votes * 2 > len(held):",
            "if votes * 2 >= len(held):",
            "one of two is no majority",
        ),
        (
            "cmp-checksum-ignored",
            "if rotten:",
            "if False:",
            "bytes that do not match their checksum are the wrong ones",
        ),
    ),
    *faults_in(
        "catching_up.py",
        _WHAT_IF,
        (
            "ctu-once-is-a-speed",
            "seconds, pace = None, Pace.UNKNOWN",
            "seconds, pace = None, Pace.NOT_NEARING",
            "of a replica that was seen once nobody knows whether it comes nearer",
        ),
        (
            "ctu-the-fastest-decides",
            "seconds = max(each.seconds or 0.0",
            "seconds = min(each.seconds or 0.0",
            "a broker is back when the slowest of its replicas is",
        ),
        (
            "ctu-own-speed",
            "gained = (old[seen.state.leader] - old[broker]) - gap",
            "gained = ends[broker] - old[broker]",
            "what the leader wrote meanwhile has to be fetched as well",
        ),
    ),
    *faults_in(
        "what_if.py",
        _WHAT_IF,
        (
            "wif-offline-before-counts",
            "return self.after.offline and self.before.state.leader >= 0",
            "return self.after.offline",
            "what was offline before is not the stop's doing",
        ),
        (
            "wif-fenced-heals-nothing",
            "isr = (*state.isr, *back)",
            "isr = state.isr",
            "after a wait every live replica is in sync",
        ),
    ),
    *faults_in(
        "verified.py",
        ("consistency/test_verified.py",),
        (
            "vrf-a-new-copy-counts",
            "if not set(sight.observation.assignment.replicas) <= set(memory.assignment.replicas):",
            "if set(sight.observation.assignment.replicas) < set(memory.assignment.replicas):",
            "a copy that was added has not been compared with anybody",
        ),
        (
            "vrf-a-cut-is-not-seen",
            "*(each.log_end_offset for each in sight.replicas if each.log_end_offset is not None),",
            "",
            "what was cut and copied again is not what was compared",
        ),
        (
            "vrf-some-are-enough",
            "return everybody and len(digests) > 1 and whole and alike and judged",
            "return len(digests) > 1 and whole and alike and judged",
            "a range is verified when every replica of it was read",
        ),
        (
            "vrf-a-gap-goes-on",
            "goes_on = known if known is not None and known.end == offsets.start else None",
            "goes_on = known",
            "offsets between two ranges were not compared",
        ),
    ),
)
