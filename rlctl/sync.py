"""Brings new weights to the engine, and makes sure that they arrived."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence

import torch

from rlctl.batch import Batch, lay_out
from rlctl.errors import RunError
from rlctl.seeds import derive_seed
from rlctl.types import Engine, Prompt, Request, Weights

ROWS, TOKENS = 4, 8  # of the comparison: a few tokens show a stale layer, and cost little


class Sync:
    """Hands over the weights, then compares log-probs of fresh tokens, engine against learner.

    Args:
        engine: takes the weights.
        weights: what it takes, as they are now.
        score: fills `old_logp_BT` of a batch under the learner's weights.
        prompts: some of them begin the tokens.
        temperature: of training.
        seed: of the run.
    """

    def __init__(
        self,
        engine: Engine,
        weights: Weights,
        score: Callable[[Batch, frozenset[str]], Batch],
        prompts: Sequence[Prompt],
        *,
        temperature: float,
        seed: int,
    ) -> None:
        self.engine = engine
        self.weights = weights
        self.score = score
        self.prompts = prompts[:ROWS]
        self.temperature = temperature
        self.seed = seed

    def __call__(self, version: int) -> dict[str, float]:
        """Let the engine sample from the weights of `version`; return the gap as a metric.

        Raises:
            RunError: the engine does not compute what the learner computes.
        """
        self.engine.refresh(self.weights, version)
        if self.engine.tolerance is None:
            return {}
        gap = self.gap(version)
        allowed = self.engine.tolerance / self.temperature
        if not gap <= allowed:  # NaN too
            raise RunError(
                f"after the weights of step {version} were handed over, the engine's log-probs differ from "
                f"the learner's by {gap:.2g} on average, more than {allowed:.2g}",
                "the checkpoints are intact; engine.kind=transformers trains this model, or raise "
                "engine.max_mismatch if rounding explains it",
                reason="mismatch",
            )
        return {"mismatch/probe": gap}

    def gap(self, version: int, tokens: int = TOKENS) -> float:
        """Return the mean |log-prob gap| over `tokens` tokens after each prompt."""
        requests = [
            Request(
                index=index,
                ids=prompt.ids,
                seed=derive_seed(self.seed, "sync", version, index),
                max_tokens=tokens,
                temperature=self.temperature,
            )
            for index, prompt in enumerate(self.prompts)
        ]
        done = sorted(self.engine.generate(requests), key=lambda c: c.index)
        temperature_B = torch.full((len(done),), self.temperature, dtype=torch.float64)
        batch = self.score(
            lay_out([prompt.ids for prompt in self.prompts], done, temperature_B), frozenset(["old_logp"])
        )
        assert batch.old_logp_BT is not None
        gap_BT = (batch.engine_logp_BT - batch.old_logp_BT).abs().where(batch.mask_BT, 0.0)
        mean = float(gap_BT.sum() / batch.mask_BT.sum())
        return mean if math.isfinite(mean) else math.nan
