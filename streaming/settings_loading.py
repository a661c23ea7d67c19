"""Configuration from a YAML file and the environment, with errors that say which key, what was
expected and what to do."""

from __future__ import annotations

import copy
import os
import re
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, get_args

import yaml
from pydantic import BaseModel, SecretStr, ValidationError
from tidestaff.streaming.commands.arguments import did_you_mean
from tidestaff.streaming.commands.exits import CommandError
from tidestaff.streaming.settings import Settings
from tidestaff.streaming.settings_yaml import UnreadableYamlError, parsed

if TYPE_CHECKING:
    from collections.abc import Mapping

    from pydantic_core import ErrorDetails

PREFIX: Final = "TIDESTAFF_"
APART: Final = "__"
OTHER_VARIABLES: Final = frozenset(
    {
        *("TIDESTAFF_JARS_DIR", "TIDESTAFF_IVY_SETTINGS"),
        *("TIDESTAFF_LAB_DIR", "TIDESTAFF_LAB_IMAGE", "TIDESTAFF_JAVA_IMAGE"),
        *("TIDESTAFF_LAB_HEAP", "TIDESTAFF_BASE_IMAGE"),
        *("TIDESTAFF_ETCD", "TIDESTAFF_KUBE_APISERVER"),
    }
)
# What Kubernetes puts into a pod for every service of its namespace; ours is called tidestaff too.
_OF_KUBERNETES: Final = re.compile(
    r"\w+_(SERVICE_HOST|SERVICE_PORT(_\w+)?|PORT_\d+_(TCP|UDP|SCTP)(_(PROTO|PORT|ADDR))?)"
)
_ADDRESS_OF_KUBERNETES: Final = re.compile(r"(tcp|udp|sctp)://\S+")
EMBEDDED: Final = "the embedded default"
# The embedded story is a handful of partitions: four buckets do, and it should start soon.
_SMALL: Final = {"operator": {"buckets": 4}, "spark": {"quick_start": True}}
# Sections with a list as their default, of which a variable may change a part.
_LISTS: Final = ("clusters", "sinks")
_REFERENCE: Final = re.compile(r"\$\{(env|file):([^}]+)\}")
_HIDDEN: Final = "***"
_USER_IN_URL: Final = re.compile(r"(?<=://)[^/?#@\s]+@")
_QUERY_OF_URL: Final = re.compile(r"(://[^?#\s]+\?)[^#\s]+")
# Of a Java property among options: -Djavax.net.ssl.trustStorePassword=...
_SECRET_OPTION: Final = re.compile(r"(-D[^=\s]*(?:password|secret|token|key)[^=\s]*=)\S+", re.I)
# Spark's and Kafka's settings have names of their own; those of files and places are no secrets.
_SECRET_NAME: Final = re.compile(
    r"(password|passphrase|secret|token|jaas|credentials$|digest$|(access|account|private)[._]?key"
    r"|(keystore|encryption)[._]key$|[._]sas[._])"
    r"(?!.*[._](file|location|path|url|provider|mechanism|class|type)$)",
    re.IGNORECASE,
)
_REMEDY: Final = "correct it, or compare with conf/tidestaff.yaml, which shows every key"


class SettingsError(CommandError):
    """The configuration is not usable; each problem names its place and the remedy."""


def load(path: Path | None, environment: Mapping[str, str] | None = None) -> Settings:
    """The settings of a file, with what the environment says instead."""
    environment = os.environ if environment is None else environment
    place = EMBEDDED if path is None else str(path)
    content = copy.deepcopy(_SMALL) if path is None else _read(path)
    overridden = _override(content, environment)
    problems: list[str] = []
    written: dict[tuple[str, ...], str] = {}
    content = _resolved(content, environment, (), problems, written)
    if problems:
        raise SettingsError(*(f"{place}: {problem}" for problem in problems))
    try:
        found = _validated(content, environment, overridden)
    except ValidationError as error:
        raise SettingsError(
            *(_problem(place, each, overridden) for each in error.errors()), _REMEDY
        ) from None
    found.written.update(written)
    return found


def _validated(
    content: dict[str, Any], environment: Mapping[str, str], overridden: Mapping[str, str]
) -> Settings:
    """A variable is text: where text is wanted, one that looks like a number (a token of digits) or
    like anything else YAML knows is taken as it stands."""
    try:
        return Settings.model_validate(content)
    except ValidationError as error:
        paths = [".".join(map(str, _place_of(e["loc"])[0])) for e in _not_texts(error)]
        texts = {path: overridden[path] for path in paths if path in overridden}
        if not texts:
            raise
    for path, variable in texts.items():
        _put(content, path.split("."), environment[variable])
    return Settings.model_validate(content)


