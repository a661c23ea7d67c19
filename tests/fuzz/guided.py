"""One target under atheris, in a process of its own: `guided LAUNCHER TARGET ...`."""

from __future__ import annotations

import sys

import atheris  # type: ignore[import-not-found]

# Imported under its eyes: what is covered steers the search.
with atheris.instrument_imports(include=["tidestaff", "tests.fuzz"]):
    from tests.fuzz.targets import BY_NAME


def main() -> None:
    launcher, target, *arguments = sys.argv[1:]
    atheris.Setup([launcher, *arguments], BY_NAME[target].run)
    atheris.Fuzz()


if __name__ == "__main__":
    main()
