"""What pydantic found wrong with a recipe, in plain words: place, key, value, and what to do."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Mapping, Sequence
from difflib import get_close_matches
from typing import Any

from pydantic import ValidationError
from pydantic_core import ErrorDetails

from rlctl.errors import UserError
from rlctl.recipe.schema import Path, kinds, tables, tables_at, walk
from rlctl.recipe.spellings import ours
from rlctl.spec import Spec

Place = Callable[[Path], str]  # `file:line` or `--set key=value` of a key

_MUST_BE = {
    "int_type": "a whole number",
    "int_from_float": "a whole number",
    "float_type": "a number",
    "bool_type": "true or false",
    "string_type": "text",
    "tuple_type": "a list",
    "list_type": "a list",
    "model_type": "a table of keys",
    "model_attributes_type": "a table of keys",
    "dict_type": "a table of keys",
    "none_required": "null",
    "finite_number": "a finite number",
    "literal_error": "{expected}",
    "greater_than": "more than {gt:g}",
    "greater_than_equal": "at least {ge:g}",
    "less_than": "less than {lt:g}",
    "less_than_equal": "at most {le:g}",
    "too_short": "a list of at least {min_length}",
    "too_long": "a list of at most {max_length}",
    "string_pattern_mismatch": "letters, digits, `.`, `_` and `-`, beginning with a letter or digit",
    "string_too_long": "text of at most {max_length} characters",
    "string_too_short": "text of at least {min_length} characters",
}
_TABLES = ("model_type", "model_attributes_type", "dict_type")
_TEXT_OF_NULL = ("None", "none", "null", "Null", "NULL")


def explain(error: ValidationError, root: type[Spec], data: Any, place: Place) -> UserError:
    """Turn the most helpful of pydantic's errors into a message with its place; count the others."""
    found: dict[Path, list[ErrorDetails]] = {}
    for item in error.errors(include_url=False):
        found.setdefault(_real_path(item, data, place), []).append(item)
    # An error deeper in the same table comes from the union's branch that fits best.
    paths = [path for path in found if not any(_inside(other, path) for other in found)]
    path = min(paths, key=lambda path: _rank(found[path]))
    message, hint = _describe(found[path], root, data, path)
    others = f" (and {len(paths) - 1} more)" if len(paths) > 1 else ""
    return UserError(prefix(place(path), path) + message + others, hint)


def prefix(place: str, path: Path) -> str:
    """Say place and key, the key only once."""
    dotted = ".".join(map(str, path))
    return f"{place}: " if not dotted or place.startswith(f"--set {dotted}=") else f"{place}: {dotted}: "


def _inside(path: Path, table: Path) -> bool:
    return len(path) > len(table) and path[: len(table)] == table


def _real_path(item: ErrorDetails, data: Any, place: Place) -> Path:
    """Drop pydantic's names of union branches from a location; of several keys take one that was set."""
    if candidates := item.get("ctx", {}).get("paths"):
        return min(candidates, key=lambda path: (not place(path).startswith("--set"), not _holds(data, path)))
    path: list[str | int] = []
    for key in item["loc"]:
        if key in (data if isinstance(data, Mapping) else range(len(data)) if isinstance(data, list) else ()):
            data = data[key]
            path.append(key)
    return (*path, item["loc"][-1]) if item["type"] == "missing" else tuple(path)


def _rank(items: Sequence[ErrorDetails]) -> int:
    """Unknown keys first: they explain missing ones."""
    return {"extra_forbidden": 0, "missing": 2}.get(items[0]["type"], 1)


def _describe(items: Sequence[ErrorDetails], root: type[Spec], data: Any, path: Path) -> tuple[str, str]:
    first = items[0]
    for item in items:
        match item["type"]:
            case "extra_forbidden":
                return _unknown_key(root, data, path)
            case "missing":
                return "is missing", _missing(root, data, path)
            case "union_tag_invalid":
                return _unknown_kind(item, root, data, path)
            case "union_tag_not_found":
                return _no_kind(root, data, path)
            case "value_error":
                return _split(item["msg"].removeprefix("Value error, "))
            case "cross_check":
                return _split(item["msg"])
    bounds = dict.fromkeys(_MUST_BE.get(item["type"], "").format(**item.get("ctx", {})) for item in items)
    known = [bound for bound in bounds if bound]
    if not known:
        return f"is {show(first['input'])}: {first['msg']}", ""
    return f"is {show(first['input'])}, must be {' or '.join(known)}", _wrong_value(items, root, data, path)


def _split(text: str) -> tuple[str, str]:
    message, _, hint = text.partition("\n")
    return message, hint.replace("\n", " ")


def show(value: Any) -> str:
    """Write a value as in YAML, cut to one short line."""
    text = json.dumps(value, ensure_ascii=False, default=str)
    return text if len(text) <= 60 else text[:57] + "..."


