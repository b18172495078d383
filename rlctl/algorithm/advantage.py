"""From rewards to advantages. All are 0 exactly where a group's rewards are equal, or not judged."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Literal

from pydantic import Field

from rlctl.algorithm import moments
from rlctl.spec import Spec

if TYPE_CHECKING:
    from torch import Tensor


class ZScore(Spec):
    """A = (R - mean of the group) / (std + eps), for comparing answers to one prompt.

    `std`: bessel divides by n - 1, population by n. `scale: batch` takes one std over all rewards
    of the step; the mean is still the group's. Source: 2402.03300.
    """

    kind: Literal["zscore"] = "zscore"
    std: Literal["bessel", "population"] = "bessel"
    eps: float = Field(1e-6, ge=0)
    scale: Literal["group", "batch"] = "group"

    def __call__(self, reward_PG: Tensor) -> Tensor:
        """Return advantages, P x G."""
        scaled_PG = reward_PG if self.scale == "group" else reward_PG.reshape(1, -1)
        std_P1 = moments.std(scaled_PG, lost=1 if self.std == "bessel" else 0)
        return (moments.deviation(reward_PG) / (std_P1 + self.eps)).where(moments.varies(reward_PG), 0.0)


class Centred(Spec):
    """A = R - mean of the group, so that easy and hard prompts are not blown up. Source: 2503.20783."""

    kind: Literal["centred"] = "centred"

    def __call__(self, reward_PG: Tensor) -> Tensor:
        """Return advantages, P x G."""
        return moments.deviation(reward_PG).where(moments.varies(reward_PG), 0.0)


class LeaveOneOut(Spec):
    """A = R - mean of the others = n / (n - 1) * (R - mean of the group). Source: 2402.14740."""

    kind: Literal["leave_one_out"] = "leave_one_out"

    def __call__(self, reward_PG: Tensor) -> Tensor:
        """Return advantages, P x G."""
        n_P1 = moments.judged(reward_PG)
        scaled_PG = moments.deviation(reward_PG) * n_P1 / (n_P1 - 1).clamp(min=1)
        return scaled_PG.where(moments.varies(reward_PG), 0.0)


AnyAdvantage = Annotated[ZScore | Centred | LeaveOneOut, Field(discriminator="kind")]
