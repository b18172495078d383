"""Exact pass@k on held-out prompts, with an interval over problems."""

from __future__ import annotations

import hashlib
import math
from collections.abc import Mapping, Sequence
from statistics import fmean, stdev
from typing import Annotated, Any

from pydantic import Field

from rlctl.data import AnySource
from rlctl.rollout import Collector, Rollout, Sampling
from rlctl.spec import Seq, Spec
from rlctl.types import Group, Prompt


class EvalSpec(Spec):
    """Section `eval`: when, on what, and how many samples a problem."""

    every: int = Field(20, ge=1)  # steps
    at_start: bool = True
    at_end: bool = True
    sets: Seq[AnySource] = ()
    samples: int | None = Field(None, ge=1)  # a problem; null: the largest k asked
    pass_at: Seq[Annotated[int, Field(ge=1)]] = (1, 4, 8)
    temperature: float = Field(1.0, ge=0)
    max_completion_length: int | None = Field(None, ge=1)  # null: the rollout's

    def due(self, step: int, last: bool) -> bool:
        """Say whether an evaluation runs after `step` (0: before training)."""
        if not self.sets:
            return False
        return self.at_start if step == 0 else step % self.every == 0 or (last and self.at_end)


def pass_at_k(n: int, correct: int, k: int) -> float:
    """Return 1 - C(n - c, k) / C(n, k), the unbiased estimate from n samples (2107.03374).

    Raises:
        ValueError: k > n, for which there is no such estimate.
    """
    if k > n:
        raise ValueError(f"pass@{k} needs at least {k} samples, there are {n}")
    return 1.0 - math.comb(n - correct, k) / math.comb(n, k)


def evaluate(
    sets: Mapping[str, Sequence[Prompt]], spec: EvalSpec, collector: Collector, sampling: Sampling, step: int
) -> dict[str, Any]:
    """Sample every problem `sampling.samples` times and return the record of `evals.jsonl`.

    A failed sample counts as wrong, its siblings as they are: the samples a problem never shrink.
    """
    record: dict[str, Any] = {"step": step, "sets": {}, "sampling": {"temperature": sampling.temperature}}
    for index, (name, prompts) in enumerate(sets.items()):
        groups = collector.collect(prompts, sampling, (step, index), Rollout())
        record["sets"][name] = _summary(groups, sampling.samples, spec.pass_at)
        record["sets"][name]["of"] = _fingerprint(prompts, sampling)
    return record


def metrics(record: Mapping[str, Any]) -> dict[str, float]:
    """Flatten a record into `eval/<set>/pass@<k>` and its companions."""
    flat: dict[str, float] = {}
    for name, found in record["sets"].items():
        for k, estimate in found["pass_at"].items():
            flat[f"eval/{name}/pass@{k}"] = estimate["value"]
        for key in ("truncated_share", "unparseable_share", "length_tokens"):
            flat[f"eval/{name}/{key}"] = found[key]
    return flat


def _fingerprint(prompts: Sequence[Prompt], sampling: Sampling) -> str:
    """Hash what was asked and how: two evaluations compare only where this is the same."""
    asked = [(prompt.ids, prompt.gold) for prompt in prompts]
    return hashlib.sha256(repr((asked, sampling)).encode()).hexdigest()[:16]


def _summary(groups: Sequence[Group], n: int, pass_at: Sequence[int]) -> dict[str, Any]:
    correct = [sum(s.verdict.correct for s in group.samples) for group in groups]
    samples = [sample for group in groups for sample in group.samples]
    return {
        "problems": len(groups),
        "samples": n,
        "pass_at": {str(k): _interval([pass_at_k(n, c, k) for c in correct]) for k in pass_at},
        "errors": sum(s.verdict.error is not None for s in samples),
        "truncated_share": fmean(s.completion.finish == "length" for s in samples),
        "unparseable_share": fmean(s.verdict.answer is None for s in samples),
        "length_tokens": fmean(len(s.completion.ids) for s in samples),
    }


def _interval(values: Sequence[float]) -> dict[str, float]:
    """Mean over problems with a 95 % normal interval; problems are the unit."""
    mean = fmean(values)
    half = 1.96 * stdev(values) / math.sqrt(len(values)) if len(values) > 1 else 0.0
    return {"value": mean, "low": max(mean - half, 0.0), "high": min(mean + half, 1.0)}
