"""YAML as settings are written in it: a key stands there once; what cannot be read says where."""

from __future__ import annotations

from typing import Any, Final, NoReturn

import yaml
from yaml.constructor import ConstructorError
from yaml.nodes import CollectionNode, MappingNode, Node, ScalarNode

_MERGE: Final = "tag:yaml.org,2002:merge"


class UnreadableYamlError(Exception):
    """What is wrong, and in which line where that is known."""

    def __init__(self, problem: str, line: int | None) -> None:
        super().__init__(problem)
        self.problem, self.line = problem, line


class _Loader(yaml.SafeLoader):
    """Says no to what yaml.SafeLoader passes over in silence, or stumbles over."""

    def compose_node(self, parent: Node | None, index: Any) -> Node | None:
        node = super().compose_node(parent, index)
        if isinstance(node, CollectionNode) and node.end_mark is None:
            # An alias gives the node itself, which ends where its last part does: not there yet.
            _refuse(parent or node, "an alias stands within what it stands for")
        return node

    def compose_mapping_node(self, anchor: Any) -> MappingNode:
        node: MappingNode = super().compose_mapping_node(anchor)
        first: dict[tuple[str, str], int] = {}
        for key, _ in node.value:
            if not isinstance(key, ScalarNode) or key.tag == _MERGE:
                continue
            if (key.tag, key.value) in first:
                line = first[key.tag, key.value]
                _refuse(key, f"the key {key.value!r} stands there twice, first in line {line}")
            first[key.tag, key.value] = key.start_mark.line + 1
        return node

    def construct_object(self, node: Node, deep: bool = False) -> Any:
        try:
            return super().construct_object(node, deep)
        except (ArithmeticError, AttributeError, LookupError, TypeError, ValueError):
            # It may be a password: it is not shown.
            _refuse(node, "this looks like a number or a date and is none; quote a text")


def parsed(text: str) -> Any:
    """What a text holds. Raises UnreadableYamlError."""
    try:
        return yaml.load(text, _Loader)  # noqa: S506 - a safe loader
    except yaml.YAMLError as error:
        mark = getattr(error, "problem_mark", None)
        said = getattr(error, "problem", None) or "not YAML"
        raise UnreadableYamlError(said, None if mark is None else mark.line + 1) from None
    except RecursionError:
        raise UnreadableYamlError("it is nested too deeply", None) from None


def _refuse(node: Node, problem: str) -> NoReturn:
    raise ConstructorError(None, None, problem, node.start_mark)
