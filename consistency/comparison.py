"""Contents of the copies of one partition, compared by digests and down to the batch.

Nothing is read here: a comparison says which range of which copies it wants digested next, takes
the answers, and ends with a verdict. Equal digests settle a range; unequal ones are halved until
few enough batches are left to be looked at one by one. What differs is followed to the end of the
range within a limit, so that its size can be told.
"""

from __future__ import annotations

from collections import deque
from typing import TYPE_CHECKING, Final, NamedTuple

from tidestaff.consistency.comparison_verdict import (
    Corrupt,
    Difference,
    Outcome,
    Uncompared,
    Verdict,
    joined,
)
from tidestaff.consistency.minority import Reference, minority_of
from tidestaff.consistency.partitions import OffsetRange
from tidestaff.consistency.windows import Window, above, apart, behind, not_comparable, windows_of

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from tidestaff.consistency.batches import BatchMark, Extent, RangeDigest
    from tidestaff.consistency.partitions import BrokerId

    Marks = Sequence[BatchMark]

MARKS_AT_ONCE: Final = 64
MOST_MARKS: Final = 20_000
"""Of what was cleaned, and as many of what was not: the one does not use up the other's."""
_TOO_FEW: Final = "fewer than two copies can be read there"
_TOO_MANY: Final = "it differs, and is too much to be looked at batch by batch"
_TOO_MANY_CLEANED: Final = "cleaned at different times, and too much to be looked at batch by batch"


class Question(NamedTuple):
    """Digests of a range, or with `marks` its batches one by one, of these copies."""

    window: Window
    marks: bool = False

    @property
    def offsets(self) -> OffsetRange:
        return self.window.offsets


