"""How often a step learns from a prompt and yet misses its rare correct answers (2602.06717, lemma 3.1)."""

from __future__ import annotations

import numpy as np

from rlctl.lab.finding import Curve, Finding, Panel, Row

CASES = ((0.8, 0.05), (0.5, 0.05), (0.5, 0.2), (0.3, 0.05), (0.3, 0.1), (0.2, 0.05))  # mu, rho
SIZES = (2, 4, 8, 16, 32, 64, 128)


def missed(mu: float, rho: float, size: int) -> float:
    """Return Pr(some answers right, some wrong, none in E) = (1-tau)^N - (mu-tau)^N - (1-mu)^N.

    `mu` is the success probability, E a set of correct answers of mass tau = rho mu, N the `size`.
    """
    tau = rho * mu
    return float((1 - tau) ** size - (mu - tau) ** size - (1 - mu) ** size)


def peak(mu: float, rho: float) -> tuple[int, float]:
    """Return the N of 2 to 128 with the highest probability, and that probability."""
    size = max(range(SIZES[0], SIZES[-1] + 1), key=lambda n: missed(mu, rho, n))
    return size, missed(mu, rho, size)


def sampled(mu: float, rho: float, size: int, trials: int, rng: np.random.Generator) -> float:
    """Return the share of `trials` groups that are mixed and hold nothing of E."""
    tau = rho * mu
    rare, common, _ = rng.multinomial(size, [tau, mu - tau, 1 - mu], size=trials).T
    solved = rare + common
    return float(np.mean((solved > 0) & (solved < size) & (rare == 0)))


def run(trials: int, seed: int) -> Finding:
    """Compare the closed form with `trials` groups per case and size."""
    rng = np.random.default_rng(seed)
    rows: list[Row] = []
    curves = []
    for mu, rho in CASES:
        exact = [missed(mu, rho, size) for size in SIZES]
        drawn = [sampled(mu, rho, size, trials, rng) for size in SIZES]
        for size, formula, share in zip(SIZES, exact, drawn, strict=True):
            error = (formula * (1 - formula) / trials) ** 0.5
            found = {"formula": formula, "sampled": share, "standard_error": error}
            rows.append({"mu": mu, "rho": rho, "N": size} | found)
        every = list(range(SIZES[0], SIZES[-1] + 1))
        label = f"mu {mu}, rho {rho}"
        curves += [
            Curve(label, every, [missed(mu, rho, size) for size in every]),
            Curve("", SIZES, drawn, joined=False),
        ]
    tops = [(mu, rho, *peak(mu, rho)) for mu, rho in CASES]
    peaks = [{"mu": mu, "rho": rho, "peak_N": size, "peak": value} for mu, rho, size, value in tops]
    panel = Panel(
        "Tail miss: line formula, points sampled", "group size N", "probability", curves, log_x=True
    )
    return Finding({"tail_miss": rows, "peaks": peaks}, [panel])
