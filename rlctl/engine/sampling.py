"""The law that a row is sampled from, and drawing from it with the row's own seed.

Letters: B rows, V vocabulary, S positions.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor

from rlctl.types import Request


@dataclass(frozen=True)
class Law:
    """Temperature, then top_k, then top_p of what top_k left, each row its own; greedy is one token."""

    temperature_B: Tensor  # 0: greedy
    top_p_B: Tensor  # float64; inf: off
    top_k_B: Tensor
    greedy: bool  # any row is
    cut: bool  # any row uses top_p or top_k

    @classmethod
    def of(cls, requests: Sequence[Request], device: torch.device) -> Law:
        """Read the law of each row off its request."""
        wide: dict[str, Any] = {"dtype": torch.float64, "device": device}
        largest = torch.iinfo(torch.int64).max
        return cls(
            temperature_B=torch.tensor([r.temperature for r in requests], device=device),
            top_p_B=torch.tensor([r.top_p if r.top_p < 1 else torch.inf for r in requests], **wide),
            top_k_B=torch.tensor([r.top_k or largest for r in requests], device=device),
            greedy=any(r.temperature == 0 for r in requests),
            cut=any(r.top_p < 1 or r.top_k is not None for r in requests),
        )

    def at(self, index: Tensor) -> Law:
        """Return the law of the rows at `index`."""
        return Law(self.temperature_B[index], self.top_p_B[index], self.top_k_B[index], self.greedy, self.cut)

    def log_probs(self, logits_BV: Tensor) -> Tensor:
        """Return float32 log-probs of the law; -inf is what it cannot draw."""
        logits_BV = logits_BV.float()
        if self.greedy:
            first_BV = torch.zeros_like(logits_BV, dtype=torch.bool)
            first_BV.scatter_(1, logits_BV.argmax(1, keepdim=True), True)
            greedy_B = self.temperature_B == 0
            logits_BV = logits_BV.masked_fill(greedy_B[:, None] & ~first_BV, -torch.inf)
            logits_BV = logits_BV / torch.where(greedy_B, 1.0, self.temperature_B)[:, None]
        else:
            logits_BV = logits_BV / self.temperature_B[:, None]
        if self.cut:
            logits_BV = logits_BV.masked_fill(~self._kept(logits_BV), -torch.inf)
        return logits_BV.log_softmax(1)

    def _kept(self, logits_BV: Tensor) -> Tensor:
        sorted_BV, order_BV = logits_BV.sort(dim=1, descending=True, stable=True)
        rank_V = torch.arange(logits_BV.shape[1], device=logits_BV.device)
        sorted_BV = sorted_BV.masked_fill(rank_V >= self.top_k_B[:, None], -torch.inf)
        prob_BV = sorted_BV.softmax(1, dtype=torch.float64)
        before_BV = prob_BV.cumsum(1) - prob_BV
        kept_BV = (before_BV < self.top_p_B[:, None]) & (sorted_BV > -torch.inf)
        return torch.zeros_like(kept_BV).scatter_(1, order_BV, kept_BV)


def uniforms(requests: Sequence[Request], device: torch.device) -> Tensor:
    """Return a uniform of [0, 1) for every row and position (B x S, float64).

    They depend on the row's seed and the position alone: not on neighbours, nor on max_tokens.
    """
    uniform_BS = np.zeros((len(requests), max(r.max_tokens for r in requests)))
    for row, request in zip(uniform_BS, requests, strict=True):
        np.random.Generator(np.random.Philox(key=request.seed)).random(out=row[: request.max_tokens])
    return torch.from_numpy(uniform_BS).to(device)


def draw(logp_BV: Tensor, uniform_B: Tensor) -> Tensor:
    """Return the token at which the cumulative probability first exceeds the uniform.

    A token of probability 0 leaves the sum as it was, so it is never that token. The sum is float64:
    a parallel float32 one may step back by a rounding, and so let in a token of probability 0.
    """
    sum_BV = logp_BV.exp().cumsum(1, dtype=torch.float64)
    total_B = sum_BV[:, -1]
    # The product may round up to the total, which no sum exceeds.
    target_B = torch.minimum(uniform_B * total_B, total_B.nextafter(torch.zeros_like(total_B)))
    return torch.searchsorted(sum_BV, target_B[:, None], right=True)[:, 0]
