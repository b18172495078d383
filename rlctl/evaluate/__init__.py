"""Exact pass@k on held-out prompts, with intervals over problems."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from typing import Annotated, Any

from pydantic import Field

from rlctl import __version__
from rlctl.data import AnySource
from rlctl.rollout import Collector, Rollout, Sampling
from rlctl.spec import Seq, Spec
from rlctl.types import Prompt, Verifier


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


def evaluate(
    sets: Mapping[str, Sequence[Prompt]], spec: EvalSpec, collector: Collector, sampling: Sampling, step: int
) -> dict[str, Any]:
    """Sample every problem `sampling.samples` times and return the record of `evals.jsonl`.

    A failed sample counts as wrong, its siblings as they are: the samples a problem never shrink.
    """
    from rlctl.evaluate.summary import Outcome, summarise

    found = {}
    for index, (name, prompts) in enumerate(sets.items()):
        groups = collector.collect(prompts, sampling, (step, index), Rollout())
        outcomes = [
            [Outcome.of(s.verdict, s.completion.finish, len(s.completion.ids)) for s in group.samples]
            for group in groups
        ]
        found[name] = summarise(outcomes, spec.pass_at) | {"of": fingerprint(prompts, sampling)}
    return {"step": step} | described(found, sampling, collector.seed, collector.verifier)


def described(sets: Mapping[str, Any], sampling: Sampling, seed: int, verifier: Verifier) -> dict[str, Any]:
    """Put beside the figures of each set how they came about."""
    return {
        "sets": dict(sets),
        "sampling": {
            "samples": sampling.samples,
            "temperature": sampling.temperature,
            "top_p": sampling.top_p,
            "top_k": sampling.top_k,
            "max_completion_length": sampling.max_tokens,
            "stop": list(sampling.stop),
            "seed": seed,
        },
        "verifier": f"{verifier.name}; rlctl {__version__}",
    }


def metrics(record: Mapping[str, Any]) -> dict[str, float]:
    """Flatten a record into `eval/<set>/pass@<k>` and its companions."""
    flat: dict[str, float] = {}
    for name, found in record["sets"].items():
        for k, estimate in found["pass_at"].items():
            flat[f"eval/{name}/pass@{k}"] = estimate["value"]
        flat[f"eval/{name}/strict"] = found["strict"]["value"]
        for key in ("truncated_share", "unparseable_share", "length_tokens"):
            flat[f"eval/{name}/{key}"] = found[key]
    return flat


def fingerprint(prompts: Sequence[Prompt], sampling: Sampling) -> str:
    """Hash what was asked and how: two evaluations compare only where this is the same."""
    asked = [(prompt.ids, prompt.gold) for prompt in prompts]
    return hashlib.sha256(repr((asked, sampling)).encode()).hexdigest()[:16]
