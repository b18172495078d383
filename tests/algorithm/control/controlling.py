"""Groups, probes and steps in plain numbers, for the tests of controllers."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import torch
from torch import Tensor

from rlctl.algorithm.control.probe import Probe
from rlctl.batch import GroupStats
from rlctl.types import Completion, Group, Prompt, Sample, Verdict

LONGEST = 9


def column(values: Any) -> Tensor:
    return torch.tensor(values, dtype=torch.float64)


def asked(uid: str) -> Prompt:
    return Prompt(uid, (("user", uid),), "", ids=(1,))


def group(uid: str, rewards: list[float | None], texts: list[str] | None = None, tokens: int = 4) -> Group:
    """A group by its rewards; one of at least 0.5 is correct."""
    texts = texts or ["text"] * len(rewards)
    return Group(
        asked(uid),
        tuple(
            Sample(
                Completion(i, (1,) * tokens, (-1.0,) * tokens, "stop"),
                text,
                Verdict(reward, bool(reward and reward >= 0.5)),
                1.0,
            )
            for i, (reward, text) in enumerate(zip(rewards, texts, strict=True))
        ),
    )


def known(rewards: list[list[float | None]], **columns: Any) -> GroupStats:
    """Statistics of groups t:0, t:1, ... of four tokens a row."""
    groups = [group(f"t:{p}", row) for p, row in enumerate(rewards)]
    return replace(GroupStats.of(groups, LONGEST), **columns)


def probe(dispersion: list[float], votes: list[float], skewness: list[float] | None = None) -> Probe:
    return Probe(column(dispersion), column(votes), column(skewness or [0.0] * len(votes)))


class Shelf:
    """A source of prompts s:0, s:1, ... that finds any uid."""

    def __init__(self) -> None:
        self.taken = 0

    def take(self, n: int) -> list[Prompt]:
        self.taken += n
        return [asked(f"s:{i}") for i in range(self.taken - n, self.taken)]

    def get(self, uid: str) -> Prompt:
        return asked(uid)
