"""Changes of the reward before the advantage. The verifier's own reward stays as it was."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Annotated, Literal

from pydantic import Field

from rlctl.spec import Spec

if TYPE_CHECKING:
    from rlctl.batch import GroupStats


class Overlong(Spec):
    """Soft overlong punishment: answers lose reward as they come near the length limit Lmax.

    Added: 0 up to Lmax - buffer tokens, ((Lmax - buffer) - length) / buffer * penalty inside the
    buffer, -penalty beyond. `buffer` in tokens; null is a fifth of Lmax, as published (4096 of
    20480); one longer than Lmax counts as Lmax. Source: 2503.14476.
    """

    kind: Literal["overlong"] = "overlong"
    buffer: int | None = Field(None, ge=1)
    penalty: float = Field(1.0, ge=0)

    def __call__(self, stats: GroupStats) -> GroupStats:
        """Return the statistics with a changed `reward_PG`."""
        limit = stats.max_length
        buffer = min(self.buffer or max(limit // 5, 1), limit)
        over_PG = ((limit - buffer - stats.length_PG).double() / buffer).clamp(-1, 0)
        return replace(stats, reward_PG=stats.reward_PG + self.penalty * over_PG)


class MaskTruncated(Spec):
    """Overlong filtering: a truncated answer leaves the loss and its denominators (2503.14476).

    Its reward still counts in the group's mean, as the others were compared with it.
    """

    kind: Literal["mask_truncated"] = "mask_truncated"

    def __call__(self, stats: GroupStats) -> GroupStats:
        """Return the statistics with a changed `keep_PG`."""
        return replace(stats, keep_PG=stats.keep_PG & ~stats.truncated_PG)


AnyShaping = Annotated[Overlong | MaskTruncated, Field(discriminator="kind")]
