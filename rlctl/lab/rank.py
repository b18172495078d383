"""How many directions do the gradients of one group's answers span? Source: 2606.29238."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from statistics import fmean
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from rlctl.errors import RunError
from rlctl.lab.finding import Curve, Finding, Panel, Row
from rlctl.parts import build
from rlctl.recipe import load_text
from rlctl.rollout import Rollout, Sampling
from rlctl.types import Group, Sample

Array = NDArray[np.float64]
SIZES = (2, 4, 8, 16)
RECIPE = """
version: 1
name: rank
seed: {seed}
model: {{kind: tiny, layers: 2, width: 64, context: 32, warm_start: {{steps: 250}}}}
data: {{train: {{kind: arithmetic, operations: [+], digits: 2}}, template: none, max_prompt_length: 16}}
rollout: {{group_size: {size}, max_completion_length: 8}}
engine: {{kind: transformers}}
budget: {{steps: 1}}
eval: {{sets: []}}
resources: {{gpus: 0, cpus: 1}}
"""


def effective_rank(singular: Array) -> float:
    """Return exp of the entropy of the normalised singular values: from 1 to their number."""
    share = singular[singular > 0] / singular.sum()
    return float(np.exp(-(share * np.log(share)).sum()))


def energy_rank(singular: Array, energy: float = 0.99) -> int:
    """Return how many of the largest singular values hold `energy` of the sum of squares."""
    kept = np.cumsum(np.sort(singular**2)[::-1])
    return int(np.searchsorted(kept, energy * kept[-1] * (1 - 1e-12)) + 1)


def singular_values(gram: Array, scale: Array) -> Array:
    """Return the singular values of diag(scale) M, where gram = M M^T: M itself is never needed."""
    squares = np.linalg.eigvalsh(gram * np.outer(scale, scale))
    # What is not 0 by more than rounding: an eigenvalue's error is that of the largest.
    values: Array = np.sqrt(np.where(squares > squares[-1] * 1e-12, squares, 0.0))
    return values


def gram_of(module: Any, group: Group) -> Array:
    """Return the inner products of the gradients of log p(answer), by all weights, in float64."""
    parameters = [p for p in module.parameters() if p.requires_grad]

    def gradient(sample: Sample) -> torch.Tensor:
        ids = sample.completion.ids
        whole = torch.tensor([group.prompt.ids + ids], device=module.device)
        logp_TV = module(input_ids=whole, use_cache=False).logits[0, -len(ids) - 1 : -1].log_softmax(-1)
        logp = logp_TV.gather(-1, whole[0, -len(ids) :, None]).sum()
        return torch.cat([part.flatten() for part in torch.autograd.grad(logp, parameters)]).double()

    score_GD = torch.stack([gradient(sample) for sample in group.samples])
    gram: Array = (score_GD @ score_GD.T).cpu().numpy()
    return gram


def run(prompts: int, seed: int, say: Callable[[str], None]) -> Finding:
    """Measure groups of 2 to 16 answers of a tiny model that adds; the first G of 16 are the group of G.

    `score`: the gradients of log-probs. `advantage`: the same times reward - mean. Groups whose
    rewards are all equal are left out of both. `distinct` answers are the most that the rank can be.

    Raises:
        RunError: no group had both right and wrong answers.
    """
    recipe = load_text(RECIPE.format(seed=seed, size=SIZES[-1]), "rank")
    parts = build(recipe, say)
    try:
        asked = parts.source.take(prompts)
        groups = parts.collector.collect(asked, Sampling.of(recipe.rollout), (1, 0), Rollout())
    finally:
        parts.close()
    grams = [gram_of(parts.policy.module, group) for group in groups]
    rows = [row for size in SIZES if (row := measure(groups, grams, size))]
    if not rows:
        raise RunError("no group had both right and wrong answers", "raise --prompts, or take another --seed")
    panels = [
        _panel("Effective rank", "rank", rows),
        _panel("Directions that hold 99 % of the energy", "energy", rows),
    ]
    return Finding({"rank": rows}, panels)


def measure(groups: Sequence[Group], grams: Sequence[Array], size: int) -> Row | None:
    """Average over the mixed groups of the first `size` answers; None if there is none."""
    scores, weighed, distinct = [], [], []
    for group, gram in zip(groups, grams, strict=True):
        samples = group.samples[:size]
        reward = np.array([float(sample.verdict.correct) for sample in samples])
        advantage = reward - reward.mean()
        if advantage.any():
            part = gram[:size, :size]
            scores.append(singular_values(part, np.ones(size)))
            weighed.append(singular_values(part, advantage))
            distinct.append(len({sample.completion.ids for sample in samples}))
    if not distinct:
        return None
    return {
        "G": size,
        "groups": len(distinct),
        "distinct": fmean(distinct),
        "score_rank": fmean(map(effective_rank, scores)),
        "advantage_rank": fmean(map(effective_rank, weighed)),
        "score_energy": fmean(map(energy_rank, scores)),
        "advantage_energy": fmean(map(energy_rank, weighed)),
    }


def _panel(title: str, column: str, rows: Sequence[Row]) -> Panel:
    sizes = [float(row["G"]) for row in rows]
    curves = [
        Curve(label, sizes, [float(row[f"{kind}_{column}"]) for row in rows])
        for kind, label in (("score", "scores"), ("advantage", "with advantages"))
    ]
    return Panel(title, "group size G", "directions", curves, log_x=True)
