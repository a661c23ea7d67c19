"""Jars from a lock file: exact coordinates, each with its SHA-256, fetched without a build tool.

Spark's own Ivy does the fetching, from wherever it is set up to look. Where no network is, the
variable TIDESTAFF_JARS_DIR names a folder that holds the jars.
"""

from __future__ import annotations

import hashlib
import os
import re
import shutil
import subprocess
import tempfile
import time
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Final, NamedTuple

from tidestaff.streaming.commands.exits import CommandError

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

LOCK: Final = Path(__file__).resolve().parent.parent / "conf" / "jars.lock"
JARS_DIR: Final = "TIDESTAFF_JARS_DIR"
IVY_SETTINGS: Final = "TIDESTAFF_IVY_SETTINGS"
_LINE: Final = re.compile(r"([\w.-]+):([\w.-]+):([\w.-]+)(?::([\w.-]+))? sha256:([0-9a-f]{64})")
_LONGEST_S: Final = 600
_LOOK_S: Final = 0.2


class JarError(CommandError):
    """A jar that cannot be had, or is not the one it should be."""


class Jar(NamedTuple):
    """One line of the lock file. A `classifier` names another jar of the same artifact."""

    group: str
    artifact: str
    version: str
    classifier: str | None
    sha256: str

    @property
    def file_name(self) -> str:
        more = f"-{self.classifier}" if self.classifier else ""
        return f"{self.artifact}-{self.version}{more}.jar"


def locked(lock: Path = LOCK) -> list[Jar]:
    found = []
    for number, line in enumerate(lock.read_text(encoding="utf-8").splitlines(), 1):
        if line.strip() and not line.startswith("#"):
            match = _LINE.fullmatch(line.strip())
            if match is None:
                raise JarError(
                    f"{lock}, line {number}: found {line!r}, "
                    "expected group:artifact:version[:classifier] sha256:HEX"
                )
            found.append(Jar(*match.groups()))
    return found


def jars(
    lock: Path = LOCK,
    environment: Mapping[str, str] | None = None,
    say: Callable[[str], None] = lambda _: None,
    stopped: Callable[[], bool] = lambda: False,
) -> list[Path]:
    """The paths of all jars of the lock file, every one of them verified. Fetching ends when it is
    `stopped`."""
    environment = os.environ if environment is None else environment
    wanted = locked(lock)
    given = environment.get(JARS_DIR)
    if given:
        return [_verified(Path(given).expanduser() / jar.file_name, jar) for jar in wanted]
    folder = cache_folder(environment)
    missing = [jar for jar in wanted if not (folder / jar.file_name).is_file()]
    if missing:
        say(f"fetching {len(missing)} jars into {folder} (once)")
        _fetch(missing, folder, environment, stopped)
    return [_verified(folder / jar.file_name, jar) for jar in wanted]


def cache_folder(environment: Mapping[str, str]) -> Path:
    base = environment.get("XDG_CACHE_HOME") or str(Path("~/.cache").expanduser())
    return Path(base) / "tidestaff" / "jars"


def _verified(path: Path, jar: Jar) -> Path:
    if not path.is_file():
        raise JarError(
            f"{path} is not there, expected the jar {jar.group}:{jar.artifact}:{jar.version}",
            f"copy it there, or unset {JARS_DIR} to have it fetched",
        )
    digest = hashlib.sha256(path.read_bytes()).hexdigest()
    if digest != jar.sha256:
        raise JarError(
            f"{path}: found SHA-256 {digest}, expected {jar.sha256} as the lock file has it",
            "remove the file and try again; if it comes back, ask where it comes from",
        )
    return path


def ivy_jar() -> Path:
    """The Ivy that is part of pyspark."""
    import pyspark  # noqa: PLC0415 - slow, and only needed to fetch

    assert pyspark.__file__ is not None
    found = sorted((Path(pyspark.__file__).parent / "jars").glob("ivy-*.jar"))
    if not found:
        raise JarError("pyspark has no Ivy jar: install pyspark anew, from the lock file")
    return found[-1]


