"""The sampling study: what is missed and what is raised falsely, by fault and by way of sampling.

`python -m tests.proof.sampling [--quick] --write` writes docs/sampling.md. The same histories are
sampled in every way, so that columns can be compared.
"""

from __future__ import annotations

import argparse
import sys
import time
from collections import Counter
from concurrent.futures import ProcessPoolExecutor
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Final, NamedTuple

from tests.proof.histories import EVERY_STEP, Plan, live, live_again
from tests.proof.ledger import Outcome, judge

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence

PAGE: Final = Path(__file__).resolve().parents[2] / "docs" / "sampling.md"
PERIODS_MS: Final = (50, 250, 1_000, 2_500, 5_000, 10_000, 37_000)
SKEWS_MS: Final = (0, 30, 300, 2_000)
PRESETS: Final = ("3.9.1", "4.1.1-kraft", "2.8.2", "3.9.1-kraft")
WITHOUT_EPOCHS: Final = "0.10.2.2"
REPAIRS: Final = ("produce", "start", "resume", "heal", "release_fetches")
HIGH_WATERMARK: Final = "high-watermark protocol (0.10.2.2)"
KINDS: Final[dict[str, tuple[str, ...]]] = {
    "crash": ("crash", "bounce", "clean_stop"),
    "power loss": ("power_loss",),
    "zombie": ("session_expiry", "produce_to_zombie", "pause"),
    "unclean election": ("crash", "unclean_election", "unclean_setting"),
    "disk wiped": ("crash", "wipe_disk"),
    "link cut": ("cut",),
    "slow follower": ("slow_follower", "usual_speed", "hold_fetches", "crash"),
    "controller failover": ("controller_failover", "crash"),
    "reassignment": ("reassign", "preferred_election", "crash"),
    "retention": ("retention", "delete_records", "crash"),
    "topic made again": ("recreate_topic", "crash"),
    "setting changed": ("change_min_isr", "crash"),
    HIGH_WATERMARK: ("crash", "bounce", "clean_stop", "session_expiry"),
}
MAY_LOSE: Final = ("power loss", "unclean election", "disk wiped", HIGH_WATERMARK)
WEIGHTS: Final = (
    *(("crash", 10), ("start", 14), ("power_loss", 10), ("wipe_disk", 6), ("bounce", 8)),
    *(("unclean_election", 10), ("unclean_setting", 6), ("session_expiry", 8), ("reassign", 8)),
    *(("controller_failover", 8), ("retention", 8), ("delete_records", 4), ("cut", 10)),
    *(("slow_follower", 8), ("hold_fetches", 8), ("recreate_topic", 20), ("change_min_isr", 8)),
)
_APART: Final = 100
_TRIED: Final = 60
TRUE: Final = ("loss", "divergence", "unclean election")


class Way(NamedTuple):
    """One way of sampling."""

    every_ms: int
    skew_ms: int
    bracketed: bool


class Cell(NamedTuple):
    kind: str
    way: Way
    outcome: Outcome


WAYS: Final = [
    Way(EVERY_STEP, 0, bracketed=True),
    *(Way(p, s, b) for s in SKEWS_MS for b in (True, False) for p in PERIODS_MS),
]


def plan_of(kind: str, seed: int, steps: int) -> Plan:
    preset = WITHOUT_EPOCHS if kind == HIGH_WATERMARK else PRESETS[seed % len(PRESETS)]
    kinds = frozenset((*REPAIRS, *KINDS[kind]))
    plan = Plan(preset, seed, steps, kinds, WEIGHTS, every_ms=max(PERIODS_MS))
    # The high-watermark protocol loses when faults follow each other closely.
    return (
        replace(plan, act_every_ms=(20, 150), steps=2 * steps) if kind == HIGH_WATERMARK else plan
    )


def study(steps: int, job: tuple[str, int]) -> list[Cell]:
    """One history of one kind of fault, sampled in every way."""
    kind, seed = job
    plan = plan_of(kind, seed, steps)
    once = live(plan)
    for _ in range(_TRIED if kind in MAY_LOSE else 0):
        if once.cluster.truth.losses or once.cluster.truth.divergences:
            break
        seed += _APART
        plan = plan_of(kind, seed, steps)
        once = live(plan)
    actions, until_ms = once.cluster.actions, once.cluster.now_ms + max(PERIODS_MS)
    cells = []
    for way in WAYS:
        every_ms, skew_ms, bracketed = way
        this = replace(plan, every_ms=every_ms, skew_ms=skew_ms, bracketed=bracketed)
        cells.append(Cell(kind, way, judge(live_again(this, actions, until_ms))))
    return cells


