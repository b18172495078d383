"""How often a step's rollouts are used."""

from __future__ import annotations

from pydantic import Field

from rlctl.spec import Spec


class Staging(Spec):
    """A step makes `minibatches` x `epochs` updates, each minibatch of whole groups.

    `ahead` L collects the prompts of L steps at once, with the weights of then, and scores them once:
    the k-th step of such a stage trains rollouts k - 1 steps old (2605.17570); 1 is on-policy.
    With one update for each collection the ratio is 1 everywhere, and no clip can act.
    """

    minibatches: int = Field(1, ge=1)
    epochs: int = Field(1, ge=1)
    ahead: int = Field(1, ge=1)

    @property
    def updates(self) -> int:
        """Optimiser steps that one step makes."""
        return self.minibatches * self.epochs

    @property
    def stale(self) -> bool:
        """Whether a rollout is trained by weights other than those that sampled it."""
        return self.updates * self.ahead > 1
