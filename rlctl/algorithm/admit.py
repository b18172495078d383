"""Which groups are trained; the rollout samples more prompts for those left out."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Literal

from pydantic import Field

from rlctl.algorithm import moments
from rlctl.spec import Spec

if TYPE_CHECKING:
    from torch import Tensor

    from rlctl.batch import GroupStats


class Everything(Spec):
    """Every group."""

    kind: Literal["everything"] = "everything"

    def __call__(self, stats: GroupStats) -> Tensor:
        """Return bool, P."""
        return stats.keep_PG.new_ones(len(stats.keep_PG))


class Mixed(Spec):
    """Dynamic sampling: groups whose verifier reward varies (std of at least 1e-6), before any shaping.

    A penalty for length never makes a group of equal answers look informative. Source: 2503.14476.
    """

    kind: Literal["mixed"] = "mixed"

    def __call__(self, stats: GroupStats) -> Tensor:
        """Return bool, P."""
        return moments.varies(stats.verifier_PG)[:, 0]


AnyAdmit = Annotated[Everything | Mixed, Field(discriminator="kind")]
