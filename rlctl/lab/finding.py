"""What an experiment hands back: tables for reading, panels for drawing."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

Row = Mapping[str, float | int | str]


@dataclass(frozen=True)
class Curve:
    """Points of one panel, joined by a line unless `joined` is False."""

    label: str
    x: Sequence[float]
    y: Sequence[float]
    joined: bool = True


@dataclass(frozen=True)
class Panel:
    """One pair of axes."""

    title: str
    x: str
    y: str
    curves: Sequence[Curve]
    log_x: bool = False  # base 2: these axes count rollouts


@dataclass(frozen=True)
class Finding:
    """Tables by name, each a list of rows with the same keys, and the panels of the plot."""

    tables: Mapping[str, Sequence[Row]]
    panels: Sequence[Panel]