def _not_texts(error: ValidationError) -> list[ErrorDetails]:
    return [each for each in error.errors() if each["type"] == "string_type"]


def effective(settings: Settings) -> str:
    """The configuration that is in force, as YAML, with every secret hidden."""
    return yaml.safe_dump(shown(settings), sort_keys=False, default_flow_style=False)


def shown(settings: Settings) -> Any:
    """As `plain`; a value that came from a variable or a file is shown as it was written."""
    found = plain(settings)
    for path, text in settings.written.items():
        held = found
        for key in path[:-1]:
            held = held[int(key) if isinstance(held, list) else key]
        last = path[-1]
        held[int(last) if isinstance(held, list) else last] = text
    return found


def _read(path: Path) -> dict[str, Any]:
    try:
        text = path.read_text(encoding="utf-8")
    except FileNotFoundError:
        raise SettingsError(
            f"{path}: there is no such file",
            "name an existing one with --config; conf/tidestaff.yaml is one to start from",
        ) from None
    except UnicodeDecodeError as error:
        raise SettingsError(f"{path}: not a text in UTF-8 ({error.reason})") from None
    try:
        content = parsed(text)
    except UnreadableYamlError as error:
        line = "" if error.line is None else f", line {error.line}"
        raise SettingsError(f"{path}{line}: {error.problem}: correct the YAML there") from None
    if content is None:
        return {}
    if not isinstance(content, dict):
        found = type(content).__name__
        raise SettingsError(f"{path}: found a {found}, expected keys and values; {_REMEDY}")
    return content


def _override(content: dict[str, Any], environment: Mapping[str, str]) -> dict[str, str]:
    """Puts TIDESTAFF_SECTION__KEY in place; what is returned tells which key came from which."""
    overridden = {}
    for variable in sorted(environment):
        if not variable.startswith(PREFIX) or variable in OTHER_VARIABLES:
            continue
        if _is_of_kubernetes(variable, environment[variable]):
            continue
        keys = variable.removeprefix(PREFIX).lower().split(APART)
        value = environment[variable]
        if keys[0] in _LISTS and len(keys) > 1 and content.get(keys[0]) is None:
            content[keys[0]] = plain(Settings(), reveal=True)[keys[0]]
        try:
            _put(content, keys, _value_of(value))
        except (LookupError, TypeError, ValueError):
            raise SettingsError(
                f"environment variable {variable}: there is no {'.'.join(keys)} to set",
                "write TIDESTAFF_SECTION__KEY; for lists the number of an existing entry, "
                "as in TIDESTAFF_CLUSTERS__0__NAME",
            ) from None
        overridden[".".join(keys)] = variable
    return overridden


def _value_of(text: str) -> Any:
    """What YAML makes of it. A text stays as it is, unless it is quoted: a password may hold what
    YAML takes for a comment, or for the beginning of something else."""
    try:
        value = parsed(text)
    except UnreadableYamlError:
        return text
    plain_text = isinstance(value, str) and not text.lstrip().startswith(("'", '"'))
    hidden = value is None and text.lstrip().startswith("#")
    return text if plain_text or hidden else value


def _is_of_kubernetes(variable: str, value: str) -> bool:
    if APART in variable:
        return False
    is_address = variable.endswith("_PORT") and _ADDRESS_OF_KUBERNETES.fullmatch(value) is not None
    return is_address or _OF_KUBERNETES.fullmatch(variable) is not None


def _put(content: Any, keys: list[str], value: Any) -> None:
    first, *rest = keys
    key: Any = int(first) if isinstance(content, list) else first
    if isinstance(content, list) and not 0 <= key < len(content):
        raise IndexError(key)
    if not rest:
        content[key] = value
        return
    if isinstance(content, dict) and content.get(key) is None:
        content[key] = {}
    _put(content[key], rest, value)


def _resolved(
    value: Any,
    environment: Mapping[str, str],
    keys: tuple[str, ...],
    problems: list[str],
    written: dict[tuple[str, ...], str],
) -> Any:
    """`${env:NAME}` and `${file:PATH}` stand for what is there. What stood there goes into
    `written`: the value may be a secret under a key that does not sound like one."""
    if isinstance(value, dict):
        return {
            key: _resolved(each, environment, (*keys, str(key)), problems, written)
            for key, each in value.items()
        }
    if isinstance(value, list):
        return [
            _resolved(each, environment, (*keys, str(number)), problems, written)
            for number, each in enumerate(value)
        ]
    if not isinstance(value, str):
        return value
    path = ".".join(keys)
    if "\0" in value:
        problems.append(f"{path}: it holds a NUL character: remove it")
        return ""

    def look_up(match: re.Match[str]) -> str:
        kind, name = match[1], match[2]
        if kind == "env" and name in environment:
            return environment[name]
        try:
            if kind == "file":
                return Path(name).expanduser().read_text(encoding="utf-8").rstrip("\n")
        except (OSError, UnicodeDecodeError) as error:
            reason = getattr(error, "strerror", None) or "not a text in UTF-8"
            problems.append(f"{path}: {name} cannot be read ({reason}): correct {match[0]}")
            return ""
        problems.append(f"{path}: the environment variable {name} of {match[0]} is not set: set it")
        return ""

    found = _REFERENCE.sub(look_up, value)
    if found != value:
        written[keys] = value
    return found


