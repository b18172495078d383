"""Bounds of each clip: schedules of the papers, formulas a second way."""

import math

import pytest
import torch
from algorithm_cases import stats
from hypothesis import given, settings
from hypothesis import strategies as st

from rlctl.algorithm.clip import LEAST, ByGroup, Controlled, Dual, Fixed, Target, Unclipped, dual_price

NAN = float("nan")


def column(rows):
    return torch.tensor(rows, dtype=torch.float64)


def by_correct(stage, k=8):
    """Bounds of groups with c = 0..k correct: of a right answer, and of a wrong one."""
    groups = stats([[1.0] * c + [0.0] * (k - c) for c in range(k + 1)])
    low_PG, high_PG, price_PG = stage(groups, torch.zeros(k + 1, k, dtype=torch.float64))
    assert price_PG is None
    assert (low_PG == stage.low).all()
    for c in range(k + 1):
        assert len(set(high_PG[c, :c].tolist())) <= 1
    return high_PG[1:, 0].tolist(), high_PG[:-1, -1].tolist()


@pytest.mark.parametrize(
    ("low", "high", "table", "digits"),
    [
        (0.2, 0.28, [0.2800, 0.2686, 0.2571, 0.2457, 0.2343, 0.2229, 0.2114, 0.2000], 4),
        (3e-3, 5e-3, [5.000e-3, 4.714e-3, 4.429e-3, 4.143e-3, 3.857e-3, 3.571e-3, 3.286e-3, 3.000e-3], 6),
    ],
)
def test_gapo_s_schedule_of_eight(low, high, table, digits):
    """algorithms.md 4.1, both hosts; wrong answers keep `low`."""
    right, wrong = by_correct(ByGroup(low=low, high=high))
    assert [round(x, digits) for x in right] == table
    assert wrong == [low] * 8


@pytest.mark.parametrize("k", [2, 5, 8])
@pytest.mark.parametrize(("low", "high"), [(0.2, 0.28), (3e-3, 5e-3)])
def test_both_forms_by_loops(k, low, high):
    """Exact: exp(A / lambda) - 1 with A = (k - c) / k and lambda = A_max / ln(1 + high)."""
    linear, _ = by_correct(ByGroup(low=low, high=high), k)
    assert linear == pytest.approx([low + (high - low) * (k - c) / (k - 1) for c in range(1, k + 1)])
    exact, wrong = by_correct(ByGroup(low=low, high=high, form="exact"), k)
    lambda_ = (k - 1) / k / math.log(1 + high)
    assert exact == pytest.approx([math.exp((k - c) / k / lambda_) - 1 for c in range(1, k + 1)])
    assert exact[0] == pytest.approx(high)
    assert exact[-1] == 0.0
    assert wrong == [low] * k


def test_gapo_of_one_answer_and_of_unjudged_ones():
    """k = 1 and correct has all the room; an unjudged answer counts in neither k nor c."""
    stage = ByGroup()
    for form in ("linear", "exact"):
        alone = ByGroup(form=form)(stats([[1.0]]), column([[0.0]]))
        assert alone.high_PG.item() == pytest.approx(0.28)
    gap = stage(stats([[1.0, NAN, 0.0, 0.0]]), torch.zeros(1, 4, dtype=torch.float64))
    rest = stage(stats([[1.0, 0.0, 0.0]]), torch.zeros(1, 3, dtype=torch.float64))
    assert gap.high_PG[0, [0, 2, 3]].tolist() == rest.high_PG[0].tolist() == [0.28, 0.2, 0.2]
    assert gap.high_PG.isfinite().all()


def test_gapo_counts_correct_answers_and_not_rewards():
    known = stats([[3.0, 2.0, 1.0, 0.0]], correct_PG=torch.tensor([[True, True, False, False]]))
    found = ByGroup(low=0.1, high=0.4)(known, torch.zeros(1, 4, dtype=torch.float64))
    assert found.high_PG[0].tolist() == pytest.approx([0.3, 0.3, 0.1, 0.1])


def test_target_by_hand():
    """At lambda 2 an A of 2 ln 2 aims at a ratio of 2, one of -2 ln 2 at a half."""
    A = column([[2 * math.log(2), -2 * math.log(2), 0.0]])
    low_PG, high_PG, _ = Target(margin=0.2)(stats([[1.0, 0.0, 0.5]], price=2.0), A)
    assert low_PG[0].tolist() == pytest.approx([0.2, 0.7, 0.2])
    assert high_PG[0].tolist() == pytest.approx([1.2, 0.2, 0.2])


@given(st.floats(-3, 3), st.floats(0.05, 50), st.floats(0, 1))
@settings(max_examples=60, deadline=None)
def test_target_by_loops(A, price, margin):
    low_PG, high_PG, _ = Target(margin=margin)(stats([[0.0]], price=price), column([[A]]))
    aim = math.exp(max(min(A / price, 20.0), -20.0))
    assert 1 - low_PG.item() == pytest.approx(min(1, aim) - margin)
    assert 1 + high_PG.item() == pytest.approx(max(1, aim) + margin)


def test_a_far_target_is_finite():
    low_PG, high_PG, _ = Target()(stats([[1.0, 0.0]], price=1e-3), column([[5.0, -5.0]]))
    assert low_PG.isfinite().all()
    assert high_PG.isfinite().all()


