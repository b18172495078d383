from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import pytest
import torch
from torch import Tensor
from transformers import LlamaConfig, LlamaForCausalLM

from rlctl.algorithm import Algorithm
from rlctl.algorithm.control import Controls
from rlctl.algorithm.control.probe import Probe
from rlctl.batch import Batch, GroupStats
from rlctl.learner import OptimSpec
from rlctl.learner.learner import Learner
from rlctl.learner.report import Report
from rlctl.models import LoraSpec
from rlctl.models.lora import add_lora
from rlctl.types import Completion, Group, Prompt, Sample, Verdict

VOCAB, LONGEST = 19, 7
GRPO = Algorithm.model_validate("grpo")


@pytest.fixture
def module() -> Any:
    """A Llama in float64, so that two ways to one gradient differ by rounding only."""
    torch.manual_seed(0)
    config = LlamaConfig(
        vocab_size=VOCAB,
        hidden_size=16,
        intermediate_size=24,
        num_hidden_layers=2,
        num_attention_heads=2,
        num_key_value_heads=2,
        max_position_embeddings=64,
        tie_word_embeddings=False,
    )
    return LlamaForCausalLM(config).double().eval()


def make_groups(
    P: int = 4, G: int = 4, seed: int = 0, rewards: list[list[float]] | None = None
) -> list[Group]:
    """Groups with prompts and completions of many lengths, some truncated, temperatures that differ."""
    draw = random.Random(seed)
    groups = []
    for p in range(P):
        prompt = Prompt(f"t:{p}", (("user", "q"),), "g", ids=tuple(draw.choices(range(1, VOCAB), k=2 + p)))
        samples = []
        for g in range(G):
            n = draw.randint(1, LONGEST)
            ids = tuple(draw.choices(range(1, VOCAB), k=n))
            logps = tuple(-draw.uniform(1.5, 3.5) for _ in ids)
            reward = float((g + p) % 3 == 0) if rewards is None else rewards[p][g]
            samples.append(
                Sample(
                    Completion(p * G + g, ids, logps, "length" if n == LONGEST else "stop"),
                    "text",
                    Verdict(reward, reward == 1.0, "a"),
                    0.7 if p % 2 else 1.0,
                )
            )
        groups.append(Group(prompt, tuple(samples)))
    return groups


@dataclass
class Recorder:
    """An optimiser that remembers the gradient of each step and changes nothing."""

    trained: dict[str, Tensor]
    param_groups: tuple[dict[str, float], ...] = ({},)

    def __post_init__(self) -> None:
        self.steps: list[Tensor] = []

    def step(self) -> None:
        self.steps.append(torch.cat([p.grad.flatten().clone() for p in self.trained.values()]))

    def zero_grad(self, set_to_none: bool) -> None:
        for p in self.trained.values():
            p.grad = None


def learner_of(module: Any, **options: Any) -> Learner:
    usual = {"learning_rate": 1e-3, "max_grad_norm": 1e9}
    spec = OptimSpec.model_validate(usual | options.pop("optim", {}))
    return Learner(module, spec, **options)


def laid_out(groups: list[Group], algorithm: Algorithm = GRPO) -> Batch:
    return algorithm.pack(groups, GroupStats.of(groups, LONGEST))


def probe_of(algorithm: Algorithm, groups: list[Group]) -> Probe | None:
    """What a probe of as many groups found; its samples are never trained."""
    if algorithm.probe is None:
        return None
    draw = random.Random(5)
    rewards = [[float(draw.random() < 0.4) for _ in range(4)] for _ in groups]
    return algorithm.probe.measure(make_groups(P=len(groups), seed=77, rewards=rewards))


def decided(
    scored: Batch, groups: list[Group], algorithm: Algorithm = GRPO, controls: Controls | None = None
) -> tuple[GroupStats, Batch]:
    """Statistics and rows once controllers and advantages are through, as in a training step."""
    controls = controls or Controls(algorithm.control, seed=0)
    stats = GroupStats.of(groups, LONGEST).scored(scored)
    stats = controls.tune(stats, probe_of(algorithm, groups))
    return stats, scored.credited(algorithm.credit(stats))


def gradients(
    module: Any,
    algorithm: Algorithm,
    groups: list[Group],
    part: Tensor | None = None,
    laying: Callable[[Batch], Batch] = lambda batch: batch,
) -> list[Tensor]:
    """The gradients of all optimiser steps of one training step on `groups`.

    `part` picks rows of them after credit is given, `laying` changes the rows before they are scored.
    """
    learner = learner_of(module, reference="ref_logp" in algorithm.needs)
    if learner.frozen is not None:  # a reference that differs from the policy
        with torch.no_grad():
            for p in learner.frozen.parameters():
                p.mul_(0.9)
    recorder = Recorder(learner.trained)
    learner.optimizer = recorder  # type: ignore[assignment]
    scored = learner.score(laying(laid_out(groups, algorithm)), algorithm.needs)
    _, batch = decided(scored, groups, algorithm)
    batch = batch if part is None else batch.rows(part)
    if batch.old_logp_BT is not None:  # behaviour that differs from the policy, so that clips act
        # Some ratios inside the clip, some outside.
        share = getattr(algorithm.clip, "low", 0.5) if algorithm.level == "sequence" else 0.5
        old_BT = torch.lerp(batch.old_logp_BT, batch.engine_logp_BT, share)
        batch = batch.with_(old_logp_BT=old_BT)
    for minibatch in batch.minibatches(algorithm.staging.minibatches):
        learner.update(
            algorithm.weigh(minibatch, LONGEST),
            algorithm.objective,
            rate=0.0,
            seed=0,
            skip_zero_rows=algorithm.skips_zero_rows,
        )
    return recorder.steps


def adapted(module: Any, **spec: Any) -> Any:
    return add_lora(module, LoraSpec(**{"rank": 2, **spec}), seed=0).double().eval()


def packed(groups: list[Group], algorithm: Algorithm = GRPO) -> Batch:
    """Rows with what an algorithm decides about them that needs no score."""
    return decided(laid_out(groups, algorithm), groups, algorithm)[1]


def update(
    learner: Learner, groups: list[Group], algorithm: Algorithm = GRPO, rate: float = 1e-3, seed: int = 0
) -> Report:
    scored = learner.score(laid_out(groups, algorithm), algorithm.needs)
    _, batch = decided(scored, groups, algorithm)
    return learner.update(
        algorithm.weigh(batch, LONGEST),
        algorithm.objective,
        rate=rate,
        seed=seed,
        skip_zero_rows=algorithm.skips_zero_rows,
    )


def weights_of(learner: Learner) -> dict[str, Tensor]:
    return {name: p.detach().clone() for name, p in learner.module.named_parameters()}


def moments_of(learner: Learner) -> dict[str, Tensor]:
    return {
        f"{name}/{slot}": value.clone()
        for name, p in learner.trained.items()
        for slot, value in learner.optimizer.state[p].items()
    }


def same(one: dict[str, Tensor], other: dict[str, Tensor]) -> bool:
    return one.keys() == other.keys() and all(torch.equal(one[name], other[name]) for name in one)


def twin(module: Any) -> Any:
    """The model as it is before the first step, built again."""
    fresh = LlamaForCausalLM(module.config).double().eval()
    fresh.load_state_dict(module.state_dict())
    return fresh
