"""A recipe before it is checked: a file, the `--set` laid over it, and where each value came from."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from copy import deepcopy
from dataclasses import dataclass, field
from pathlib import Path as File
from textwrap import shorten
from typing import Any

from rlctl.errors import UserError
from rlctl.recipe.document import Document, Path, parse
from rlctl.recipe.spellings import ALIASES
from rlctl.spec import overlay


@dataclass(frozen=True)
class Draft:
    """Plain data of a recipe; `changes` keeps every `--set` with its dotted key split."""

    data: dict[str, Any]
    document: Document
    changes: Sequence[tuple[Path, str]] = ()
    change: Mapping[str, Any] = field(default_factory=dict)

    def place(self, path: Path) -> str:
        """Say where a value was written: `--set key=value` or `file:line`."""
        if self.is_set(path):
            keys = tuple(map(str, path))
            for key, text in reversed(self.changes):
                if key[: len(keys)] == keys[: len(key)]:
                    return f"--set {text}"
        return self.document.where(path)

    def is_set(self, path: Path) -> bool:
        """Say whether a value, or something in the table, comes from `--set`."""
        node: Any = self.change
        for key in path:
            if not isinstance(node, Mapping):
                return True
            if str(key) not in node:
                return "kind" in node
            node = node[str(key)]
        return True


def draft(document: Document, overrides: Sequence[str] = (), folder: File | None = None) -> Draft:
    """Lay `--set` over a file's data; paths become absolute, from `folder` or the working directory.

    Raises:
        UserError: the file is no table, or an override is no `key=value`.
    """
    if not isinstance(document.data, dict):
        raise UserError(f"{document.place}: a recipe is a table of keys", "start from `rlctl new NAME`")
    base = _ours(deepcopy(document.data), document)
    changes = [_split(text) for text in overrides]
    change: dict[str, Any] = {}
    for path, value, _ in changes:
        change = _deep(change, _lift(change, _nest(path, value), ()))
    change = _ours(change, Document("--set"))
    both = base.get("algorithm"), change.get("algorithm")
    if all(isinstance(table, dict) for table in both) and "preset" in change["algorithm"]:
        del base["algorithm"]  # a preset names a whole row, as `kind` names a whole table
    merged = overlay(base, _lift(base, change, ()))
    made = Draft(merged, document, [(path, text) for path, _, text in changes], change)
    _anchor(made, folder or File.cwd())
    return made


def _split(text: str) -> tuple[Path, Any, str]:
    dotted, equals, value = text.partition("=")
    path = tuple(dotted.strip().split("."))
    if not equals or not all(path):
        raise UserError(f"--set {text}: is no key=value", "write it as --set budget.steps=100")
    try:
        return path, parse(value, "").data if value else "", shorten(text, 120, placeholder=" ...")
    except UserError as error:
        problem = error.message.rpartition(": ")[2]
        raise UserError(
            f"--set {text}: the value is no YAML: {problem}", "quote it twice: '\"...\"'"
        ) from None


def _nest(path: Path, value: Any) -> dict[str, Any]:
    if path == ("algorithm",):
        value = _spelled_out(value)
    for key in reversed(path):
        value = {key: value}
    return value if isinstance(value, dict) else {}


def _deep(base: Any, change: Any) -> Any:
    """Gather `--set` items, whatever their order: here `kind` replaces nothing yet."""
    if not isinstance(base, dict) or not isinstance(change, dict):
        return change
    return {**base, **{key: _deep(base.get(key), value) for key, value in change.items()}}


def _ours(data: Mapping[str, Any], document: Document) -> dict[str, Any]:
    """Spell out the short form of `algorithm` and the accepted aliases."""
    table = dict(data)
    if "algorithm" in table:
        table["algorithm"] = _spelled_out(table["algorithm"])
    for (section, theirs), ours in ALIASES.items():
        inner = table.get(section)
        if not isinstance(inner, Mapping) or theirs not in inner:
            continue
        if ours in inner:
            place = document.where((section, theirs))
            raise UserError(
                f"{place}: {section}.{theirs} and {section}.{ours} mean the same", "keep one of them"
            )
        table[section] = {ours if key == theirs else key: value for key, value in inner.items()}
        if (section, theirs) in document.lines:
            document.lines[(section, ours)] = document.lines[(section, theirs)]
    return table


def _spelled_out(algorithm: Any) -> Any:
    return {"preset": algorithm} if isinstance(algorithm, str) else algorithm


def _lift(base: Any, change: Any, path: Path) -> Any:
    """Turn `sets.0.limit=3` into the whole list with its first entry changed."""
    if not isinstance(change, Mapping) or not change or "kind" in change:
        return change
    if isinstance(base, list) and all(key.isdecimal() for key in change):
        items = list(base)
        for key, value in change.items():
            if int(key) >= len(items):
                dotted = ".".join(map(str, path))
                raise UserError(
                    f"--set {dotted}.{key}: the list has {len(items)} entries", "they count from 0"
                )
            items[int(key)] = overlay(items[int(key)], _lift(items[int(key)], value, (*path, key)))
        return items
    inner = base if isinstance(base, Mapping) else {}
    return {key: _lift(inner.get(key), value, (*path, key)) for key, value in change.items()}


def _anchor(made: Draft, folder: File) -> None:
    """Make paths absolute: from the file's folder, or from the working directory for `--set`."""
    for path, table in _tables(made.data, ()):
        for key, text in table.items():
            start = File.cwd() if made.is_set((*path, key)) else folder
            if isinstance(text, str) and text and _is_path((*path, key), text, table.get("kind"), start):
                table[key] = str((start / File(text).expanduser()).resolve())
    made.data.setdefault("output_dir", str(File("runs").resolve()))


def _tables(data: Any, path: Path) -> Iterator[tuple[Path, dict[str, Any]]]:
    if isinstance(data, dict):
        yield path, data
    for key, value in data.items() if isinstance(data, dict) else enumerate(data):
        if isinstance(value, dict | list):
            yield from _tables(value, (*path, key))


def _is_path(path: Path, text: str, kind: Any, start: File) -> bool:
    match path:
        case ("output_dir",) | ("data", "root"):
            return True
        case ("data", "template"):
            return text not in ("chat", "none")
        case ("model", "path"):  # else a hub id
            return text.startswith((".", "/", "~")) or (start / text).exists()
        case (*_, "path"):
            return kind == "jsonl" or (kind == "python" and text.partition(":")[0].endswith(".py"))
    return False
