"""Spark's Python daemon without the zip archives that Spark puts on its path, and with what every
worker needs loaded already: workers are forked from it.

Before every task a Python worker forgets what it knows of its import paths, and for a zip archive
that means to read its whole directory again, once for every package in it: 0.1 s a task. Where
pyspark is installed, as it is for us, nothing needs the archives.
"""

from __future__ import annotations

import gc
import importlib
import importlib.util
import sys
from typing import Final

LOADED: Final = "tidestaff.streaming.operator.judging"


def without_archives(paths: list[str]) -> list[str]:
    """The paths that are left when Spark's own archives go."""
    return [
        path
        for path in paths
        if not path.endswith(".zip") or not any(n in path for n in ("pyspark", "py4j"))
    ]


def main() -> None:
    with_archives = list(sys.path)
    sys.path[:] = without_archives(with_archives)
    sys.path_importer_cache.clear()
    if importlib.util.find_spec("pyspark") is None:
        # Only Spark's own copy is there.
        sys.path[:] = with_archives
    from pyspark.daemon import manager  # noqa: PLC0415 - from the path as it is now

    # Two seconds of CPU, once instead of in each of them. The collector leaves it alone, or every
    # fork would copy it.
    importlib.import_module(LOADED)
    gc.freeze()
    manager()  # type: ignore[no-untyped-call]


if __name__ == "__main__":
    main()
