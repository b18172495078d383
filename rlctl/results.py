"""What runs and sweeps left on disk, read for comparisons and reports."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

from rlctl.errors import UserError
from rlctl.listing import find_run
from rlctl.recipe.document import parse
from rlctl.runfolder import RunFolder
from rlctl.track.jsonl import read

SWEEP = "sweep.json"  # of its folder: {"name", "cells": [{"id", "label", "values", "seed", "run"}]}


@dataclass(frozen=True)
class Result:
    """A run by its folder; a file that is not there yet is empty."""

    folder: Path

    @cached_property
    def recipe(self) -> Mapping[str, Any]:
        """The resolved recipe."""
        file = self.folder / "recipe.yaml"
        return parse(file.read_text(encoding="utf-8"), str(file)).data if file.is_file() else {}

    @cached_property
    def status(self) -> Mapping[str, Any]:
        """`status.json`."""
        return RunFolder(self.folder).status()

    @cached_property
    def metrics(self) -> list[dict[str, Any]]:
        """One object a step, in order."""
        return read(self.folder / "metrics.jsonl")

    @cached_property
    def evals(self) -> list[dict[str, Any]]:
        """One object an evaluation, in order."""
        return read(self.folder / "evals.jsonl")

    def rollouts(self) -> Iterator[dict[str, Any]]:
        """Yield the rows of `rollouts.jsonl`, which may be a large file; a torn last line is left out."""
        path = self.folder / "rollouts.jsonl"
        if path.is_file():
            with path.open("rb") as file:
                yield from (json.loads(line) for line in file if line.endswith(b"\n"))

    @property
    def seed(self) -> int:
        """The run's seed."""
        return int(self.recipe["seed"])

    @property
    def finished(self) -> bool:
        """Whether it came to the end of its budget."""
        return self.status.get("state") == "finished"


@dataclass(frozen=True)
class Setting:
    """Runs that differ in their seed alone: a point of a sweep, or a run that stands alone."""

    label: str
    values: Mapping[str, Any]  # by dotted key; empty for a run that stands alone
    results: tuple[Result, ...]


@dataclass(frozen=True)
class Target:
    """A run or a sweep that was named."""

    name: str
    folder: Path
    settings: tuple[Setting, ...]

    @property
    def is_sweep(self) -> bool:
        """Whether it is a sweep."""
        return (self.folder / SWEEP).is_file()


def find(name: str) -> Target:
    """Find a run or a sweep by its folder, or in `runs/` by name or its beginning.

    Raises:
        UserError: there is none, or several begin so.
    """
    places = [Path(name).expanduser()]
    sweeps = [file.parent for file in sorted(Path("runs").glob(f"*/{SWEEP}"))]
    places += [s for s in sweeps if s.name == name] or [s for s in sweeps if s.name.startswith(name)]
    found = [place for place in places if (place / SWEEP).is_file()]
    if len(found) > 1:
        names = ", ".join(place.name for place in found[:8])
        raise UserError(f"{name}: several sweeps begin so", f"one of: {names}")
    if found:
        return _sweep(found[0])
    folder = find_run(name)
    return Target(folder.name, folder, (Setting(folder.name, {}, (Result(folder),)),))


def _sweep(folder: Path) -> Target:
    cells = json.loads((folder / SWEEP).read_text(encoding="utf-8"))["cells"]
    settings: dict[str, tuple[Mapping[str, Any], list[Result]]] = {}
    for cell in cells:
        _, results = settings.setdefault(cell["label"], (cell["values"], []))
        results.append(Result(folder / cell["run"]))
    return Target(
        folder.name,
        folder,
        tuple(Setting(label, values, tuple(found)) for label, (values, found) in settings.items()),
    )
