"""The import table and the habits of the repository, read from its source."""

from __future__ import annotations

import ast
import re
import subprocess
import sys
from pathlib import Path
from typing import NamedTuple

import pytest

LOCKS = ("requirements.lock", "requirements.runtime.lock", "requirements.install.lock")
ROOT = Path(__file__).resolve().parents[1]
PACKAGES = ("consistency", "connectors", "streaming")
LONGEST_MODULE = 400

# Formats are vocabulary, not rules, and so is the name of a rule set; the simulator has even less,
# to be a second reading of Kafka.
VOCABULARY = {
    *("model", "partitions", "errors", "batches", "checkpoint_files", "znodes", "versions"),
    "topic_ids",
}
SIMULATOR_VOCABULARY = {"model"}

# What would let a rule depend on anything but its arguments.
IMPURE_MODULES = {
    *("asyncio", "io", "logging", "multiprocessing", "os", "pathlib", "random", "secrets"),
    *("shutil", "socket", "subprocess", "tempfile", "threading", "time", "urllib"),
}
IMPURE_CALLS = {"open", "print", "input", "exec", "eval"}
CLOCK_METHODS = {"now", "utcnow", "today"}


class Import(NamedTuple):
    """One imported module or name, with where it stands."""

    importer: str
    line: int
    target: str

    def __str__(self) -> str:
        return f"{self.importer}:{self.line} imports {self.target}"


def sources(folder: str) -> list[Path]:
    return sorted((ROOT / folder).rglob("*.py"))


def module_name(path: Path) -> str:
    parts = path.relative_to(ROOT).with_suffix("").parts
    return ".".join(("tidestaff", *parts)).removesuffix(".__init__")


def imports_of(path: Path, tree: ast.Module) -> list[Import]:
    """Absolute names; `from a import b` counts as a.b, which names a module or something in it."""
    here = str(path.relative_to(ROOT))
    package = module_name(path).split(".")
    if path.name != "__init__.py":
        package.pop()
    found = []
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            found += [Import(here, node.lineno, alias.name) for alias in node.names]
        elif isinstance(node, ast.ImportFrom):
            base = package[: len(package) - node.level + 1] if node.level else []
            origin = ".".join([*base, *([node.module] if node.module else [])])
            found += [Import(here, node.lineno, f"{origin}.{a.name}") for a in node.names]
    return found


def parsed(path: Path) -> ast.Module:
    return ast.parse(path.read_text(encoding="utf-8"), str(path))


def all_imports(folder: str) -> list[Import]:
    return [item for path in sources(folder) for item in imports_of(path, parsed(path))]


def layer(target: str) -> str:
    """The package of ours an import reaches into, or ''."""
    parts = target.split(".")
    return parts[1] if parts[0] == "tidestaff" and len(parts) > 1 else ""


def part(target: str) -> str:
    """The module below the package: `election` of tidestaff.consistency.election.elect_leader."""
    return [*target.split("."), "", ""][2]


def listed(found: list[Import]) -> str:
    return "\n".join(map(str, found))


def test_consistency_imports_the_standard_library_and_itself_only() -> None:
    strangers = [
        item
        for item in all_imports("consistency")
        if layer(item.target) != "consistency"
        and item.target.split(".")[0] not in sys.stdlib_module_names
    ]
    assert strangers == [], listed(strangers)


def test_connectors_know_words_and_formats_of_consistency_but_no_rules() -> None:
    wrong = []
    for item in all_imports("connectors"):
        simulator = Path(item.importer).parts[1] == "simulator"
        allowed = SIMULATOR_VOCABULARY if simulator else VOCABULARY
        if layer(item.target) == "consistency" and part(item.target) not in allowed:
            wrong.append(item)
    assert wrong == [], listed(wrong)


@pytest.mark.parametrize("folder", ["consistency", "connectors"])
def test_nothing_imports_streaming(folder: str) -> None:
    wrong = [item for item in all_imports(folder) if layer(item.target) == "streaming"]
    assert wrong == [], listed(wrong)


@pytest.mark.parametrize("folder", [*PACKAGES, "tests"])
def test_the_bare_folders_are_never_imported(folder: str) -> None:
    wrong = [item for item in all_imports(folder) if item.target.split(".")[0] in PACKAGES]
    assert wrong == [], listed(wrong)


@pytest.mark.parametrize("folder", PACKAGES)
def test_nothing_shipped_imports_the_tests(folder: str) -> None:
    wrong = [item for item in all_imports(folder) if item.target.split(".")[0] == "tests"]
    assert wrong == [], listed(wrong)


