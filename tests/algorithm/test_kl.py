import math

import pytest
import torch
from algorithm_cases import algorithm, problem

from rlctl.algorithm.kl import divergence


def D(*values):
    return torch.tensor([values], dtype=torch.float64)


@pytest.mark.parametrize(
    ("estimator", "expected"),
    [("k1", -0.5), ("k2", 0.125), ("k3", math.exp(0.5) - 1.5), ("k3_ratio", 3 * (math.exp(0.5) - 1.5))],
)
def test_estimators_by_hand(estimator, expected):
    """d = ref - logp = 0.5, ratio 3."""
    assert divergence(estimator, D(-1.5), D(-1.0), D(3.0)).item() == pytest.approx(expected, rel=1e-12)


def test_d_is_held_within_ten():
    assert divergence("k1", D(-50.0), D(0.0), D(1.0)).item() == -10
    assert divergence("k3", D(-50.0), D(0.0), D(1.0)).item() == pytest.approx(math.exp(10) - 11)


@pytest.mark.parametrize("estimator", ["k1", "k2", "k3", "k3_ratio"])
def test_b06_kl_has_a_gradient_without_advantages(estimator):
    """B-06: by hand, with d = ref - logp: k1 1, k2 -d, k3 1 - exp(d)."""
    row = algorithm({"kl": 0.5, "kl_estimator": estimator})
    assert row.needs == {"ref_logp"}
    assert not row.skips_zero_rows
    toy = problem(0, P=1, G=1, length=4)
    batch = toy.batch(row).with_(old_logp_BT=None)
    assert (batch.advantage_B == 0).all()
    _, slope = toy.whole(row, batch)
    d = (toy.ref - toy.theta)[1:]
    by_hand = {
        "k1": torch.ones_like(d),
        "k2": -d,
        "k3": 1 - d.exp(),
        "k3_ratio": 1 - d.exp() + d.exp() - d - 1,
    }
    torch.testing.assert_close(slope[1:], 0.5 * by_hand[estimator] / 4, rtol=0, atol=1e-12)


def test_kl_is_reported_detached_and_only_where_it_takes_part():
    toy = problem(0)
    theta = toy.theta.clone().requires_grad_()
    row = algorithm({"kl": 0.1})
    batch = toy.batch(row)
    kl_BT = row.objective(theta[batch.tokens_BT], None, batch).kl_BT
    assert not kl_BT.requires_grad
    assert (kl_BT[~batch.mask_BT] == 0).all()
    assert (kl_BT[batch.mask_BT] > 0).all()
    assert algorithm("grpo").objective(theta[batch.tokens_BT], None, batch).kl_BT is None


def test_entropy_bonus_adds_its_own_gradient():
    """Entropy of the toy is -theta exp(theta), with derivative -(1 + theta) exp(theta)."""
    row = algorithm({"entropy_coef": 0.01})
    assert row.needs == {"entropy"}
    assert not row.skips_zero_rows
    toy = problem(0, P=1, G=1, length=4)
    _, slope = toy.whole(row)
    by_hand = -0.01 * -(1 + toy.theta) * toy.theta.exp() / 4
    torch.testing.assert_close(slope[1:], by_hand[1:], rtol=0, atol=1e-14)
