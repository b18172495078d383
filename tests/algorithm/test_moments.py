"""Spread and skewness of a group, by loops."""

import math

import pytest
import torch
from algorithm_cases import stats
from hypothesis import given, settings
from hypothesis import strategies as st

from rlctl.algorithm import moments
from rlctl.algorithm.advantage import ZScore

NAN = float("nan")


def bessel(rewards):
    mean = sum(rewards) / len(rewards)
    return math.sqrt(sum((r - mean) ** 2 for r in rewards) / max(len(rewards) - 1, 1))


def mad(rewards):
    """1.4826 times the lower median of distances from the lower median."""

    def lower(values):
        return sorted(values)[(len(values) - 1) // 2]

    middle = lower(rewards)
    return 1.4826 * lower([abs(r - middle) for r in rewards])


def iqr(rewards):
    """Quartiles between the two nearest order statistics, as numpy's and torch's default has them."""

    def quartile(q):
        at = q * (len(rewards) - 1)
        below = sorted(rewards)[math.floor(at)]
        return below + (at - math.floor(at)) * (sorted(rewards)[math.ceil(at)] - below)

    return (quartile(0.75) - quartile(0.25)) / 1.349


SPREADS = {"bessel": bessel, "mad": mad, "iqr": iqr}


def skewness(rewards):
    n, s = len(rewards), bessel(rewards)
    if s < 1e-6:
        return 0.0
    mean = sum(rewards) / n
    factor = math.sqrt(n * (n - 1)) / (n - 2) if n > 2 else 1.0
    return min(max(factor * sum(((r - mean) / s) ** 3 for r in rewards) / n, -10.0), 10.0)


GROUP = st.lists(st.integers(-8, 8).map(lambda i: i / 4) | st.none(), min_size=2, max_size=9)


@given(GROUP, st.sampled_from(["bessel", "mad", "iqr"]))
@settings(max_examples=150, deadline=None)
def test_by_loops(rewards, kind):
    """An unjudged answer (None) is as good as not there."""
    judged = [r for r in rewards if r is not None]
    reward_PG = torch.tensor([[NAN if r is None else r for r in rewards]], dtype=torch.float64)
    assert moments.judged(reward_PG).item() == len(judged)
    expected = (SPREADS[kind](judged), skewness(judged)) if judged else (0.0, 0.0)
    assert moments.dispersion(kind, reward_PG).item() == pytest.approx(expected[0], abs=1e-12)
    assert moments.skewness(reward_PG).item() == pytest.approx(expected[1], abs=1e-12)


@pytest.mark.parametrize(
    ("kind", "rewards", "expected"),
    [
        ("mad", [0.0, 1.0, 2.0, 4.0], 1.4826),  # lower median 1, distances 1 0 1 3
        ("mad", [0.0, 0.0, 0.0, 1.0], 0.0),  # though rewards differ; an advantage takes bessel then
        ("mad", [1.0, 1.0, 1.0], 0.0),
        ("iqr", [0.0, 1.0, 2.0, 4.0], (2.5 - 0.75) / 1.349),
        ("iqr", [0.0, 0.0, 0.0, 0.0, 1.0], 0.0),
    ],
)
def test_by_hand(kind, rewards, expected):
    found = moments.dispersion(kind, torch.tensor([rewards], dtype=torch.float64)).item()
    assert found == pytest.approx(expected, rel=1e-12)


def test_skewness_by_hand():
    """Of 0 0 0 1: z = -1/2 -1/2 -1/2 3/2, mean cube 3/4, factor sqrt(3). Flat and even groups have none."""
    rewards = [[0.0, 0.0, 0.0, 1.0], [1.0, 1.0, 0.0, 0.0], [1.0] * 4]
    found = moments.skewness(torch.tensor(rewards, dtype=torch.float64))[:, 0].tolist()
    assert found == pytest.approx([0.75 * math.sqrt(3), 0.0, 0.0])
    one_of_1000 = torch.zeros(1, 1000, dtype=torch.float64)
    one_of_1000[0, 0] = 1.0
    assert moments.skewness(one_of_1000).item() == 10.0


@given(
    st.lists(
        st.lists(st.integers(-4, 4).map(lambda i: i / 4), min_size=5, max_size=5), min_size=1, max_size=3
    ),
    st.sampled_from(["mad", "iqr"]),
)
@settings(max_examples=80, deadline=None)
def test_robust_scores_by_loops(groups, kind):
    """The authors' advantage: (R - mean) / disp, with bessel's std where disp is 0 and rewards differ."""
    found = ZScore(std=kind, eps=0.0)(stats(groups)).tolist()
    for row, rewards in zip(found, groups, strict=True):
        mean, robust = sum(rewards) / len(rewards), SPREADS[kind](rewards)
        scale = robust if robust > 1e-8 else bessel(rewards)
        assert row == pytest.approx([(r - mean) / scale if scale else 0.0 for r in rewards])


def test_a_batch_s_robust_spread_is_of_all_rewards():
    groups = [[0.0, 1.0, 2.0], [4.0, 4.0, 7.0]]
    found = ZScore(std="mad", scale="batch", eps=0.0)(stats(groups)).tolist()
    scale = mad([0.0, 1.0, 2.0, 4.0, 4.0, 7.0])
    assert scale == pytest.approx(2 * 1.4826)
    assert found == [
        pytest.approx([-1 / scale, 0, 1 / scale]),
        pytest.approx([-1 / scale, -1 / scale, 2 / scale]),
    ]