class Comparison:
    """One partition. `span`: offsets of the first questions; `marks_at_once`: how many batches are
    looked at one by one; `done_to`: where an earlier run has come to; `scrub`: what one copy holds
    alone is asked for, too, since whoever answers looks at the payloads."""

    def __init__(
        self,
        extents: Sequence[Extent],
        *,
        leader: BrokerId | None = None,
        span: int = 1 << 62,
        marks_at_once: int = MARKS_AT_ONCE,
        most_marks: int = MOST_MARKS,
        done_to: int = 0,
        scrub: bool = False,
    ) -> None:
        self._extents, self._span = tuple(extents), max(span, 1)
        self._leader = leader
        self._scrub, self._marks_at_once = scrub, marks_at_once
        self._marks_left = dict.fromkeys((False, True), most_marks)
        self._reference = Reference.of(self._extents, leader)
        self._refused = not_comparable(self._extents)
        self.windows = () if self._refused else windows_of(self._extents)
        windows = self._to_be_read() if scrub else self.windows
        self._open: deque[Question] = deque(
            Question(each._replace(offsets=OffsetRange(max(start, done_to), end)))
            for each in windows
            for start, end in [each.offsets]
            if end > done_to
        )
        self._unread: dict[BrokerId, str] = {}
        self._differences: list[Difference] = []
        self._corrupt: dict[BrokerId, Corrupt] = {}
        self._uncompared: list[Uncompared] = []
        self._complete = True
        self._epoch: int | None = None
        starts = [each.offsets.start for each in windows]
        starts = starts or [max((e.log_start_offset for e in self._extents), default=0)]
        self.done_to = done_to or min(starts)
        """Everything below has been dealt with."""

    # -- what is wanted

    def question(self) -> Question | None:
        """The next range to ask all its copies for; None when all is settled."""
        while self._open:
            question = self._open.popleft()
            window = question.window
            present = tuple(b for b in window.brokers if b not in self._unread)
            alone = len(window.brokers) == 1
            if len(present) < 2 and not (present and self._scrub and not question.marks):
                if not alone:
                    self._leave_out(window.offsets, _TOO_FEW)
                continue
            start, end = window.offsets
            if not question.marks and end - start > self._span:
                rest = window._replace(offsets=OffsetRange(start + self._span, end))
                self._open.appendleft(Question(rest))
                window = window._replace(offsets=OffsetRange(start, start + self._span))
            if len(present) == 1 and not alone:
                self._leave_out(window.offsets, _TOO_FEW)
            return question._replace(window=window._replace(brokers=present))
        return None

    @property
    def left(self) -> int:
        """Offsets that are still to be compared."""
        return sum(q.offsets.end - q.offsets.start for q in self._open if not q.marks)

    # -- answers

    def unreadable(self, broker: BrokerId, reason: str) -> None:
        """A copy that cannot be read any more; the others go on."""
        self._unread.setdefault(broker, reason)

    def again(self, question: Question) -> None:
        """It could not be answered by all: it is asked once more, of those that are left."""
        self._open.appendleft(question)

    def digests(self, question: Question, answers: Mapping[BrokerId, RangeDigest]) -> None:
        """Of every copy the question names; who is missing was told unreadable before."""
        begun = max((a.starts_at for a in answers.values() if a.starts_at is not None), default=0)
        if begun > question.offsets.start:
            self._begin_later(question, begun)
            return
        broken = [a.unreadable_at for a in answers.values() if a.unreadable_at and a.batches]
        if question.offsets.start < min(broken, default=0) < question.offsets.end:
            self._cut(question, min(broken))
            return
        for broker, answer in answers.items():
            self._take_faults(question, broker, answer)
        if len(question.window.brokers) == 1:
            self._advance(question)
            return
        end = question.offsets.end
        readable = {b: a for b, a in answers.items() if not _breaks_below(end, a)}
        if len(readable) < 2:
            self._leave_out(question.offsets, _TOO_FEW)
        elif len({a.digest for a in readable.values()}) == 1:
            self._settle(question, next(iter(readable.values())).last_epoch)
        else:
            self._descend(question, readable)

    def marks(self, question: Question, answers: Mapping[BrokerId, Marks]) -> None:
        """The batches of a range whose digests differ."""
        self._marks_left[question.window.cleaned] -= max(map(len, answers.values()), default=0)
        held = {b: {m.last_offset: m for m in marks} for b, marks in answers.items()}
        for broker, marks in answers.items():
            for mark in marks:
                if mark.intact is False:
                    self._corrupt.setdefault(
                        broker, Corrupt(broker, mark.first_offset, "its checksum does not match")
                    )
        unlike = 0
        for last in sorted({last for marks in held.values() for last in marks}):
            found = {b: marks.get(last) for b, marks in held.items()}
            if len({m and m.identity for m in found.values()}) == 1:
                self._epoch = next(m.leader_epoch for m in found.values() if m)
            elif question.window.cleaned and not _conflict(found):
                unlike += 1
            else:
                self._differ(found, last)
        if unlike:
            why = "cleaned at different times: batches are missing or rewritten on some copies"
            self._leave_out(question.offsets, why, batches=unlike)
        self._advance(question)

    # -- the end

    def verdict(self) -> Verdict:
        """What can be said so far."""
        lagging = behind(self._extents, self._leader)
        without = () if self._refused else apart(self._extents, lagging)
        differences = joined(self._differences)
        if differences:
            outcome = Outcome.DIVERGED
        elif self._corrupt:
            outcome = Outcome.CORRUPT
        elif self._refused is not None or self._uncompared or self._unread or without:
            outcome = Outcome.NOT_COMPARABLE
        else:
            outcome = Outcome.BEHIND if lagging else Outcome.EQUAL
        return Verdict(
            outcome,
            equal_up_to=self._equal_up_to(differences),
            epoch=self._epoch,
            differences=differences,
            corrupt=tuple(self._corrupt.values()),
            behind=lagging,
            uncompared=tuple(self._uncompared),
            unread=tuple(sorted(self._unread.items())),
            why=self._refused or "",
            complete=self._complete and not self._open,
            apart=without,
            above=above(self._extents),
            compared=bool(self.windows),
        )

    # -- the inside

    def _equal_up_to(self, differences: Sequence[Difference]) -> int | None:
        if self._refused is not None:
            return None
        ends = [each.offsets.start for each in differences]
        ends += [each.offsets.start for each in self._uncompared]
        ends += [each.offset for each in self._corrupt.values()]
        compared_to = self.windows[-1].offsets.end if self.windows else self.done_to
        return min(ends, default=min(compared_to, self.done_to))

    def _to_be_read(self) -> tuple[Window, ...]:
        """Everything that is committed; where nothing is comparable, of each copy by itself."""
        if self._refused is None:
            return windows_of(self._extents, least=1)
        held = [(OffsetRange(e.log_start_offset, e.end), e.broker) for e in self._extents]
        return tuple(Window(o, (broker,)) for o, broker in held if o.start < o.end)

    def _begin_later(self, question: Question, begun: int) -> None:
        """Retention has moved a log start while we compared."""
        end = question.offsets.end
        if begun < end:
            later = question.window._replace(offsets=OffsetRange(begun, end))
            self._open.appendleft(question._replace(window=later))
        else:
            self._advance(question)

    def _cut(self, question: Question, at: int) -> None:
        """A copy cannot be read from there on: what lies below is compared with it, too."""
        start, end = question.offsets
        for offsets in (OffsetRange(at, end), OffsetRange(start, at)):
            self._open.appendleft(Question(question.window._replace(offsets=offsets)))

    def _take_faults(self, question: Question, broker: BrokerId, answer: RangeDigest) -> None:
        if answer.invalid_at is not None:
            why = "its checksum does not match its bytes"
            self._corrupt.setdefault(broker, Corrupt(broker, answer.invalid_at, why))
        if answer.unreadable_at is not None and _breaks_below(question.offsets.end, answer):
            at = answer.unreadable_at if answer.batches else question.offsets.start
            self._corrupt.setdefault(broker, Corrupt(broker, at, answer.reason))
            self.unreadable(broker, f"from offset {at} on: {answer.reason}")

    def _settle(self, question: Question, epoch: int | None) -> None:
        if epoch is not None:
            self._epoch = epoch
        self._advance(question)

    def _advance(self, question: Question) -> None:
        self.done_to = max(self.done_to, question.offsets.end)

    def _descend(self, question: Question, answers: Mapping[BrokerId, RangeDigest]) -> None:
        start, end = question.offsets
        batches = max(a.batches for a in answers.values())
        if self._marks_left[question.window.cleaned] <= 0:
            self._complete = False
            why = _TOO_MANY_CLEANED if question.window.cleaned else _TOO_MANY
            self._leave_out(question.offsets, why)
            self._advance(question)
        elif batches <= self._marks_at_once or end - start == 1:
            self._open.appendleft(question._replace(marks=True))
        else:
            middle = (start + end) // 2
            for half in (OffsetRange(middle, end), OffsetRange(start, middle)):
                self._open.appendleft(Question(question.window._replace(offsets=half)))

    def _differ(self, held: Mapping[BrokerId, BatchMark | None], last: int) -> None:
        first = min((m.first_offset for m in held.values() if m is not None), default=last)
        records = max((m.records or 1 for m in held.values() if m is not None), default=0)
        minority, why = minority_of(held, first, self._reference)
        self._differences.append(
            Difference(OffsetRange(first, last + 1), minority, why, dict(held), 1, records)
        )

    def _leave_out(self, offsets: OffsetRange, why: str, *, batches: int = 0) -> None:
        last = self._uncompared[-1] if self._uncompared else None
        if last is not None and last.why == why and last.offsets.end == offsets.start:
            both = OffsetRange(last.offsets.start, offsets.end)
            self._uncompared[-1] = Uncompared(both, why, last.batches + batches)
        else:
            self._uncompared.append(Uncompared(offsets, why, batches))


def _breaks_below(end: int, answer: RangeDigest) -> bool:
    """Whether something of the range is missing: what breaks at its end does not belong to it.
    Of a copy that failed while it was read nothing is digested at all."""
    return answer.unreadable_at is not None and (answer.unreadable_at < end or not answer.batches)


def _conflict(found: Mapping[BrokerId, BatchMark | None]) -> bool:
    """Where cleaning may differ: two copies of a batch that no cleaner touched, and not alike."""
    untouched = [m for m in found.values() if m is not None and m.untouched]
    by_first: dict[int, set[tuple[object, ...]]] = {}
    for mark in untouched:
        by_first.setdefault(mark.first_offset, set()).add(mark.identity)
    return any(len(each) > 1 for each in by_first.values())