def _wrong_value(items: Sequence[ErrorDetails], root: type[Spec], data: Any, path: Path) -> str:
    value, types = items[0]["input"], {item["type"] for item in items}
    if value is None:
        return "give it a value, or leave the key out"
    if isinstance(value, bool) and types & {"literal_error", "string_type"}:
        return f'to mean the text, quote it: "{str(value).lower()}"'
    if value in _TEXT_OF_NULL and isinstance(value, str):
        return "to mean no value, write null without quotes"
    if isinstance(value, int | float) and "string_type" in types:
        return f'quote it: "{value}"'
    if isinstance(value, str) and types & {"int_type", "float_type"} and _is_number(value):
        return "write the number without quotes"
    if isinstance(value, Mapping) and types & {"tuple_type", "list_type"} and all(k.isdigit() for k in value):
        return "no key reaches into a list: write the whole list again"
    if isinstance(value, str) and types & set(_TABLES):
        return _kind_hint(root, data, path)
    if isinstance(value, str):
        return _nearest(value, _words(items))
    return ""


def _is_number(text: str) -> bool:
    try:
        float(text)
    except ValueError:
        return False
    return True


def _words(items: Sequence[ErrorDetails]) -> list[str]:
    expected = " ".join(str(item.get("ctx", {}).get("expected", "")) for item in items)
    return expected.split("'")[1::2]


def _nearest(word: str, legal: Iterable[str]) -> str:
    close = get_close_matches(word.replace("-", "_"), list(legal), n=1)
    return f"did you mean `{close[0]}`?" if close else ""


def _kind_hint(root: type[Spec], data: Any, path: Path) -> str:
    legal = _kinds_at(root, data, path)
    return f"write {{kind: {data_at(data, path)}}}" if data_at(data, path) in legal else _one_of(legal)


def _missing(root: type[Spec], data: Any, path: Path) -> str:
    fields = [table.model_fields.get(str(path[-1])) for table in tables_at(root, data, path[:-1])[0]]
    parts = [part for field in fields if field for part in tables(field.annotation)]
    return _one_of([kind for part in parts for kind in kinds(part)]) or "give it a value"


def _kinds_at(root: type[Spec], data: Any, path: Path) -> list[str]:
    return [kind for table in tables_at(root, data, path)[1] for kind in kinds(table)]


def _one_of(legal: Sequence[str]) -> str:
    return f"write {{kind: {' | '.join(dict.fromkeys(legal))}}}" if legal else ""


def _holds(data: Any, path: Path) -> bool:
    for key in path:
        if not isinstance(data, Mapping) or key not in data:
            return False
        data = data[key]
    return True


def data_at(data: Any, path: Path) -> Any:
    """Follow a path into plain data."""
    for key in path:
        data = data[key]
    return data


def _unknown_kind(item: ErrorDetails, root: type[Spec], data: Any, path: Path) -> tuple[str, str]:
    legal = _kinds_at(root, data, path)
    kind = item["input"].get("kind") if isinstance(item["input"], Mapping) else item["input"]
    return f"the kind {show(kind)} is unknown", _nearest(str(kind), legal) or _one_of(legal)


def _no_kind(root: type[Spec], data: Any, path: Path) -> tuple[str, str]:
    given = [key for key in data_at(data, path) if key != "kind"]
    fits = [
        kind
        for table in tables_at(root, data, path)[1]
        for kind in kinds(table)
        if given and all(key in table.model_fields for key in given)
    ]
    legal = dict.fromkeys(fits or _kinds_at(root, data, path))
    dotted = ".".join(map(str, path))
    return "needs a `kind`", f"set {dotted}.kind too, to {' | '.join(legal)}"


def _unknown_key(root: type[Spec], data: Any, path: Path) -> tuple[str, str]:
    *above, key = map(str, path)
    chosen, every = tables_at(root, data, path[:-1])
    section = ".".join(above)
    dotted = f"{section}.{key}" if section else key
    message = f"unknown key `{key}`"
    siblings = list(dict.fromkeys(name for table in chosen for name in table.model_fields))
    name = key.replace("-", "_")
    if name in siblings and name != key:
        return message, f"did you mean `{name}`?"
    other = dict.fromkeys(kind for table in every if name in table.model_fields for kind in kinds(table))
    if other:
        given, theirs = data_at(data, path[:-1]).get("kind"), " | ".join(other)
        kind = f"kind {given}" if given else "the kind that the preset chose"
        return f"{kind} has no `{key}`", f"it needs another kind: set {section}.kind={theirs} too"
    elsewhere = sorted({where for where, _, _ in walk(root) if where.split(".")[-1] == name}, key=_depth)
    if elsewhere and len(elsewhere) <= 3:
        return message, f"did you mean {' or '.join(f'`{where}`' for where in elsewhere)}?"
    value = data_at(data, path)
    theirs_below = [f"{dotted}.{inner}" for inner in value] if isinstance(value, Mapping) else []
    for spelling in (dotted, *theirs_below):
        if mine := ours(spelling):
            return message, f"here {spelling} is called `{mine}`"
    return message, _nearest(name, siblings) or _far(name, root) or f"known here: {', '.join(siblings)}"


def _depth(dotted: str) -> tuple[int, str]:
    return dotted.count("."), dotted


def _far(name: str, root: type[Spec]) -> str:
    leaves = {where.split(".")[-1]: where for where, _, _ in walk(root)}
    close = get_close_matches(name, list(leaves), n=1, cutoff=0.75)
    return f"did you mean `{leaves[close[0]]}`?" if close else ""