def _fetch(
    missing: Sequence[Jar],
    folder: Path,
    environment: Mapping[str, str],
    stopped: Callable[[], bool],
) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(prefix="tidestaff-ivy-") as scratch:
        place = Path(scratch)
        (place / "ivy.xml").write_text(_module(missing), encoding="utf-8")
        command = [_java(environment), "-jar", str(ivy_jar()), "-ivy", str(place / "ivy.xml")]
        command += ["-cache", str(place / "cache"), "-confs", "default"]
        if environment.get(IVY_SETTINGS):
            command += ["-settings", environment[IVY_SETTINGS]]
        command += ["-retrieve", f"{place}/got/[artifact]-[revision](-[classifier]).[ext]"]
        said = _run(command, place / "said", stopped)
        if said is None:
            raise _unfetched(missing, "told to stop" if stopped() else "it took too long")
        lost = [jar for jar in missing if not (place / "got" / jar.file_name).is_file()]
        if lost:
            raise _unfetched(lost, _said(said))
        for jar in missing:
            _verified(place / "got" / jar.file_name, jar)
            # Whole or not at all: another process may be fetching the same.
            partial = folder / f".{jar.file_name}.{os.getpid()}"
            shutil.copyfile(place / "got" / jar.file_name, partial)
            partial.replace(folder / jar.file_name)


def _run(command: Sequence[str], output: Path, stopped: Callable[[], bool]) -> str | None:
    """What it says, None if it had to be ended before it was done."""
    until = time.monotonic() + _LONGEST_S
    with (
        output.open("wb") as said,
        subprocess.Popen(command, stdout=said, stderr=said) as fetching,  # noqa: S603 - our own
    ):
        try:
            while fetching.poll() is None:
                if stopped() or time.monotonic() > until:
                    return None
                with suppress(subprocess.TimeoutExpired):
                    fetching.wait(_LOOK_S)
        finally:
            fetching.kill()
    return output.read_text(encoding="utf-8", errors="replace")


def _java(environment: Mapping[str, str]) -> str:
    home = environment.get("JAVA_HOME")
    return str(Path(home) / "bin" / "java") if home else "java"


def _unfetched(lost: Sequence[Jar], reason: str) -> JarError:
    names = ", ".join(f"{jar.group}:{jar.artifact}:{jar.version}" for jar in lost[:3])
    more = f" and {len(lost) - 3} more" if len(lost) > 3 else ""
    return JarError(
        f"could not fetch {names}{more}: {reason}",
        f"check the network or name a mirror's Ivy settings with {IVY_SETTINGS}; "
        f"without a network put the jars of conf/jars.lock into a folder named by {JARS_DIR}",
    )


def _said(text: str) -> str:
    """Of Ivy's pages the line that tells most."""
    lines = [line.strip() for line in text.splitlines()]
    for word in ("UNRESOLVED", "FAILED", "Exception", "ERROR"):
        for line in lines:
            if word in line:
                return line[:200]
    return lines[-1][:200] if lines else "Ivy said nothing"


def _module(missing: Sequence[Jar]) -> str:
    return (
        '<ivy-module version="2.0" xmlns:m="http://ant.apache.org/ivy/maven">\n'
        '<info organisation="tidestaff" module="jars"/>\n'
        '<configurations><conf name="default"/></configurations>\n'
        f"<dependencies>\n{''.join(map(_dependency, missing))}</dependencies>\n</ivy-module>\n"
    )


def _dependency(jar: Jar) -> str:
    which = ""
    if jar.classifier:
        which = f'<artifact name="{jar.artifact}" type="jar" m:classifier="{jar.classifier}"/>'
    return (
        f'  <dependency org="{jar.group}" name="{jar.artifact}" rev="{jar.version}" '
        f'transitive="false" conf="default->default">{which}</dependency>\n'
    )


if __name__ == "__main__":
    for path in jars(say=print):
        print(path)
