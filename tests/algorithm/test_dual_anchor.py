"""MDP-GRPO's advantage: against the group and against a goal."""

import math

import pytest
import torch
from algorithm_cases import stats
from hypothesis import given, settings
from hypothesis import strategies as st

from rlctl.algorithm.advantage import DualAnchor

NAN = float("nan")


def loops(spec, rewards):
    """2606.06058 in plain numbers; `goal` and `goal_std` as paper or code have them."""

    def bend(v):
        return (spec.gain if v >= 0 else spec.loss) * math.tanh(spec.slope * v)

    judged = [r for r in rewards if not math.isnan(r)]
    if len(judged) < 2:
        return [0.0] * len(rewards)
    mean = sum(judged) / len(judged)
    std = math.sqrt(sum((r - mean) ** 2 for r in judged) / len(judged))
    goal = max(0.5, mean) if spec.goal == "moving" else 0.5
    sigma = {
        "paper": 1 / (2 * math.sqrt(spec.constraints)),
        "code": math.sqrt(len(rewards) / (4 * spec.constraints)),
    }[spec.goal_std]
    flat = max(judged) - min(judged) < 1e-9
    found = []
    for r in rewards:
        z = 0.0 if flat else (r - mean) / std
        found.append(0.0 if math.isnan(r) else (1 - spec.mix) * bend(z) + spec.mix * bend((r - goal) / sigma))
    return found


@given(
    st.lists(st.integers(0, 4).map(lambda i: i / 4) | st.just(NAN), min_size=2, max_size=8),
    st.sampled_from(["fixed", "moving"]),
    st.sampled_from(["paper", "code"]),
    st.integers(1, 5),
)
@settings(max_examples=150, deadline=None)
def test_by_loops(rewards, goal, goal_std, constraints):
    spec = DualAnchor(goal=goal, goal_std=goal_std, constraints=constraints)
    assert spec(stats([rewards]))[0].tolist() == pytest.approx(loops(spec, rewards), abs=1e-12)


def test_binary_rewards_by_hand():
    """One right of two: z = d = +-1, so A = 1.25 tanh 0.8, -2 tanh 0.8. Equal groups feel the goal alone."""
    up, down = 1.25 * math.tanh(0.8), -2.0 * math.tanh(0.8)
    found = DualAnchor()(stats([[1.0, 0.0], [1.0, 1.0], [0.0, 0.0]]))
    expected = [[up, down], [0.2 * up, 0.2 * up], [0.2 * down, 0.2 * down]]
    torch.testing.assert_close(found, torch.tensor(expected, dtype=torch.float64))


def test_the_code_s_goal_is_wider_and_moves():
    """Of four: the std of the goal is 1, not 1/2; all correct stand at a moving goal, so nothing pulls."""
    all_right = stats([[1.0] * 4])
    code = DualAnchor(goal_std="code")(all_right)
    torch.testing.assert_close(code, torch.full((1, 4), 0.2 * 1.25 * math.tanh(0.8 * 0.5)).double())
    assert (DualAnchor(goal="moving")(all_right) == 0).all()
    paper = DualAnchor()(all_right)
    assert (paper > code).all()


def test_a_constant_reward_matters_here():
    low, high = DualAnchor()(stats([[0.0, 0.5]])), DualAnchor()(stats([[0.5, 1.0]]))
    assert (high > low).all()


def test_a05_one_judged_member_gets_zero():
    """A-05."""
    assert DualAnchor()(stats([[1.0, NAN, NAN], [NAN] * 3])).tolist() == [[0.0] * 3] * 2


def test_mix_goes_from_the_group_to_the_goal():
    rewards = stats([[1.0, 1.0, 0.0, 0.0, 0.25]])
    parts = [DualAnchor(mix=mix)(rewards) for mix in (0.0, 0.3, 1.0)]
    torch.testing.assert_close(parts[1], 0.7 * parts[0] + 0.3 * parts[2])
