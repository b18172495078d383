"""Runs and sweeps laid down as files, with the figures that a test wants."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from rlctl.results import SWEEP


def lay_run(
    folder: Path,
    seed: int,
    ends: Mapping[str, float],
    *,
    begins: Mapping[str, float] | None = None,
    state: str = "finished",
    **recipe: Any,
) -> Path:
    """Lay down a run of 1,000,000 tokens, whose set `sums` ended at pass@k `ends`."""
    tokens = recipe.pop("tokens", 1_000_000)
    folder.mkdir(parents=True)
    (folder / "recipe.yaml").write_text(json.dumps({"name": folder.name, "seed": seed, **recipe}))
    (folder / "status.json").write_text(json.dumps({"state": state, "step": 9, "tokens": tokens}))
    lines = [
        json.dumps({"step": step, "sets": {"sums": {"pass_at": _estimates(found), "of": f"asked-{seed}"}}})
        for step, found in ((0, begins), (9, ends))
        if found is not None
    ]
    (folder / "evals.jsonl").write_text("".join(f"{line}\n" for line in lines))
    return folder


def lay_sweep(folder: Path, settings: Mapping[str, Sequence[float]], **more: Any) -> Path:
    """Lay down a sweep: pass@1 of the seeds 1, 2, ... of each setting."""
    cells = []
    for number, (label, values) in enumerate(settings.items(), 1):
        for seed, value in enumerate(values, 1):
            name = f"{number:02d}-{seed}"
            lay_run(folder / name, seed, {"1": value}, **more)
            cells.append({"id": name, "label": label, "values": {"a": label}, "seed": seed, "run": name})
    (folder / SWEEP).write_text(json.dumps({"name": folder.name, "cells": cells}))
    return folder


def _estimates(found: Mapping[str, float]) -> dict[str, dict[str, float]]:
    return {k: {"value": value, "low": value - 0.1, "high": value + 0.1} for k, value in found.items()}
