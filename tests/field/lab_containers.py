"""The lab's nodes in containers, by testcontainers: the same plan, the same interface.

Containers share the machine's network and the lab's folder, so everything but the way a node is
started is as with processes. The image of a release is the published one; where it cannot be
pulled, an image that has Java runs the locked jars.

TIDESTAFF_LAB_IMAGE names another image of Kafka (its jars in /opt/kafka/libs), TIDESTAFF_JAVA_IMAGE
another image with Java.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, NamedTuple

import pytest
from tidestaff.streaming.jars import cache_folder

if TYPE_CHECKING:
    import signal
    from collections.abc import Sequence

PUBLISHED: Final = {"3.9.1": "apache/kafka:3.9.1", "4.1.1": "apache/kafka:4.1.1"}
KAFKA_LIBS: Final = "/opt/kafka/libs/*"
JAVA_IMAGE: Final = "eclipse-temurin:17-jre"
LOCAL_IMAGE: Final = "tidestaff-java:17"
PULLS_WITHIN_S: Final = 60
BUILDS_WITHIN_S: Final = 300
# Python and libnss-wrapper are for the project's own image, which is built on the same base.
_BASE: Final = (
    "--variant=minbase",
    "--include=openjdk-17-jre-headless,ca-certificates-java,python3,python3-venv,libnss-wrapper",
)


class Image(NamedTuple):
    """`libs` is the class path inside, where the image brings Kafka."""

    name: str
    libs: str | None


class Containers:
    """Implements the lab's Engine."""

    def __init__(self, image: Image, folder: Path) -> None:
        # Nobody else cleans up: the helper container for that would need the image of its own.
        os.environ["TESTCONTAINERS_RYUK_DISABLED"] = "true"
        self._image, self._folder = image, folder
        self._containers: dict[str, Any] = {}

    def start(self, name: str, command: Sequence[str], log: Path) -> None:
        from testcontainers.core.container import DockerContainer  # noqa: PLC0415 - slow

        log.parent.mkdir(parents=True, exist_ok=True)
        words = list(command)
        if self._image.libs is not None:
            words[words.index("-cp") + 1] = self._image.libs
        container = (
            DockerContainer(self._image.name)
            .with_command(["-c", f'exec "$0" "$@" >>{log} 2>&1', *words])
            .with_kwargs(
                entrypoint="/bin/sh", network_mode="host", user=f"{os.getuid()}:{os.getgid()}"
            )
            .with_volume_mapping(str(self._folder), str(self._folder), "rw")
        )
        jars = cache_folder(os.environ)
        if jars.is_dir():
            container = container.with_volume_mapping(str(jars), str(jars), "ro")
        self.remove(name)
        self._containers[name] = container
        container.start()

    def running(self, name: str) -> bool:
        state = self._state(name)
        return bool(state.get("Running"))

    def signal(self, name: str, number: signal.Signals) -> None:
        if self.running(name):
            self._containers[name].get_wrapped_container().kill(signal=number.name)

    def wait(self, name: str, within_s: float) -> bool:
        until = time.monotonic() + within_s
        while self.running(name):
            if time.monotonic() > until:
                return False
            time.sleep(0.1)
        return True

    def _state(self, name: str) -> dict[str, Any]:
        container = self._containers.get(name)
        if container is None:
            return {}
        wrapped = container.get_wrapped_container()
        wrapped.reload()
        found: dict[str, Any] = wrapped.attrs["State"]
        return found

    def remove(self, name: str) -> None:
        container = self._containers.pop(name, None)
        if container is not None:
            container.stop(force=True)

    def close(self) -> None:
        for name in list(self._containers):
            self.remove(name)


def need_engine() -> None:
    """Skips the test where no Docker engine answers, and says so."""
    said = docker("info", within_s=20)
    if said is None:
        pytest.skip("no Docker engine answers: start one, or name it with DOCKER_HOST")


def image_of(version: str) -> Image:
    """The published image, one with Java, or one made here; skips where none can be had."""
    given = os.environ.get("TIDESTAFF_LAB_IMAGE")
    if given:
        return Image(given, KAFKA_LIBS)
    published = PUBLISHED.get(version)
    if published is not None and _here_or_pulled(published):
        return Image(published, KAFKA_LIBS)
    for name in (os.environ.get("TIDESTAFF_JAVA_IMAGE"), LOCAL_IMAGE):
        if name and docker("image", "inspect", name) is not None:
            return Image(name, None)
    if _here_or_pulled(os.environ.get("TIDESTAFF_JAVA_IMAGE") or JAVA_IMAGE):
        return Image(os.environ.get("TIDESTAFF_JAVA_IMAGE") or JAVA_IMAGE, None)
    why = build_local_image()
    if why:
        pytest.skip(f"no image can be pulled, and none can be made here: {why}")
    return Image(LOCAL_IMAGE, None)


def _here_or_pulled(name: str) -> bool:
    if docker("image", "inspect", name) is not None:
        return True
    return docker("pull", "--quiet", name, within_s=PULLS_WITHIN_S) is not None


def build_local_image(folder: Path | None = None) -> str:
    """A Debian with Java, by debootstrap. Returns why it could not be made, or ''."""
    if docker("image", "inspect", LOCAL_IMAGE) is not None:
        return ""
    if os.getuid() != 0:
        return "debootstrap needs to be root"
    if shutil.which("debootstrap") is None:
        return "debootstrap is not installed"
    import tempfile  # noqa: PLC0415 - rarely needed

    with tempfile.TemporaryDirectory(prefix="tidestaff-image-", dir=folder) as place:
        root = Path(place) / "root"
        made = _run(["debootstrap", *_BASE, "bookworm", str(root)], BUILDS_WITHIN_S)
        if made is None:
            return "debootstrap failed: the Debian archive may be out of reach"
        script = f"tar -C {root} -c . | docker import - {LOCAL_IMAGE}"
        if _run(["sh", "-c", script], BUILDS_WITHIN_S) is None:
            return "docker import failed"
    return ""


def docker(*words: str, within_s: float = 30) -> str | None:
    """What the command printed, or None where it failed."""
    return _run(["docker", *words], within_s)


def _run(command: list[str], within_s: float) -> str | None:
    try:
        done = subprocess.run(
            command, capture_output=True, text=True, check=False, timeout=within_s
        )
    except (OSError, subprocess.TimeoutExpired):
        return None
    return done.stdout if done.returncode == 0 else None


if __name__ == "__main__":
    # For .ci/run: have the image ahead of the tests.
    if _here_or_pulled(PUBLISHED["3.9.1"]) or _here_or_pulled(JAVA_IMAGE):
        sys.exit(0)
    sys.exit(build_local_image() or 0)
