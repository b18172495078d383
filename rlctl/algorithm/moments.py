"""Mean and spread of a group's judged rewards, in float64; NaN marks a reward that was not judged."""

from __future__ import annotations

from typing import TYPE_CHECKING, Literal

if TYPE_CHECKING:
    from torch import Tensor

# Below this std a group is collapsed (2605.21125). Rewards summed from parts differ by rounding where
# they are equal, so no exact test will do.
COLLAPSE_STD = 1e-6

Dispersion = Literal["bessel", "mad", "iqr"]


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
    return std(reward_PG) >= COLLAPSE_STD


def dispersion(kind: Dispersion, reward_PG: Tensor) -> Tensor:
    """Return each group's spread, P x 1, as 2605.20722 measures it.

    * `bessel`: the standard deviation over n - 1
    * `mad`: 1.4826 median |r - median|, the lower median for an even n
    * `iqr`: (q75 - q25) / 1.349

    0 where nothing is judged.
    """
    if kind == "bessel":
        return std(reward_PG)
    if kind == "mad":
        middle_P1 = reward_PG.nanmedian(1, keepdim=True).values
        robust_P1 = 1.4826 * (reward_PG - middle_P1).abs().nanmedian(1, keepdim=True).values
    else:
        robust_P1 = reward_PG.nanquantile(0.75, 1, keepdim=True) - reward_PG.nanquantile(
            0.25, 1, keepdim=True
        )
        robust_P1 = robust_P1 / 1.349
    return robust_P1.where(judged(reward_PG) > 0, 0.0)


def skewness(reward_PG: Tensor) -> Tensor:
    """Return each group's skewness, P x 1: sqrt(n(n-1))/(n-2) * mean(z^3) with Bessel's z, in [-10, 10].

    0 where the std is below 1e-6; the factor is 1 for n <= 2 (2605.20722).
    """
    n_P1, std_P1 = judged(reward_PG).double(), std(reward_PG)
    cube_P1 = (deviation(reward_PG) / std_P1).pow(3).sum(1, keepdim=True) / n_P1.clamp(min=1)
    factor_P1 = ((n_P1 * (n_P1 - 1)).sqrt() / (n_P1 - 2)).where(n_P1 > 2, 1.0)
    return (factor_P1 * cube_P1).where(varies(reward_PG), 0.0).clamp(-10, 10)
