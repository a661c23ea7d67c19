"""The tables of `make bench-verify`."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from tests.bench.verify import Run

_HEAD = (
    "| who | wall | CPU | CPU a GB | brokers' CPU | bytes moved | peak memory |",
    "|---|---:|---:|---:|---:|---:|---:|",
)


def tables(runs: Sequence[Run], diverged: Sequence[Run]) -> str:
    few = min((r.partitions for r in runs), default=0)
    lines: list[str] = []
    for kb, size in sorted({(r.batch_kb, r.gigabytes) for r in runs if r.partitions == few}):
        mine = [r for r in runs if (r.batch_kb, r.gigabytes, r.partitions) == (kb, size, few)]
        what = f"**{few} partitions x 3, {size:.1f} GB on disk, batches of up to {kb} KB**"
        lines += [what, "", *_HEAD, *map(_row, mine)]
        lines += ["", *_ratios(mine), ""]
    many = [r for r in runs if r.partitions > few]
    if many:
        lines += ["**More partitions**", "", *_many(many), ""]
    if diverged:
        lines += ["**One bit of one checksum of one replica is another**", "", *_faults(diverged)]
    return "\n".join(lines).rstrip()


def _row(r: Run) -> str:
    cells = (
        r.who,
        f"{r.wall_s:.2f} s",
        f"{r.cpu_s:.2f} s",
        f"{r.cpu_s / r.gigabytes:.3f} s",
        f"{r.brokers_cpu_s:.1f} s",
        _bytes(r.bytes_moved),
        f"{r.peak_mb:,.0f} MB",
    )
    return f"| {' | '.join(cells)} |"


def _ratios(runs: Sequence[Run]) -> list[str]:
    tool, wire, agents, _ = runs
    whole = (tool.cpu_s + tool.brokers_cpu_s) / (agents.cpu_s + agents.brokers_cpu_s)
    return [
        (
            f"- wire mode: {wire.cpu_s / tool.cpu_s:.2f} of the tool's CPU (bar: 1), "
            f"{wire.wall_s / tool.wall_s:.2f} of its wall (bar: 1.5)"
        ),
        (
            f"- agent mode: {whole:.1f} times less CPU, all counted that each makes others spend "
            f"(bar: 20); {tool.cpu_s / agents.cpu_s:.1f} times, command and agents against the "
            "tool's own process; "
            f"{tool.bytes_moved / max(agents.bytes_moved, 1):,.0f} times fewer bytes (bar: 100)"
        ),
    ]


def _many(runs: Sequence[Run]) -> Iterable[str]:
    yield "| partitions x 3 | GB on disk | who | wall | CPU | bytes moved | peak memory |"
    yield "|---:|---:|---|---:|---:|---:|---:|"
    for r in runs:
        yield (
            f"| {r.partitions:,} | {r.gigabytes:.1f} | {r.who} | {r.wall_s:.1f} s | "
            f"{r.cpu_s:.1f} s | {_bytes(r.bytes_moved)} | {r.peak_mb:,.0f} MB |"
        )


def _faults(runs: Sequence[Run]) -> Iterable[str]:
    yield "| who | found after | what it says |"
    yield "|---|---:|---|"
    for r in runs:
        said = r.said.replace("|", "/")
        yield f"| {r.who} | {r.wall_s:.1f} s | {said} |"


def _bytes(count: float) -> str:
    if count >= 1e9:
        return f"{count / 1e9:.2f} GB"
    return f"{count / 1e6:.2f} MB" if count >= 1e6 else f"{count / 1e3:.1f} kB"
