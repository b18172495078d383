"""Factors on advantages; entries of the list multiply, in order. No gradient flows through them."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, ClassVar, Literal

from pydantic import Field

from rlctl.algorithm import moments
from rlctl.spec import Spec

if TYPE_CHECKING:
    from torch import Tensor

    from rlctl.batch import GroupStats


def solved(stats: GroupStats) -> Tensor:
    """Return X/G, the share of correct answers among the judged, P x 1."""
    judged_P1 = moments.judged(stats.verifier_PG).clamp(min=1)
    return stats.correct_PG.sum(1, keepdim=True).double() / judged_P1


class Focal(Spec):
    """g = (1 - X/G)^gamma for X correct of G judged answers: prompts that are mostly solved weigh less.

    `gamma` 0 changes nothing, 0.5 and 1 are the paper's. Source: 2602.06717.
    """

    kind: Literal["focal"] = "focal"
    needs: ClassVar[frozenset[str]] = frozenset()
    gamma: float = Field(1.0, ge=0)

    def __call__(self, stats: GroupStats) -> Tensor:
        """Return the factor of each prompt, P x 1."""
        return (1 - solved(stats)) ** self.gamma


class Codapo(Spec):
    """v + offset with v = c (1 - 4 (d - 1/2)^2): confident answers to prompts of middling difficulty.

    c = exp(mean over rows of a row's mean log-prob before the update), d = 1 - X/G. The authors'
    code adds the `offset` 0.1; 0 is the paper's form. Source: 2606.07950.
    """

    kind: Literal["codapo"] = "codapo"
    needs: ClassVar[frozenset[str]] = frozenset({"old_logp"})
    offset: float = Field(0.1, ge=0)

    def __call__(self, stats: GroupStats) -> Tensor:
        """Return the factor of each prompt, P x 1."""
        return codapo_value(stats) + self.offset


def codapo_value(stats: GroupStats) -> Tensor:
    """Return v of each prompt, P x 1, in [0, 1]."""
    assert stats.logp_PG is not None, "CoDaPO's value needs old_logp"
    confidence_P1 = stats.logp_PG.mean(1, keepdim=True).exp()
    return confidence_P1 * (1 - 4 * (solved(stats) - 0.5) ** 2)


class EntropyDriven(Spec):
    """group mean of P / P_i, with P_i a row's mean entropy: certain rows are rewarded and punished more.

    Detached and within the group, as the paper has it; the authors' code is neither. Held in
    [1 / `bound`, `bound`], a clamp that their code has commented out: without it a row of no entropy
    would weigh without limit. Source: 2507.21848.
    """

    kind: Literal["entropy"] = "entropy"
    needs: ClassVar[frozenset[str]] = frozenset({"entropy"})
    bound: float = Field(10.0, ge=1)

    def __call__(self, stats: GroupStats) -> Tensor:
        """Return the factor of each row, P x G."""
        assert stats.entropy_PG is not None, "the entropy factor needs entropy"
        entropy_PG = stats.entropy_PG.clamp(min=1e-12)  # a policy without choice has none
        ratio_PG = entropy_PG / entropy_PG.mean(1, keepdim=True)
        return 1 / ratio_PG.clamp(1 / self.bound, self.bound)


AnyReweight = Annotated[Focal | Codapo | EntropyDriven, Field(discriminator="kind")]
