"""What is raised by the update, token by token, and where the clip changed its gradient.

Below, r is the ratio of new to old probability, A the row's advantage, [1 - low, 1 + high] its bounds.
`bounded` says whether the bounds are looked at, `silent_at_zero` whether a row of advantage 0 has no
gradient.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, ClassVar, Literal

from pydantic import Field

from rlctl.spec import Spec

if TYPE_CHECKING:
    from torch import Tensor

    from rlctl.batch import Batch


class Clipped(Spec):
    """min(r A, clip(r) A): no gradient once the ratio left its bounds in the direction of A (1707.06347).

    `dual` c, above 1: a negative A gives no less than c A, whatever r is (dual clip, 1912.09729).
    """

    kind: Literal["clipped"] = "clipped"
    bounded: ClassVar[bool] = True
    silent_at_zero: ClassVar[bool] = True
    dual: float | None = Field(None, gt=1)

    def __call__(self, ratio_BT: Tensor, logp_BT: Tensor, batch: Batch) -> tuple[Tensor, Tensor]:
        """Return the gain and where it was clipped, B x T."""
        A_B1 = batch.advantage_B[:, None]
        free_BT, bound_BT = ratio_BT * A_B1, _clip(ratio_BT, batch) * A_B1
        gain_BT, clipped_BT = free_BT.minimum(bound_BT), bound_BT < free_BT
        if self.dual is None:
            return gain_BT, clipped_BT
        least_BT = (self.dual * A_B1).expand_as(gain_BT)
        beyond_BT = (A_B1 < 0) & (gain_BT < least_BT)
        return least_BT.where(beyond_BT, gain_BT), clipped_BT | beyond_BT


class ClippedWeight(Spec):
    """sg(clip(r)) A logp: a clipped token keeps a gradient, of bounded weight (CISPO, 2506.13585)."""

    kind: Literal["clipped_weight"] = "clipped_weight"
    bounded: ClassVar[bool] = True
    silent_at_zero: ClassVar[bool] = True

    def __call__(self, ratio_BT: Tensor, logp_BT: Tensor, batch: Batch) -> tuple[Tensor, Tensor]:
        """Return the gain and where it was clipped, B x T."""
        A_B1 = batch.advantage_B[:, None]
        weight_BT = _clip(ratio_BT, batch).detach()
        return weight_BT * A_B1 * logp_BT, (weight_BT != ratio_BT) & (A_B1 != 0)


class SoftGate(Spec):
    """(4 / tau) sigmoid(tau (r - 1)) A: the gradient fades as r leaves 1 (SAPO, 2511.20347).

    Against r A the gradient has the factor sech^2(tau (r - 1) / 2). `tau_pos` serves A > 0, `tau_neg`
    the rest. Takes no bounds.
    """

    kind: Literal["soft_gate"] = "soft_gate"
    bounded: ClassVar[bool] = False
    silent_at_zero: ClassVar[bool] = True
    tau_pos: float = Field(1.0, gt=0)
    tau_neg: float = Field(1.05, gt=0)

    def __call__(self, ratio_BT: Tensor, logp_BT: Tensor, batch: Batch) -> tuple[Tensor, Tensor]:
        """Return the gain and where it was clipped, B x T."""
        A_B1 = batch.advantage_B[:, None]
        tau_B1 = A_B1.new_tensor(self.tau_pos).where(A_B1 > 0, A_B1.new_tensor(self.tau_neg))
        gain_BT = 4 / tau_B1 * (tau_B1 * (ratio_BT - 1)).sigmoid() * A_B1
        return gain_BT, batch.mask_BT & False


class Reinforce(Spec):
    """A logp: the plain policy gradient, without ratio or bounds (RLOO, 2402.14740)."""

    kind: Literal["reinforce"] = "reinforce"
    bounded: ClassVar[bool] = False
    silent_at_zero: ClassVar[bool] = True

    def __call__(self, ratio_BT: Tensor, logp_BT: Tensor, batch: Batch) -> tuple[Tensor, Tensor]:
        """Return the gain and where it was clipped, B x T."""
        return batch.advantage_B[:, None] * logp_BT, batch.mask_BT & False


class Priced(Spec):
    """r (A - lambda sg(log r)): the pull fades as r nears exp(A / lambda), with lambda of the clip `dual`.

    At A = 0 it still pulls a ratio back to 1. Our reading of QUATRO's stabiliser (2602.04620), whose
    formula is not published.
    """

    kind: Literal["priced"] = "priced"
    bounded: ClassVar[bool] = False
    silent_at_zero: ClassVar[bool] = False

    def __call__(self, ratio_BT: Tensor, logp_BT: Tensor, batch: Batch) -> tuple[Tensor, Tensor]:
        """Return the gain and where it was clipped, B x T."""
        pull_BT = batch.advantage_B[:, None] - batch.price_B[:, None] * ratio_BT.detach().log()
        return ratio_BT * pull_BT, batch.mask_BT & False


def _clip(ratio_BT: Tensor, batch: Batch) -> Tensor:
    return ratio_BT.clamp(1 - batch.clip_low_B[:, None], 1 + batch.clip_high_B[:, None])


AnySurrogate = Annotated[Clipped | ClippedWeight | SoftGate | Reinforce | Priced, Field(discriminator="kind")]