def run(seeds: Sequence[int], steps: int, workers: int) -> list[Cell]:
    jobs = [(kind, seed) for kind in KINDS for seed in seeds]
    if workers <= 1:
        return [cell for job in jobs for cell in study(steps, job)]
    with ProcessPoolExecutor(workers) as pool:
        return [cell for cells in pool.map(partial(study, steps), jobs) for cell in cells]


# -- the page


def total(cells: Iterable[Cell], wanted: Callable[[Cell], bool]) -> Outcome:
    found = Outcome()
    for cell in cells:
        if wanted(cell):
            found.add(cell.outcome)
    return found


def shown(outcome: Outcome, whats: Sequence[str] = TRUE) -> str:
    """Raised of true ones; a dash where there was nothing to raise; false alarms after a bang."""
    raised = sum(outcome.exact[what] + outcome.partly[what] for what in whats)
    true = raised + sum(outcome.missed[what] for what in whats)
    false = sum(outcome.false.values())
    return (f"{raised}/{true}" if true else "-") + (f" !{false}" if false else "")


def rows(heads: Sequence[str], body: Iterable[Sequence[str]]) -> str:
    lines = [f"| {' | '.join(heads)} |", f"|---|{'---:|' * (len(heads) - 1)}"]
    return "\n".join([*lines, *(f"| {' | '.join(row)} |" for row in body)])


def _period(every_ms: int) -> str:
    if every_ms == EVERY_STEP:
        return "every step"
    return f"{every_ms} ms" if every_ms < 1_000 else f"{every_ms / 1_000:g} s"


def by_period(cells: Sequence[Cell]) -> str:
    """Faithful samples: what the sampling period alone costs."""
    body = []
    for kind in KINDS:
        for what in TRUE:
            mine = [c for c in cells if c.kind == kind and c.way.bracketed and not c.way.skew_ms]
            found = [
                shown(total(mine, lambda c, p=p: c.way.every_ms == p), [what])
                for p in (EVERY_STEP, *PERIODS_MS)
            ]
            if any(text != "-" for text in found):
                body.append([f"{kind}: {what}", *found])
    body.append(["steps from one sample to the next", *_steps_apart(cells)])
    return rows(["fault: what is true", *map(_period, (EVERY_STEP, *PERIODS_MS))], body)


def _steps_apart(cells: Sequence[Cell]) -> list[str]:
    """A step is an event after which an observer could read something else."""

    def samples(every_ms: int) -> int:
        return total(cells, lambda c: c.way == Way(every_ms, 0, bracketed=True)).samples

    steps = samples(EVERY_STEP)
    return [f"{steps / samples(p):.0f}" for p in (EVERY_STEP, *PERIODS_MS)]


def by_way(cells: Sequence[Cell]) -> str:
    """Over all faults: losses raised, and false alarms of all rules that are judged here."""
    body = []
    for skew in SKEWS_MS:
        for bracketed in (True, False):
            mine = [c for c in cells if c.way.skew_ms == skew and c.way.bracketed is bracketed]
            name = f"skew {skew} ms, {'bracketed' if bracketed else 'not bracketed'}"
            body.append(
                [
                    name,
                    *(shown(total(mine, lambda c, p=p: c.way.every_ms == p)) for p in PERIODS_MS),
                ]
            )
    return rows(["way of sampling", *map(_period, PERIODS_MS)], body)


def in_full(cells: Sequence[Cell]) -> str:
    body = []
    for kind in KINDS:
        for skew in SKEWS_MS:
            for bracketed in (True, False):
                mine = [c for c in cells if c.kind == kind and c.way[1:] == (skew, bracketed)]
                found = [shown(total(mine, lambda c, p=p: c.way.every_ms == p)) for p in PERIODS_MS]
                name = f"{kind}, skew {skew} ms, {'bracketed' if bracketed else 'not'}"
                body.append([name, *found])
    return rows(["fault, way of sampling", *map(_period, PERIODS_MS)], body)


