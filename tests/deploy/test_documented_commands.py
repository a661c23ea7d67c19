"""Commands, values, targets and files that the documents name are there, and take those words."""

from __future__ import annotations

import re
import shlex
import shutil
import sqlite3
import subprocess
from pathlib import Path
from typing import Any, Final

import pytest
import yaml
from tidestaff.streaming.cli import COMMANDS, command_line
from tidestaff.streaming.commands.exits import UsageError

from tests.helm.chart import CHART, helm

ROOT: Final = Path(__file__).resolve().parents[2]
DOCUMENTS: Final = {
    str(path.relative_to(ROOT)): path.read_text(encoding="utf-8")
    for path in (*ROOT.glob("*.md"), *ROOT.glob("docs/*.md"), *ROOT.glob("docs/runbooks/*.md"))
    # What was true of a release once need not be true of this one.
    if path.name != "CHANGELOG.md"
}
VALUES: Final = yaml.safe_load((CHART / "values.yaml").read_text(encoding="utf-8"))
FENCED: Final = re.compile(r"^```[^\n]*\n(.*?)^```", re.MULTILINE | re.DOTALL)
INLINE: Final = re.compile(r"(?<!`)`([^`\n]+)`(?!`)")
# Words that stand for others.
STANDING_FOR: Final = re.compile(r"\{\{.*?\}\}|\$\{[^}]*\}|\.\.\.")
LEFT_OUT: Final = re.compile(r"[|][\w-]+|\[[^\]]*\]")
PLACES: Final = {"FILE": "file", "DIR": "dir", "ID": "3fa9", "CODE": "TRN001"}


def lines(text: str) -> list[str]:
    """Commands of the fenced blocks, each in one line, without comments and prompts."""
    joined = (re.sub(r"\\\n\s*", " ", block) for block in FENCED.findall(text))
    written = (line for block in joined for line in block.splitlines())
    bare = (re.sub(r"(^|\s)#.*$", "", line).strip().removeprefix("$ ") for line in written)
    return [line for line in bare if line]


def tidestaff_commands() -> list[Any]:
    found = []
    for name, text in DOCUMENTS.items():
        spoken = [each for each in INLINE.findall(text) if " " in each]
        for line in (*lines(text), *spoken):
            match = re.match(r"(?:/opt/tidestaff/bin/)?tidestaff ([a-z-]+\b.*)", line)
            if match and match[1].split()[0] in COMMANDS:
                words = re.split(r" <<| && | ; |; | > ", match[1])[0]
                found.append(pytest.param(words, id=f"{name}: {words}"[:90]))
    return found


@pytest.mark.parametrize("line", tidestaff_commands())
def test_the_program_takes_the_command(line: str) -> None:
    plain = STANDING_FOR.sub("1", LEFT_OUT.sub("", line))
    words = [PLACES.get(word, word) for word in shlex.split(plain)]
    # `tidestaff alerts` in a sentence is the command, not a whole line.
    if len(words) > 1:
        assert command_line(words)


def test_commands_that_are_in_no_line_are_told_apart() -> None:
    """Else that the program takes every line would mean nothing."""
    with pytest.raises(UsageError):
        command_line(["run", "--confg", "file"])
    assert len(tidestaff_commands()) > 50


def value_at(path: str) -> bool:
    place: Any = VALUES
    for key in path.split("."):
        if not isinstance(place, dict) or key not in place:
            # What is inside a list, or inside what is empty unless given.
            return place in ({}, []) or isinstance(place, list)
        place = place[key]
    return True


def named_values(text: str) -> set[str]:
    """Of the chart: dotted names whose first part is a section of values.yaml."""
    sections = {key for key, value in VALUES.items() if isinstance(value, dict) and value}
    own = {"transport.buffer_rounds", "web.allowed_hosts"}
    names = {re.split(r"[:=\s]", each)[0] for each in INLINE.findall(text)}
    dotted = {name for name in names if re.fullmatch(r"\w+(\.\w+)+", name)}
    return {name for name in dotted if name.split(".")[0] in sections} - own


@pytest.mark.parametrize("name", ["docs/kubernetes.md", "docs/operations.md", "docs/security.md"])
def test_values_of_the_chart_are_ones_it_has(name: str) -> None:
    found = named_values(DOCUMENTS[name])
    assert [each for each in sorted(found) if not value_at(each)] == []
    assert found or name == "docs/security.md"


@pytest.mark.parametrize("name", DOCUMENTS)
def test_targets_of_make_are_there(name: str) -> None:
    targets = set(re.findall(r"^([a-z-]+):", (ROOT / "Makefile").read_text(), re.MULTILINE))
    text = DOCUMENTS[name]
    asked = [each for each in (*INLINE.findall(text), *lines(text)) if each.startswith("make ")]
    assert {each.split()[1] for each in asked} <= targets


@pytest.mark.parametrize("name", DOCUMENTS)
def test_files_of_the_tree_are_there(name: str) -> None:
    shape = re.compile(r"(?:conf|helm|tests|docs|consistency|connectors|streaming)/[\w./@*-]+")
    for each in INLINE.findall(DOCUMENTS[name]):
        for path in shape.findall(each) if each.startswith(tuple("chtds")) else ():
            if path in each.split():
                wanted = path.rstrip("/.").replace("CODE", "TRN001")
                assert list(ROOT.glob(wanted)), f"{name}: {path}"


@pytest.mark.slow
def test_what_is_said_of_helm_can_be_done(tmp_path: Path) -> None:
    package = "helm package helm/tidestaff"
    template = "helm template ... --show-only templates/agent.yaml"
    said = DOCUMENTS["docs/operations.md"] + DOCUMENTS["docs/kubernetes.md"]
    assert f"`{package}`" in said
    assert f"`{template}`" in said
    done = helm(
        "package", str(ROOT / package.removeprefix("helm package ")), "--destination", str(tmp_path)
    )
    assert done.returncode == 0, done.stderr
    (archive,) = tmp_path.glob("tidestaff-*.tgz")
    agents = ("agent.tokenSecret=a", *(f"agent.strimzi.{k}" for k in ("enabled=true", "cluster=c")))
    given = [w for each in (*agents, "agent.strimzi.namespace=k") for w in ("--set", each)]
    shown = helm("template", "demo", str(archive), *given, *template.split()[-2:])
    assert shown.returncode == 0, shown.stderr
    assert "patchStrategicMerge" in shown.stdout


def test_a_copy_of_the_alerts_is_made_while_they_are_written(tmp_path: Path) -> None:
    if shutil.which("sqlite3") is None:
        pytest.skip("there is no sqlite3 (Debian: sqlite3)")
    (line,) = [
        each for each in lines(DOCUMENTS["docs/operations.md"]) if each.startswith("sqlite3")
    ]
    store, copy = tmp_path / "alerts.sqlite", tmp_path / "backup" / "alerts.sqlite"
    copy.parent.mkdir()
    command = line.replace("/backup", str(copy.parent)).replace("/var/lib/tidestaff", str(tmp_path))
    with sqlite3.connect(store) as writing:
        writing.execute("PRAGMA journal_mode=WAL")
        writing.execute("CREATE TABLE t (n)")
        writing.execute("INSERT INTO t VALUES (1)")
        writing.commit()
        writing.execute("INSERT INTO t VALUES (2)")
        subprocess.run(shlex.split(command), check=True)
        writing.commit()
    with sqlite3.connect(copy) as read:
        assert read.execute("SELECT n FROM t").fetchall() == [(1,)]
