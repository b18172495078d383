"""How often the 95 % interval holds the true value: `python tests/evaluate/covering.py` prints the table.

A problem's success rate is drawn from a beta distribution, or is 0 or 1; the true value is the mean of
pass@k over that distribution.
"""

from __future__ import annotations

import argparse
import math

import numpy as np

from rlctl.evaluate.estimate import intervals, pass_at_k

VALUES = (0.02, 0.05, 0.1, 0.2, 0.3, 0.5, 0.7, 0.8, 0.9, 0.95, 0.98)
# Spread of the problems: sum of the beta's parameters; 0: each is always or never solved.
CASES = {
    "all or nothing": (0, 1, 1),
    "broad, pass@1": (1, 8, 1),
    "narrow, pass@1": (8, 8, 1),
    "broad, pass@4": (1, 8, 4),
}


def drawn(
    value: float, case: str, shape: tuple[int, int], rng: np.random.Generator
) -> tuple[np.ndarray, float]:
    """Return pass@k of problems x repetitions, and the true value, which for k = 1 is `value`."""
    spread, n, k = CASES[case]
    if spread == 0:
        return (rng.random(shape) < value).astype(float), value
    a, b = value * spread, (1 - value) * spread
    correct = rng.binomial(n, rng.beta(a, b, shape))
    estimate = np.array([pass_at_k(n, c, k) for c in range(n + 1)])[correct]
    missed = math.prod((b + i) / (spread + i) for i in range(k))  # E[(1 - p)^k]
    return estimate, 1 - missed


def coverage(value: float, case: str, problems: int, repetitions: int, seed: int = 1) -> tuple[float, float]:
    """Return the true value and the share of intervals that hold it."""
    rng = np.random.default_rng([seed, problems, round(1000 * value)])
    estimate, truth = drawn(value, case, (problems, repetitions), rng)
    held = [i["low"] - 1e-9 <= truth <= i["high"] + 1e-9 for i in intervals(estimate)]
    return truth, sum(held) / repetitions


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--repetitions", type=int, default=2000)
    asked = parser.parse_args()
    for problems in (100, 30):
        print(f"{problems} problems")
        for case in CASES:
            found = (coverage(value, case, problems, asked.repetitions) for value in VALUES)
            print(f"  {case:16}", *(f"{truth:.2f}: {share:.1%} " for truth, share in found))


if __name__ == "__main__":
    main()
