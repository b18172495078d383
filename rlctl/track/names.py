"""What MLflow takes as names and parameters."""

from __future__ import annotations

import json
import posixpath
import re
from collections.abc import Iterator, Mapping
from itertools import islice
from pathlib import Path
from typing import Any

MAX_METRICS = 200  # names; a page with thousands of them no longer opens
MAX_PARAMS = 200
MAX_TEXT = 250  # characters: what the strictest version and store of MLflow take


def clean(name: str) -> str:
    """Return `name` as MLflow takes it: letters, digits, _ - . space / and the shape of a path.

    >>> clean("pass@256"), clean("math//x")
    ('pass_at_256', 'math/x')
    """
    plain = re.sub(r"[^\w\-. /]", "_", name.replace("@", "_at_"))
    return posixpath.normpath(f"/{plain[:MAX_TEXT]}").lstrip("/") or "_"


class Names:
    """Gives each metric one name for good, in order of appearance; `changed` maps old to new.

    No two metrics share a name. Past `MAX_METRICS` names a metric stays in metrics.jsonl only,
    and `changed` maps it to "".
    """

    def __init__(self) -> None:
        self._sent: dict[str, str] = {}

    def rename(self, metrics: Mapping[str, float | None]) -> dict[str, float]:
        """Return the metrics that have a value, by the names to send."""
        named = {self._name(name): value for name, value in metrics.items() if value is not None}
        return {name: value for name, value in named.items() if name}

    @property
    def changed(self) -> dict[str, str]:
        """The names that are not sent as they are."""
        return {old: new for old, new in self._sent.items() if old != new}

    def _name(self, name: str) -> str:
        if name not in self._sent:
            new, copy = clean(name), 1
            while new in self._sent.values():
                copy += 1
                new = f"{clean(name)[: MAX_TEXT - 8]}_{copy}"
            self._sent[name] = new if len(self._sent) < MAX_METRICS else ""
        return self._sent[name]


def parameters(recipe: Path) -> dict[str, str]:
    """Return the short scalars of a recipe file by dotted keys; longer text is cut with a mark."""
    if not recipe.exists():
        return {}
    from ruamel.yaml import YAML

    flat = _scalars("", YAML(typ="safe").load(recipe))
    return {clean(key): _cut(str(value)) for key, value in islice(flat, MAX_PARAMS)}


def _scalars(key: str, value: Any) -> Iterator[tuple[str, Any]]:
    """Walk through tables and lists of tables; a list of scalars is one value, null is none."""
    dot = f"{key}." if key else ""
    if isinstance(value, Mapping):
        for name, entry in value.items():
            yield from _scalars(f"{dot}{name}", entry)
    elif isinstance(value, list) and any(isinstance(entry, Mapping | list) for entry in value):
        for index, entry in enumerate(value):
            yield from _scalars(f"{dot}{index}", entry)
    elif value is not None:
        yield key, json.dumps(value, ensure_ascii=False) if isinstance(value, list) else value


def _cut(text: str) -> str:
    mark = f"… [cut from {len(text)} characters, see recipe.yaml]"
    return text if len(text) <= MAX_TEXT else text[: MAX_TEXT - len(mark)] + mark
