"""A toy policy whose parameters are the log-probs themselves, so that gradients are easy to read.

Token ids are unique over the batch: theta[id] is the log-prob of that very token, under any split.
"""

from __future__ import annotations

import math
import random
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from rlctl.algorithm import Algorithm
from rlctl.algorithm.presets import PRESETS
from rlctl.batch import Batch, GroupStats, pack
from rlctl.types import Completion, Group, Prompt, Sample, Verdict

MAX_LENGTH = 10
NAMES = list(PRESETS)
FOCAL = {"reweight": [{"kind": "focal", "gamma": 0.5}]}
VARIANTS = [{"preset": name, **more} for name in NAMES for more in ({}, FOCAL)]


def algorithm(spec: Any) -> Algorithm:
    return Algorithm.model_validate(spec)


def label(spec: dict[str, Any]) -> str:
    return spec["preset"] + ("+focal" if "reweight" in spec else "")


def stats(reward: list[list[float]], **columns: Any) -> GroupStats:
    """Statistics of groups by their rewards; a reward of at least 0.5 is correct."""
    reward_PG = torch.tensor(reward, dtype=torch.float64)
    values: dict[str, Any] = {
        "verifier_PG": reward_PG,
        "reward_PG": reward_PG,
        "correct_PG": reward_PG >= 0.5,
        "length_PG": torch.full(reward_PG.shape, 4),
        "truncated_PG": torch.zeros(reward_PG.shape, dtype=torch.bool),
        "temperature_PG": torch.ones_like(reward_PG),
        "keep_PG": torch.ones(reward_PG.shape, dtype=torch.bool),
        "max_length": MAX_LENGTH,
    }
    return GroupStats(**{**values, **columns})


@dataclass
class Row:
    """One completion in plain numbers, for formulas written with loops."""

    group: int
    reward: float | None
    start: int  # id of the first token; the others follow
    length: int


