"""Factors on a prompt's advantages; entries of the list multiply, in order."""

from __future__ import annotations

from typing import TYPE_CHECKING, Literal

from pydantic import Field

from rlctl.algorithm import moments
from rlctl.spec import Spec

if TYPE_CHECKING:
    from torch import Tensor

    from rlctl.batch import GroupStats


class Focal(Spec):
    """g = (1 - X/G)^gamma for X correct of G judged answers: prompts that are mostly solved weigh less.

    `gamma` 0 changes nothing, 0.5 and 1 are the paper's. Source: 2602.06717.
    """

    kind: Literal["focal"] = "focal"
    gamma: float = Field(1.0, ge=0)

    def __call__(self, stats: GroupStats) -> Tensor:
        """Return the factor of each prompt, P x 1."""
        judged_P1 = moments.judged(stats.verifier_PG).clamp(min=1)
        solved_P1 = stats.correct_PG.sum(1, keepdim=True).double() / judged_P1
        return (1 - solved_P1) ** self.gamma


AnyReweight = Focal
