"""How often a step's rollouts are used."""

from __future__ import annotations

from typing import Literal

from pydantic import Field

from rlctl.spec import Spec


class Staging(Spec):
    """A step makes `minibatches` x `epochs` updates, each minibatch of whole groups.

    With one update the ratio is 1 everywhere, and no clip can act. `ahead`: steps whose rollouts are
    collected at once; 1 is on-policy, and the only value for now.
    """

    minibatches: int = Field(1, ge=1)
    epochs: int = Field(1, ge=1)
    ahead: Literal[1] = 1

    @property
    def updates(self) -> int:
        """Optimiser steps that follow one rollout."""
        return self.minibatches * self.epochs
