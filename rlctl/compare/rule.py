"""The rule by which one setting is better or worse than another.

Seeds are the unit: problems are averaged first, then each seed gives one difference between the two settings
on the same problems. A two-sided paired t-test over these differences decides at 5 %; where several settings
are compared with one, the p-values are corrected by Holm's method. Fewer than three seeds decide nothing.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from math import isclose
from statistics import fmean, stdev
from typing import Literal

from rlctl.evaluate.estimate import Interval, over_seeds

Verdict = Literal["better", "worse", "not shown", "too few seeds"]

MIN_SEEDS = 3
LEVEL = 0.05
TINY = 1e-12  # a spread below it is rounding


@dataclass(frozen=True)
class Difference:
    """What the seeds say of one setting against another."""

    interval: Interval  # of the mean difference, 95 %, not corrected
    seeds: int
    p: float | None  # None: too few seeds

    @classmethod
    def of(cls, first: Sequence[float], second: Sequence[float]) -> Difference:
        """Take second - first, seed by seed."""
        apart = [b - a for a, b in zip(first, second, strict=True)]
        return cls(over_seeds(apart), len(apart), _p_value(apart) if len(apart) >= MIN_SEEDS else None)


def _p_value(apart: Sequence[float]) -> float:
    """Return the p-value of the two-sided paired t-test: t = mean / (std / sqrt(n)), n - 1 degrees."""
    from scipy.stats import t

    mean, spread = fmean(apart), stdev(apart)
    if spread < TINY:  # seed for seed the same
        return 1.0 if isclose(mean, 0.0, abs_tol=TINY) else 0.0
    return float(2 * t.sf(abs(mean) / (spread / len(apart) ** 0.5), len(apart) - 1))


def holm(p_values: Sequence[float]) -> list[float]:
    """Correct p-values for being several: the k-th smallest of m by m - k + 1, never falling (Holm 1979)."""
    corrected, floor = [0.0] * len(p_values), 0.0
    for rank, index in enumerate(sorted(range(len(p_values)), key=p_values.__getitem__)):
        floor = max(floor, min(1.0, p_values[index] * (len(p_values) - rank)))
        corrected[index] = floor
    return corrected


def verdicts(differences: Sequence[Difference]) -> list[tuple[float | None, Verdict]]:
    """Return of each comparison with one baseline its corrected p-value and what may be said."""
    corrected = iter(holm([d.p for d in differences if d.p is not None]))
    found: list[tuple[float | None, Verdict]] = []
    for difference in differences:
        if difference.p is None:
            found.append((None, "too few seeds"))
            continue
        p = next(corrected)
        sure: Verdict = "better" if difference.interval["value"] > 0 else "worse"
        found.append((p, sure if p <= LEVEL else "not shown"))
    return found
