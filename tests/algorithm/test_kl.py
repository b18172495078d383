import math
from itertools import chain

import pytest
import torch
from algorithm_cases import MAX_LENGTH, algorithm, problem

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


def test_d_is_held_within_ten_where_it_is_exponentiated():
    """The others keep value and gradient however far the policy is from the reference (2605.20722's k1)."""
    far = D(-50.0).requires_grad_()
    for estimator, value, gradient in [
        ("k1", -50, 1),
        ("k2", 1250, -50),
        ("k3", math.exp(10) - 11, 0),
        ("k3_ratio", 2 * (math.exp(10) - 11), 0),
    ]:
        found = divergence(estimator, far, D(0.0), D(2.0))
        assert found.item() == pytest.approx(value)
        assert torch.autograd.grad(found, far)[0].item() == gradient


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
    assert row.needs == frozenset()  # the update's own forward pass has it
    assert not row.skips_zero_rows
    toy = problem(0, P=1, G=1, length=4)
    _, slope = toy.whole(row)
    by_hand = -0.01 * -(1 + toy.theta) * toy.theta.exp() / 4
    torch.testing.assert_close(slope[1:], by_hand[1:], rtol=0, atol=1e-14)


def kl_of(row, toy):
    """The share of the loss, and of its gradient, that the reference has."""
    free = row.model_copy(update={"kl": 0.0, "kl_negative": None})
    (loss, slope), (plain, steep) = toy.whole(row), toy.whole(free)
    return (loss - plain).item(), slope - steep


def k1_of(toy, rows):
    return [(toy.theta - toy.ref)[row.start : row.start + row.length].tolist() for row in rows]


@pytest.mark.parametrize("aggregate", ["token", "sequence", "constant", "row_sum"])
@pytest.mark.parametrize("kl_aggregate", [None, "token", "group", "sequence", "constant", "row_sum"])
def test_the_divergence_has_an_average_of_its_own(aggregate, kl_aggregate):
    """Whatever gains are averaged by: means of k1 by loops."""
    toy = problem(2)
    row = algorithm({"aggregate": aggregate, "kl": 0.5, "kl_estimator": "k1", "kl_aggregate": kl_aggregate})
    n, k1 = len(toy.rows), k1_of(toy, toy.rows)
    groups = [list(chain(*k1[p * toy.G : (p + 1) * toy.G])) for p in range(n // toy.G)]
    expected = {
        "token": sum(map(sum, k1)) / sum(map(len, k1)),
        "group": sum(sum(each) / len(each) for each in groups) / len(groups),
        "sequence": sum(sum(each) / len(each) for each in k1) / n,
        "constant": sum(map(sum, k1)) / (n * MAX_LENGTH),
        "row_sum": sum(map(sum, k1)) / n,
    }[kl_aggregate or aggregate]
    found, slope = kl_of(row, toy)
    assert found == pytest.approx(0.5 * expected, abs=1e-12)
    assert slope[1:].min() > 0  # every token is held back, those of silent groups too


def test_the_group_average_of_a_minibatch_is_over_its_own_groups():
    """Two minibatches of two groups: each group weighs 1/2 in its own."""
    toy = problem(2)
    row = algorithm({"kl": 1.0, "kl_aggregate": "group"})
    for part in toy.batch(row).minibatches(2):
        weighed = row.weigh(part, MAX_LENGTH)
        weight_BT = weighed.kl_scale_BT * weighed.weight_BT
        assert weight_BT.sum().item() == pytest.approx(1.0)
        for p in set(part.group_B.tolist()):
            group_BT = weight_BT[part.group_B == p]
            assert group_BT.sum().item() == pytest.approx(0.5)
            assert len({round(w, 12) for w in group_BT[group_BT > 0].tolist()}) == 1


def test_negative_rows_are_held_by_a_weight_of_their_own():
    """0.1 where A >= 0 (silent groups too), 0.4 where A < 0: k1 by loops over rows."""
    toy = problem(0)
    row = algorithm({"kl": 0.1, "kl_negative": 0.4, "kl_estimator": "k1"})
    negative = (toy.batch(row).advantage_B < 0).tolist()
    assert {True, False} == set(negative)
    k1 = k1_of(toy, toy.rows)
    expected = sum(
        (0.4 if below else 0.1) * sum(each) / len(each) for below, each in zip(negative, k1, strict=True)
    ) / len(k1)
    found, _ = kl_of(row, toy)
    assert found == pytest.approx(expected, abs=1e-12)


def test_a_weight_of_0_on_one_side_still_needs_the_reference():
    toy = problem(0)
    for spec in ({"kl": 0.0, "kl_negative": 0.4}, {"kl": 0.1, "kl_negative": 0.0}):
        row = algorithm({**spec, "kl_estimator": "k1"})
        assert row.needs == {"ref_logp"}
        assert not row.skips_zero_rows
        _, slope = kl_of(row, toy)
        batch = toy.batch(row)
        held_BT = ((batch.advantage_B < 0) == (spec["kl"] == 0))[:, None] & batch.mask_BT
        assert torch.equal(slope[batch.tokens_BT].abs() > 1e-12, held_BT)
