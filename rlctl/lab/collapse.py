"""How often all rewards of a group are equal, and what virtual rewards make of it (2605.21125)."""

from __future__ import annotations

import math
from collections.abc import Sequence
from random import random

import numpy as np

from rlctl.algorithm import moments
from rlctl.algorithm.control.collapse import Collapse
from rlctl.lab.finding import Curve, Finding, Panel, Row
from rlctl.plan import zero_variance

RATES = (0.01, 0.05, 0.1, 0.25, 0.5, 0.75, 0.9, 0.95, 0.99)
SIZES = (2, 4, 8, 16, 32)
ACRS = (0.05, 0.15, 0.4, 1.0)
GROUP = 8


def sampled(p: float, size: int, trials: int, rng: np.random.Generator) -> float:
    """Return the share of `trials` groups whose rewards have a standard deviation under 1e-6."""
    rewards = (rng.random((trials, size)) < p).astype(np.float64)
    return float(np.mean(rewards.std(axis=1) < moments.COLLAPSE_STD))


def advantage(reward: float, offsets: Sequence[float], size: int = GROUP) -> float:
    """Return the advantage of `size` equal rewards beside virtual ones at `offsets` from them.

    With population std and no epsilon; equal offsets give exactly sqrt(K/G), their scale cancels.
    """
    pool = reward + np.array([0.0] * size + list(offsets))
    return float((reward - pool.mean()) / pool.std())


def virtual_advantages(acr: float, repair: Collapse) -> Row:
    """Return K and the advantages it gives, by equal virtual rewards and by those of `repair`."""
    count = repair.number(acr, GROUP)
    return {
        "acr": acr,
        "K": count,
        "bound": math.sqrt(count / GROUP),
        "equal": -advantage(0.0, [repair.anchor] * count),
        "stratified_wrong": -advantage(0.0, repair.offsets(False, count, random)),
        "stratified_right": advantage(1.0, repair.offsets(True, count, random)),
    }


def run(trials: int, seed: int) -> Finding:
    """Compare the law with `trials` groups per rate and size, and tabulate the virtual rewards."""
    rng = np.random.default_rng(seed)
    rows: list[Row] = []
    curves = []
    grid = np.linspace(0, 1, 201).tolist()
    for size in SIZES:
        drawn = [sampled(p, size, trials, rng) for p in RATES]
        for p, share in zip(RATES, drawn, strict=True):
            formula = zero_variance(p, size)
            error = (formula * (1 - formula) / trials) ** 0.5
            rows.append({"G": size, "p": p, "formula": formula, "sampled": share, "standard_error": error})
        curves += [
            Curve(f"G {size}", grid, [zero_variance(p, size) for p in grid]),
            Curve("", RATES, drawn, joined=False),
        ]
    repaired = [virtual_advantages(acr, Collapse()) for acr in ACRS]
    panels = [
        Panel("Collapse: line formula, points sampled", "success rate p", "share of groups", curves),
        Panel(
            f"Size of the advantage, G = {GROUP}",
            "ACR",
            "|A|",
            [
                Curve(name.replace("_", " "), ACRS, [float(row[name]) for row in repaired])
                for name in ("equal", "stratified_wrong")
            ],
        ),
    ]
    return Finding({"collapse": rows, "virtual_rewards": repaired}, panels)