@dataclass
class Problem:
    """P groups of G completions, and log-probs of every token under four policies."""

    rows: list[Row]
    G: int
    theta: Tensor
    old: Tensor
    ref: Tensor
    engine: Tensor

    def groups(self, order: list[int] | None = None, shift: float = 0.0) -> list[Group]:
        """Judged groups; `order` permutes the members of each, `shift` is added to every reward."""
        order = order or list(range(self.G))
        return [
            Group(
                Prompt(uid=f"toy:{p}", messages=(("user", "?"),), gold="", ids=(1,) * (p % 3 + 1)),
                tuple(self._sample(self.rows[p * self.G + g], shift) for g in order),
            )
            for p in range(len(self.rows) // self.G)
        ]

    def _sample(self, row: Row, shift: float) -> Sample:
        ids = tuple(range(row.start, row.start + row.length))
        logps = tuple(self.engine[row.start : row.start + row.length].tolist())
        reward = None if row.reward is None else row.reward + shift
        verdict = Verdict(reward=reward, correct=bool(row.reward and row.reward >= 0.5))
        finish = "length" if row.length >= MAX_LENGTH else "stop"
        return Sample(Completion(0, ids, logps, finish), "", verdict, 1.0)

    def batch(self, row: Algorithm, groups: list[Group] | None = None) -> Batch:
        groups = groups or self.groups()
        known = GroupStats.of(groups, MAX_LENGTH)
        batch = pack(groups, known, row.credit(known))
        return batch.with_(old_logp_BT=self.old[batch.tokens_BT], ref_logp_BT=self.ref[batch.tokens_BT])

    def gradient(self, row: Algorithm, parts: list[Batch]) -> tuple[Tensor, Tensor]:
        """Loss and gradient of parts that were weighed together."""
        theta = self.theta.clone().requires_grad_()
        total = torch.zeros((), dtype=torch.float64)
        for part in parts:
            logp_BT = theta[part.tokens_BT]
            gain_BT = row.objective(logp_BT, -logp_BT * logp_BT.exp(), part).gain_BT
            loss = -(part.weight_BT * gain_BT).sum()
            loss.backward()
            total += loss.detach()
        return total, theta.grad

    def whole(self, row: Algorithm, batch: Batch | None = None) -> tuple[Tensor, Tensor]:
        return self.gradient(row, [row.weigh(batch or self.batch(row), MAX_LENGTH)])


def problem(seed: int = 0, P: int = 4, G: int = 4, length: int | None = None) -> Problem:
    """Draw a problem: mixed rewards in most groups, an all-wrong group, uneven lengths, stale policies."""
    rng = random.Random(seed)
    rows, start = [], 1  # id 0 pads
    for p in range(P):
        for g in range(G):
            n = length or rng.choice([1, 2, 3, 5, MAX_LENGTH])
            reward = 0.0 if p == 1 else rng.choice([0.0, 0.25, 1.0]) if g else float(p % 2)
            rows.append(Row(p, reward, start, n))
            start += n
    torch.manual_seed(seed)
    base = -torch.rand(start, dtype=torch.float64) * 2 - 0.1
    drift = [torch.randn(start, dtype=torch.float64) * scale for scale in (0.3, 0.5, 0.5)]
    return Problem(rows, G, base, *(base + d for d in drift))


def chunks(batch: Batch, size: int) -> Iterator[Batch]:
    """Parts of `size` rows."""
    for index in torch.arange(len(batch)).split(size):
        yield batch.rows(index)


# The losses a second way: plain numbers, loops, and the derivative by hand.


def loops_advantages(name: str, rewards: list[float]) -> list[float]:
    n = len(rewards)
    mean = sum(rewards) / n
    if max(rewards) - min(rewards) < 1e-9:
        return [0.0] * n
    if name == "rloo":
        return [r - (sum(rewards) - r) / (n - 1) for r in rewards]
    scale = math.sqrt(sum((r - mean) ** 2 for r in rewards) / (n - 1)) + 1e-6
    return [(r - mean) / (1.0 if name == "dr_grpo" else scale) for r in rewards]


def loops_gain(name: str, A: float, ratio: float, logp: float) -> tuple[float, float]:
    """Gain of one token and its derivative by the log-prob (for GSPO by the mean log-prob of the row)."""
    if name == "cispo":
        weight = min(ratio, 5.0)
        return weight * A * logp, weight * A
    if name == "sapo":
        tau = 1.0 if A > 0 else 1.05
        gate = 1 / (1 + math.exp(-tau * (ratio - 1)))
        return 4 / tau * gate * A, 4 * gate * (1 - gate) * ratio * A
    if name == "rloo":
        return A * logp, A
    low, high = {"dapo": (0.2, 0.28), "gspo": (3e-4, 4e-4)}.get(name, (0.2, 0.2))
    held = min(max(ratio, 1 - low), 1 + high)
    return (ratio * A, ratio * A) if ratio * A <= held * A else (held * A, 0.0)


def loops_loss(name: str, gamma: float | None, toy: Problem) -> tuple[float, list[float]]:
    """Loss of the whole problem and its derivative by every log-prob."""
    theta, old, engine = toy.theta.tolist(), toy.old.tolist(), toy.engine.tolist()
    loss, slope = 0.0, [0.0] * len(theta)
    tokens = sum(row.length for row in toy.rows)
    for first in range(0, len(toy.rows), toy.G):
        group = toy.rows[first : first + toy.G]
        rewards = [float(row.reward or 0) for row in group]
        factor = (1 - sum(r >= 0.5 for r in rewards) / toy.G) ** gamma if gamma is not None else 1.0
        if name == "dapo":  # the last fifth of the limit costs up to 1
            soft = MAX_LENGTH * 4 // 5
            rewards = [
                r + min(0.0, (soft - row.length) / (MAX_LENGTH - soft))
                for r, row in zip(rewards, group, strict=True)
            ]
        for row, A in zip(group, loops_advantages(name, rewards), strict=True):
            ids = range(row.start, row.start + row.length)
            n, T = len(toy.rows), row.length
            share = {"dapo": tokens, "cispo": tokens, "dr_grpo": n * MAX_LENGTH, "rloo": n}.get(name, n * T)
            sequence_ratio = math.exp(sum(theta[i] - old[i] for i in ids) / T)
            for i in ids:
                ratio = sequence_ratio if name == "gspo" else math.exp(theta[i] - old[i])
                gain, by_logp = loops_gain(name, A * factor, ratio, theta[i])
                gap = min(math.exp(old[i] - engine[i]), 2.0)
                loss -= gap * gain / share
                for j in ids if name == "gspo" else [i]:
                    slope[j] -= gap * by_logp / share / (T if name == "gspo" else 1)
    return loss, slope
