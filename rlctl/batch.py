"""The columns of a training batch. Shapes are checked here, once; below, functions trust them.

Shape letters: P prompts, G completions a prompt, B = P*G rows, T completion tokens, V virtual rewards.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, fields, replace
from typing import Any

import torch
from torch import Tensor

from rlctl.types import Completion, Group


@dataclass(frozen=True)
class GroupStats:
    """What is known of P groups of G completions before the gradient; numbers are float64."""

    verifier_PG: Tensor  # reward as judged; NaN: not judged
    reward_PG: Tensor  # the same after shaping
    correct_PG: Tensor  # bool
    length_PG: Tensor  # completion tokens, int64
    truncated_PG: Tensor  # bool, by the engine's finish reason
    temperature_PG: Tensor
    keep_PG: Tensor  # bool; False: the row takes no part in the loss or its denominators
    max_length: int  # the rollout's max_completion_length, tokens

    def __post_init__(self) -> None:
        shape = self.verifier_PG.shape
        assert len(shape) == 2, f"verifier_PG must be P x G, is {tuple(shape)}"
        for name, column in _tensors(self):
            assert column.shape == shape, f"{name} is {tuple(column.shape)}, not {tuple(shape)}"

    @classmethod
    def of(cls, groups: Sequence[Group], max_length: int) -> GroupStats:
        """Read the statistics off judged groups, which all have the same size."""
        samples = [group.samples for group in groups]
        rewards = [[s.verdict.reward for s in row] for row in samples]
        reward_PG = torch.tensor(
            [[math.nan if r is None else r for r in row] for row in rewards],
            dtype=torch.float64,
        )
        return cls(
            verifier_PG=reward_PG,
            reward_PG=reward_PG,
            correct_PG=torch.tensor([[s.verdict.correct for s in row] for row in samples]),
            length_PG=torch.tensor([[len(s.completion.ids) for s in row] for row in samples]),
            truncated_PG=torch.tensor([[s.completion.finish == "length" for s in row] for row in samples]),
            temperature_PG=torch.tensor(
                [[s.temperature for s in row] for row in samples], dtype=torch.float64
            ),
            keep_PG=torch.ones_like(reward_PG, dtype=torch.bool),
            max_length=max_length,
        )


@dataclass(frozen=True)
class Credit:
    """What an algorithm decides before the gradient, one number a row."""

    advantage_PG: Tensor  # float64
    clip_low_PG: Tensor  # distance below 1: the ratio is held in [1 - low, 1 + high]
    clip_high_PG: Tensor
    keep_PG: Tensor  # bool


@dataclass(frozen=True)
class Batch:
    """B rows of at most T completion tokens, right-padded, with a column for every decision."""

    prompts_B: tuple[tuple[int, ...], ...]
    tokens_BT: Tensor  # int64, the engine's own ids
    mask_BT: Tensor  # bool; True where a sampled token is trained
    engine_logp_BT: Tensor
    temperature_B: Tensor
    group_B: Tensor  # int64, index of the row's group in the step
    correct_B: Tensor  # int64, correct answers in the row's group
    advantage_B: Tensor
    clip_low_B: Tensor
    clip_high_B: Tensor
    weight_BT: Tensor | None = None  # loss = -(weight * gain).sum(); normalised per optimiser step
    old_logp_BT: Tensor | None = None  # None: the update's own, detached
    ref_logp_BT: Tensor | None = None

    def __post_init__(self) -> None:
        B, T = self.tokens_BT.shape
        assert len(self.prompts_B) == B, f"{len(self.prompts_B)} prompts for {B} rows"
        for name, column in _tensors(self):
            shape = (B, T) if name.endswith("_BT") else (B,)
            assert column.shape == shape, f"{name} is {tuple(column.shape)}, not {shape}"

    def __len__(self) -> int:
        return len(self.prompts_B)

    @property
    def length_B(self) -> Tensor:
        """Trained tokens of each row."""
        return self.mask_BT.sum(1)

    def with_(self, **columns: Any) -> Batch:
        """Return the batch with some columns replaced."""
        return replace(self, **columns)

    def to(self, device: torch.device | str, dtype: torch.dtype | None = None) -> Batch:
        """Move every column to `device`, and the floating ones to `dtype`."""
        return self.with_(
            **{
                name: column.to(device, dtype if column.is_floating_point() else None)
                for name, column in _tensors(self)
            }
        )

    def rows(self, index: Tensor) -> Batch:
        """Return the rows at `index`, cut to the longest completion among them."""
        chosen = self.with_(
            prompts_B=tuple(self.prompts_B[i] for i in index.tolist()),
            **{name: column[index] for name, column in _tensors(self)},
        )
        T = max(int(chosen.mask_BT.any(0).nonzero().amax()) + 1 if chosen.mask_BT.any() else 1, 1)
        return chosen.with_(**{n: c[:, :T] for n, c in _tensors(chosen) if n.endswith("_BT")})

    def minibatches(self, count: int) -> Iterator[Batch]:
        """Split into at most `count` parts of whole groups, for one optimiser step each."""
        for groups in torch.tensor_split(torch.unique(self.group_B), count):
            index = torch.isin(self.group_B, groups).nonzero().flatten()
            if len(index):
                yield self.rows(index)

    def micro(self, tokens: int) -> Iterator[Batch]:
        """Split into parts whose padded size (prompt and completion) stays under `tokens`, longest first.

        A part has at least one row. The gradient does not depend on the split.
        """
        size_B = torch.tensor([len(p) for p in self.prompts_B]) + self.length_B.cpu()
        part: list[int] = []
        for i in size_B.argsort(descending=True, stable=True).tolist():
            if part and (len(part) + 1) * int(size_B[part[0]]) > tokens:
                yield self.rows(torch.tensor(part))
                part = []
            part.append(i)
        if part:
            yield self.rows(torch.tensor(part))


def lay_out(
    prompts: Sequence[tuple[int, ...]], completions: Sequence[Completion], temperature_B: Tensor
) -> Batch:
    """Lay completions out as rows, one group each, with nothing decided about them."""
    B, T = len(completions), max(max(len(c.ids) for c in completions), 1)
    tokens_BT = torch.zeros(B, T, dtype=torch.int64)
    engine_logp_BT = torch.zeros(B, T, dtype=torch.float64)
    mask_BT = torch.zeros(B, T, dtype=torch.bool)
    for b, completion in enumerate(completions):
        n = len(completion.ids)
        tokens_BT[b, :n] = torch.tensor(completion.ids, dtype=torch.int64)
        engine_logp_BT[b, :n] = torch.tensor(completion.logps, dtype=torch.float64)
        mask_BT[b, :n] = True
    zero_B = torch.zeros(B, dtype=torch.float64)
    return Batch(
        prompts_B=tuple(prompts),
        tokens_BT=tokens_BT,
        mask_BT=mask_BT,
        engine_logp_BT=engine_logp_BT,
        temperature_B=temperature_B,
        group_B=torch.arange(B),
        correct_B=torch.zeros(B, dtype=torch.int64),
        advantage_B=zero_B,
        clip_low_B=zero_B,
        clip_high_B=zero_B,
    )


def pack(groups: Sequence[Group], stats: GroupStats, credit: Credit) -> Batch:
    """Lay groups out as rows. A row that is not kept, or whose reward is missing, has an empty mask."""
    rows = [(p, group.prompt, sample) for p, group in enumerate(groups) for sample in group.samples]
    B = len(rows)
    batch = lay_out(
        [prompt.ids for _, prompt, _ in rows],
        [sample.completion for _, _, sample in rows],
        stats.temperature_PG.reshape(B),
    )
    return batch.with_(
        mask_BT=batch.mask_BT & credit.keep_PG.reshape(B, 1),
        group_B=torch.tensor([p for p, _, _ in rows]),
        correct_B=stats.correct_PG.sum(1).repeat_interleave(stats.correct_PG.shape[1]),
        advantage_B=credit.advantage_PG.reshape(B),
        clip_low_B=credit.clip_low_PG.reshape(B),
        clip_high_B=credit.clip_high_PG.reshape(B),
    )


def _tensors(record: Any) -> Iterator[tuple[str, Tensor]]:
    for column in fields(record):
        value = getattr(record, column.name)
        if isinstance(value, Tensor):
            yield column.name, value
