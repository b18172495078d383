"""The estimates: pass@k, majority votes, and intervals over problems or seeds.

Letters: P problems, C columns (one estimate each), M subsets of k samples, A different answers.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from functools import lru_cache
from itertools import combinations
from statistics import NormalDist, fmean, stdev

import numpy as np
from numpy.typing import NDArray

Array = NDArray[np.float64]
Interval = dict[str, float]  # value, low, high

SUBSETS = 1024  # of the samples: all of them where there are no more, else so many drawn at random
RESAMPLES, AT_ONCE = 4000, 500  # of the problems
LEVELS = (0.025, 0.975)


def pass_at_k(n: int, correct: int, k: int) -> float:
    """Return 1 - C(n - c, k) / C(n, k), the unbiased estimate from n samples (2107.03374).

    Raises:
        ValueError: k > n, for which there is no such estimate.
    """
    if k > n:
        raise ValueError(f"pass@{k} needs at least {k} samples, there are {n}")
    return 1.0 - math.comb(n - correct, k) / math.comb(n, k)


def majority_at_k(answers: Sequence[str | None], correct: Sequence[bool], k: int) -> float:
    """Return how often the most frequent answer of k samples is right, over subsets of the samples.

    Answers that tie share the vote; None does not vote, and where no one does, the vote is wrong. An
    answer is as right as the share of its samples that were judged correct.

    Raises:
        ValueError: k > n.
    """
    if k > len(answers):
        raise ValueError(f"majority@{k} needs at least {k} samples, there are {len(answers)}")
    names = {answer: code for code, answer in enumerate(dict.fromkeys(a for a in answers if a is not None))}
    if not names:
        return 0.0
    code_N = np.array([names.get(a, len(names)) if a is not None else len(names) for a in answers])
    votes_A = np.bincount(code_N, minlength=len(names) + 1)[:-1]
    right_A = np.bincount(code_N, weights=correct, minlength=len(names) + 1)[:-1] / votes_A
    code_MK = code_N[_subsets(len(answers), k)]
    row_M1 = np.arange(len(code_MK))[:, None] * (len(names) + 1)
    votes_MA = np.bincount((row_M1 + code_MK).ravel(), minlength=len(code_MK) * (len(names) + 1))
    votes_MA = votes_MA.reshape(len(code_MK), -1)[:, :-1]
    most_M1 = votes_MA.max(axis=1, keepdims=True)
    wins_MA = (votes_MA == most_M1) & (most_M1 > 0)
    return float((wins_MA @ right_A / np.maximum(wins_MA.sum(axis=1), 1)).mean())


@lru_cache(16)
def _subsets(n: int, k: int) -> NDArray[np.int64]:
    """Return the k-subsets of n samples as rows of indices, or `SUBSETS` of them by a seed of their own."""
    if math.comb(n, k) <= SUBSETS:
        return np.array(list(combinations(range(n), k)))
    rng = np.random.default_rng([n, k])
    return rng.permuted(np.tile(np.arange(n), (SUBSETS, 1)), axis=1)[:, :k]


def intervals(value_PC: Array) -> list[Interval]:
    """Return the mean of each column with a 95 % interval: BCa bootstrap over problems.

    Percentiles of the means of resampled problems, moved for bias z0 and skewness a (Efron 1987):
    Phi(z0 + (z0 + z) / (1 - a (z0 + z))). Resampled by a seed of its own, the same for all columns.
    Where all problems have one value the interval has no width.
    """
    P = len(value_PC)
    rng = np.random.default_rng(0)
    draws = [rng.multinomial(P, np.full(P, 1 / P), AT_ONCE) @ value_PC for _ in range(RESAMPLES // AT_ONCE)]
    mean_BC = np.concatenate(draws) / P
    return [_bca(value_P, mean_B) for value_P, mean_B in zip(value_PC.T, mean_BC.T, strict=True)]


def over_seeds(values: Sequence[float]) -> Interval:
    """Return the mean over seeds with its 95 % t-interval; one seed alone has none, NaN."""
    from scipy.stats import t

    mean, n, half = fmean(values), len(values), math.nan
    if n > 1:
        half = float(t.ppf(LEVELS[1], n - 1)) * stdev(values) / math.sqrt(n)
    return {"value": mean, "low": mean - half, "high": mean + half}


def _bca(value_P: Array, mean_B: Array) -> Interval:
    normal, mean, off_P = NormalDist(), value_P.mean(), value_P - value_P.mean()
    rounding = 1e-12
    below = ((mean_B < mean - rounding).mean() + (mean_B <= mean + rounding).mean()) / 2
    spread = (off_P**2).sum()
    if spread < rounding or not 0 < below < 1:
        return {"value": float(mean), "low": float(mean), "high": float(mean)}
    z0, a = normal.inv_cdf(below), (off_P**3).sum() / (6 * spread**1.5)
    z = [z0 + normal.inv_cdf(level) for level in LEVELS]
    low, high = np.quantile(mean_B, [normal.cdf(z0 + each / (1 - a * each)) for each in z])
    return {"value": float(mean), "low": float(low), "high": float(high)}