def blind(cells: Sequence[Cell]) -> str:
    """Every reason for a miss, with its count over all ways of sampling and the bracketed share."""
    everywhere, bracketed = Counter[str](), Counter[str]()
    for cell in cells:
        everywhere.update(cell.outcome.reasons)
        if cell.way.bracketed and not cell.way.skew_ms:
            bracketed.update(cell.outcome.reasons)
    return "\n".join(
        f"- {reason}: {count:,} times, {bracketed[reason]:,} of them with faithful samples"
        for reason, count in everywhere.most_common()
    )


_PAGE: Final = """# Sampling study

Written by `{command}` in {took} s ({form} form); do not edit by hand.
Seeds from {first} on, {steps} actions or more a history, {histories} histories ({kinds} kinds of
fault), each sampled in {ways} ways: {runs:,} watched histories, {samples:,} observations.
For faults that may lose records ({may_lose})
the seeds are the next ones whose ledger shows a loss or a divergence.
Timeouts are short (session 1.2 s, replica lag 1.5 s), so a period of 1 s here is some 10 to 20 s
with Kafka's defaults. Presets take turns: {presets}.

Cells are *raised / true*: what the monitor raised of the losses, divergences and unclean elections
that the simulator's own ledger knows. A loss counts as raised if part of its range was named; a
range beyond the ledger's would be a false alarm. `-`: nothing of the kind was true. `!n`: n false
alarms among the rules of loss, divergence, wrong leader and wrong truncation.
Losses named with their exact range: {exact:,} of {raised:,} raised, over all ways of sampling.
False alarms in all: **{false}**.

## Faithful samples: the price of the period

{by_period}

## Skew and brackets, all faults together

Skew is the longest time between two readings of a round; a round has some ten.

{by_way}

## Where the monitor is blind

Counted over all ways of sampling:

{blind}

In words:

- A loss is proven by a commit that was seen before. What is written, committed and lost between two
  coherent samples is gone without a trace; the longer the period, the more of it.
- Without brackets no rule that compares offsets is judged, so no loss is raised. With much skew
  most rounds straddle a change and count as little.
- Elections are judged between two states one version apart, or if every write in between began a
  leader epoch (then nobody can have joined the ISR); other writes between two rounds hide the one
  that was unclean, unless the version keeps a recovery state. So does a reassignment between them.
- Before 0.11 logs have no epochs. Offsets that were lost and written again before the next sample
  look whole, and replicas that differ look equal.
- Metadata may be old in both readings of a bracket (a ZooKeeper server or a broker that lags).
  Where a replica has heard of a later leader epoch nothing that compares offsets is judged; and up
  to 2.7 a leader of a later epoch names no topic id, so that what it has committed is not counted:
  it may speak of a deleted topic of that name.
- What a leader commits while the round shows nobody in office waits until somebody in office
  answers, and is then reported if it is gone. Where another leader's records are known at these
  offsets, that needs a reading that names its topic id (2.8 and later), or before it one of the
  leader that the metadata names. Records that were reported as lost, came back to office for a
  moment with a deposed leader that nobody saw there, and went again, are reported once.
- TRN006 rests on what a replica had before it went. Where its disk was replaced, or a power loss
  took what had not been flushed, and it was filled again from its leader before the next sample,
  the warning is wrong or its range too wide: a killed process gives the same samples.
- Records that retention or DeleteRecords removed since the last sample, and that are then gone from
  a leader whose log fell back below them, are named with the loss: no sample had shown the log
  start. That the log fell back is true; that it took these records is not to be told.
- A topic that is being deleted is not judged any more, nor is what happened to it since the sample
  before.
- Assigned replicas are asked, nobody else. A leader that slept through an unclean election and a
  reassignment that leaves it out goes on alone until it hears of it (in ZooKeeper mode nobody tells
  it); what it commits then is gone. The election is raised (ELE009), that loss is not.
- From 4.0 under KRaft a partition whose ISR and ELR are empty gets its last known leader back
  (KIP-966). Kafka itself marks that election as unclean, whatever the setting says, and so does
  ELE009, also where nothing is lost by it: with 4.1.1-kraft safe faults alone raise it. The loss,
  if there is one, is TRN001.
- ELE001 and the other rules that look at a change between two rounds pass over a change that is
  first seen in a round in which it happened (all but CTL004, ELE009 and the losses).

## Every step seen, and why fewer steps cannot do before 0.11

In the column *every step* there is a faithful sample after every event that changes anything an
observer can see. With KRaft, lineages tell the rest. With ZooKeeper the monitor reckons from the
steps who wrote which offset: what a leader's log grows by it wrote itself, what a follower's log
grows by it copied from the broker it follows, and a log that shrinks has lost its end. So it names
every loss (TRN001) and every divergence (TRN006) with its range, in the step in which it happens,
or which first shows the commit together with a leader in office. The search (`make search`, series
*every step*) demands that: a loss before anything is lost at its offsets again, and no sooner or
later than that step; a divergence within 50 ms (what happens on the way is entered in between), by
whichever rule says that these records differ or are lost, and again only while it lasts; and
nothing of one topic for another of its name. It has one excuse: that a leader committed it that is
no longer assigned, and nobody else ever showed it.

With a step left out nobody could. A follower with log end 2 and high watermark 1 restarts. In one
history it comes back as it was; in the other it cuts to 1 and fetches another record from a leader
that wrote one there. LEO, HW, log start, leader and epoch are the same before and after in both:
two histories with equal samples, one with a divergence and one without. Whatever is raised on those
samples is false in one of them. Only contents (checksums) tell them apart. Therefore an observation
says whether its source saw every step (`continuous`), and without that only what the high-watermark
rule itself proves is raised (a replica that was away while its leader wrote on).

With epochs, two things are still not told by fewer steps. With ZooKeeper a leader may restart
unnoticed: within its session up to 2.1, and since then while the controller changes, for the next
one finds it registered. It leads on in its epoch, and where the power took the end of its log it
writes other records at the same offsets in the same epoch: the loss is told, but who still holds
the first records is seen by the contents alone (`tidestaff verify`). And up to 2.0.0 an
epoch list leaves out the older epochs that a log went on with, after a follower was cut to its high
watermark because its leader did not know its epoch. Of two such lists that differ, what is proven
is raised: often the first offset of a divergence, and of a loss that is not the first there.

What no sample showed as committed cannot be missed from the samples; the counts above tell how much
that is for each way of sampling.

## All cells

{in_full}
"""


