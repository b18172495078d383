import pytest
import torch
from algorithm_cases import NAMES, algorithm, problem, stats

from rlctl.algorithm.reweight import Focal

# algorithms.md 3.1: gamma 0.5, G = 8, population std, X = 1..7
TABLE = [2.475, 1.500, 1.021, 0.707, 0.474, 0.289, 0.134]
UNWEIGHTED = [2.646, None, None, None, None, None, 0.378]


def test_focal_table_of_the_paper():
    groups = stats([[1.0] * X + [0.0] * (8 - X) for X in range(1, 8)])
    row = {"advantage": {"std": "population", "eps": 0}}
    plain = algorithm(row).credit(groups).advantage_PG[:, 0].tolist()
    focal = algorithm({**row, "reweight": [{"kind": "focal", "gamma": 0.5}]}).credit(groups)
    assert [round(a, 3) for a in focal.advantage_PG[:, 0].tolist()] == TABLE
    assert [round(plain[0], 3), round(plain[-1], 3)] == [UNWEIGHTED[0], UNWEIGHTED[-1]]


def test_focal_counts_correct_answers_and_not_rewards():
    half = stats([[3.0, 2.0, 1.0, 0.0]], correct_PG=torch.tensor([[True, True, False, False]]))
    assert Focal(gamma=1.0)(half).tolist() == [[0.5]]
    assert Focal(gamma=2.0)(half).tolist() == [[0.25]]
    assert Focal(gamma=1.0)(stats([[1.0, 1.0], [0.0, 0.0]])).tolist() == [[0.0], [1.0]]


def test_focal_leaves_unjudged_answers_out():
    assert Focal(gamma=1.0)(stats([[1.0, 0.0, float("nan"), float("nan")]])).tolist() == [[0.5]]


def test_entries_multiply():
    groups = stats([[1.0, 0.0, 0.0, 0.0]])
    twice = algorithm({"reweight": [{"kind": "focal", "gamma": 1.0}, {"kind": "focal", "gamma": 2.0}]})
    once = algorithm({"reweight": [{"kind": "focal", "gamma": 3.0}]})
    torch.testing.assert_close(twice.credit(groups).advantage_PG, once.credit(groups).advantage_PG)


@pytest.mark.parametrize("name", NAMES)
def test_gamma_zero_is_bitwise_the_row(name):
    plain = algorithm(name)
    neutral = algorithm({"preset": name, "reweight": [{"kind": "focal", "gamma": 0}]})
    toy = problem(3)
    for a, b in zip(toy.whole(plain), toy.whole(neutral), strict=True):
        assert torch.equal(a, b)
