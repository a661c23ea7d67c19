"""The pod of `helm test`, its very command run as a process against the job and the page.

The containers of the job's pod are processes here, too, with their own arguments and the
configuration the chart wrote. A proxy stands for the cluster's network: it knows the Services of
the release, and nothing else.
"""

from __future__ import annotations

import contextlib
import http.client
import http.server
import os
import subprocess
import sys
import threading
import time
from typing import TYPE_CHECKING, Any, Final
from urllib.parse import urlsplit

import pytest
from tidestaff.streaming.lab.plan import LOOPBACK, free_ports

from tests.helm.chart import Manifest, parsed, template
from tests.streaming.job.processes import PROGRAM, children_of, kill_if_there

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

pytestmark = [pytest.mark.slow, pytest.mark.spark]

TOKEN: Final = "of-this-test-alone-of-enough-letters"  # noqa: S105 - of this test
MOVED: Final = ("/etc/tidestaff", "/var/lib/tidestaff", "/var/tmp/tidestaff")  # noqa: S108
WITHIN_S: Final = 180.0


class Network(http.server.ThreadingHTTPServer):
    """Passes on what is asked of a Service; all pods are this machine."""

    def __init__(self, manifests: list[Manifest]) -> None:
        super().__init__((LOOPBACK, 0), _Passing)
        ports = {
            port["name"]: port["containerPort"]
            for manifest in manifests
            if manifest["kind"] == "StatefulSet"
            for container in manifest["spec"]["template"]["spec"]["containers"]
            for port in container["ports"]
        }
        self.known = {
            (manifest["metadata"]["name"], port["port"]): ports.get(target, target)
            for manifest in manifests
            if manifest["kind"] == "Service"
            for port in manifest["spec"]["ports"]
            for target in [port["targetPort"]]
        }


class _Passing(http.server.BaseHTTPRequestHandler):
    server: Network

    def do_GET(self) -> None:
        url = urlsplit(self.path)
        port = self.server.known.get((str(url.hostname), url.port or 80))
        if port is None:
            self.send_error(502, f"there is no Service {url.netloc}")
            return
        asked = http.client.HTTPConnection(LOOPBACK, port, timeout=10)
        try:
            asked.request("GET", url.path, headers={"Host": self.headers["Host"]})
            answer = asked.getresponse()
            body = answer.read()
        except OSError as error:
            self.send_error(502, str(error))
            return
        finally:
            asked.close()
        self.send_response(answer.status)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_: Any) -> None:
        """Nobody reads it."""


@contextlib.contextmanager
def serving(network: Network) -> Iterator[str]:
    thread = threading.Thread(target=network.serve_forever, daemon=True)
    thread.start()
    try:
        yield f"http://{LOOPBACK}:{network.server_address[1]}"
    finally:
        network.shutdown()
        network.server_close()
        thread.join()


@contextlib.contextmanager
def containers(manifests: list[Manifest], folder: Path) -> Iterator[None]:
    """Those of the job's pod, with their arguments, their files below another root."""
    (pod,) = [m["spec"]["template"]["spec"] for m in manifests if m["kind"] == "StatefulSet"]
    (config,) = [m for m in manifests if m["metadata"]["name"].endswith("-config")]
    for place in MOVED:
        (folder / place.lstrip("/") / "config").mkdir(parents=True)
    for name, text in config["data"].items():
        (folder / "etc/tidestaff/config" / name).write_text(_moved(text, folder))
    (folder / "etc/tidestaff/web").mkdir()
    (folder / "etc/tidestaff/web/token").write_text(TOKEN)
    running = []
    try:
        for container in pod["containers"]:
            with (folder / f"{container['name']}.log").open("wb") as log:
                words = [_moved(word, folder) for word in container["args"]]
                cwd = _moved(container.get("workingDir", str(folder)), folder)
                running.append(
                    subprocess.Popen(
                        [*PROGRAM, *words], stdout=log, stderr=log, cwd=cwd, start_new_session=True
                    )
                )
        yield
    finally:
        for process in running:
            below = children_of(process.pid)
            process.kill()
            process.wait()
            for pid in below:
                kill_if_there(pid)


def _moved(text: str, folder: Path) -> str:
    if text.startswith(str(folder)):
        return text
    for place in MOVED:
        text = text.replace(place, f"{folder}{place}")
    return text


def asked(manifests: list[Manifest], proxy: str) -> subprocess.CompletedProcess[str]:
    """What the pod's container does, by this interpreter instead of the image's."""
    (pod,) = [m["spec"] for m in manifests if m["kind"] == "Pod"]
    (container,) = pod["containers"]
    program, *words = (*container["command"], *container["args"])
    assert program == "python"
    return subprocess.run(
        [sys.executable, *words],
        env={**os.environ, "http_proxy": proxy, "no_proxy": ""},
        capture_output=True,
        text=True,
        check=False,
        timeout=60,
    )


def release(metrics: int, web: int) -> list[Manifest]:
    values = {
        "metrics": {"port": metrics},
        "web": {"port": web, "tokenSecret": "page"},
        "job": {"driverMemory": "1g", "shufflePartitions": 2},
        "config": {"operator": {"buckets": 2}},
    }
    done = template(values)
    assert done.returncode == 0, done.stderr
    return parsed(done.stdout)


def test_the_pod_of_helm_test_is_content_once_the_job_and_the_page_answer(tmp_path: Path) -> None:
    metrics, web = free_ports(2)
    manifests = release(metrics, web)
    with serving(Network(manifests)) as proxy:
        early = asked(manifests, proxy)
        assert early.returncode != 0, "nothing runs yet"
        with containers(manifests, tmp_path):
            ends = time.monotonic() + WITHIN_S
            while (done := asked(manifests, proxy)).returncode != 0:
                logs = "".join(path.read_text()[-1_500:] for path in tmp_path.glob("*.log"))
                assert time.monotonic() < ends, done.stderr + logs
                time.sleep(1)
    assert done.stdout.splitlines() == [
        f"http://demo-tidestaff-metrics:{metrics}/metrics 200",
        "http://demo-tidestaff-web:80/healthz 200",
    ]


def test_metrics_of_something_else_are_not_taken_for_the_job_s() -> None:
    class Other(http.server.BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            self.send_response(200)
            self.end_headers()
            self.wfile.write(b"go_threads 7\n")

        def log_message(self, *_: Any) -> None:
            """Nobody reads it."""

    other = http.server.ThreadingHTTPServer((LOOPBACK, 0), Other)
    thread = threading.Thread(target=other.serve_forever, daemon=True)
    thread.start()
    try:
        manifests = release(other.server_address[1], *free_ports(1))
        with serving(Network(manifests)) as proxy:
            done = asked(manifests, proxy)
    finally:
        other.shutdown()
        other.server_close()
        thread.join()
    assert done.returncode != 0
    assert "not the metrics of tidestaff" in done.stderr