def impurities(tree: ast.Module) -> list[str]:
    found = []
    for node in ast.walk(tree):
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Name):
            found += [f"{node.lineno}: {node.func.id}()"] if node.func.id in IMPURE_CALLS else []
        elif isinstance(node, ast.Attribute) and node.attr in CLOCK_METHODS:
            found.append(f"{node.lineno}: .{node.attr}")
    return found


@pytest.mark.parametrize("path", [pytest.param(p, id=p.name) for p in sources("consistency")])
def test_rules_have_no_clock_no_chance_and_no_input(path: Path) -> None:
    tree = parsed(path)
    imported = [i for i in imports_of(path, tree) if i.target.split(".")[0] in IMPURE_MODULES]
    assert imported == [], listed(imported)
    assert impurities(tree) == []


@pytest.mark.parametrize(
    "source",
    [
        pytest.param("import time\ntime.time()", id="time.time"),
        pytest.param("from os import environ", id="os.environ"),
        pytest.param("import random", id="random"),
        pytest.param("from datetime import datetime\ndatetime.now()", id="datetime.now"),
        pytest.param("text = open('x').read()", id="open"),
    ],
)
def test_the_purity_check_sees(source: str) -> None:
    tree = ast.parse(source)
    imported = {i.target.split(".")[0] for i in imports_of(ROOT / "consistency" / "x.py", tree)}
    assert impurities(tree) or imported & IMPURE_MODULES


@pytest.mark.parametrize(
    ("source", "target"),
    [
        ("import tidestaff.streaming.cli", "tidestaff.streaming.cli"),
        ("from tidestaff.consistency import model", "tidestaff.consistency.model"),
        ("from . import model", "tidestaff.consistency.model"),
        ("from .model import X", "tidestaff.consistency.model.X"),
        ("from ..streaming import cli", "tidestaff.streaming.cli"),
        ("def f():\n    import consistency", "consistency"),
    ],
)
def test_the_import_check_sees(source: str, target: str) -> None:
    found = imports_of(ROOT / "consistency" / "x.py", ast.parse(source))
    assert [item.target for item in found] == [target]


@pytest.mark.parametrize(
    "path",
    [
        pytest.param(path, id=str(path.relative_to(ROOT)))
        for folder in PACKAGES
        for path in sources(folder)
    ],
)
def test_modules_are_a_short_read(path: Path) -> None:
    assert len(path.read_text(encoding="utf-8").splitlines()) <= LONGEST_MODULE


if (ROOT / ".git").exists():

    def tracked_texts() -> list[tuple[str, str]]:
        command = ["git", "-C", str(ROOT), "ls-files", "-z"]
        names = subprocess.run(command, check=True, capture_output=True, text=True).stdout
        paths = [ROOT / name for name in names.split("\0") if name]
        return [
            (str(path.relative_to(ROOT)), path.read_text(encoding="utf-8", errors="replace"))
            for path in paths
            if path.is_file()
        ]

    def test_tracked_files_do_not_say_where_they_were_written() -> None:
        # Directories every system has are fair to name; a workplace of one's own is not.
        common = {"/", "/tmp", "/home", "/root", "/opt", "/srv", "/usr", "/var", "/mnt"}  # noqa: S108
        places = [str(ROOT)] + ([str(ROOT.parent)] if str(ROOT.parent) not in common else [])
        pattern = re.compile("|".join(rf"(?<![\w./-]){re.escape(place)}/" for place in places))
        wrong = [name for name, text in tracked_texts() if pattern.search(text)]
        assert wrong == []

    def test_tracked_files_name_no_package_registry() -> None:
        # Written in two halves, or this file would name them.
        hosts = [
            *("pypi" + ".org", "python" + "hosted.org", "registry." + "npmjs.org"),
            *("repo1." + "maven.org", "repo." + "maven.apache.org"),
        ]
        wrong = [(n, host) for n, text in tracked_texts() for host in hosts if host in text]
        assert wrong == []

    @pytest.mark.parametrize("name", LOCKS)
    def test_a_lock_file_holds_names_and_hashes_only(name: str) -> None:
        text = (ROOT / name).read_text(encoding="utf-8")
        assert re.findall(r"https?://\S+|^--?[a-z]\S*", text, re.MULTILINE) == []

    def test_who_runs_it_gets_the_very_packages_that_were_tested() -> None:
        def pinned(name: str) -> set[str]:
            text = (ROOT / name).read_text(encoding="utf-8")
            return set(re.findall(r"^[\w.\[\],-]+==\S+", text, re.MULTILINE))

        whole, *parts = map(pinned, LOCKS)
        assert all(part <= whole for part in parts)
