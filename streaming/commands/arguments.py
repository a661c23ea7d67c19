"""Arguments in Kafka's manner: an option is spelt out, and a wrong one is told the nearest."""

from __future__ import annotations

import argparse
from typing import TYPE_CHECKING, Final, NoReturn, TypeAlias

from tidestaff.streaming.commands.exits import UsageError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence

Options: TypeAlias = argparse.Namespace

JSON_OPTION: Final = "--json"
_ANY_WIDTH: Final = 80


def nearest(word: str, known: Iterable[str], count: int = 1) -> tuple[str, ...]:
    """The known words most like this one, best first; none where nothing is alike."""
    import difflib  # noqa: PLC0415 - for who has mistyped only

    typed = word.lower()

    def likeness(name: str) -> float:
        """Of the whole, or of a beginning as long as what was typed: people stop early."""
        begun = name.lower()[: len(typed) + 1]
        ratios = (difflib.SequenceMatcher(None, typed, n).ratio() for n in (name.lower(), begun))
        return max(ratios)

    scored = [(likeness(name), name) for name in known]
    best = sorted((s for s in scored if s[0] >= 0.6), key=lambda s: -s[0])
    return tuple(name for _, name in best[:count])


def did_you_mean(word: str, known: Iterable[str], count: int = 1) -> str:
    """`; did you mean X?`, or nothing."""
    close = nearest(word, known, count)
    return f"; did you mean {' or '.join(close)}?" if close else ""


def one_of(*values: str) -> Callable[[str], str]:
    """An argument type that takes one of a few words, whatever their case."""

    def parse(text: str) -> str:
        for value in values:
            if value.lower() == text.lower():
                return value
        hint = did_you_mean(text, values)
        raise argparse.ArgumentTypeError(f"found {text!r}, expected {' or '.join(values)}{hint}")

    return parse


class CommandParser(argparse.ArgumentParser):
    """A parser that raises `UsageError` instead of leaving, and knows the nearest option."""

    def __init__(self, prog: str, description: str, epilog: str = "") -> None:
        # Every option that is added is formatted once: finding out how wide the terminal is would
        # import compression libraries, and is left to who asks for help.
        self._width: int | None = _ANY_WIDTH
        super().__init__(
            prog=prog,
            description=description,
            epilog=epilog,
            formatter_class=self._formatter,
            allow_abbrev=False,
            add_help=False,
        )
        self.add_argument("-h", "--help", action="help", help="this text")

    def _formatter(self, prog: str) -> argparse.HelpFormatter:
        return argparse.RawDescriptionHelpFormatter(prog, width=self._width)

    def format_help(self) -> str:
        self._width = None
        return super().format_help()

    def format_usage(self) -> str:
        self._width = None
        return super().format_usage()

    def parse(self, arguments: Sequence[str]) -> Options:
        # Options are looked at first: a misspelt one would else be told as a missing argument.
        self._refuse_unknown_options(arguments)
        options, rest = self.parse_known_args(list(arguments))
        if rest:
            self.error(f"unexpected argument {rest[0]!r}")
        return options

    def error(self, message: str) -> NoReturn:
        usage = " ".join(self.format_usage().split())
        raise UsageError(f"{self.prog}: {message}", usage, f"see '{self.prog} --help'")

    def _refuse_unknown_options(self, arguments: Sequence[str]) -> None:
        known = self._option_string_actions
        for argument in arguments:
            if argument == "--":
                return
            name = argument.split("=", 1)[0]
            if self._negative_number_matcher.match(name):
                continue  # a value, which the option before it will judge
            if name.startswith("-") and name != "-" and name not in known:
                hint = did_you_mean(name, known)
                self.error(f"unknown option {name}{hint or ', expected ' + ', '.join(known)}")


def add_json_option(parser: CommandParser) -> None:
    parser.add_argument(JSON_OPTION, action="store_true", help="write one JSON object to stdout")
