"""Typed errors for input from outside: what failed, where, what to do next."""

from __future__ import annotations


class ConsistencyError(Exception):
    """Base of every error this package raises on input; anything else is a bug of ours."""

    retriable = False


class UnknownVersionError(ConsistencyError):
    """A version, mode or metadata version the rules do not cover."""

    def __init__(self, text: str, remedy: str) -> None:
        super().__init__(f"{text}: {remedy}")
        self.text, self.remedy = text, remedy


class FormatError(ConsistencyError):
    """A file or znode that Kafka itself would refuse, or that does not say what it must say."""

    def __init__(self, place: str, field: str, found: str, expected: str, line: int = 0) -> None:
        where = f"{place}, line {line}" if line else place
        super().__init__(f"{where}: {field} is {found}, expected {expected}")
        self.place, self.field, self.found, self.expected, self.line = (
            place,
            field,
            found,
            expected,
            line,
        )
