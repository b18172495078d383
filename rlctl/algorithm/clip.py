"""Bounds of the ratio, one pair a row, always as distances from 1: [1 - low, 1 + high]."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Literal

from pydantic import Field

from rlctl.spec import Spec

if TYPE_CHECKING:
    from torch import Tensor

    from rlctl.batch import GroupStats


class Fixed(Spec):
    """The same bounds for every row. A `low` of 1 or more leaves the ratio free below (1707.06347)."""

    kind: Literal["fixed"] = "fixed"
    low: float = Field(0.2, ge=0)
    high: float = Field(0.2, ge=0)

    def __call__(self, stats: GroupStats) -> tuple[Tensor, Tensor]:
        """Return low and high, P x G."""
        reward_PG = stats.reward_PG
        return reward_PG.new_full(reward_PG.shape, self.low), reward_PG.new_full(reward_PG.shape, self.high)


class Unclipped(Spec):
    """No bounds."""

    kind: Literal["none"] = "none"

    def __call__(self, stats: GroupStats) -> tuple[Tensor, Tensor]:
        """Return 1 and infinity, P x G."""
        reward_PG = stats.reward_PG
        return reward_PG.new_full(reward_PG.shape, 1.0), reward_PG.new_full(reward_PG.shape, float("inf"))


AnyClip = Annotated[Fixed | Unclipped, Field(discriminator="kind")]
