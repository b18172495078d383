"""A toy policy whose parameters are the log-probs themselves, so that gradients are easy to read.

Token ids are unique over the batch: theta[id] is the log-prob of that very token, under any split.
"""

from __future__ import annotations

import random
from collections.abc import Iterator
from dataclasses import dataclass, fields
from typing import Any

import torch
from torch import Tensor

from rlctl.algorithm import Algorithm
from rlctl.algorithm.control import Controls
from rlctl.algorithm.presets import PRESETS
from rlctl.batch import Batch, GroupStats
from rlctl.types import Completion, Group, Prompt, Sample, Verdict

MAX_LENGTH = 10
NAMES = list(PRESETS)
FOCAL = {"reweight": [{"kind": "focal", "gamma": 0.5}]}
# Settings under which what a row adds takes part in the toy problem.
LIVELY: list[dict[str, Any]] = [
    {"preset": "avspo", "control": [{"kind": "collapse", "threshold": 0.0, "rate": 0.0}]},
    {"preset": "codapo", "surrogate": {"dual": 1.2}},
    {"preset": "mu_grpo", "veto": {"threshold": 0.8}},
    {"preset": "gapo", "clip": {"form": "exact"}},
    {"preset": "mdp", "advantage": {"goal": "moving", "goal_std": "code"}},
]
VARIANTS = [{"preset": name, **more} for name in NAMES for more in ({}, FOCAL)] + LIVELY


def algorithm(spec: Any) -> Algorithm:
    return Algorithm.model_validate(spec)


def label(spec: dict[str, Any]) -> str:
    more = set(spec) - {"preset"}
    return spec["preset"] + ("+focal" if "reweight" in more else "+" + min(more) if more else "")


def anchored(spec: dict[str, Any]) -> bool:
    """Whether a constant added to every reward means something, since a fixed goal is there to compare."""
    return algorithm(spec).advantage.kind == "dual_anchor"


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
    """P groups of G completions, and log-probs of every token under four policies.

    `entropy` is made up, and so are the rewards of a probe, which has groups of its own.
    """

    rows: list[Row]
    G: int
    theta: Tensor
    old: Tensor
    ref: Tensor
    engine: Tensor
    entropy: Tensor
    probed: list[list[float]]

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

    def probes(self) -> list[Group]:
        """Groups of a probe: their texts vote for their rewards."""
        return [
            Group(
                Prompt(uid=f"toy:{p}", messages=(("user", "?"),), gold="", ids=(1,)),
                tuple(
                    Sample(
                        Completion(g, (), (), "stop"), f"#### {reward}", Verdict(reward, reward == 1.0), 1.0
                    )
                    for g, reward in enumerate(rewards)
                ),
            )
            for p, rewards in enumerate(self.probed)
        ]

    def scored(self, row: Algorithm, groups: list[Group]) -> Batch:
        """Rows of `groups` with every column that a learner can fill."""
        batch = row.pack(groups, GroupStats.of(groups, MAX_LENGTH))
        return batch.with_(
            old_logp_BT=self.old[batch.tokens_BT],
            ref_logp_BT=self.ref[batch.tokens_BT],
            entropy_BT=self.entropy[batch.tokens_BT],
            entropy_t1_BT=self.entropy[batch.tokens_BT],
        )

    def tuned(self, row: Algorithm, batch: Batch, groups: list[Group]) -> GroupStats:
        """Statistics of scored rows after the controllers' first step."""
        known = GroupStats.of(groups, MAX_LENGTH).scored(batch)
        probe = row.probe.measure(self.probes()[: len(groups)]) if row.probe else None
        return Controls(row.control, seed=0).tune(known, probe)

    def batch(self, row: Algorithm, groups: list[Group] | None = None) -> Batch:
        """Rows with an algorithm's decisions, made in the order of a training step."""
        groups = groups or self.groups()
        batch = self.scored(row, groups)
        return batch.credited(row.credit(self.tuned(row, batch, groups)))

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
        return total, torch.zeros_like(theta) if theta.grad is None else theta.grad

    def whole(self, row: Algorithm, batch: Batch | None = None) -> tuple[Tensor, Tensor]:
        """Loss and gradient of a step, without the rows that a learner leaves out."""
        batch = row.weigh(batch or self.batch(row), MAX_LENGTH)
        active_B = (batch.advantage_B != 0) | (not row.skips_zero_rows)
        return self.gradient(row, [batch.rows(active_B.nonzero().flatten())] if active_B.any() else [])


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
    entropy = torch.rand(start, dtype=torch.float64) * 2 + 0.1
    probed = [[rng.choice([0.0, 0.25, 1.0]) for _ in range(G)] for _ in range(P)]
    return Problem(rows, G, base, *(base + d for d in drift), entropy, probed)


def chunks(batch: Batch, size: int) -> Iterator[Batch]:
    """Parts of `size` rows."""
    for index in torch.arange(len(batch)).split(size):
        yield batch.rows(index)


def padded(batch: Batch, extra: int, fill: float) -> Batch:
    """The same rows with `extra` more columns of padding, `fill` wherever a number may stand."""
    columns = {}
    for name in (f.name for f in fields(batch) if f.name.endswith("_BT")):
        if (column := getattr(batch, name)) is not None:
            value = fill if column.is_floating_point() else 0
            columns[name] = torch.nn.functional.pad(column, (0, extra), value=value)
    return batch.with_(**columns)
