"""Repair for an engine that samples from slightly other probabilities than the learner computes."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Literal

from pydantic import Field

from rlctl.spec import Spec

if TYPE_CHECKING:
    from torch import Tensor


class NoCorrection(Spec):
    """Factor 1."""

    kind: Literal["none"] = "none"

    def __call__(self, gap_BT: Tensor) -> Tensor | float:
        """Return 1."""
        return 1.0


class Correction(Spec):
    """Factor w = exp(old logp - engine logp) on the policy's gain; no gradient flows through it.

    `token_*`: one w a token; `sequence_*`: one a row, of the summed log-probs. `*_truncate` holds w
    at `max`, `*_mask` gives a w beyond it the factor 0.
    """

    kind: Literal["token_truncate", "token_mask", "sequence_truncate", "sequence_mask"] = "token_truncate"
    max: float = Field(2.0, gt=0)

    def __call__(self, gap_BT: Tensor) -> Tensor:
        """Return the factor from old - engine log-probs, which are 0 where nothing is trained."""
        level, _, action = self.kind.partition("_")
        gap_BT = gap_BT.sum(1, keepdim=True) if level == "sequence" else gap_BT
        factor_BT = gap_BT.clamp(-20, 20).exp()
        if action == "truncate":
            return factor_BT.clamp(max=self.max)
        return factor_BT.where(factor_BT <= self.max, 0.0)


AnyCorrection = Annotated[NoCorrection | Correction, Field(discriminator="kind")]
