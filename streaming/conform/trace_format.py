"""The form of formal traces and truncation tables: what is missing or of another kind is told with
its file, its place and what was expected, before anything is replayed."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Any, Final, TypeAlias

from tidestaff.consistency.errors import FormatError

REMEDY: Final = (
    "mend the file or take it away: nothing of this case was judged "
    "(the files in tests/conformance/traces show the form)"
)

# What is looked at as a whole: its fields are named without it.
WHOLES: Final = frozenset({"trace", "step", "row"})

Check: TypeAlias = "Callable[[object, str, str], None]"


def of(kind: type | tuple[type, ...], words: str) -> Check:
    """A value of that kind; true and false are no numbers."""

    def check(value: object, place: str, field: str) -> None:
        kinds = kind if isinstance(kind, tuple) else (kind,)
        wrong_bool = isinstance(value, bool) and bool not in kinds
        if wrong_bool or not isinstance(value, kinds):
            raise FormatError(place, field, told(value), words)

    return check


def listing(item: Check, words: str) -> Check:
    def check(value: object, place: str, field: str) -> None:
        if not isinstance(value, list):
            raise FormatError(place, field, told(value), words)
        for number, each in enumerate(value, start=1):
            item(each, place, f"{field}[{number}]")

    return check


def fields(**checks: Check) -> Check:
    """A mapping with these fields, and any others."""

    def check(value: object, place: str, field: str) -> None:
        if not isinstance(value, Mapping):
            raise FormatError(place, field, told(value), f"an object with {', '.join(checks)}")
        for name, inner in checks.items():
            there = name if field in WHOLES else f"{field}.{name}"
            if name not in value:
                raise FormatError(place, there, "missing", f"an object with {', '.join(checks)}")
            inner(value[name], place, there)

    return check


def each(item: Check, words: str) -> Check:
    """A mapping from names to values of one form."""

    def check(value: object, place: str, field: str) -> None:
        if not isinstance(value, Mapping):
            raise FormatError(place, field, told(value), words)
        for name, inner in value.items():
            item(inner, place, f"{field}.{name}")

    return check


def or_null(inner: Check) -> Check:
    def check(value: object, place: str, field: str) -> None:
        if value is not None:
            inner(value, place, field)

    return check


def told(value: object) -> str:
    """Short enough for one line; a large value by its kind."""
    text = repr(value)
    if len(text) <= 40:
        return text
    kinds = ((dict, "an object"), (list, "a list"), (str, "a long text"))
    return next((words for kind, words in kinds if isinstance(value, kind)), "a long number")


NUMBER: Final = of(int, "a whole number")
NUMBER_OR_NONE: Final = of((int, type(None)), "a whole number or null")
TEXT: Final = of(str, "a text")
TEXT_OR_NONE: Final = of((str, type(None)), "a text or null")
YES_OR_NO: Final = of(bool, "true or false")
OBJECT: Final = of(dict, "an object")
NUMBERS: Final = listing(NUMBER, "a list of whole numbers")
TEXTS: Final = listing(TEXT, "a list of texts")

_STEP: Final = {"n": NUMBER, "action": TEXT, "violates": TEXTS}
_ZK: Final = fields(
    rules=OBJECT,
    model=fields(replicas=TEXTS, log_size=NUMBER, max_records=NUMBER, max_leader_epoch=NUMBER),
    first_violation=OBJECT,
    initial=OBJECT,
)
_ZK_STEP: Final = fields(**_STEP, params=each(of((int, str), "a number or a name"), "an object"))
_KRAFT_REPLICA: Final = fields(
    log=listing(fields(epoch=NUMBER, id=of((str, int), "a name")), "a list of records"),
    hw=NUMBER,
    role=TEXT_OR_NONE,
    leader=TEXT_OR_NONE,
    leader_epoch=NUMBER_OR_NONE,
    isr=or_null(TEXTS),
    registered_epoch=NUMBER,
    fenced=YES_OR_NO,
    broker_status=TEXT,
)
_KRAFT_STATE: Final = fields(
    quorum=fields(leader=TEXT_OR_NONE, leader_epoch=NUMBER, partition_epoch=NUMBER, isr=TEXTS),
    replicas=each(_KRAFT_REPLICA, "an object with each broker's replica"),
)
_KRAFT: Final = fields(initial=_KRAFT_STATE)
_ROW: Final = fields(
    leader_epochs=NUMBERS,
    follower_epochs=NUMBERS,
    leader_epoch=NUMBER,
    histories_consistent=YES_OR_NO,
    rounds=listing(fields(truncate_to=NUMBER), "a list of truncations"),
    final_leo=NUMBER,
    kip101_single_lookup=of((int, str), "an offset or local_hw"),
)
_ROW_OF_ONE_HISTORY: Final = fields(longest_common_prefix=NUMBER)


def check_named(raw: object, file: str, number: int) -> None:
    """What a case needs to be known as one."""
    fields(id=TEXT, family=TEXT)(raw, f"{file}, trace {number}", "trace")


def check_zookeeper(raw: Mapping[str, Any], file: str) -> None:
    place = f"{file}, trace {raw.get('id')}"
    _ZK(raw, place, "trace")
    for number, step in _steps(raw, place):
        where = f"{place}, step {number}"
        _ZK_STEP(step, where, "step")
        fields(state=OBJECT)(step, where, "step")
        for name in ("leader_epoch", "record_id", "keep", "hw"):
            if name in step["params"]:
                NUMBER(step["params"][name], where, f"params.{name}")


def check_kraft(raw: Mapping[str, Any], file: str) -> None:
    place = f"{file}, trace {raw.get('id')}"
    _KRAFT(raw, place, "trace")
    brokers = set(raw["initial"]["replicas"])
    _same_brokers(raw["initial"], brokers, place, "initial")
    for number, step in _steps(raw, place):
        where = f"{place}, step {number}"
        fields(violates=TEXTS, state=_KRAFT_STATE)(step, where, "step")
        _same_brokers(step["state"], brokers, where, "state")


def _same_brokers(state: Mapping[str, Any], known: set[str], place: str, field: str) -> None:
    """An ISR that names somebody else would be judged as of nobody."""
    expected = f"of the brokers {', '.join(sorted(known))}"
    if set(state["replicas"]) != known:
        raise FormatError(place, f"{field}.replicas", told(sorted(state["replicas"])), expected)
    members = [("quorum", state["quorum"]), *state["replicas"].items()]
    for name, values in members:
        if not known.issuperset(isr := values["isr"] or ()):
            raise FormatError(place, f"{field}.{name}.isr", told(isr), expected)


def check_table(raw: Mapping[str, Any], file: str) -> None:
    rows = raw.get("rows")
    if not isinstance(rows, list) or not rows:
        found = told(rows) if "rows" in raw else "missing"
        raise FormatError(file, "rows", found, "a list of rows")
    for number, row in enumerate(rows, start=1):
        place = f"{file}, row {number}"
        _ROW(row, place, "row")
        if row["histories_consistent"]:
            _ROW_OF_ONE_HISTORY(row, place, "row")
        answer = row["kip101_single_lookup"]
        if isinstance(answer, str) and answer != "local_hw":
            raise FormatError(place, "kip101_single_lookup", told(answer), "an offset or local_hw")


def _steps(raw: Mapping[str, Any], place: str) -> Iterable[tuple[int, Any]]:
    steps = raw.get("steps")
    if not isinstance(steps, list):
        found = told(steps) if "steps" in raw else "missing"
        raise FormatError(place, "steps", found, "a list of steps")
    return enumerate(steps, start=1)
