"""What there is to name: kinds, algorithms, recipes, runs; and what is known of one run."""

from __future__ import annotations

import json
from difflib import get_close_matches
from pathlib import Path
from typing import Any

from rlctl.algorithm.presets import PRESETS
from rlctl.data import AnySource
from rlctl.engine import EngineSpec
from rlctl.errors import UserError
from rlctl.recipe import Recipe
from rlctl.recipe.schema import kinds, tables
from rlctl.recipe.shelf import shipped
from rlctl.runfolder import RunFolder
from rlctl.verify import AnyVerifier


def algorithms() -> list[dict[str, Any]]:
    """List the rows of the table of algorithms."""
    return [{"name": name, "title": row.title, "source": row.source} for name, row in PRESETS.items()]


def data() -> list[dict[str, Any]]:
    """List the kinds of sources."""
    return _kinds(AnySource)


def verifiers() -> list[dict[str, Any]]:
    """List the kinds of verifiers."""
    return _kinds(AnyVerifier)


def engines() -> list[dict[str, Any]]:
    """List the kinds of engines."""
    return _kinds(EngineSpec)


def _kinds(union: Any) -> list[dict[str, Any]]:
    return [
        {"kind": kind, "what": (table.__doc__ or "").splitlines()[0]}
        for table in tables(union)
        for kind in kinds(table)
    ]


def recipes() -> list[dict[str, Any]]:
    """List the shipped recipes with their first line of comment."""
    return [
        {"name": name, "what": file.read_text(encoding="utf-8").splitlines()[0].lstrip("# ")}
        for name, file in shipped().items()
    ]


def runs() -> list[dict[str, Any]]:
    """List the runs in `runs/`, the newest last."""
    files = sorted(Path("runs").glob("*/status.json"), key=lambda file: file.stat().st_mtime)
    rows = []
    for file in files:
        status = RunFolder(file.parent).status()
        known = {key: status.get(key) for key in ("state", "stop_reason", "step", "tokens")}
        rows.append({"name": file.parent.name, **known})
    return rows


def find_run(name: str) -> Path:
    """Find a run's folder by path, or in `runs/` by name or its beginning.

    Raises:
        UserError: there is none, or several begin so.
    """
    folder = Path(name).expanduser()
    if (folder / "status.json").is_file():
        return folder
    every = [file.parent for file in sorted(Path("runs").glob("*/status.json"))]
    found = [run for run in every if run.name == name] or [run for run in every if run.name.startswith(name)]
    if len(found) == 1:
        return found[0]
    names = [run.name for run in found or every]
    if found:
        raise UserError(f"{name}: several runs begin so", f"one of: {', '.join(names[:8])}")
    close = get_close_matches(folder.name, names, n=1)
    hint = f"did you mean {close[0]}?" if close else "rlctl list runs shows those in runs/"
    raise UserError(f"{name}: no such run", hint)


def describe(folder: Path) -> dict[str, Any]:
    """Return the run's status, its last line of metrics and its evaluations."""
    metrics = _lines(folder / "metrics.jsonl")
    return {
        "folder": str(folder),
        "status": RunFolder(folder).status(),
        "metrics": metrics[-1] if metrics else {},
        "evals": _lines(folder / "evals.jsonl"),
    }


def _lines(file: Path) -> list[dict[str, Any]]:
    """Read JSON lines; a running process may have the last one half written."""
    if not file.exists():
        return []
    whole, _, _ = file.read_text(encoding="utf-8").rpartition("\n")
    return [json.loads(line) for line in whole.splitlines()]


def recipe_schema() -> dict[str, Any]:
    """Return the JSON schema of a recipe, with the short form of `algorithm`."""
    schema = Recipe.model_json_schema(by_alias=False)
    row = schema["properties"]["algorithm"]
    short = {"type": "string", "enum": list(PRESETS)}
    schema["properties"]["algorithm"] = {
        "anyOf": [short, {"$ref": "#/$defs/Algorithm"}],
        "default": row["default"],
    }
    return schema
