"""Walk over the sections of a recipe: which tables and keys it has."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, get_args

from pydantic.fields import FieldInfo

from rlctl.spec import Spec

Path = tuple[str | int, ...]


def tables(annotation: Any) -> list[type[Spec]]:
    """List the tables that a field may hold, through unions and lists."""
    if isinstance(annotation, type) and issubclass(annotation, Spec):
        return [annotation]
    return [table for part in get_args(annotation) for table in tables(part)]


def kinds(table: type[Spec]) -> tuple[str, ...]:
    """Return the values of `kind` that choose this table; empty if it has none."""
    field = table.model_fields.get("kind")
    return get_args(field.annotation) if field else ()


def walk(table: type[Spec], path: tuple[str, ...] = ()) -> Iterator[tuple[str, type[Spec], FieldInfo]]:
    """Yield every key of the schema as (dotted path, its table, its field); a path may come once a kind."""
    for name, field in table.model_fields.items():
        yield ".".join((*path, name)), table, field
        for inner in tables(field.annotation):
            yield from walk(inner, (*path, name))


def tables_at(root: type[Spec], data: Any, path: Path) -> tuple[list[type[Spec]], list[type[Spec]]]:
    """Find the tables that `data` has chosen at `path` by `kind`, and all that could stand there."""
    chosen = every = [root]
    for key in path:
        data = data[key]
        if isinstance(key, str):
            fields = [table.model_fields[key] for table in chosen if key in table.model_fields]
            every = [table for field in fields for table in tables(field.annotation)]
        kind = data.get("kind") if isinstance(data, Mapping) else None
        chosen = [table for table in every if kind in kinds(table)] or every
    return chosen, every
