"""Mean and spread of a group's judged rewards, in float64; NaN marks a reward that was not judged."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from torch import Tensor

# Rewards summed from parts differ by rounding where they are equal, so no exact test will do.
TOLERANCE = 1e-6


def judged(reward_PG: Tensor) -> Tensor:
    """Count the judged members of each group, P x 1."""
    return (~reward_PG.isnan()).sum(1, keepdim=True)


def deviation(reward_PG: Tensor) -> Tensor:
    """Return reward - mean of the group's judged rewards; 0 where not judged."""
    known_PG = ~reward_PG.isnan()
    reward_PG = reward_PG.double()
    mean_P1 = reward_PG.where(known_PG, 0.0).sum(1, keepdim=True) / judged(reward_PG).clamp(min=1)
    return (reward_PG - mean_P1).where(known_PG, 0.0)


def std(reward_PG: Tensor, lost: int = 1) -> Tensor:
    """Return each group's standard deviation, P x 1. `lost` degrees of freedom: 1 Bessel, 0 population."""
    square_P1 = deviation(reward_PG).square().sum(1, keepdim=True)
    return (square_P1 / (judged(reward_PG) - lost).clamp(min=1)).sqrt()


def varies(reward_PG: Tensor) -> Tensor:
    """Tell which groups have anything to compare, P x 1 bool: std of at least 1e-6."""
    return std(reward_PG) >= TOLERANCE
