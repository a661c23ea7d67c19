"""The image, built and run where a Docker engine answers: any user id, a root file system that is
read only, no network for the build."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import uuid
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from tests.field.lab_containers import LOCAL_IMAGE, build_local_image, docker, need_engine

if TYPE_CHECKING:
    from collections.abc import Iterator

pytestmark = [pytest.mark.slow, pytest.mark.spark, pytest.mark.longest]

ROOT = Path(__file__).resolve().parents[2]
READ_ONLY = ("--rm", "--network=none", "--read-only", "--cap-drop=ALL", "--user=1000690000:0")
ROOM = ("--tmpfs=/tmp:rw,exec", "--tmpfs=/var/tmp/tidestaff:rw,exec,mode=1777")


@pytest.fixture(scope="module")
def image() -> Iterator[str]:
    need_engine()
    given = os.environ.get("TIDESTAFF_BASE_IMAGE")
    if not given:
        why = build_local_image()
        if why:
            pytest.skip(
                f"no base image: {why}; name one with Java and Python by TIDESTAFF_BASE_IMAGE"
            )
    inputs = [sys.executable, "-m", "tests.deploy.image_inputs", "--closed"]
    subprocess.run(inputs, check=True, cwd=ROOT)
    base = ["--build-arg", f"BASE_IMAGE={given or LOCAL_IMAGE}"]
    name = f"tidestaff-test:{uuid.uuid4().hex[:8]}"
    done = subprocess.run(
        ["docker", "build", "--network=host", *base, "--tag", name, str(ROOT)],
        capture_output=True,
        text=True,
        check=False,
        env={**os.environ, "DOCKER_BUILDKIT": "0"},
        timeout=900,
    )
    assert done.returncode == 0, (done.stdout + done.stderr)[-3000:]
    yield name
    docker("image", "rm", "--force", name)


def run(image: str, *words: str, options: tuple[str, ...] = ()) -> subprocess.CompletedProcess[str]:
    command = ["docker", "run", *READ_ONLY, *ROOM, *options, image, *words]
    return subprocess.run(command, capture_output=True, text=True, check=False, timeout=300)


def test_the_story_is_told_by_a_nameless_user_on_a_read_only_root(
    image: str, tmp_path: Path
) -> None:
    tmp_path.chmod(0o777)
    mounted = (f"--volume={tmp_path}:/var/lib/tidestaff",)
    environment = ("--env=TIDESTAFF_WORK_DIR=/var/lib/tidestaff", *mounted)
    done = run(image, "run", "--max-batches", "12", options=environment)
    assert done.returncode == 0, done.stdout[-2000:] + done.stderr[-2000:]
    assert "watching old-0.10.2 (simulator), new-3.9 (simulator)" in done.stderr
    assert (tmp_path / "alerts.sqlite").is_file()
    assert (tmp_path / "checkpoint" / "commits").is_dir()


def test_the_image_knows_its_version_its_jars_and_its_parts(image: str) -> None:
    assert run(image, "--version").stdout.startswith("tidestaff 0.")
    jars = run(image, "python", "-m", "tidestaff.streaming.jars")
    assert jars.returncode == 0, jars.stderr
    assert "/opt/tidestaff/jars/kafka-clients-" in jars.stdout
    bill = json.loads(run(image, "sh", "-c", "cat /opt/tidestaff/sbom.cdx.json").stdout)
    assert bill["bomFormat"] == "CycloneDX"
    purls = {each["purl"].partition("@")[0] for each in bill["components"]}
    assert {"pkg:pypi/pyspark", "pkg:pypi/kafka-python"} <= purls
    assert not {"pkg:pypi/pip", "pkg:pypi/pytest"} & purls, "what is not in it is not listed"
    listed = run(image, "sh", "-c", "cat /opt/tidestaff/LICENCES.txt").stdout.splitlines()
    assert len(listed) == len(bill["components"]) + 1


def test_nobody_is_root_in_it_and_it_cannot_build_anything(image: str) -> None:
    user = docker("image", "inspect", "--format", "{{.Config.User}}", image)
    assert user is not None
    assert user.strip() == "185:185"
    for tool in ("gcc", "make", "git", "pip"):
        found = run(image, "sh", "-c", f"command -v {tool} || echo none")
        assert found.stdout.strip() == "none", found.stdout


def test_an_executor_says_what_it_lacks(image: str) -> None:
    done = run(image, "executor")
    assert done.returncode != 0
    assert "SPARK_DRIVER_URL" in done.stderr
