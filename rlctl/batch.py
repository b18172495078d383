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
    uid_P: tuple[str, ...] = ()  # of the prompts
    # Means over a row's tokens, under the weights that sampled it; filled by `scored` where needed.
    logp_PG: Tensor | None = None
    entropy_PG: Tensor | None = None  # nats, at the row's temperature
    entropy_t1_PG: Tensor | None = None  # the same at temperature 1
    drift_PG: Tensor | None = None  # `logp_PG` - the same after the step
    # What controllers decide.
    virtual_PV: Tensor | None = None  # rewards that only the group's statistics see; NaN: none
    clip_P: Tensor | None = None  # half-width of the ratio's bounds
    price: float | None = None  # of leaving the old policy: lambda of max E[r A] - lambda KL

    def __post_init__(self) -> None:
        shape = self.verifier_PG.shape
        assert len(shape) == 2, f"verifier_PG must be P x G, is {tuple(shape)}"
        for name, column in _tensors(self):
            found = column.shape if name.endswith("_PG") else (*column.shape[:1], *shape[1:])
            assert found == shape, f"{name} is {tuple(column.shape)}, not {tuple(shape)}"

    @property
    def pool_PN(self) -> Tensor:
        """The rewards that a group is compared with: its own, then the virtual ones."""
        if self.virtual_PV is None:
            return self.reward_PG
        return torch.cat([self.reward_PG, self.virtual_PV], dim=1)

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
            uid_P=tuple(group.prompt.uid for group in groups),
        )

    def scored(self, batch: Batch) -> GroupStats:
        """Add the row means of what `batch` was scored with; its rows are these groups in order."""
        shape, mask_BT = self.verifier_PG.shape, batch.mask_BT

        def mean(column_BT: Tensor | None) -> Tensor | None:
            if column_BT is None:
                return None
            sum_B = column_BT.double().where(mask_BT, 0.0).sum(1)
            return (sum_B / batch.length_B.clamp(min=1)).reshape(shape)

        return replace(
            self,
            logp_PG=mean(batch.old_logp_BT),
            entropy_PG=mean(batch.entropy_BT),
            entropy_t1_PG=mean(batch.entropy_t1_BT),
        )

    def kl_step(self) -> float:
        """Return the mean over prompts of max(0, token mean of `drift_PG`): the step's KL (2605.20722)."""
        assert self.drift_PG is not None
        return float(self.token_mean(self.drift_PG).clamp(min=0).mean())

    def token_mean(self, column_PG: Tensor) -> Tensor:
        """Return the mean over all tokens of each group, P, from the means of its rows."""
        length_PG = self.length_PG.double()
        return (column_PG * length_PG).sum(1) / length_PG.sum(1).clamp(min=1)


@dataclass(frozen=True)
class Credit:
    """What an algorithm decides before the gradient, one number a row."""

    advantage_PG: Tensor  # float64
    clip_low_PG: Tensor  # distance below 1: the ratio is held in [1 - low, 1 + high]
    clip_high_PG: Tensor
    keep_PG: Tensor  # bool
    price_PG: Tensor  # lambda of a soft trust region; 0: none
    factor_PG: Tensor | None = None  # what `reweight` multiplied the advantages by

    def metrics(self) -> dict[str, float]:
        """Return what is shown of the factors."""
        if self.factor_PG is None:
            return {}
        values = {"mean": self.factor_PG.mean(), "min": self.factor_PG.min(), "max": self.factor_PG.max()}
        return {f"train/reweight/{name}": float(value) for name, value in values.items()}


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
    price_B: Tensor
    weight_BT: Tensor | None = None  # loss = -(weight * gain).sum(); normalised per optimiser step
    kl_scale_BT: Tensor | None = None  # the divergence's weight, in units of weight_BT; None: 1
    old_logp_BT: Tensor | None = None  # None: the update's own, detached
    ref_logp_BT: Tensor | None = None
    entropy_BT: Tensor | None = None  # when sampled, at the row's temperature
    entropy_t1_BT: Tensor | None = None  # at temperature 1

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

    def credited(self, credit: Credit) -> Batch:
        """Return the batch with an algorithm's decisions. A row that is not kept gets an empty mask."""
        B = len(self)
        return self.with_(
            mask_BT=self.mask_BT & credit.keep_PG.reshape(B, 1),
            advantage_B=credit.advantage_PG.reshape(B),
            clip_low_B=credit.clip_low_PG.reshape(B),
            clip_high_B=credit.clip_high_PG.reshape(B),
            price_B=credit.price_PG.reshape(B),
        )

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
        price_B=zero_B,
    )


def pack(groups: Sequence[Group], stats: GroupStats) -> Batch:
    """Lay groups out as rows, with nothing decided about them."""
    rows = [(p, group.prompt, sample) for p, group in enumerate(groups) for sample in group.samples]
    B = len(rows)
    batch = lay_out(
        [prompt.ids for _, prompt, _ in rows],
        [sample.completion for _, _, sample in rows],
        stats.temperature_PG.reshape(B),
    )
    return batch.with_(
        group_B=torch.tensor([p for p, _, _ in rows]),
        correct_B=stats.correct_PG.sum(1).repeat_interleave(stats.correct_PG.shape[1]),
    )


def _tensors(record: Any) -> Iterator[tuple[str, Tensor]]:
    for column in fields(record):
        value = getattr(record, column.name)
        if isinstance(value, Tensor):
            yield column.name, value
