"""What a recipe's sections demand of each other, and what is allowed but unlikely to be meant."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from rlctl.models import TinyModel
from rlctl.recipe import compose
from rlctl.rollout import RolloutSpec

if TYPE_CHECKING:
    from rlctl.recipe import Recipe

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


def _slots(recipe: Recipe) -> Problem:
    for index, control in enumerate(recipe.algorithm.control):
        if control.kind == "slots" and recipe.rollout.group_size % len(control.temperatures):
            return (
                f"rollout.group_size algorithm.control.{index}.temperatures",
                f"{recipe.rollout.group_size} completions cannot share {len(control.temperatures)} "
                "temperatures equally\nset rollout.group_size to a multiple of their number",
            )
    return None


def _cuts_the_law(recipe: Recipe) -> bool:
    return recipe.rollout.top_p < 1 or recipe.rollout.top_k is not None


CHECKS: tuple[Callable[[Recipe], Problem], ...] = (
    _group_size,
    _budget,
    _pass_at,
    _eval_temperature,
    _context,
    _truncated_law,
    _schedule,
    _minibatches,
    _slots,
    lambda recipe: next(compose.problems(recipe.algorithm), None),
)


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
    ahead, steps = recipe.algorithm.staging.ahead, recipe.budget.steps
    if steps is not None and 1 < steps < ahead:
        found.append(f"algorithm.staging.ahead is {ahead} of {steps} steps: there is only one stage")
    if ahead > 1 and steps is None:
        found.append(
            f"algorithm.staging.ahead samples {ahead} steps at once, whatever is left of the budget: "
            "set budget.steps"
        )
    found += _unread_temperature(recipe)
    return found + list(compose.warnings(recipe.algorithm))


def _unread_temperature(recipe: Recipe) -> list[str]:
    """Warn of a `rollout.temperature` that a controller replaces."""
    given = recipe.rollout.temperature
    for control in recipe.algorithm.control:
        if control.kind == "slots" and given != RolloutSpec().temperature:
            return [f"rollout.temperature is {given:g}, but the controller slots sets its own temperatures"]
        if control.kind == "temperature" and not control.low <= given <= control.high:
            return [
                f"rollout.temperature is {given:g}: the probe uses it, but the controller temperature keeps "
                f"samples between {control.low:g} and {control.high:g}"
            ]
    return []
