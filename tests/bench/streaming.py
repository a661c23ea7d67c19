"""What the streaming job costs, beside a plain numpy process that does the same screening.

`python -m tests.bench.streaming --write` measures and writes the table in docs/benchmarks.md and
what docs/scale.md reckons from. Every figure of one run is taken on the same machine in the same
minutes: the ratios are what counts.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
import zlib
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import numpy as np
import pyarrow.parquet as pq
from tidestaff.streaming import codec
from tidestaff.streaming.alerts.batch import OutputRow
from tidestaff.streaming.operator.bucket import Bucket
from tidestaff.streaming.operator.judging import judge
from tidestaff.streaming.operator.rows import Lists, block_of_columns
from tidestaff.streaming.operator.saving import Keeper
from tidestaff.streaming.session import start
from tidestaff.streaming.settings import Settings
from tidestaff.streaming.view.limits import HistoryLimits
from tidestaff.streaming.view.store import StateStore

from tests.bench.load import Load
from tests.bench.processes import cpu_seconds, resident_mb
from tests.bench.report import write_table
from tests.bench.sizing import SCALE, sizing

if TYPE_CHECKING:
    from collections.abc import Sequence

BUCKETS: Final = 32
SIZES: Final = (10_000, 100_000, 200_000)
LARGEST: Final = 500_000
ROUNDS: Final = 9
WARM: Final = 4
PER_GROUP: Final = 500


def spark_rounds(folder: Path, buckets: int, driver_memory: str = "4g") -> list[dict[str, Any]]:
    """One micro-batch a file; what each took, in CPU and wall time."""
    os.environ["PYSPARK_PYTHON"] = sys.executable
    with tempfile.TemporaryDirectory() as work:
        settings = Settings.model_validate(
            {"work_dir": work, "spark": {"driver_memory": driver_memory, "master": "local[2]"}}
        )
        spark = start(settings)
        rows = spark.readStream.schema(codec.ROW_SCHEMA).option("maxFilesPerTrigger", 1)
        output = judge(rows.parquet(str(folder)), buckets=buckets, run=work, view="bench")
        # What the page shows is kept as in a job that runs: it belongs to the cost.
        state = StateStore(Path(work) / "state.sqlite", HistoryLimits())
        found: list[dict[str, Any]] = []
        last = [cpu_seconds(), time.perf_counter()]

        def batch(frame: Any, number: int) -> None:
            told = [OutputRow(row[0], row[1], row[2]) for row in frame.collect()]
            state.take("bench", number, told)
            stats = [json.loads(row.payload) for row in told if row.kind == "stats"]
            now = [cpu_seconds(), time.perf_counter()]
            found.append(
                {
                    "cpu_s": now[0] - last[0],
                    "wall_s": now[1] - last[1],
                    "memory_mb": resident_mb(),
                    **{
                        name: sum(s[name] for s in stats)
                        for name in ("rows", "quiet", "stepped", "partitions", "state_bytes")
                    },
                }
            )
            last[:] = now

        query = (
            output.writeStream.foreachBatch(batch)
            .option("checkpointLocation", f"{work}/checkpoint")
            .trigger(availableNow=True)
            .start()
        )
        query.awaitTermination()
        state.close()
        spark.stop()
    return found


def plain_rounds(folder: Path, buckets: int) -> list[dict[str, Any]]:
    """The same buckets, screen, step and saving in one Python process, state written to files."""
    keepers = [Keeper(Bucket()) for _ in range(buckets)]
    found = []
    with tempfile.TemporaryDirectory() as work:
        for path in sorted(folder.glob("*.parquet")):
            cpu, wall = time.process_time(), time.perf_counter()
            table = pq.read_table(path)
            numbers = np.fromiter(
                (zlib.crc32(s.encode()) % buckets for s in table["subject"].to_pylist()),
                np.int64,
                len(table),
            )
            counts: dict[str, int] = {"quiet": 0, "stepped": 0}
            for number, keeper in enumerate(keepers):
                part = table.take(np.flatnonzero(numbers == number))
                said = keeper.bucket.process(block_of_table(part))
                for name in counts:
                    counts[name] += said.counts[name]
                saved = keeper.save()
                (Path(work) / str(number)).write_bytes(b"".join(saved[1:]))
            found.append(
                {
                    "cpu_s": time.process_time() - cpu,
                    "wall_s": time.perf_counter() - wall,
                    **counts,
                }
            )
    return found


def block_of_table(table: Any) -> Any:
    """Arrow columns to a block, as short as it can be done."""
    size = len(table)
    lists = [table[name].combine_chunks() for name in codec.LISTS]
    lengths = np.column_stack([np.diff(each.offsets.to_numpy()) for each in lists])
    sizes = lengths.sum(axis=1)
    begin = np.cumsum(sizes) - sizes
    flat = np.empty(int(sizes.sum()), np.int64)
    for which, each in enumerate(lists):
        starts = begin + lengths[:, :which].sum(axis=1)
        values, count = each.flatten().to_numpy(), lengths[:, which]
        within = np.arange(len(values)) - np.repeat(np.cumsum(count) - count, count)
        flat[np.repeat(starts, count) + within] = values
    return block_of_columns(
        home=np.ones(size, np.bool_),
        version=table["schema_version"].to_numpy(),
        kind=table["kind"].to_pylist(),
        cluster=table["cluster"].to_pylist(),
        source=table["source"].to_pylist(),
        subject=table["subject"].to_pylist(),
        round=table["round"].to_numpy(),
        at=table["observed_at_ms"].to_numpy(),
        previous=table["previous_at_ms"].to_numpy(),
        lists=Lists(flat, begin, lengths.astype(np.int64)),
        body=table["body"].to_pylist(),
    )


def _apart(way: str, folder: Path, buckets: int, memory: str = "4g") -> list[dict[str, Any]]:
    """In a process of its own: no measure inherits the memory of another."""
    command = [sys.executable, "-m", "tests.bench.streaming", "--one", way, str(folder)]
    done = subprocess.run(
        [*command, str(buckets), memory], capture_output=True, text=True, check=False
    )
    if done.returncode:
        sys.stderr.write(done.stderr[-4_000:])
        raise SystemExit(f"{way} with {buckets} buckets failed")
    found: list[dict[str, Any]] = json.loads(done.stdout.strip().splitlines()[-1])
    return found


def _median(rounds: Sequence[dict[str, Any]], name: str) -> float:
    return statistics.median(one[name] for one in rounds)


def measure(size: int, rounds: int, work: Path) -> dict[str, Any]:
    folder = work / f"load-{size}"
    Load(size).write(folder, rounds)
    spark = _apart("spark", folder, BUCKETS)
    plain = _apart("plain", folder, BUCKETS)
    shutil.rmtree(folder)
    quiet = spark[min(WARM, rounds - 1) :]
    return {
        "size": size,
        "quiet_rounds": len(quiet),
        "wall_s": _median(quiet, "wall_s"),
        "cpu_s": _median(quiet, "cpu_s"),
        "plain_cpu_s": _median(plain[2:], "cpu_s"),
        "first_wall_s": spark[0]["wall_s"],
        "first_cpu_s": spark[0]["cpu_s"],
        "state_bytes": spark[-1]["state_bytes"] / spark[-1]["partitions"],
        "memory_mb": max(one["memory_mb"] for one in spark),
        "screened": sum(one["quiet"] for one in quiet) / sum(one["rows"] for one in quiet),
    }


def one_group_each(work: Path) -> float:
    """CPU seconds a group and round when there are as many groups as partitions."""
    folder = work / "groups"
    Load(PER_GROUP).write(folder, 6)
    found = _apart("spark", folder, PER_GROUP)
    idle = work / "idle"
    Load(1).write(idle, 6)
    fixed = _median(_apart("spark", idle, 1)[3:], "cpu_s")
    return (_median(found[3:], "cpu_s") - fixed) / PER_GROUP


def idle_batch(work: Path) -> tuple[float, float]:
    """What a batch of a single partition takes: the fixed cost of Spark and of the state store."""
    folder = work / "one"
    Load(1).write(folder, 12)
    rounds = _apart("spark", folder, BUCKETS)[5:]
    return _median(rounds, "wall_s"), _median(rounds, "cpu_s")


def report(sizes: Sequence[int], *, largest: bool) -> tuple[str, str]:
    """The table of docs/benchmarks.md and the one of docs/scale.md, of the same run."""
    with tempfile.TemporaryDirectory() as temporary:
        work = Path(temporary)
        found = [measure(size, ROUNDS, work) for size in sizes]
        if largest:
            found.append(measure(LARGEST, 4, work))
        wall_s, cpu_s = idle_batch(work)
        each_s = one_group_each(work)
    heads = "partitions x 3|wall|CPU|CPU of plain numpy|ratio|CPU a partition|first round, CPU"
    lines = [
        f"| {' | '.join([*heads.split('|'), 'state a partition', 'memory in all'])} |",
        "|---:|---:|---:|---:|---:|---:|---:|---:|---:|",
    ]
    lines += [_line(one) for one in found]
    middle = next((one for one in found if one["size"] == 100_000), found[-1])
    bucketed = middle["cpu_s"] / middle["size"]
    times = f"{each_s / bucketed:,.0f} times as much"
    lines += [
        "",
        f"- A batch of one partition (fixed cost): {wall_s:.2f} s wall, {cpu_s:.2f} s CPU.",
        f"- One group a partition: {1e3 * each_s:.1f} ms CPU a partition and round, {times}.",
        f"- Rows the screen passed over: {100 * middle['screened']:.1f} %.",
    ]
    return "\n".join(lines), sizing(found, fixed_cpu_s=cpu_s)


def _line(one: dict[str, Any]) -> str:
    return (
        f"| {one['size']:,} | {one['wall_s']:.2f} s | {one['cpu_s']:.2f} s "
        f"| {one['plain_cpu_s']:.2f} s | {one['cpu_s'] / one['plain_cpu_s']:.1f} "
        f"| {1e6 * one['cpu_s'] / one['size']:.0f} µs | {one['first_cpu_s']:.0f} s "
        f"| {one['state_bytes']:.0f} bytes | {one['memory_mb']:,.0f} MB |"
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--write", action="store_true", help="write docs/benchmarks.md, scale.md")
    parser.add_argument("--sizes", type=int, nargs="*", default=SIZES)
    parser.add_argument("--no-largest", action="store_true", help=f"leave {LARGEST:,} out")
    parser.add_argument("--one", nargs=4, help=argparse.SUPPRESS)
    given = parser.parse_args()
    if given.one:
        way, folder, buckets, memory = given.one
        path = Path(folder)
        rounds = (
            spark_rounds(path, int(buckets), memory)
            if way == "spark"
            else plain_rounds(path, int(buckets))
        )
        sys.stdout.write("\n" + json.dumps(rounds) + "\n")
        return
    table, scale = report(given.sizes, largest=not given.no_largest)
    sys.stdout.write(f"{table}\n\n{scale}\n")
    if given.write:
        write_table("streaming", table)
        write_table("sizing", scale, SCALE)


if __name__ == "__main__":
    main()
