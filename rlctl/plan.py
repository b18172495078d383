"""What a recipe will cost before it runs: completions, optimiser steps, tokens, idle groups."""

from __future__ import annotations

from typing import Literal

from pydantic import BaseModel

from rlctl.recipe import Recipe

RATES = (0.1, 0.5, 0.9)  # shares of correct answers at which idle groups are foretold


class Plan(BaseModel):
    """Upper bounds, in tokens and completions for training; evaluation is not counted."""

    completions_per_step: int
    completions_per_step_with_refills: int
    probe_completions_per_step: int  # drawn beside them, never trained on
    optimiser_steps_per_step: int
    tokens_per_step_at_most: int
    steps: int | None
    completions: int | None
    optimiser_steps: int | None
    tokens_at_most: int | None
    zero_variance_share: dict[str, float]  # by share of correct answers
    binds: Literal["steps", "tokens", "steps or tokens", "minutes"]
    binds_because: str


def plan(recipe: Recipe) -> Plan:
    """Work the plan out.

    With admission a step may sample up to 1 + max_refills times. `minutes` cannot be foretold.
    """
    rollout, staging = recipe.rollout, recipe.algorithm.staging
    completions = rollout.group_size * rollout.prompts_per_step
    refilled = recipe.algorithm.admit.kind != "everything"
    rounds = 1 + rollout.max_refills if refilled else 1
    most, probes = completions * rounds, _probes(recipe) * rounds
    steps, tokens_per_step = recipe.budget.steps, (most + probes) * rollout.max_completion_length
    binds, because = _binds(recipe, tokens_per_step)
    return Plan(
        completions_per_step=completions,
        completions_per_step_with_refills=most,
        probe_completions_per_step=probes,
        optimiser_steps_per_step=staging.updates,
        tokens_per_step_at_most=tokens_per_step,
        steps=steps,
        completions=None if steps is None else steps * completions,
        optimiser_steps=None if steps is None else steps * staging.updates,
        tokens_at_most=None if steps is None else steps * tokens_per_step,
        zero_variance_share={str(rate): zero_variance(rate, rollout.group_size) for rate in RATES},
        binds=binds,
        binds_because=because,
    )


def _probes(recipe: Recipe) -> int:
    probe, rollout = recipe.algorithm.probe, recipe.rollout
    return rollout.prompts_per_step * (probe.samples or rollout.group_size) if probe else 0


def zero_variance(rate: float, size: int) -> float:
    """Return p^G + (1-p)^G: the expected share of groups in which all or none are right."""
    return rate**size + (1 - rate) ** size


def _binds(
    recipe: Recipe, tokens_per_step: int
) -> tuple[Literal["steps", "tokens", "steps or tokens", "minutes"], str]:
    budget = recipe.budget
    also = "" if budget.minutes is None else f", unless {budget.minutes:g} minutes pass before"
    match budget.steps, budget.tokens:
        case None, None:
            return "minutes", "there is no other limit"
        case _, None:
            return "steps", f"{budget.steps} steps{also}"
        case None, tokens:
            return "tokens", f"{tokens:,} tokens, at least {-(-tokens // tokens_per_step)} steps{also}"
        case steps, tokens if steps * tokens_per_step <= tokens:
            return "steps", f"{steps} steps cannot use {tokens:,} tokens{also}"
        case steps, tokens:
            completions = recipe.rollout.group_size * recipe.rollout.prompts_per_step + _probes(recipe)
            mean = tokens / (steps * completions)
            return (
                "steps or tokens",
                f"tokens, if a completion takes more than {mean:.0f} of them on average{also}",
            )
