"""`tidestaff package`: the archive that the executors of a Spark cluster need."""

from __future__ import annotations

import json
import zipfile
from pathlib import Path
from typing import TYPE_CHECKING, Final

from tidestaff.streaming.commands.exits import CommandError, Exit

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from tidestaff.streaming.commands.arguments import CommandParser, Options

EXAMPLES: Final = """\
examples:
  tidestaff package -o tidestaff.zip
  spark-submit --master spark://host:7077 --archives tidestaff.zip#tidestaff_archive \\
    --conf spark.executorEnv.PYTHONPATH=tidestaff_archive tidestaff_main.py run --config FILE

'tidestaff run' with such a master packs and sends the archive by itself. docs/running.md shows the
whole of it. The Python packages tidestaff is built on must be on every executor.
"""
ROOT: Final = Path(__file__).resolve().parents[2]
FOLDERS: Final = ("consistency", "connectors", "streaming", "conf")
MAIN: Final = "tidestaff_main.py"
_FIXED: Final = (2000, 1, 1, 0, 0, 0)
_MAIN_TEXT: Final = '''\
"""What spark-submit starts: the command line of tidestaff."""

import sys

from tidestaff.streaming.cli import main

sys.exit(main())
'''


def configure(parser: CommandParser, _: Sequence[str]) -> None:
    parser.add_argument(
        "-o", "--out", metavar="FILE", type=Path, required=True, help="a .zip file to write"
    )


def run(options: Options) -> int:
    if options.out.suffix != ".zip":
        raise CommandError(f"{options.out}: expected a name that ends in .zip: Spark goes by it")
    files = pack(options.out)
    beside = options.out.with_name(MAIN)
    beside.write_text(_MAIN_TEXT, encoding="utf-8")
    if options.json:
        content = {"out": str(options.out), "main": str(beside), "files": files, "exit_code": 0}
        print(json.dumps(content, indent=2))
    else:
        print(f"{options.out}: {files} files, for --archives; {beside} is what to submit")
    return Exit.OK


def pack(out: Path) -> int:
    """Write the archive; the same sources give the same bytes."""
    out.parent.mkdir(parents=True, exist_ok=True)
    partial = out.with_name(f".{out.name}.part")
    count = 0
    with zipfile.ZipFile(partial, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, content in _contents():
            info = zipfile.ZipInfo(name, _FIXED)
            info.external_attr = 0o644 << 16
            archive.writestr(info, content, zipfile.ZIP_DEFLATED)
            count += 1
    partial.replace(out)
    return count


def _contents() -> Iterator[tuple[str, bytes]]:
    # A package with an __init__ comes before any other tidestaff an executor may have.
    yield "tidestaff/__init__.py", b""
    for folder in FOLDERS:
        for path in sorted((ROOT / folder).rglob("*")):
            if path.is_file() and "__pycache__" not in path.parts:
                yield f"tidestaff/{path.relative_to(ROOT).as_posix()}", path.read_bytes()
