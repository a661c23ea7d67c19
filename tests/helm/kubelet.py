"""Runs the executors' pods of a real API server as processes, as a node's kubelet would run them in
containers: what is started, and with which variables, is what Spark wrote into the pod."""

from __future__ import annotations

import contextlib
import os
import subprocess
import sys
import threading
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from tidestaff.streaming.lab.plan import LOOPBACK

from tests.streaming.job.processes import children_of, kill_if_there

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tests.helm.api_server import ApiServer
    from tests.helm.chart import Manifest

PROGRAM: Final = Path(__file__).resolve().parents[2] / "conf" / "image" / "executor.py"
# What the kubelet gives a container of the machine's, and the image of its own.
GIVEN: Final = ("PATH", "JAVA_HOME", "LANG")


class Kubelet:
    """Of one namespace. `made` are the pods as they were first seen, by name."""

    def __init__(self, server: ApiServer, namespace: str, folder: Path) -> None:
        self._server, self._folder = server, folder
        self._path = f"/api/v1/namespaces/{namespace}/pods"
        self._running: dict[str, subprocess.Popen[bytes]] = {}
        self._ends = threading.Event()
        self.made: dict[str, Manifest] = {}

    def _loop(self) -> None:
        while not self._ends.wait(0.5):
            said = self._server.ask("GET", f"{self._path}?labelSelector=spark-role=executor")
            there = {pod["metadata"]["name"]: pod for pod in said.body["items"]}
            for name in self._running.keys() - there.keys():
                end(self._running.pop(name))
            for name in there.keys() - self.made.keys():
                self.made[name] = there[name]
                self._running[name] = self.start(there[name])
                self._tell(there[name])

    def _tell(self, pod: Manifest) -> None:
        (container,) = pod["spec"]["containers"]
        state = {"name": container["name"], "ready": True, "restartCount": 0}
        state |= {"image": container["image"], "imageID": "", "state": {"running": {}}}
        status = {"phase": "Running", "podIP": LOOPBACK, "containerStatuses": [state]}
        path = f"{self._path}/{pod['metadata']['name']}/status"
        self._server.ask("PUT", path, {**pod, "status": status})

    def start(self, pod: Manifest, **changed: str) -> subprocess.Popen[bytes]:
        """The executor of a pod; `changed` are variables of another value than the pod's."""
        (container,) = pod["spec"]["containers"]
        assert container["args"] == ["executor"], "what conf/image/entrypoint.sh knows"
        folder = self._folder / f"{pod['metadata']['name']}{'-changed' if changed else ''}"
        folder.mkdir()
        environment = {key: os.environ[key] for key in GIVEN if key in os.environ}
        environment |= {"PYSPARK_PYTHON": sys.executable}
        environment |= {each["name"]: _value(each, pod) for each in container["env"]}
        # An emptyDir of the pod's.
        environment["SPARK_LOCAL_DIRS"] = str(folder / "spark")
        with (folder / "log").open("wb") as log:
            return subprocess.Popen(
                [sys.executable, str(PROGRAM)],
                env=environment | changed,
                cwd=folder,
                stdout=log,
                stderr=log,
                start_new_session=True,
            )

    def logs(self) -> str:
        found = sorted(self._folder.glob("*/log"))
        return "\n".join(f"{each}: {each.read_text()[-3_000:]}" for each in found)

    @contextlib.contextmanager
    def at_work(self) -> Iterator[Kubelet]:
        thread = threading.Thread(target=self._loop, daemon=True)
        thread.start()
        try:
            yield self
        finally:
            self._ends.set()
            thread.join()
            for process in self._running.values():
                end(process)


def end(process: subprocess.Popen[bytes]) -> None:
    below = children_of(process.pid)
    process.kill()
    process.wait()
    for pid in below:
        kill_if_there(pid)


def _value(variable: dict[str, Any], pod: Manifest) -> str:
    if "valueFrom" not in variable:
        return str(variable.get("value", ""))
    field = variable["valueFrom"]["fieldRef"]["fieldPath"]
    return {"status.podIP": LOOPBACK, "metadata.name": str(pod["metadata"]["name"])}[field]
