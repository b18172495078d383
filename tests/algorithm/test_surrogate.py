import math

import pytest
import torch
from algorithm_cases import algorithm, problem

from rlctl.batch import Batch


def one_row(A, ratios, low=0.2, high=0.2, price=0.0):
    """A row of given ratios against old log-probs of -1; the engine agrees with them."""
    T = len(ratios)
    old = torch.full((1, T), -1.0, dtype=torch.float64)
    batch = Batch(
        prompts_B=((1,),),
        tokens_BT=torch.arange(T)[None],
        mask_BT=torch.ones(1, T, dtype=torch.bool),
        engine_logp_BT=old,
        temperature_B=torch.ones(1),
        group_B=torch.zeros(1, dtype=torch.int64),
        correct_B=torch.zeros(1, dtype=torch.int64),
        advantage_B=torch.tensor([A], dtype=torch.float64),
        clip_low_B=torch.tensor([low], dtype=torch.float64),
        clip_high_B=torch.tensor([high], dtype=torch.float64),
        price_B=torch.tensor([price], dtype=torch.float64),
        old_logp_BT=old,
    )
    logp = (old + torch.tensor([ratios], dtype=torch.float64).log()).requires_grad_()
    return batch, logp


def slope(spec, A, ratios, **bounds):
    """Derivative of the summed gain by each log-prob, the gain itself, and what counts as clipped."""
    batch, logp = one_row(A, ratios, **bounds)
    result = algorithm(spec).objective(logp, None, batch)
    result.gain_BT.sum().backward()
    return logp.grad[0].tolist(), result.gain_BT[0].tolist(), result.clipped_BT[0].tolist()


@pytest.mark.parametrize(
    ("A", "gradient", "gain", "clipped"),
    [
        (2.0, [1.0, 2.0, 2.4, 0.0], [1.0, 2.0, 2.4, 2.4], [False, False, False, True]),
        (-2.0, [0.0, -2.0, -2.4, -3.0], [-1.6, -2.0, -2.4, -3.0], [True, False, False, False]),
        (0.0, [0.0] * 4, [0.0] * 4, [False] * 4),
    ],
)
def test_clipped_by_hand(A, gradient, gain, clipped):
    found = slope("grpo", A, [0.5, 1.0, 1.2 - 1e-15, 1.5])
    assert found[0] == pytest.approx(gradient)
    assert found[1] == pytest.approx(gain)
    assert found[2] == clipped


@pytest.mark.parametrize(
    ("A", "ratios", "gradient", "gain", "clipped"),
    [
        # a negative A: -r 2 down to the floor of 3 * -2, which has no gradient
        (-2.0, [0.5, 1.0, 2.9, 3.1, 9.0], [0, -2, -5.8, 0, 0], [-1.6, -2, -5.8, -6, -6], [1, 0, 0, 1, 1]),
        # a positive one never meets it
        (2.0, [0.5, 1.0, 1.5, 9.0], [1, 2, 0, 0], [1, 2, 2.4, 2.4], [0, 0, 1, 1]),
    ],
)
def test_dual_clip_by_hand(A, ratios, gradient, gain, clipped):
    found = slope({"surrogate": {"dual": 3.0}}, A, ratios)
    assert found[0] == pytest.approx(gradient)
    assert found[1] == pytest.approx(gain)
    assert found[2] == [bool(x) for x in clipped]


@pytest.mark.parametrize("price", [0.5, 2.0])
@pytest.mark.parametrize("A", [1.5, -1.5])
def test_priced_pulls_to_its_target_and_no_further(A, price):
    """r (A - lambda log r): the gradient is that number, 0 at r = exp(A / lambda), and turns there."""
    target = math.exp(A / price)
    ratios = [0.5 * target, target, 2.0 * target, 1.0]
    spec = {"surrogate": {"kind": "priced"}, "clip": {"kind": "dual"}}
    gradient, gain, clipped = slope(spec, A, ratios, price=price)
    by_hand = [price * math.log(2) * ratios[0], 0.0, -price * math.log(2) * ratios[2], A]
    assert gradient == pytest.approx(by_hand, abs=1e-12)
    assert gain == pytest.approx(by_hand, abs=1e-12)
    assert clipped == [False] * 4


def test_priced_pulls_back_a_row_without_advantage():
    """A = 0: -lambda r log r, so such a row is not silent; every other surrogate's is."""
    spec = {"surrogate": {"kind": "priced"}, "clip": {"kind": "dual"}}
    gradient, _, _ = slope(spec, 0.0, [0.5, 1.0, 2.0], price=0.3)
    assert gradient == pytest.approx([0.15 * math.log(2), 0.0, -0.6 * math.log(2)])
    for name in ("grpo", "cispo", "sapo", "rloo"):
        assert slope(name, 0.0, [0.5, 1.0, 2.0])[0] == [0.0] * 3


