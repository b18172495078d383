"""The recipe: all sections together, checked against each other; read, written, hashed."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Sequence
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
        for check in _CHECKS:
            if problem := check(self):
                keys, text = problem
                paths = [tuple(key.split(".")) for key in keys.split()]
                raise PydanticCustomError("cross_check", text, {"paths": paths})
        return self


# The keys that take part, the likeliest to mend first; what is wrong, a newline, what to do.
Problem = tuple[str, str] | None


def _group_size(recipe: Recipe) -> Problem:
    if recipe.rollout.group_size >= 2:
        return None
    return (
        "rollout.group_size",
        "is 1, must be at least 2 for group-relative algorithms\nset it to 8: an advantage compares siblings",
    )


def _budget(recipe: Recipe) -> Problem:
    if any(limit is not None for limit in recipe.budget.model_dump().values()):
        return None
    return (
        "budget",
        "has no limit, the run would never end\nset budget.steps, budget.tokens or budget.minutes",
    )


def _pass_at(recipe: Recipe) -> Problem:
    spec = recipe.eval
    largest = max(spec.pass_at, default=1)
    if spec.samples is None or largest <= spec.samples:
        return None
    return (
        "eval.samples eval.pass_at",
        f"pass@{largest} needs at least {largest} samples a problem, eval.samples is {spec.samples}"
        "\nraise eval.samples or drop the large k from eval.pass_at",
    )


def _eval_temperature(recipe: Recipe) -> Problem:
    samples = recipe.eval.samples or max(recipe.eval.pass_at, default=1)
    if samples == 1 or recipe.eval.temperature > 0:
        return None
    return (
        "eval.temperature",
        f"is 0, so all {samples} samples of a problem would be the same"
        "\nset it above 0, or eval.samples=1 and eval.pass_at=[1]",
    )


def _context(recipe: Recipe) -> Problem:
    if not isinstance(recipe.model, TinyModel):
        return None
    prompt, context = recipe.data.max_prompt_length, recipe.model.context
    completion = max(recipe.rollout.max_completion_length, recipe.eval.max_completion_length or 0)
    if prompt + completion <= context:
        return None
    return (
        "model.context rollout.max_completion_length data.max_prompt_length eval.max_completion_length",
        f"prompt {prompt} + completion {completion} tokens do not fit the model's context of {context}\n"
        f"lower data.max_prompt_length or rollout.max_completion_length, or raise model.context to "
        f"{prompt + completion}",
    )


def _truncated_law(recipe: Recipe) -> Problem:
    if not _cuts_the_law(recipe) or recipe.algorithm.correction.kind == "none":
        return None
    return (
        "rollout.top_p" if recipe.rollout.top_p < 1 else "rollout.top_k",
        "training samples the whole law, else log-probs of engine and learner differ in meaning"
        "\nremove it, or accept the bias with algorithm.correction={kind: none}",
    )


def _schedule(recipe: Recipe) -> Problem:
    if recipe.optim.schedule == "constant" or recipe.budget.steps is not None:
        return None
    return (
        "optim.schedule",
        f"is {recipe.optim.schedule}, which ends at budget.steps, and that is not set"
        "\nset budget.steps, or optim.schedule=constant",
    )


def _minibatches(recipe: Recipe) -> Problem:
    parts, prompts = recipe.algorithm.staging.minibatches, recipe.rollout.prompts_per_step
    if parts <= prompts:
        return None
    return (
        "rollout.prompts_per_step algorithm.staging.minibatches",
        f"{prompts} prompts a step cannot be split into {parts} minibatches of whole groups"
        f"\nset rollout.prompts_per_step to {parts} or more, or lower algorithm.staging.minibatches",
    )


_CHECKS: tuple[Callable[[Recipe], Problem], ...] = (
    _group_size,
    _budget,
    _pass_at,
    _eval_temperature,
    _context,
    _truncated_law,
    _schedule,
    _minibatches,
)


def _cuts_the_law(recipe: Recipe) -> bool:
    return recipe.rollout.top_p < 1 or recipe.rollout.top_k is not None


def warnings(recipe: Recipe) -> list[str]:
    """List what is allowed but unlikely to be meant."""
    found = []
    if _cuts_the_law(recipe):
        found.append("rollout.top_p / top_k cut the sampled law: the gradient is biased and not corrected")
    if not recipe.eval.sets:
        found.append("eval.sets is empty: nothing is evaluated")
    longest = recipe.rollout.max_completion_length
    for index, stage in enumerate(recipe.algorithm.shaping):
        buffer = getattr(stage, "buffer", None)
        if buffer is not None and buffer >= longest:
            found.append(
                f"algorithm.shaping.{index}.buffer is {buffer} tokens of at most {longest}: "
                "every completion is punished for its length"
            )
    return found


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
