"""What an update measured, as sums over tokens, so that no figure depends on the micro-batches."""

from __future__ import annotations

import math
from collections import defaultdict
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from torch import Tensor

    from rlctl.batch import Batch


@dataclass
class Report:
    """Sums over the tokens that were trained, of one optimiser step or of several added up."""

    loss: float = 0.0
    sums: defaultdict[str, float] = field(default_factory=lambda: defaultdict(float))
    mismatch_max: float = 0.0
    grad_norms: list[float] = field(default_factory=list)
    skipped: int = 0

    @classmethod
    def idle(cls) -> Report:
        """An update with no row that could move the gradient: no optimiser step was taken."""
        return cls(skipped=1)

    @classmethod
    def of(cls, loss: Tensor, logp_BT: Tensor, entropy_BT: Tensor, micro: Batch, objective: Any) -> Report:
        """Measure one micro-batch; everything is detached, so no graph stays alive."""
        mask_BT, logp_BT = micro.mask_BT, logp_BT.detach()
        old_BT = logp_BT if micro.old_logp_BT is None else micro.old_logp_BT
        gap_BT = (micro.engine_logp_BT - old_BT).where(mask_BT, 0.0)
        clipped_BT = objective.clipped_BT & mask_BT
        report = cls(loss=float(loss.detach()), mismatch_max=float(gap_BT.abs().max()))
        sums = report.sums
        sums["tokens"] = float(mask_BT.sum())
        sums["clipped"] = float(clipped_BT.sum())
        sums["vetoed"] = float(objective.vetoed_BT.sum())
        sums["entropy"] = float(entropy_BT.detach()[mask_BT].sum())
        sums["mismatch"] = float(gap_BT.abs().sum())
        sums["mismatch_kl"] = float(((-gap_BT).exp() - 1 + gap_BT).sum())
        for correct in set(micro.correct_B.tolist()):
            rows_B = micro.correct_B == correct
            sums[f"tokens/c{correct}"] += float(mask_BT[rows_B].sum())
            sums[f"clipped/c{correct}"] += float(clipped_BT[rows_B].sum())
        if objective.kl_BT is not None:
            sums["kl_ref"] = float(objective.kl_BT.detach()[mask_BT].sum())
        return report

    def add(self, other: Report) -> None:
        """Add another part's sums to these."""
        self.loss += other.loss
        for key, value in other.sums.items():
            self.sums[key] += value
        self.mismatch_max = max(self.mismatch_max, other.mismatch_max)
        self.grad_norms += other.grad_norms
        self.skipped += other.skipped

    def finite(self) -> bool:
        """Say whether loss and gradients are numbers."""
        return math.isfinite(self.loss) and all(map(math.isfinite, self.grad_norms))

    def metrics(self) -> dict[str, float]:
        """Return token means; loss and gradient norm are means over the optimiser steps taken."""
        updates = len(self.grad_norms)
        found: dict[str, float] = {"train/updates": updates, "train/skipped_updates": self.skipped}
        if not updates:
            return found
        tokens = self.sums["tokens"]
        found |= {
            "train/loss": self.loss / updates,
            "train/grad_norm": sum(self.grad_norms) / updates,
            "train/clip_share": self.sums["clipped"] / tokens,
            "train/vetoed_share": self.sums["vetoed"] / tokens,
            "train/entropy": self.sums["entropy"] / tokens,
            "mismatch/mean": self.sums["mismatch"] / tokens,
            "mismatch/max": self.mismatch_max,
            "mismatch/kl": self.sums["mismatch_kl"] / tokens,
        }
        if "kl_ref" in self.sums:
            found["train/kl_ref"] = self.sums["kl_ref"] / tokens
        for key in [k for k in self.sums if k.startswith("tokens/")]:
            correct = key.removeprefix("tokens/")
            found[f"train/clip_share/{correct}"] = self.sums[f"clipped/{correct}"] / self.sums[key]
        return found
