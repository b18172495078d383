import torch
from algorithm_cases import algorithm, stats

from rlctl.algorithm.admit import Everything, Mixed
from rlctl.algorithm.shaping import Overlong

GROUPS = stats(
    [[0.0, 0.0, 0.0], [1.0, 0.0, 1.0], [1.0, 1.0, 1.0], [0.1 + 0.2, 0.3, 0.3], [1.0, float("nan"), 1.0]]
)


def test_mixed_admits_groups_that_vary():
    assert Mixed()(GROUPS).tolist() == [False, True, False, False, False]
    assert Everything()(GROUPS).tolist() == [True] * 5
    assert Everything()(GROUPS).dtype == torch.bool


def test_a18_a_length_penalty_admits_nothing():
    """A-18: an all-wrong group of mixed lengths is filtered."""
    known = stats([[0.0] * 3, [0.0, 1.0, 0.0]], length_PG=torch.tensor([[1, 9, 10], [1, 9, 10]]))
    shaped = Overlong()(known)
    assert len(set(shaped.reward_PG[0].tolist())) > 1
    assert algorithm("dapo").admit(shaped).tolist() == [False, True]
