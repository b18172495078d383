import math

import pytest
import torch
from algorithm_cases import algorithm, problem

from rlctl.algorithm.correction import Correction, NoCorrection

GAP = torch.tensor([[0.0, math.log(1.5), math.log(3.0)], [math.log(0.5), 0.0, 0.0]], dtype=torch.float64)


@pytest.mark.parametrize(
    ("kind", "expected"),
    [
        ("token_truncate", [[1, 1.5, 2], [0.5, 1, 1]]),
        ("token_mask", [[1, 1.5, 0], [0.5, 1, 1]]),
        ("sequence_truncate", [[2], [0.5]]),  # 1.5 * 3 and 0.5
        ("sequence_mask", [[0], [0.5]]),
    ],
)
def test_factors_by_hand(kind, expected):
    factor = Correction(kind=kind)(GAP)
    torch.testing.assert_close(factor, torch.tensor(expected, dtype=torch.float64))


@pytest.mark.parametrize("kind", ["token_truncate", "token_mask", "sequence_truncate", "sequence_mask"])
def test_it_scales_the_policy_gain_and_not_the_rest(kind):
    """A KL term alone (no advantage) is the same with and without the correction."""
    toy = problem(0, P=1, G=1, length=4)
    row = algorithm({"kl": 0.5, "entropy_coef": 0.1, "correction": {"kind": kind}})
    for a, b in zip(toy.whole(row), toy.whole(row.without_correction()), strict=True):
        assert torch.equal(a, b)


def test_without_correction():
    row = algorithm("dapo")
    same = row.without_correction()
    assert same.correction == NoCorrection()
    assert row.correction == Correction()
    assert same.model_copy(update={"correction": row.correction}) == row
    toy = problem(0)
    _, slope = toy.whole(row)
    _, plain = toy.whole(same)
    assert not torch.allclose(slope, plain)
    matched = problem(0)
    matched.engine = matched.old
    _, equal = matched.whole(row)
    torch.testing.assert_close(equal, plain, rtol=0, atol=1e-14)


def test_the_factor_carries_no_gradient():
    """With one update the old log-probs are the update's own: d loss / d logp must not see the factor."""
    row = algorithm({"preset": "grpo", "correction": {"kind": "token_truncate", "max": 100.0}})
    toy = problem(0, P=1, length=3)
    batch = toy.batch(row).with_(old_logp_BT=None)
    _, slope = toy.whole(row, batch)
    factor_BT = (toy.theta[batch.tokens_BT] - batch.engine_logp_BT).exp()
    by_hand = torch.zeros_like(slope)
    by_hand[batch.tokens_BT] = -factor_BT * batch.advantage_B[:, None] / 12
    torch.testing.assert_close(slope, by_hand, rtol=0, atol=1e-12)