def page(cells: Sequence[Cell], *, seeds: range, steps: int, quick: bool, took_s: float) -> str:
    everything = total(cells, lambda _: True)
    return _PAGE.format(
        command="python -m tests.proof.sampling" + (" --quick" if quick else "") + " --write",
        form="quick" if quick else "long",
        took=round(took_s),
        first=seeds.start,
        steps=steps,
        kinds=len(KINDS),
        histories=len(KINDS) * len(seeds),
        ways=len(WAYS),
        runs=everything.histories,
        samples=everything.samples,
        presets=f"{', '.join(PRESETS)}; {WITHOUT_EPOCHS} for the high-watermark protocol",
        false=", ".join(f"{code} {n}" for code, n in sorted(everything.false.items())) or "0",
        may_lose=", ".join(MAY_LOSE),
        exact=everything.exact["loss"],
        raised=everything.exact["loss"] + everything.partly["loss"],
        by_period=by_period(cells),
        by_way=by_way(cells),
        blind=blind(cells),
        in_full=in_full(cells),
    )


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--quick", action="store_true", help="fewer and shorter histories")
    parser.add_argument("--write", action="store_true", help="write docs/sampling.md")
    parser.add_argument("--seed", type=int, default=1, help="the first one")
    parser.add_argument("--workers", type=int, default=2)
    given = parser.parse_args()
    seeds = range(given.seed, given.seed + (2 if given.quick else 16))
    steps = 40 if given.quick else 100
    began = time.perf_counter()
    cells = run(seeds, steps, given.workers)
    took_s = time.perf_counter() - began
    text = page(cells, seeds=seeds, steps=steps, quick=given.quick, took_s=took_s)
    sys.stdout.write(text)
    if given.write:
        PAGE.write_text(text, encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())
