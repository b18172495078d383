"""From rewards to advantages, 0 exactly where a group's rewards are equal unless a stage says otherwise."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Literal

from pydantic import Field

from rlctl.algorithm import moments
from rlctl.spec import Spec

if TYPE_CHECKING:
    from torch import Tensor

    from rlctl.batch import GroupStats


class ZScore(Spec):
    """A = (R - mean) / (std + eps), for comparing answers to one prompt.

    `std`: bessel divides by n - 1, population by n; mad and iqr are the robust ones of 2605.20722
    (bessel where they are 0 and rewards differ). `scale: batch` takes one std over all rewards of
    the step; the mean is still the group's. Virtual rewards (control `collapse`) count in mean and
    std. `homogeneous` c gives a group of equal rewards A = +c if correct and -c if not, the plain
    control for such repairs. Sources: 2402.03300, 2605.21125.
    """

    kind: Literal["zscore"] = "zscore"
    std: moments.Dispersion | Literal["population"] = "bessel"
    eps: float = Field(1e-6, ge=0)
    scale: Literal["group", "batch"] = "group"
    homogeneous: float = Field(0.0, ge=0)

    def __call__(self, stats: GroupStats) -> Tensor:
        """Return advantages, P x G."""
        pool_PN = stats.pool_PN
        scaled_PN = pool_PN if self.scale == "group" else pool_PN.reshape(1, -1)
        std_P1 = moments.std(scaled_PN, lost=0) if self.std == "population" else self._spread(scaled_PN)
        varies_P1 = moments.varies(pool_PN)
        scored_PN = (moments.deviation(pool_PN) / (std_P1 + self.eps)).where(varies_P1, 0.0)
        scored_PG = scored_PN[:, : stats.reward_PG.shape[1]]
        if not self.homogeneous:
            return scored_PG
        sign_PG = stats.correct_PG.double() * 2 - 1
        flat_PG = (sign_PG * self.homogeneous).where(~stats.reward_PG.isnan(), 0.0)
        return scored_PG.where(varies_P1 | (moments.judged(stats.reward_PG) < 2), flat_PG)

    def _spread(self, reward_PN: Tensor) -> Tensor:
        assert self.std != "population"
        spread_P1 = moments.dispersion(self.std, reward_PN)
        return spread_P1.where(spread_P1 > 1e-8, moments.std(reward_PN))


class Centred(Spec):
    """A = R - mean of the group, so that easy and hard prompts are not blown up. Source: 2503.20783."""

    kind: Literal["centred"] = "centred"

    def __call__(self, stats: GroupStats) -> Tensor:
        """Return advantages, P x G."""
        pool_PN = stats.pool_PN
        centred_PN = moments.deviation(pool_PN).where(moments.varies(pool_PN), 0.0)
        return centred_PN[:, : stats.reward_PG.shape[1]]


class LeaveOneOut(Spec):
    """A = R - mean of the others = n / (n - 1) * (R - mean of the group). Source: 2402.14740."""

    kind: Literal["leave_one_out"] = "leave_one_out"

    def __call__(self, stats: GroupStats) -> Tensor:
        """Return advantages, P x G."""
        pool_PN = stats.pool_PN
        n_P1 = moments.judged(pool_PN)
        scaled_PN = moments.deviation(pool_PN) * n_P1 / (n_P1 - 1).clamp(min=1)
        return scaled_PN.where(moments.varies(pool_PN), 0.0)[:, : stats.reward_PG.shape[1]]


class DualAnchor(Spec):
    """A = (1 - mix) T(z) + mix T(d): against the group, and against a goal that equal groups have too.

    z = (R - mean) / population std (0 if rewards are equal), d = (R - goal) / goal std, and
    T(v) = gain tanh(slope v) for v >= 0, loss tanh(slope v) below: losses weigh more. The goal's std
    is 1 / (2 sqrt(constraints)) as in the paper, for rewards that are shares of so many constraints;
    `goal_std: code` is the authors' sqrt(G / (4 constraints)). `goal: moving` is max(0.5, group
    mean), the authors' code, where the paper has 0.5. (gain, loss) are the paper's; the released
    pipeline has them reversed. Source: 2606.06058.
    """

    kind: Literal["dual_anchor"] = "dual_anchor"
    mix: float = Field(0.2, ge=0, le=1)
    slope: float = Field(0.8, gt=0)
    gain: float = Field(1.25, gt=0)
    loss: float = Field(2.0, gt=0)
    constraints: int = Field(1, ge=1)
    goal: Literal["fixed", "moving"] = "fixed"
    goal_std: Literal["paper", "code"] = "paper"

    def __call__(self, stats: GroupStats) -> Tensor:
        """Return advantages, P x G."""
        reward_PG = stats.reward_PG
        known_PG = ~reward_PG.isnan()
        deviation_PG = moments.deviation(reward_PG)
        z_PG = (deviation_PG / moments.std(reward_PG, lost=0)).where(moments.varies(reward_PG), 0.0)
        mean_PG = reward_PG - deviation_PG
        goal_PG = mean_PG.clamp(min=0.5) if self.goal == "moving" else reward_PG.new_tensor(0.5)
        G = reward_PG.shape[1] if self.goal_std == "code" else 1
        d_PG = (reward_PG - goal_PG) / (G / (4 * self.constraints)) ** 0.5
        mixed_PG = (1 - self.mix) * self._bend(z_PG) + self.mix * self._bend(d_PG)
        return mixed_PG.where(known_PG & (moments.judged(reward_PG) > 1), 0.0)

    def _bend(self, value_PG: Tensor) -> Tensor:
        bent_PG = (self.slope * value_PG).tanh()
        return (self.gain * bent_PG).where(value_PG >= 0, self.loss * bent_PG)


AnyAdvantage = Annotated[ZScore | Centred | LeaveOneOut | DualAnchor, Field(discriminator="kind")]
