"""What a recipe will cost, by hand."""

import pytest
from recipe_cases import read

from rlctl.plan import plan, zero_variance


def test_a25_expected_share_of_groups_without_signal():
    """A-25: with two answers and a success rate of 0.18, 70 % of the groups teach nothing."""
    assert zero_variance(0.18, 2) == pytest.approx(0.7048)
    assert zero_variance(0.5, 8) == pytest.approx(2 / 256)
    assert zero_variance(0.1, 8) == pytest.approx(0.43046722)
    assert set(plan(read()).zero_variance_share) == {"0.1", "0.5", "0.9"}


def test_completions_steps_and_tokens():
    costs = plan(read("rollout={group_size: 4, prompts_per_step: 10, max_completion_length: 100}"))
    assert (costs.completions_per_step, costs.completions) == (40, 400)
    assert (costs.tokens_per_step_at_most, costs.tokens_at_most) == (4000, 40_000)
    assert (costs.optimiser_steps_per_step, costs.optimiser_steps) == (1, 10)


def test_several_updates_a_step():
    costs = plan(read("algorithm.staging={minibatches: 4, epochs: 2}"))
    assert (costs.optimiser_steps_per_step, costs.optimiser_steps) == (8, 80)


def test_admission_may_sample_again():
    costs = plan(read("algorithm=dapo", "rollout={group_size: 4, prompts_per_step: 10, max_refills: 3}"))
    assert (costs.completions_per_step, costs.completions_per_step_with_refills) == (40, 160)
    assert costs.tokens_per_step_at_most == 160 * 1024


@pytest.mark.parametrize(
    ("budget", "binds"),
    [
        ("{steps: 10, tokens: null}", "steps"),
        ("{steps: 10, tokens: 40000}", "steps"),
        ("{steps: 10, tokens: 39999}", "steps or tokens"),
        ("{steps: null, tokens: 5000}", "tokens"),
        ("{steps: null, minutes: 3}", "minutes"),
        ("{steps: 10, minutes: 3}", "steps"),
    ],
)
def test_which_budget_binds(budget, binds):
    costs = plan(
        read("rollout={group_size: 4, prompts_per_step: 10, max_completion_length: 100}", f"budget={budget}")
    )
    assert costs.binds == binds
    assert costs.binds_because


def test_tokens_without_steps_give_a_lower_bound():
    costs = plan(
        read(
            "rollout={group_size: 4, prompts_per_step: 10, max_completion_length: 100}",
            "budget={steps: null, tokens: 4001}",
        )
    )
    assert costs.binds_because == "4,001 tokens, at least 2 steps"
    assert costs.completions is None