def _problem(place: str, error: ErrorDetails, overridden: Mapping[str, str]) -> str:
    keys, known = _place_of(error["loc"])
    path = ".".join(map(str, keys))
    unknown = error["type"] == "extra_forbidden"
    # An unknown section is told by its own name, of which the environment has given a part.
    origin = next(
        (
            variable
            for key, variable in overridden.items()
            if f"{path}.".startswith(f"{key}.") or (unknown and key.startswith(f"{path}."))
        ),
        None,
    )
    where = f"environment variable {origin}, key {path}" if origin else f"{place}: {path}"
    said = re.sub(r"^(Value error, |Input |String |Tuple |Value (?=should))", "", error["msg"])
    if unknown:
        name = str(keys[-1])
        hint = did_you_mean(name, known) or f"; known here are {', '.join(sorted(known))}"
        return f"{where}: unknown key {name!r}{hint}"
    if error["type"] == "missing":
        return f"{where}: this key is missing, expected it to be given"
    if error["type"] == "value_error":
        return f"{where}: {said}"
    if error["type"].startswith("union_tag"):
        expected = error.get("ctx", {}).get("expected_tags", ", ".join(map(repr, known)))
        tag = error.get("ctx", {}).get("tag")
        said = "the key type is missing" if tag is None else f"found type {tag!r}"
        return f"{where}: {said}, expected type to be one of {expected}"
    found = error["input"]
    shown = f"found {found!r}, " if isinstance(found, str | int | float | bool) else ""
    if _SECRET_NAME.search(path) or re.search(r"properties|headers|url", path):
        shown = ""
    return f"{where}: {shown}expected a value that {said}" if shown else f"{where}: {said}"


def _place_of(location: tuple[int | str, ...]) -> tuple[list[int | str], list[str]]:
    """The keys as they stand in the file, and which keys are known beside the last of them.

    Pydantic puts the tag of a union between them; nobody has written that.
    """
    keys: list[int | str] = []
    models: list[type[BaseModel]] = [Settings]
    known: list[str] = []
    for part in location:
        tagged = [model for model in models if _tag(model) == part]
        if len(models) > 1 and tagged:
            models = tagged
            continue
        keys.append(part)
        if isinstance(part, str):
            known = sorted({name for model in models for name in model.model_fields})
            fields = [m.model_fields[part] for m in models if part in m.model_fields]
            models = [model for field in fields for model in _models_in(field.annotation)]
    return keys, known


def _tag(model: type[BaseModel]) -> object:
    field = model.model_fields.get("type")
    return None if field is None else field.default


def _models_in(annotation: Any) -> list[type[BaseModel]]:
    if isinstance(annotation, type) and issubclass(annotation, BaseModel):
        return [annotation]
    return [model for each in get_args(annotation) for model in _models_in(each)]


def plain(value: Any, *, reveal: bool = False) -> Any:
    """Values that YAML and JSON know; secrets become stars unless they are to be revealed."""
    if isinstance(value, BaseModel):
        names = type(value).model_fields
        return {name: plain(getattr(value, name), reveal=reveal) for name in names}
    if isinstance(value, SecretStr):
        return value.get_secret_value() if reveal else _HIDDEN
    if isinstance(value, dict):
        return {
            key: _HIDDEN if not reveal and _is_secret(key, each) else plain(each, reveal=reveal)
            for key, each in value.items()
        }
    if isinstance(value, list | tuple):
        return [plain(each, reveal=reveal) for each in value]
    if isinstance(value, str) and not reveal:
        value = _QUERY_OF_URL.sub(rf"\1{_HIDDEN}", _USER_IN_URL.sub(f"{_HIDDEN}@", value))
        return _SECRET_OPTION.sub(rf"\1{_HIDDEN}", value)
    if isinstance(value, re.Pattern):
        return value.pattern
    return value


def _is_secret(key: object, value: object) -> bool:
    """Of what Spark and clients are given as it stands, nobody has said which parts are secret. A
    password of digits is a number where it is not quoted."""
    told = isinstance(value, str | int | float) and not isinstance(value, bool)
    return told and _SECRET_NAME.search(str(key)) is not None
