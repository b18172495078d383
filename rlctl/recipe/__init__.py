"""The recipe: all sections together, checked against each other; read, written, hashed."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Literal, Self

from pydantic import Field, ValidationError, model_validator
from pydantic_core import PydanticCustomError

from rlctl.algorithm import Algorithm
from rlctl.budget import BudgetSpec, EarlyStopSpec, ResourcesSpec
from rlctl.checkpoint import CheckpointSpec
from rlctl.data import DataSpec
from rlctl.engine import AutoEngine, EngineSpec
from rlctl.errors import UserError
from rlctl.evaluate import EvalSpec
from rlctl.learner import OptimSpec
from rlctl.models import ModelSpec, TinyModel
from rlctl.recipe.checks import CHECKS
from rlctl.recipe.document import parse, render
from rlctl.recipe.draft import draft
from rlctl.recipe.explain import explain
from rlctl.recipe.shelf import find
from rlctl.rollout import RolloutSpec
from rlctl.spec import Spec
from rlctl.track import TrackSpec
from rlctl.verify import VerifierSpec

# What may change when a run is resumed. The rest names the run's folder.
_NOT_HASHED: dict[str, Any] = {
    "budget": True,
    "checkpoint": True,
    "track": True,
    "eval": True,
    "output_dir": True,
}


class Recipe(Spec):
    """A whole experiment. Build one with `load`: it fills in what `auto` and null stand for."""

    version: Literal[1] = 1
    name: str = Field(pattern=r"^[A-Za-z0-9][A-Za-z0-9._-]*$", max_length=100)
    seed: int = Field(17, ge=0, lt=2**31)
    output_dir: str = "runs"
    model: ModelSpec
    data: DataSpec
    verifier: VerifierSpec = "auto"
    algorithm: Algorithm = Algorithm()
    rollout: RolloutSpec = RolloutSpec()
    optim: OptimSpec = OptimSpec()
    engine: EngineSpec = AutoEngine()
    resources: ResourcesSpec = ResourcesSpec()
    budget: BudgetSpec
    eval: EvalSpec = EvalSpec()
    checkpoint: CheckpointSpec = CheckpointSpec()
    early_stop: EarlyStopSpec | None = None
    track: TrackSpec = TrackSpec()

    @model_validator(mode="after")
    def _cross_checks(self) -> Self:
        for check in CHECKS:
            if problem := check(self):
                keys, text = problem
                paths = [tuple(key.split(".")) for key in keys.split()]
                raise PydanticCustomError("cross_check", text, {"paths": paths})
        return self


def load(path_or_name: str | Path, overrides: Sequence[str] = ()) -> Recipe:
    """Read a recipe file, or a shipped one by name; `overrides` are `key=value` laid over it.

    Raises:
        UserError: whatever is wrong, with file and line or the override.
    """
    file = find(str(path_or_name))
    try:
        text = file.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise UserError(
            f"{path_or_name}: cannot be read: {error}", "a recipe is a YAML file in UTF-8"
        ) from None
    inside = file.is_relative_to(Path.cwd())
    return load_text(text, str(file.relative_to(Path.cwd()) if inside else file), overrides, file.parent)


def load_text(text: str, place: str, overrides: Sequence[str] = (), folder: Path | None = None) -> Recipe:
    """Read a recipe from text; `place` names it in messages, relative paths start at `folder`."""
    made = draft(parse(text, place), overrides, folder)
    try:
        return _resolve(Recipe.model_validate(made.data))
    except ValidationError as error:
        raise explain(error, Recipe, made.data, made.place) from None


def _resolve(recipe: Recipe) -> Recipe:
    """Fill in what `learning_rate: auto` and the nulls of `eval` stand for."""
    spec, rate = recipe.eval, recipe.optim.learning_rate
    ours = {
        "optim": recipe.optim.model_copy(
            update={"learning_rate": _usual_rate(recipe) if rate == "auto" else rate},
        ),
        "eval": spec.model_copy(
            update={
                "samples": spec.samples or max(spec.pass_at, default=1),
                "max_completion_length": spec.max_completion_length or recipe.rollout.max_completion_length,
            }
        ),
    }
    return recipe.model_copy(update=ours)


def _usual_rate(recipe: Recipe) -> float:
    """Small models take larger steps, and adapters ten times those of all weights."""
    tiny, lora = isinstance(recipe.model, TinyModel), recipe.model.lora is not None
    return {(False, False): 1e-6, (False, True): 1e-5, (True, False): 2e-4, (True, True): 2e-3}[tiny, lora]


def dump(recipe: Recipe) -> str:
    """Write every field as YAML; `load_text(dump(recipe), ...)` is the same recipe."""
    return render(recipe.model_dump(mode="json"))


def recipe_hash(recipe: Recipe) -> str:
    """Return the sha256 of all that makes another run, as hex: budget, eval and such may change on resume."""
    data = recipe.model_dump(mode="json", exclude=_NOT_HASHED)
    return hashlib.sha256(json.dumps(data, sort_keys=True, separators=(",", ":")).encode()).hexdigest()


def run_folder(recipe: Recipe) -> Path:
    """Return `{output_dir}/{name}-{first 8 of the hash}`."""
    return Path(recipe.output_dir) / f"{recipe.name}-{recipe_hash(recipe)[:8]}"
