"""Samples drawn before a step, never trained on, that tell how uncertain the policy is on each prompt."""

from __future__ import annotations

import math
import re
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from pydantic import Field

from rlctl.algorithm import moments
from rlctl.spec import Spec

if TYPE_CHECKING:
    from torch import Tensor

    from rlctl.types import Group


@dataclass(frozen=True)
class Probe:
    """What the probe's samples say of each prompt."""

    dispersion_P: Tensor  # of rewards
    votes_P: Tensor  # entropy of the answers' shares, nats
    skewness_P: Tensor  # of rewards


class ProbeSpec(Spec):
    """Draw `samples` a prompt (null: group_size) at the base temperature, charged to the token budget.

    `dispersion` is how the spread of their rewards is measured. Source: 2605.20722.
    """

    samples: int | None = Field(None, ge=2)
    dispersion: moments.Dispersion = "bessel"

    def measure(self, groups: Sequence[Group]) -> Probe:
        """Return the statistics of the probe's groups."""
        import torch

        rewards = [[s.verdict.reward for s in group.samples] for group in groups]
        reward_PG = torch.tensor(
            [[math.nan if r is None else r for r in row] for row in rewards], dtype=torch.float64
        )
        votes = [
            vote_entropy([vote_key(s.text) for s in group.samples if s.completion.finish != "error"])
            for group in groups
        ]
        return Probe(
            dispersion_P=moments.dispersion(self.dispersion, reward_PG)[:, 0],
            votes_P=torch.tensor(votes, dtype=torch.float64),
            skewness_P=moments.skewness(reward_PG)[:, 0],
        )


_BOXED = re.compile(r"\\boxed\{([^{}]*)\}")
_NUMBER = re.compile(r"[-+]?\d[\d,]*(?:\.\d+)?(?:/\d+)?")


def vote_key(text: str) -> str:
    r"""Return what a response votes for, as the authors' code reads it (2605.20722).

    The last \boxed{...} without inner braces, else what follows the last ####, else the last number,
    else the whole text; in lower case, without commas in numbers.
    """
    if boxed := _BOXED.findall(text):
        return str(boxed[-1]).strip().lower()
    _, found, after = text.rpartition("####")
    if found:
        return after.strip().lower()
    if numbers := _NUMBER.findall(text):
        return str(numbers[-1]).replace(",", "")
    return " ".join(text.split()).lower()


def vote_entropy(keys: Sequence[str]) -> float:
    """Return -sum p ln p over the shares p of equal keys: 0 if all agree, ln n if none do, 0 of none."""
    n = len(keys)
    return -sum(count / n * math.log(count / n) for count in Counter(keys).values())
