"""What is shipped: the sdist, the wheel made from it, the command, the editable install."""

from __future__ import annotations

import configparser
import os
import subprocess
import sys
import tarfile
import tomllib
import zipfile
from pathlib import Path

import pytest

pytestmark = pytest.mark.slow

ROOT = Path(__file__).resolve().parents[1]
FOLDERS = ("consistency", "connectors", "streaming", "conf")
LITTER = {"__pycache__", ".mypy_cache", ".ruff_cache", ".pytest_cache"}
RUNBOOKS = {
    f"tidestaff/streaming/web/runbooks/{path.name}" for path in (ROOT / "docs/runbooks").glob("*")
}
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]


def run(*command: str, cwd: Path = ROOT) -> str:
    # A clean room: no PYTHONPATH, no settings of the person who runs the tests.
    keep = {"PATH", "HOME", "LANG", "TMPDIR"}
    env = {name: value for name, value in os.environ.items() if name in keep}
    env["PIP_DISABLE_PIP_VERSION_CHECK"] = "1"
    done = subprocess.run(command, check=False, cwd=cwd, capture_output=True, text=True, env=env)
    assert done.returncode == 0, f"{' '.join(command)}\n{done.stdout}\n{done.stderr}"
    return done.stdout


def shipped() -> set[str]:
    """Every file of the four folders, and the runbooks, by their names in the package."""
    found = (path for folder in FOLDERS for path in (ROOT / folder).rglob("*") if path.is_file())
    return RUNBOOKS | {
        f"tidestaff/{path.relative_to(ROOT)}"
        for path in found
        if not LITTER & set(path.parts) and path.suffix != ".pyc"
    }


@pytest.fixture(scope="module")
def sdist(tmp_path_factory: pytest.TempPathFactory) -> Path:
    out = tmp_path_factory.mktemp("sdist")
    run(sys.executable, "-m", "build", "--no-isolation", "--sdist", "--outdir", str(out))
    (built,) = out.glob("*.tar.gz")
    return built


@pytest.fixture(scope="module")
def wheel(sdist: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Built from the sdist, not from the checkout: what the sdist lacks, the wheel lacks."""
    work = tmp_path_factory.mktemp("wheel")
    with tarfile.open(sdist) as archive:
        archive.extractall(work, filter="data")
    (source,) = (path for path in work.iterdir() if path.is_dir())
    command = (sys.executable, "-m", "build", "--no-isolation", "--wheel", "--outdir", str(work))
    run(*command, cwd=source)
    (built,) = work.glob("*.whl")
    return built


def test_the_sdist_holds_sources_tests_and_licence(sdist: Path) -> None:
    with tarfile.open(sdist) as archive:
        names = {name.partition("/")[2] for name in archive.getnames()}
    assert {"pyproject.toml", "README.md", "LICENSE", "tests/test_packaging.py"} <= names
    assert {name.removeprefix("tidestaff/") for name in shipped() - RUNBOOKS} <= names
    assert "docs/runbooks/TRN001.md" in names


def test_the_wheel_holds_the_four_folders_and_nothing_else(wheel: Path) -> None:
    with zipfile.ZipFile(wheel) as archive:
        names = {name for name in archive.namelist() if not name.endswith("/")}
    info = f"tidestaff-{PROJECT['version']}.dist-info/"
    assert {name for name in names if not name.startswith(info)} == shipped()
    assert f"{info}licenses/LICENSE" in names
    for folder in ("consistency", "connectors", "streaming"):
        assert f"tidestaff/{folder}/py.typed" in names


def test_the_wheel_names_the_command(wheel: Path) -> None:
    with zipfile.ZipFile(wheel) as archive:
        (name,) = (n for n in archive.namelist() if n.endswith(".dist-info/entry_points.txt"))
        points = configparser.ConfigParser()
        points.read_string(archive.read(name).decode())
    assert dict(points["console_scripts"]) == PROJECT["scripts"]


def test_the_installed_command_tells_its_version_without_any_dependency(
    wheel: Path, tmp_path: Path
) -> None:
    room = tmp_path / "venv"
    run(sys.executable, "-m", "venv", "--without-pip", str(room))
    python = str(room / "bin" / "python")
    pip = (sys.executable, "-m", "pip", "--python", python, "install", "--quiet")
    run(*pip, "--no-deps", "--no-index", str(wheel))
    told = run(str(room / "bin" / "tidestaff"), "--version", cwd=tmp_path)
    assert PROJECT["version"] in told
    where = run(python, "-c", "import tidestaff.consistency as c; print(c.__file__)", cwd=tmp_path)
    assert Path(where.strip()).is_relative_to(room)


def test_the_editable_install_is_the_checkout(tmp_path: Path) -> None:
    code = "import tidestaff.consistency.model as m; print(m.__file__)"
    where = run(sys.executable, "-c", code, cwd=tmp_path)
    assert Path(where.strip()).resolve() == ROOT / "consistency" / "model.py"
