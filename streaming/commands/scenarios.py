"""`tidestaff scenarios`: the stories that come with the program, each a page to read."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Final

from tidestaff.connectors.simulator.scenario import read, shipped
from tidestaff.connectors.simulator.scenario_commands import COMMANDS
from tidestaff.streaming.commands.arguments import nearest
from tidestaff.streaming.commands.exits import CommandError, Exit
from tidestaff.streaming.commands.layout import paragraph, table

if TYPE_CHECKING:
    from collections.abc import Sequence

    from tidestaff.streaming.commands.arguments import CommandParser, Options

_WORDS: Final = "\n".join(
    f"  {f'{name} {command.usage}'.strip()}\n      {command.help}"
    for name, command in COMMANDS.items()
)
EXAMPLES: Final = f"""\
examples:
  tidestaff scenarios                       what there is, one line each
  tidestaff scenarios s23-loss-0.10.2       the page: story, commands, the state after each step
  tidestaff simulate s23-loss-0.10.2        play it

a file of your own: a head (version, brokers, topic NAME replicas 1,2,3, set, acks, show), then
blocks of commands with a blank line between them, # before what is told. The commands:
{_WORDS}
"""
_MOST_LIKE: Final = 5
CLOSING: Final = (
    "'tidestaff scenarios NAME' prints the page, 'tidestaff simulate NAME' plays it. Names that "
    "differ only in the version at their end tell the same story under two rule sets: compare them."
)


def configure(parser: CommandParser, _: Sequence[str]) -> None:
    parser.add_argument("name", metavar="NAME", nargs="?", help="a scenario to print")


def run(options: Options) -> int:
    if options.name is not None:
        path = find(options.name)
        # Read as a scenario first: any other file is told as a wrong one, not printed.
        read(path)
        text = path.read_text(encoding="utf-8-sig")
        told = json.dumps({"name": path.stem, "text": text}, indent=2) if options.json else text
        print(told.rstrip("\n"))
        return Exit.OK
    rows = [(name, read(path)) for name, path in shipped().items()]
    if options.json:
        content = [
            {"name": name, "title": each.title, "version": each.preset} for name, each in rows
        ]
        print(json.dumps({"scenarios": content}, indent=2))
        return Exit.OK
    lines = table(("NAME", "WHAT HAPPENS"), [(name, each.title) for name, each in rows])
    print("\n".join([*lines, "", *paragraph(CLOSING)]))
    return Exit.OK


def find(name: str) -> Path:
    """A shipped scenario by its name, or as much of it as is enough, or a file."""
    known = shipped()
    if name in known:
        return known[name]
    if Path(name).is_file():
        return Path(name)
    begun = [each for each in known if name and each.startswith(name)]
    if len(begun) == 1:
        return known[begun[0]]
    like = begun or nearest(name, known, 3)
    if len(like) > _MOST_LIKE:
        like = [*like[:_MOST_LIKE], f"{len(like) - _MOST_LIKE} more"]
    hint = f"; did you mean {' or '.join(like)}?" if like else ""
    raise CommandError(
        f"no scenario and no file {name!r}, expected a name or a file{hint}",
        "'tidestaff scenarios' lists what there is",
    )