def test_priced_at_no_price_is_the_plain_ratio():
    gradient, gain, _ = slope({"surrogate": {"kind": "priced"}}, 2.0, [0.5, 1.0, 3.0])
    assert gradient == pytest.approx([1.0, 2.0, 6.0])
    assert gain == pytest.approx([1.0, 2.0, 6.0])


def test_b05_cispo_closed_form_and_gradient_past_the_clip():
    """B-05: detach(clip(r)) A logp on three tokens; the bound is 1 + 4."""
    ratios = [0.5, 2.0, 9.0]
    for A in (1.5, -1.5):
        gradient, gain, clipped = slope("cispo", A, ratios, low=1.0, high=4.0)
        weights = [0.5, 2.0, 5.0]
        logps = [math.log(r) - 1 for r in ratios]
        assert gradient == pytest.approx([w * A for w in weights])
        assert gain == pytest.approx([w * A * p for w, p in zip(weights, logps, strict=True)])
        assert clipped == [False, False, True]


@pytest.mark.parametrize(
    ("ratio", "factor"), [(1.0, 1.0), (1.2, 0.990), (1.5, 0.940), (0.5, 0.940), (2.0, 0.786), (3.0, 0.420)]
)
def test_sapo_gate_against_the_plain_ratio(ratio, factor):
    """algorithms.md 7.1: sech^2(tau (r - 1) / 2) at tau 1."""
    gradient, _, clipped = slope("sapo", 1.0, [ratio])
    assert round(gradient[0] / ratio, 3) == factor
    assert clipped == [False]


def test_sapo_damps_negative_tokens_faster():
    up, _, _ = slope("sapo", 1.0, [2.0])
    down, _, _ = slope("sapo", -1.0, [2.0])
    assert down[0] / -2 == pytest.approx(1 / math.cosh(1.05 / 2) ** 2)
    assert abs(down[0]) < up[0]


def test_reinforce_ignores_ratio_and_bounds():
    gradient, gain, clipped = slope("rloo", 2.0, [0.1, 1.0, 30.0])
    assert gradient == [2.0] * 3
    assert gain == pytest.approx([2 * (math.log(r) - 1) for r in (0.1, 1.0, 30.0)])
    assert clipped == [False] * 3


def test_gspo_spreads_the_sequence_gradient_evenly():
    """s = geometric mean of the ratios; the mean of s A over T tokens has the derivative s A / T in each."""
    ratios = [0.5, 2.0, 1.1]
    s = (0.5 * 2.0 * 1.1) ** (1 / 3)
    gradient, gain, clipped = slope("gspo", 2.0, ratios, low=0.5, high=0.5)
    assert gain == pytest.approx([2 * s] * 3)
    assert gradient == pytest.approx([2 * s] * 3)  # three tokens, each s A / 3
    assert clipped == [False] * 3
    gradient, gain, clipped = slope("gspo", 2.0, ratios, low=3e-4, high=4e-4)
    assert gradient == [0.0] * 3
    assert gain == pytest.approx([2 * 1.0004] * 3)
    assert clipped == [True] * 3


def test_gspo_equals_grpo_for_a_uniform_ratio():
    ratios = [1.1] * 4
    assert slope("gspo", 1.0, ratios)[0] == pytest.approx(slope("grpo", 1.0, ratios)[0])


@pytest.mark.parametrize("level", ["token", "sequence"])
def test_a_far_ratio_overflows_nothing(level):
    """The log ratio is held in [-20, 20]."""
    gradient, gain, _ = slope({"level": level}, -1.0, [math.exp(300), 1.0])
    assert all(map(math.isfinite, gradient + gain))
    assert gain[0] == pytest.approx(-math.exp(20 if level == "token" else 10))


def test_without_old_logps_the_ratio_is_one_and_the_gradient_stays():
    """On the first update every clipped row is A logp in gradient."""
    toy = problem(4)
    for name in ("grpo", "sapo", "cispo"):
        row = algorithm({"preset": name, "aggregate": "sequence"}).without_correction()
        batch = toy.batch(row).with_(old_logp_BT=None)
        _, found = toy.whole(row, batch)
        plain = algorithm({"preset": "grpo", "surrogate": {"kind": "reinforce"}}).without_correction()
        _, expected = toy.whole(plain, batch)
        torch.testing.assert_close(found, expected, rtol=0, atol=1e-12)
        assert not row.objective(toy.theta[batch.tokens_BT], None, batch).clipped_BT.any()
