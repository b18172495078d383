"""Model and optimiser: score rows, update on columns. It never learns an algorithm's name."""

from __future__ import annotations

import math
from typing import Annotated, Literal

from pydantic import Field

from rlctl.spec import Spec

Rate = Annotated[float, Field(gt=0)]
Beta = Annotated[float, Field(ge=0, lt=1)]


class OptimSpec(Spec):
    """Section `optim`: AdamW and its schedule."""

    learning_rate: Literal["auto"] | Rate = "auto"  # 1e-6 full, 1e-5 LoRA, 2e-4 tiny
    schedule: Literal["constant", "linear", "cosine"] = "constant"  # after the warm-up, to 0 at budget.steps
    warmup_steps: int = Field(0, ge=0)
    weight_decay: float = Field(0.0, ge=0)
    betas: Annotated[tuple[Beta, Beta], Field(strict=False)] = (0.9, 0.999)
    max_grad_norm: float = Field(1.0, gt=0)
    # padded tokens of one forward pass
    micro_batch_tokens: Literal["auto"] | Annotated[int, Field(ge=1)] = "auto"

    def factor(self, step: int, total_steps: int | None) -> float:
        """Return what the schedule multiplies the learning rate of `step` by; steps count from 1."""
        warm = min(1.0, step / self.warmup_steps) if self.warmup_steps else 1.0
        if self.schedule == "constant" or total_steps is None:
            return warm
        rest = max(total_steps - self.warmup_steps, 1)
        done = min(max(step - 1 - self.warmup_steps, 0) / rest, 1.0)
        return warm * (1 - done if self.schedule == "linear" else 0.5 * (1 + math.cos(math.pi * done)))
