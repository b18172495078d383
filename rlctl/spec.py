"""The base of every recipe section: frozen, strict, no unknown keys; and the one overlay rule."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any, TypeVar

from pydantic import BaseModel, ConfigDict, Field, model_validator

T = TypeVar("T")

# A YAML list becomes a tuple, so that a frozen spec is frozen all the way down.
Seq = Annotated[tuple[T, ...], Field(strict=False)]


class Spec(BaseModel):
    """A section of a recipe; its fields are the only place of their defaults and bounds."""

    model_config = ConfigDict(
        extra="forbid",
        frozen=True,
        strict=True,
        protected_namespaces=(),
        allow_inf_nan=False,
        validate_default=True,
        validate_by_alias=True,
        validate_by_name=True,
    )


def ordered(low: str, high: str) -> Any:
    """Make a validator of a spec: its field `low` is not above its field `high`."""

    def check(spec: Any) -> Any:
        least, most = getattr(spec, low), getattr(spec, high)
        if least > most:
            raise ValueError(f"{low} is {least:g}, above {high}, which is {most:g}\nset {low} <= {high}")
        return spec

    return model_validator(mode="after")(check)


def overlay(base: Any, change: Any) -> Any:
    """Lay `change` over `base`: a table that names a `kind` replaces, any other table merges."""
    if not isinstance(base, Mapping) or not isinstance(change, Mapping) or "kind" in change:
        return change
    return {**base, **{key: overlay(base.get(key), value) for key, value in change.items()}}
