"""Bounds of the ratio, one pair a row, always as distances from 1: [1 - low, 1 + high]."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Annotated, Literal, NamedTuple

from pydantic import Field

from rlctl.algorithm import moments
from rlctl.spec import Spec, ordered

if TYPE_CHECKING:
    from torch import Tensor

    from rlctl.batch import GroupStats


class Bounds(NamedTuple):
    """What a clip decides, P x G. `price`: lambda of a soft trust region, for the surrogate `priced`."""

    low_PG: Tensor
    high_PG: Tensor
    price_PG: Tensor | None = None


class Fixed(Spec):
    """The same bounds for every row. A `low` of 1 or more leaves the ratio free below (1707.06347)."""

    kind: Literal["fixed"] = "fixed"
    low: float = Field(0.2, ge=0)
    high: float = Field(0.2, ge=0)

    def __call__(self, stats: GroupStats, advantage_PG: Tensor) -> Bounds:
        """Return the bounds, P x G."""
        full = advantage_PG.new_full
        return Bounds(full(advantage_PG.shape, self.low), full(advantage_PG.shape, self.high))


class Unclipped(Spec):
    """No bounds."""

    kind: Literal["none"] = "none"

    def __call__(self, stats: GroupStats, advantage_PG: Tensor) -> Bounds:
        """Return 1 and infinity, P x G."""
        full = advantage_PG.new_full
        return Bounds(full(advantage_PG.shape, 1.0), full(advantage_PG.shape, math.inf))


class Controlled(Spec):
    """[1 - e, 1 + e], with e of each prompt set by the controller `clip` (2605.20722)."""

    kind: Literal["controlled"] = "controlled"

    def __call__(self, stats: GroupStats, advantage_PG: Tensor) -> Bounds:
        """Return the bounds, P x G."""
        assert stats.clip_P is not None, "the controller `clip` sets the bounds"
        both_PG = stats.clip_P[:, None].expand_as(advantage_PG)
        return Bounds(both_PG, both_PG)


class ByGroup(Spec):
    """The fewer answers are right, the more room a right one gets (GAPO, 2609.00444).

    For c right of k: high(c) = low + (high - low) (k - c) / (k - 1) for right answers, `low` for
    the others. The optimum under a KL bound is r - 1 = exp(A / lambda) - 1, of which that is the
    linear form. `form: exact` (ours; the authors' is not published) takes (1 + high)^(A / A_max) - 1
    with A = (k - c) / k and A_max that of c = 1; it falls to 0 at c = k.
    """

    kind: Literal["group"] = "group"
    low: float = Field(0.2, ge=0)
    high: float = Field(0.28, ge=0)
    form: Literal["linear", "exact"] = "linear"
    _ordered = ordered("low", "high")

    def __call__(self, stats: GroupStats, advantage_PG: Tensor) -> Bounds:
        """Return the bounds, P x G."""
        low_PG = advantage_PG.new_full(advantage_PG.shape, self.low)
        k_P1 = moments.judged(stats.verifier_PG).double()
        c_P1 = stats.correct_PG.sum(1, keepdim=True).double()
        share_P1 = ((k_P1 - c_P1) / (k_P1 - 1).clamp(min=1)).where(k_P1 > 1, 1.0)
        if self.form == "linear":
            high_P1 = self.low + (self.high - self.low) * share_P1
        else:
            high_P1 = (1 + self.high) ** share_P1 - 1
        return Bounds(low_PG, high_P1.expand_as(low_PG).where(stats.correct_PG, low_PG))


class Target(Spec):
    """Bounds around the target r = exp(A / lambda): [min(1, r) - e, max(1, r) + e] (PPO-lambda, 1804.06461).

    Only the target is the paper's; these bounds and the rule for lambda (controller `price`) are ours.
    """

    kind: Literal["target"] = "target"
    margin: float = Field(0.2, ge=0)

    def __call__(self, stats: GroupStats, advantage_PG: Tensor) -> Bounds:
        """Return the bounds, P x G."""
        assert stats.price is not None, "the controller `price` sets lambda"
        target_PG = (advantage_PG / stats.price).clamp(-20, 20).exp()
        return Bounds(1 - target_PG.clamp(max=1) + self.margin, target_PG.clamp(min=1) - 1 + self.margin)


class Dual(Spec):
    """No bounds, but a price lambda for leaving the old policy, of each prompt its own (QUATRO, 2602.04620).

    lambda minimises the dual lambda * delta + lambda * log mean exp(A / lambda) of max E[r A] under
    KL <= delta, over the group. The paper's formula is not published: this is our derivation, and
    `delta` our choice. Groups without advantage have price 0.
    """

    kind: Literal["dual"] = "dual"
    delta: float = Field(0.05, gt=0)

    def __call__(self, stats: GroupStats, advantage_PG: Tensor) -> Bounds:
        """Return no bounds and the price, P x G."""
        bounds = Unclipped()(stats, advantage_PG)
        price_P1 = dual_price(advantage_PG.where(~stats.reward_PG.isnan(), math.nan), self.delta)
        return bounds._replace(
            price_PG=price_P1.where((advantage_PG != 0).any(1, keepdim=True), 0.0).expand_as(advantage_PG)
        )


LEAST, MOST, HALVINGS = 1e-3, 1e3, 100  # of lambda; a hundred halvings end at rounding


def dual_price(advantage_PG: Tensor, delta: float) -> Tensor:
    """Return lambda of each group, P x 1: the root of the dual's slope, which is convex in lambda.

    NaN marks who is not judged and left out.
    """
    known_PG = ~advantage_PG.isnan()
    low_P1 = advantage_PG.new_full((len(advantage_PG), 1), math.log(LEAST))
    high_P1 = low_P1.new_full(low_P1.shape, math.log(MOST))
    for _ in range(HALVINGS):
        middle_P1 = (low_P1 + high_P1) / 2
        scaled_PG = (advantage_PG / middle_P1.exp()).where(known_PG, -math.inf)
        weight_PG = scaled_PG.softmax(1)
        # slope = delta - KL(weights || uniform)
        mean_P1 = (weight_PG * scaled_PG.where(known_PG, 0.0)).sum(1, keepdim=True)
        kl_P1 = mean_P1 - scaled_PG.logsumexp(1, keepdim=True) + moments.judged(advantage_PG).double().log()
        rising_P1 = delta > kl_P1
        low_P1, high_P1 = low_P1.where(rising_P1, middle_P1), high_P1.where(~rising_P1, middle_P1)
    return high_P1.exp()


AnyClip = Annotated[Fixed | Unclipped | Controlled | ByGroup | Target | Dual, Field(discriminator="kind")]
