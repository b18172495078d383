"""Tokens of negative advantage that are left out of the gain because the policy has moved away from them."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, ClassVar, Literal

from pydantic import Field

from rlctl.spec import Spec

if TYPE_CHECKING:
    from torch import Tensor

    from rlctl.batch import Batch


class Suffix(Spec):
    """Drop what follows the first trigger token of a row with A < 0; the token itself stays (2605.17570).

    With r the ratio of a token, of the policy to the one that sampled, and k the `threshold`:

    * `low`: r < k, the policy gives little mass to the prefix (our reading of the abstract)
    * `high`: r > 1 / k (one paraphrase)
    * `either`: |log r| > -log k
    * `prefix`: mean log r of the tokens so far < log k

    The paper's trigger and threshold are not published. `recount: true` spreads a row's weight
    over the tokens that are left; it needs `aggregate: sequence`. By default the weights stay.
    """

    kind: Literal["suffix"] = "suffix"
    needs: ClassVar[frozenset[str]] = frozenset()
    trigger: Literal["low", "high", "either", "prefix"] = "low"
    threshold: float = Field(0.2, gt=0, lt=1)
    recount: bool = False

    def __call__(self, log_ratio_BT: Tensor, batch: Batch) -> Tensor:
        """Return the factor of each token, B x T: 0 where vetoed."""
        limit = log_ratio_BT.new_tensor(self.threshold).log()
        fired_BT = {
            "low": lambda: log_ratio_BT < limit,
            "high": lambda: log_ratio_BT > -limit,
            "either": lambda: log_ratio_BT.abs() > -limit,
            "prefix": lambda: log_ratio_BT.cumsum(1) < limit * batch.mask_BT.cumsum(1),
        }[self.trigger]() & batch.mask_BT
        after_BT = fired_BT.long().cumsum(1) - fired_BT.long() > 0
        left_BT = ~(after_BT & (batch.advantage_B[:, None] < 0)) & batch.mask_BT
        factor_BT = left_BT.to(log_ratio_BT.dtype)
        if self.recount:
            factor_BT = factor_BT * batch.length_B[:, None] / left_BT.sum(1, keepdim=True).clamp(min=1)
        return factor_BT


class SequenceMask(Spec):
    """Drop a row with A < 0 once its mean log-prob fell by more than `delta` nats (DeepSeek-V3.2's mask).

    The fall is measured from the engine's log-probs, the policy that really sampled.
    """

    kind: Literal["sequence"] = "sequence"
    needs: ClassVar[frozenset[str]] = frozenset({"old_logp"})
    delta: float = Field(0.2, gt=0)

    def __call__(self, log_ratio_BT: Tensor, batch: Batch) -> Tensor:
        """Return the factor of each token, B x T: 0 where vetoed."""
        assert batch.old_logp_BT is not None, "the sequence veto needs old_logp"
        fall_BT = (batch.engine_logp_BT - batch.old_logp_BT - log_ratio_BT).where(batch.mask_BT, 0.0)
        fall_B1 = fall_BT.sum(1, keepdim=True) / batch.length_B[:, None].clamp(min=1)
        keep_B1 = (batch.advantage_B[:, None] >= 0) | (fall_B1 <= self.delta)
        return (keep_B1 & batch.mask_BT).to(log_ratio_BT.dtype)


AnyVeto = Annotated[Suffix | SequenceMask, Field(discriminator="kind")]
