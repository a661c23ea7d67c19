"""helm/tidestaff/README.md, made of the comments in values.yaml; and the files the chart carries.

`make chart` runs it. A value is documented by the comment right above it that begins with '# --'.
"""

from __future__ import annotations

import re
import shutil
import sys
from typing import TYPE_CHECKING, Any, Final, NamedTuple

import yaml

from tests.helm.chart import CHART, ROOT

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

README: Final = CHART / "README.md"
BEGIN: Final = "<!-- values: made by `make chart` -->"
END: Final = "<!-- end of values -->"
CARRIED: Final = {
    ROOT / "conf" / "prometheus": (CHART / "files" / "prometheus", "rules.yaml"),
    ROOT / "conf" / "grafana": (CHART / "files" / "grafana", "*.json"),
}
_KEY: Final = re.compile(r"^( *)([A-Za-z][A-Za-z0-9]*):")


class Value(NamedTuple):
    """A key of values.yaml with its comment; `leaf` where its value is given whole."""

    path: tuple[str, ...]
    comment: str
    leaf: bool


def documented(text: str) -> list[Value]:
    """Every key down to those whose comment documents them with all that is below."""
    found: list[Value] = []
    above: list[str] = []
    path: list[str] = []
    covered: int | None = None
    for line in text.splitlines():
        stripped = line.strip()
        if stripped.startswith("#"):
            above.append(stripped.lstrip("# "))
            continue
        match = _KEY.match(line)
        if match is not None:
            depth = len(match[1]) // 2
            if covered is None or depth <= covered:
                covered = None
                path[depth:] = [match[2]]
                comment = " ".join(above).removeprefix("-- ") if _documents(above) else ""
                if comment:
                    covered = depth
                found.append(Value(tuple(path), comment, leaf=bool(comment)))
        above = []
    return found


def _documents(above: list[str]) -> bool:
    return bool(above) and above[0].startswith("-- ")


def value_at(values: Any, path: tuple[str, ...]) -> Any:
    for key in path:
        values = values[key]
    return values


def table(text: str) -> str:
    values = yaml.safe_load(text)
    rows = ["| value | default | what it is |", "|---|---|---|"]
    for value in documented(text):
        if value.leaf:
            default = yaml.safe_dump(
                value_at(values, value.path), default_flow_style=True, width=10_000
            )
            shown = default.removesuffix("...\n").strip().replace("|", "\\|")
            comment = value.comment.replace("|", "\\|")
            rows.append(f"| `{'.'.join(value.path)}` | `{shown}` | {comment} |")
    return "\n".join(rows)


def written(readme: str, text: str) -> str:
    before, _, rest = readme.partition(BEGIN)
    _, _, after = rest.partition(END)
    return f"{before}{BEGIN}\n{table(text)}\n{END}{after}"


def carried() -> Iterator[tuple[Path, Path]]:
    """What conf/ has and where the chart has it: helm reads nothing outside its own folder."""
    for source, (target, pattern) in CARRIED.items():
        for path in sorted(source.glob(pattern)):
            yield path, target / path.name


def main() -> int:
    for target, _ in CARRIED.values():
        shutil.rmtree(target, ignore_errors=True)
    for source, target in carried():
        target.parent.mkdir(parents=True, exist_ok=True)
        shutil.copyfile(source, target)
    values = (CHART / "values.yaml").read_text(encoding="utf-8")
    README.write_text(written(README.read_text(encoding="utf-8"), values), encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())
