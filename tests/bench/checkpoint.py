"""What the checkpoint of a quiet cluster takes on disk: `python -m tests.bench.checkpoint`.

Sampled while batches come, each of which saves the whole state anew: the most that was seen counts,
with all versions that are kept and all that waits to be taken away.
"""

from __future__ import annotations

import argparse
import os
import sys
import tempfile
import time
from pathlib import Path
from typing import TYPE_CHECKING

import pyarrow.parquet as pq
from tidestaff.streaming import codec
from tidestaff.streaming.operator.judging import judge
from tidestaff.streaming.session import start
from tidestaff.streaming.settings import Settings

from tests.bench.load import Load

if TYPE_CHECKING:
    from collections.abc import Sequence

BUCKETS = 32
WARM_S = 30.0


def on_disk(folder: Path) -> int:
    """Files come and go meanwhile."""
    found = 0
    for where, _, names in os.walk(folder):
        for name in names:
            try:
                found += (Path(where) / name).stat().st_size
            except FileNotFoundError:
                continue
    return found


def measured(partitions: int, every_s: float, seconds: float) -> list[float]:
    """Bytes a partition, looked up ten times a round after the first half minute."""
    os.environ["PYSPARK_PYTHON"] = sys.executable
    with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as work:
        rounds, checkpoint = Path(work) / "rounds", Path(work) / "checkpoint"
        rounds.mkdir()
        spark = start(Settings.model_validate({"work_dir": work}))
        rows = spark.readStream.schema(codec.ROW_SCHEMA).option("maxFilesPerTrigger", 1)
        query = (
            judge(rows.parquet(str(rounds)), buckets=BUCKETS, run=work, view="bench")
            .writeStream.foreachBatch(lambda frame, _: frame.collect())
            .option("checkpointLocation", str(checkpoint))
            .trigger(processingTime="100 milliseconds")
            .start()
        )
        load, found, began, number = Load(partitions), [], time.monotonic(), 0
        while time.monotonic() - began < WARM_S + seconds:
            pq.write_table(load.round(), Path(work) / "next.parquet")
            (Path(work) / "next.parquet").rename(rounds / f"{number:06d}.parquet")
            number += 1
            while time.monotonic() - began < number * every_s:
                if time.monotonic() - began > WARM_S:
                    found.append(on_disk(checkpoint) / partitions)
                time.sleep(every_s / 10)
        query.stop()
        spark.stop()
    return found


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--partitions", type=int, default=10_000)
    parser.add_argument("--every-s", type=float, default=5.0, help="a round, and a batch")
    parser.add_argument("--seconds", type=float, default=60.0)
    options = parser.parse_args(arguments)
    found = sorted(measured(options.partitions, options.every_s, options.seconds))
    print(
        f"{options.partitions:,} quiet partitions, a batch every {options.every_s:g} s: checkpoint "
        f"{found[len(found) // 2]:.0f} bytes a partition (median), {found[-1]:.0f} at the most"
    )
    return 0


if __name__ == "__main__":
    sys.exit(main())
