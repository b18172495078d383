"""Estimates against enumeration, a second way and known cases."""

import math
import random
from fractions import Fraction
from itertools import combinations, pairwise
from statistics import NormalDist

import numpy as np
import pytest
from covering import CASES, coverage
from hypothesis import given, settings
from hypothesis import strategies as st

from rlctl.evaluate.estimate import SUBSETS, intervals, majority_at_k, pass_at_k


@pytest.mark.parametrize("correct", [0, 1, 2])
def test_e01_k_above_n_is_refused(correct):
    """E-01: two samples, none right, k = 5: an error, never 1.0."""
    with pytest.raises(ValueError, match="pass@5 needs at least 5 samples, there are 2"):
        pass_at_k(2, correct, 5)
    with pytest.raises(ValueError, match="majority@5 needs at least 5 samples, there are 2"):
        majority_at_k(["a", "b"], [False, True], 5)


@pytest.mark.parametrize("n", range(1, 9))
def test_e03_equals_enumeration(n):
    """E-03: the share of all k-subsets of n samples that hold a right one, for every c and k."""
    for c in range(n + 1):
        samples = [True] * c + [False] * (n - c)
        for k in range(1, n + 1):
            subsets = list(combinations(samples, k))
            assert pass_at_k(n, c, k) == pytest.approx(sum(map(any, subsets)) / len(subsets), abs=1e-15)


