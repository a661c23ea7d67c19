"""The page of stops foretold: docs/what-if-field.md."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Sequence

    from tests.field.field_whatif import Outcome

_BEGIN: Final = """\
# Forecasts against real stops

Written by `python -m tests.field.field_whatif` (seed {seed}). Three real brokers; topics with
three, two and one replicas, one of them with unclean election. Before each stop `what-if` looks
at the cluster and foretells; then brokers are killed (SIGKILL) or stopped (SIGTERM). Compared are
leader, leader epoch and ISR of every partition and who is offline, once the cluster is at rest
and before the brokers return; and every cut of a log that a broker writes into its own log until
all are back, against those that were foretold: to the offset, and none that was not.

- *plain*: one broker, all in sync. *two at once*: two brokers die (ZooKeeper only: of a KRaft
  quorum of three one may go).
- *tail*: two brokers are cut off from each other, and the first has written what the second
  lacks; the second is still in sync. The first goes: what was never committed is cut from it and
  from the third.
- *out of sync*: the same for so long that the ISR has shrunk: without unclean election the
  partition goes offline, with it records are lost.

| cluster | stops | as foretold | partitions compared | leaders moved | offline | losing | cuts |
|---|---:|---:|---:|---:|---:|---:|---:|
"""
_MIDDLE: Final = """
Of two deaths the controller may notice one after the other: then leader epochs rise by one write
more. The forecast takes them as one event; such stops are compared with the forecast of either
order as well, and marked *in turn*. A replica that was out of sync before the stop and is alive
may be back in the ISR before one looks; that is not counted against the forecast. Where all of an
ISR of several dies, who of them stays listed is neither foretold nor compared.

| cluster | what | stopped | how | controller | moved | offline | losing | cuts | s | as foretold |
|---|---|---|---|---|---:|---:|---:|---:|---:|---|
"""


def page(outcomes: Sequence[Outcome], seed: int) -> str:
    lines = []
    for cluster in dict.fromkeys(o.cluster for o in outcomes):
        mine = [o for o in outcomes if o.cluster == cluster]
        counts = (
            len(mine),
            sum(o.equal for o in mine),
            sum(o.partitions for o in mine),
            sum(o.moved for o in mine),
            sum(len(o.offline) for o in mine),
            sum(len(o.lost) for o in mine),
            sum(len(o.cuts) for o in mine),
        )
        lines.append(f"| {cluster} | {' | '.join(map(str, counts))} |")
    return (
        _BEGIN.format(seed=seed)
        + "\n".join([*lines, _MIDDLE])
        + "\n".join(map(_row, outcomes))
        + "\n"
    )


def _row(o: Outcome) -> str:
    equal = "yes" + (", in turn" if o.order_mattered else "")
    if not o.equal:
        equal = "**no**: " + "; ".join([*o.wrong, *o.not_told])
    who = ", ".join(map(str, o.stopped))
    cells = (
        *(o.cluster, o.kind, who, o.how, "yes" if o.with_controller else "no", o.moved),
        *(len(o.offline), len(o.lost), len(o.cuts), f"{o.seconds:.0f}", equal),
    )
    return f"| {' | '.join(str(each).replace('|', '/') for each in cells)} |"
