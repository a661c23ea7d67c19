"""build/image: tidestaff's wheel and, for a build without a network, packages and jars.

The packages are the ones `make setup` installed with --require-hashes: each file that a package's
own record lists, of the packages in requirements.runtime.lock and no others.
"""

from __future__ import annotations

import argparse
import os
import re
import shutil
import subprocess
import sys
from importlib import metadata
from pathlib import Path
from typing import Final

from packaging.markers import Marker
from tidestaff.streaming.jars import jars

ROOT: Final = Path(__file__).resolve().parents[2]
FOLDER: Final = ROOT / "build" / "image"
LOCK: Final = ROOT / "requirements.runtime.lock"
_PINNED: Final = re.compile(r"^([A-Za-z0-9._-]+)==([^\s;\\]+)(?:\s*;\s*([^\\]+))?", re.MULTILINE)


def runtime_packages() -> list[metadata.Distribution]:
    """Those of the lock that are for this Python and this system."""
    found = []
    for name, version, marker in _PINNED.findall(LOCK.read_text(encoding="utf-8")):
        if marker.strip() and not Marker(marker.strip()).evaluate():
            continue
        try:
            package = metadata.distribution(name)
        except metadata.PackageNotFoundError:
            raise SystemExit(f"{name} is not installed: run 'make setup'") from None
        if package.version != version:
            raise SystemExit(f"{name} is {package.version}, not {version}: run 'make setup'")
        found.append(package)
    return found


def copy_packages(folder: Path) -> None:
    site = Path(os.path.realpath(str(metadata.distribution("pyspark").locate_file(""))))
    for package in runtime_packages():
        for file in package.files or ():
            source = Path(os.path.realpath(str(file.locate())))
            if "__pycache__" in source.parts or not source.is_file():
                continue
            inside = source.is_relative_to(site)
            target = folder / "site" / source.relative_to(site) if inside else None
            if target is None and file.parts[-2:-1] == ("bin",):
                target = folder / "bin" / source.name
            if target is not None:
                target.parent.mkdir(parents=True, exist_ok=True)
                _link_or_copy(source, target)
    version = f"{sys.version_info.major}.{sys.version_info.minor}\n"
    (folder / "python-version").write_text(version, encoding="ascii")


def _link_or_copy(source: Path, target: Path) -> None:
    """A thousand megabytes need not be written twice."""
    try:
        os.link(source, target)
    except OSError:
        shutil.copy2(source, target)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--closed", action="store_true", help="packages and jars, too")
    options = parser.parse_args()
    shutil.rmtree(FOLDER, ignore_errors=True)
    FOLDER.mkdir(parents=True)
    command = [sys.executable, "-m", "build", "--wheel", "--no-isolation", "--outdir", str(FOLDER)]
    subprocess.run([*command, str(ROOT)], check=True, stdout=subprocess.DEVNULL)
    if options.closed:
        copy_packages(FOLDER)
        (FOLDER / "bin").mkdir(exist_ok=True)
        (FOLDER / "jars").mkdir()
        for jar in jars():
            shutil.copy2(jar, FOLDER / "jars")
    return 0


if __name__ == "__main__":
    sys.exit(main())