@given(st.data(), st.integers(256, 4096))
def test_e03_finite_and_monotone_for_large_n(data, n):
    """E-03: no overflow, no noise; never falls with k or with c."""
    c = data.draw(st.integers(0, n))
    ks = sorted({1, 2, 7, n // 3, n // 2, n - 1, n})
    found = [pass_at_k(n, c, k) for k in ks]
    assert all(math.isfinite(x) and 0 <= x <= 1 for x in found)
    assert all(a <= b for a, b in pairwise(found))
    assert found[0] == pytest.approx(c / n)
    if c < n:
        assert all(a <= b for a, b in zip(found, (pass_at_k(n, c + 1, k) for k in ks), strict=True))


def voted(answers, right):
    """The vote of one subset, ties shared: the second way, in fractions."""
    counts = {answer: answers.count(answer) for answer in answers if answer is not None}
    top = [answer for answer, count in counts.items() if count == max(counts.values())]
    return Fraction(sum(answer in right for answer in top), len(top)) if top else Fraction(0)


@given(st.lists(st.sampled_from(["a", "b", "c", None]), min_size=1, max_size=8))
def test_majority_equals_enumeration(answers):
    """Every subset of up to 8 samples; `a` and `b` are right, such as 1/2 and 0.5."""
    correct = [answer in ("a", "b") for answer in answers]
    for k in range(1, len(answers) + 1):
        votes = [voted(list(subset), ("a", "b")) for subset in combinations(answers, k)]
        assert majority_at_k(answers, correct, k) == pytest.approx(float(sum(votes) / len(votes)), abs=1e-12)


@pytest.mark.parametrize(
    ("answers", "right", "k", "expected"),
    [
        (["7", "7", "8"], "7", 3, 1.0),
        (["7", "8", "8"], "7", 3, 0.0),
        (["7", "8"], "7", 2, 0.5),
        (["7", "8", "9", None], "7", 4, 1 / 3),
        ([None, None, "7"], "7", 3, 1.0),
        ([None, None], "7", 2, 0.0),
        (["7", "8", None], "7", 1, 1 / 3),
        (["7", "7", "8"], "7", 2, 2 / 3),  # 7 7, and two ties
    ],
)
def test_majority_by_hand(answers, right, k, expected):
    assert majority_at_k(answers, [a == right for a in answers], k) == pytest.approx(expected)


def test_e06_a_majority_over_random_subsets_is_near_and_seeded():
    """E-06: C(64, 32) subsets are not enumerated; the closed form of a two-way vote is met."""
    answers = ["yes"] * 36 + ["no"] * 28
    correct = [answer == "yes" for answer in answers]
    for k in (3, 8, 32):
        ways = [math.comb(36, x) * math.comb(28, k - x) / math.comb(64, k) for x in range(k + 1)]
        truth = sum(p * (1 if 2 * x > k else 0.5 if 2 * x == k else 0) for x, p in enumerate(ways))
        found = majority_at_k(answers, correct, k)
        assert found == pytest.approx(truth, abs=4 * 0.5 / SUBSETS**0.5)
        assert found == majority_at_k(answers, correct, k)
    assert majority_at_k([*map(str, range(256)), *(["7"] * 256)], [True] * 512, 256) == 1.0


def test_e04_estimates_leave_the_global_generators_alone():
    """E-04: nothing is seeded that others draw from."""
    before = random.getstate(), np.random.get_state()[1].tolist()
    majority_at_k(["a"] * 20 + ["b"] * 20, [True] * 40, 20)
    intervals(np.arange(12.0).reshape(6, 2))
    assert (random.getstate(), np.random.get_state()[1].tolist()) == before


def test_intervals_repeat_and_columns_do_not_meet():
    value = np.random.default_rng(3).random((40, 3))
    found = intervals(value)
    assert found == intervals(value)
    assert [found[2], found[0]] == intervals(value[:, [2, 0]])
    for column, interval in zip(value.T, found, strict=True):
        assert interval["value"] == pytest.approx(column.mean())
        assert interval["low"] < interval["value"] < interval["high"]


@given(st.lists(st.integers(0, 8), min_size=1, max_size=40))
def test_an_interval_stays_within_its_problems_and_holds_their_mean(correct):
    found = intervals(np.array([[c / 8] for c in correct]))[0]
    assert min(correct) / 8 - 1e-12 <= found["low"] <= found["value"] + 1e-12
    assert found["value"] - 1e-12 <= found["high"] <= max(correct) / 8 + 1e-12


@settings(max_examples=20)
@given(st.lists(st.integers(0, 8), min_size=5, max_size=40), st.floats(-3, 3), st.sampled_from([-2.0, 0.5]))
def test_an_interval_moves_with_its_values(correct, shift, scale):
    """Shifted and stretched values shift and stretch the interval; a negative scale turns it round."""
    one, other = intervals(np.array([[c / 8, shift + scale * c / 8] for c in correct]))
    ends = sorted(shift + scale * one[end] for end in ("low", "high"))
    assert [other["low"], other["high"]] == pytest.approx(ends, abs=0.02)


def test_symmetric_values_give_the_percentiles_of_the_normal():
    """400 values of a normal: the interval is mean -+ 1.96 s / sqrt(n), within the noise of the draws."""
    value = np.random.default_rng(5).normal(size=(400, 1))
    half = 1.96 * value.std(ddof=1) / 20
    found = intervals(value)[0]
    assert found["low"] == pytest.approx(value.mean() - half, abs=0.01)
    assert found["high"] == pytest.approx(value.mean() + half, abs=0.01)


def test_skewed_values_give_the_bca_interval_a_second_way():
    """Efron and Tibshirani 1993, 14.15: z0 from the share of lower means, a from the jackknife."""
    value, normal = np.random.default_rng(7).lognormal(sigma=1.2, size=25), NormalDist()
    draws = np.random.default_rng(8).choice(value, (100_000, 25)).mean(axis=1)
    left_out = (value.sum() - value) / 24
    off = left_out.mean() - left_out
    a = (off**3).sum() / (6 * (off**2).sum() ** 1.5)
    z0 = normal.inv_cdf((draws < value.mean()).mean())
    z = np.array([normal.inv_cdf(level) for level in (0.025, 0.975)])
    levels = [normal.cdf(each) for each in z0 + (z0 + z) / (1 - a * (z0 + z))]
    found = intervals(value[:, None])[0]
    noise = 0.1 * draws.std()  # of the ends, from 4,000 draws
    assert [found["low"], found["high"]] == pytest.approx(np.quantile(draws, levels), abs=2 * noise)
    assert np.quantile(draws, 0.025) < found["low"] - noise
    assert np.quantile(draws, [normal.cdf(each) for each in z / (1 - a * z)])[0] < found["low"] - noise


def test_problems_of_one_value_give_an_interval_of_no_width():
    for value in (0.0, 0.3, 1.0):
        assert intervals(np.full((7, 1), value))[0] == {
            "value": pytest.approx(value),
            "low": pytest.approx(value),
            "high": pytest.approx(value),
        }


@pytest.mark.heavy
@pytest.mark.parametrize("value", [0.1, 0.3, 0.5, 0.7, 0.9])
@pytest.mark.parametrize("case", CASES)
def test_coverage_of_the_interval(case, value):
    """2,000 sets of 100 problems: 93 to 97 % of the intervals hold a true value of 0.1 to 0.9."""
    truth, share = coverage(value, case, problems=100, repetitions=2000)
    if 0.1 <= truth <= 0.9:
        assert 0.93 <= share <= 0.97