def test_the_rest_by_hand():
    known, A = stats([[1.0, 0.0], [0.0, 0.0]], clip_P=column([0.3, 0.1])), column([[1.0, -1.0], [0.0, 0.0]])
    assert Fixed(low=0.1, high=0.5)(known, A).low_PG.tolist() == [[0.1] * 2] * 2
    assert Fixed(low=0.1, high=0.5)(known, A).high_PG.tolist() == [[0.5] * 2] * 2
    assert Unclipped()(known, A).high_PG.isinf().all()
    low_PG, high_PG, price_PG = Controlled()(known, A)
    assert low_PG.tolist() == high_PG.tolist() == [[0.3] * 2, [0.1] * 2]
    assert price_PG is None


# The price of leaving the old policy.


def brute(A, delta):
    """The least of lambda delta + lambda log mean exp(A / lambda) on a grid that closes in on it."""

    def dual(lam):
        top = max(A)
        return lam * delta + top + lam * math.log(sum(math.exp((a - top) / lam) for a in A) / len(A))

    low, high = math.log(1e-3), math.log(1e3)
    for _ in range(12):
        grid = [low + (high - low) * i / 200 for i in range(201)]
        best = min(range(201), key=lambda i: dual(math.exp(grid[i])))
        low, high = grid[max(best - 1, 0)], grid[min(best + 1, 200)]
    return math.exp((low + high) / 2)


def divergence(A, lam):
    """KL of the weights exp(A / lambda) against equal ones."""
    weights = [math.exp((a - max(A)) / lam) for a in A]
    total = sum(weights)
    return sum(w / total * math.log(w / total * len(A)) for w in weights if w > 0)


MIXED = st.lists(st.integers(-6, 6).map(lambda i: i / 4), min_size=3, max_size=8).filter(
    lambda A: len(set(A)) > 1 and math.log(len(A) / A.count(max(A))) > 0.31
)


@given(MIXED, st.floats(0.01, 0.3))
@settings(max_examples=60, deadline=None)
def test_the_price_is_where_the_dual_is_least(A, delta):
    """Against a grid, and by what it is for: the weights are `delta` nats away from equal ones."""
    lam = dual_price(column([A]), delta).item()
    assert lam == pytest.approx(brute(A, delta), rel=1e-5)
    assert divergence(A, lam) == pytest.approx(delta, rel=1e-9)


@given(MIXED, st.floats(0.1, 10), st.floats(-5, 5))
@settings(max_examples=60, deadline=None)
def test_the_price_scales_with_advantages_and_knows_no_offset(A, c, shift):
    lam = dual_price(column([A]), 0.05).item()
    assert dual_price(column([[c * a for a in A]]), 0.05).item() == pytest.approx(c * lam, rel=1e-9)
    assert dual_price(column([[a + shift for a in A]]), 0.05).item() == pytest.approx(lam, rel=1e-6)


def test_a_wider_region_is_cheaper():
    A = column([[1.0, 0.0, 0.0, -0.5]])
    prices = [dual_price(A, delta).item() for delta in (0.01, 0.05, 0.2, 0.8)]
    assert prices == sorted(prices, reverse=True)


def test_groups_have_prices_of_their_own_and_silent_ones_none():
    A = [[0.75, -0.25, -0.25, -0.25], [0.0] * 4, [0.5, 0.5, -0.5, -0.5]]
    low_PG, high_PG, price_PG = Dual(delta=0.05)(stats(A), column(A))
    assert price_PG.tolist()[1] == [0.0] * 4
    for p in (0, 2):
        assert price_PG[p].tolist() == pytest.approx([brute(A[p], 0.05)] * 4, rel=1e-5)
    assert high_PG.isinf().all()
    assert (low_PG == 1).all()


def test_a_region_wider_than_the_group_allows_is_free_and_finite():
    """Seven of eight at the top: no weights are further than ln(8/7) = 0.134 nats from equal ones."""
    A = [[0.125] * 7 + [-0.875]]
    price = Dual(delta=0.2)(stats(A), column(A)).price_PG
    assert price[0].tolist() == pytest.approx([1e-3] * 8)


def test_a08_an_unjudged_row_leaves_the_price_alone():
    """A-08."""
    with_gap = Dual()(stats([[1.0, NAN, 0.0, 0.0]]), column([[2 / 3, 0.0, -1 / 3, -1 / 3]])).price_PG
    alone = Dual()(stats([[1.0, 0.0, 0.0]]), column([[2 / 3, -1 / 3, -1 / 3]])).price_PG
    torch.testing.assert_close(with_gap[:, [0, 2, 3]], alone)


@pytest.mark.parametrize(("k", "least"), [(20, False), (21, True), (64, True)])
def test_one_wrong_answer_of_many_leaves_the_price_at_its_least(k, least):
    """The largest KL there is, ln(k / (k - 1)), is below 0.05 from k = 21 on."""
    assert (math.log(k / (k - 1)) < 0.05) == least
    found = dual_price(column([[1.0] * (k - 1) + [0.0]]), 0.05).item()
    assert (found == pytest.approx(LEAST)) == least
