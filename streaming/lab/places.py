"""Where the labs of a user are kept, and what a lab is called."""

from __future__ import annotations

import re
from pathlib import Path
from typing import TYPE_CHECKING, Final

from tidestaff.streaming.lab.errors import LabError
from tidestaff.streaming.lab.plan import PLAN

if TYPE_CHECKING:
    from collections.abc import Mapping

DEFAULT_NAME: Final = "lab"
LAB_DIR: Final = "TIDESTAFF_LAB_DIR"
_NAME: Final = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,40}")


def labs_folder(environment: Mapping[str, str]) -> Path:
    """Kept over restarts of the machine, as the logs of brokers are."""
    given = environment.get(LAB_DIR)
    if given:
        return Path(given).expanduser().absolute()
    base = environment.get("XDG_STATE_HOME") or str(Path("~/.local/state").expanduser())
    return Path(base).absolute() / "tidestaff" / "labs"


def lab_folder(name: str, environment: Mapping[str, str]) -> Path:
    if _NAME.fullmatch(name) is None:
        raise LabError(
            f"found the name {name!r}, expected letters, digits, '.', '_' and '-', 41 at the most"
        )
    return labs_folder(environment) / name


def labs(environment: Mapping[str, str]) -> list[str]:
    folder = labs_folder(environment)
    return sorted(each.parent.name for each in folder.glob(f"*/{PLAN}"))
