"""YAML 1.2: a text as plain data with the line of every key, and plain data as text."""

from __future__ import annotations

import io
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from ruamel.yaml import YAML
from ruamel.yaml.error import MarkedYAMLError, YAMLError
from ruamel.yaml.nodes import MappingNode, Node, ScalarNode, SequenceNode
from ruamel.yaml.representer import SafeRepresenter

from rlctl.errors import UserError

Path = tuple[str | int, ...]

_TAG = "tag:yaml.org,2002:"
_SCALARS = ("null", "bool", "int", "float")
_TEXTS = ("str", "timestamp", "merge")  # dates and `<<` are no types of YAML 1.2
_KNOWN = (*_SCALARS, *_TEXTS, "map", "seq")
_DEEPEST = 32


@dataclass(frozen=True)
class Document:
    """What a file says, and where: `lines` counts from 1."""

    place: str
    data: Any = None
    lines: dict[Path, int] = field(default_factory=dict)

    def where(self, path: Path) -> str:
        """Return `file:line` of a key, or of the nearest table around it that has a line."""
        for end in range(len(path), 0, -1):
            if path[:end] in self.lines:
                return f"{self.place}:{self.lines[path[:end]]}"
        return self.place


def parse(text: str, place: str) -> Document:
    """Read one YAML 1.2 document; duplicate keys, foreign tags and endless nesting are refused.

    Raises:
        UserError: the text is no YAML, with file and line.
    """
    yaml = YAML(typ="safe", pure=True)
    document = Document(place)
    try:
        node = yaml.compose(text)
        data = None if node is None else _plain(node, (), document, yaml)
    except MarkedYAMLError as error:
        mark = error.problem_mark or error.context_mark
        line = f":{mark.line + 1}" if mark else ""
        raise UserError(
            f"{place}{line}: broken YAML: {error.problem or error.context}",
            "check the indentation, brackets and quotes of this line and the one before",
        ) from None
    except YAMLError as error:
        raise UserError(f"{place}: broken YAML: {str(error).splitlines()[0]}") from None
    except RecursionError:
        raise UserError(f"{place}: nested more than {_DEEPEST} levels deep") from None
    return Document(place, data, document.lines)


def _plain(node: Node, path: Path, document: Document, yaml: YAML) -> Any:
    document.lines[path] = document.lines.get(path, node.start_mark.line + 1)
    if len(path) > _DEEPEST:
        raise UserError(f"{document.where(path)}: nested more than {_DEEPEST} levels deep")
    tag = str(node.tag).removeprefix(_TAG)
    if tag not in _KNOWN:
        raise UserError(f"{document.where(path)}: the tag {node.tag} is not known", "write a plain value")
    if isinstance(node, MappingNode):
        return _table(node, path, document, yaml)
    if isinstance(node, SequenceNode):
        return [_plain(item, (*path, index), document, yaml) for index, item in enumerate(node.value)]
    if tag in _TEXTS:
        return node.value
    try:
        return yaml.constructor.construct_object(node)
    except (ValueError, KeyError):
        raise UserError(f"{document.where(path)}: {node.value!r} is no {node.tag}") from None


def _table(node: MappingNode, path: Path, document: Document, yaml: YAML) -> Mapping[str, Any]:
    table: dict[str, Any] = {}
    for key_node, value_node in node.value:
        line = key_node.start_mark.line + 1
        if not isinstance(key_node, ScalarNode):
            raise UserError(f"{document.place}:{line}: a key is a table or list", "write a plain word")
        key = str(key_node.value)
        if key in table:
            first = document.lines[(*path, key)]
            raise UserError(
                f"{document.place}:{line}: the key `{key}` stands twice, first in line {first}",
                "keep one of them",
            )
        document.lines[(*path, key)] = line
        table[key] = _plain(value_node, (*path, key), document, yaml)
    return table


class _Representer(SafeRepresenter):
    """Text with a line break of Unicode is quoted: ruamel would write it as a plain one."""

    def represent_str(self, data: str) -> ScalarNode:
        style = '"' if set(data) & set("\x85\u2028\u2029") else None
        return self.represent_scalar(f"{_TAG}str", data, style=style)


_Representer.add_representer(str, _Representer.represent_str)


def render(data: Any) -> str:
    """Write plain data as YAML that `parse` reads back as the same; the order of keys stays."""
    yaml = YAML(typ="safe", pure=True)
    yaml.Representer = _Representer
    yaml.default_flow_style = False
    yaml.sort_base_mapping_type_on_output = False  # type: ignore[assignment]
    yaml.width = 100
    out = io.StringIO()
    yaml.dump(data, out)
    return out.getvalue()
