"""Which bounds of the ratio GAPO (2609.00444) and AGPO (2605.20722) choose, by the project's own stages."""

from __future__ import annotations

import math

import torch

from rlctl.algorithm.clip import ByGroup
from rlctl.algorithm.control.clip import Clip
from rlctl.batch import GroupStats
from rlctl.lab.finding import Curve, Finding, Panel, Row

HOSTS = {"token": (0.2, 0.28), "sequence": (3e-3, 5e-3)}  # low, high: the paper's
RATES = tuple(n / 20 for n in range(21))


def upper_bounds(stage: ByGroup, size: int) -> list[float]:
    """Return the upper bound of a correct answer in groups with 1 to `size` correct ones."""
    count = torch.arange(1, size + 1)[:, None]
    correct_PG = torch.arange(size)[None] < count
    reward_PG = correct_PG.double()
    stats = GroupStats(
        verifier_PG=reward_PG,
        reward_PG=reward_PG,
        correct_PG=correct_PG,
        length_PG=torch.ones_like(correct_PG, dtype=torch.int64),
        truncated_PG=torch.zeros_like(correct_PG),
        temperature_PG=torch.ones_like(reward_PG),
        keep_PG=torch.ones_like(correct_PG),
        max_length=1,
    )
    bounds = stage(stats, reward_PG - reward_PG.mean(1, keepdim=True))
    highs: list[float] = bounds.high_PG[:, 0].tolist()
    return highs


def half_width(p: float) -> tuple[float, float, float]:
    """Return sigma, vote entropy and AGPO's bound, where two answers are given with chance p and 1 - p.

    Entropy ratio 1, no KL, no skewness: the bound of a first step.
    """
    sigma = math.sqrt(p * (1 - p))
    votes = sum(q * math.log(1 / q) for q in (p, 1 - p) if q > 0)
    return sigma, votes, Clip().bound(1.0, votes=votes, dispersion=sigma, kl=0.0, skewness=0.0)


def run(group_size: int) -> Finding:
    """Tabulate the bounds over the number of correct answers and over the success rate."""
    counts = list(range(1, group_size + 1))
    gapo: list[Row] = [{"correct": c, "success": c / group_size} for c in counts]
    panels = []
    for host, (low, high) in HOSTS.items():
        curves = []
        for form in ("linear", "exact"):
            stage = ByGroup.model_validate({"low": low, "high": high, "form": form})
            bounds = upper_bounds(stage, group_size)
            gapo = [{**row, f"{host}_{form}": bound} for row, bound in zip(gapo, bounds, strict=True)]
            curves.append(Curve(form, counts, bounds))
        curves.append(Curve("low", counts, [low] * group_size))
        panels.append(Panel(f"GAPO, {host} ratio", "correct answers", "upper bound - 1", curves))
    widths = [(p, *half_width(p)) for p in RATES]
    agpo = [{"success": p, "sigma": s, "vote_entropy": e, "bound": bound} for p, s, e, bound in widths]
    curve = Curve("bound", RATES, [row["bound"] for row in agpo])
    panels.append(Panel("AGPO, first step", "success rate", "distance from 1", [curve]))
    return Finding({"gapo": gapo, "agpo": agpo}, panels)
