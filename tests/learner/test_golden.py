"""Five updates of every row on a seeded model; a change that should not move these numbers must not.

`UPDATE_GOLDEN=1 pytest tests/learner/test_golden.py` writes them anew: the commit says why they moved.
"""

from __future__ import annotations

import json
import os
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from learning import LONGEST, decided, laid_out, learner_of, make_groups, probe_of

from rlctl.algorithm import Algorithm
from rlctl.algorithm.control import Controls
from rlctl.algorithm.presets import PRESETS
from rlctl.batch import Batch
from rlctl.learner.learner import Learner
from rlctl.learner.report import Report
from rlctl.types import Group, Prompt

GOLDEN = Path(__file__).with_name("golden.json")
P, G, STEPS = 8, 4, 5
CURVES: dict[str, dict[str, Any]] = {
    **{name: {"preset": name} for name in PRESETS},
    "grpo+focal": {"preset": "grpo", "reweight": [{"kind": "focal", "gamma": 1.0}]},
    "mu_grpo+veto": {"preset": "mu_grpo", "veto": {"threshold": 0.98}},
    "mu_grpo+recount": {"preset": "mu_grpo", "veto": {"threshold": 0.98, "recount": True}},
    "mu_grpo+mask": {"preset": "mu_grpo", "veto": {"kind": "sequence", "delta": 1e-3}},
    "gapo+linear": {"preset": "gapo", "clip": {"low": 0.001, "high": 0.01}},
    "gapo+exact": {"preset": "gapo", "clip": {"low": 0.001, "high": 0.01, "form": "exact"}},
    "grpo+flat": {"preset": "grpo", "advantage": {"std": "population", "homogeneous": 0.7}},
    "codapo+top": {"preset": "codapo", "control": [{"kind": "focus", "select": "top"}]},
    "agpo+one": {"preset": "agpo", "ratio_temperature": "one", "correction": {"kind": "none"}},
    **{
        f"avspo+{values}": {"preset": "avspo", "control": [{"kind": "collapse", "values": values}]}
        for values in ("random", "partial", "decay")
    },
}
# Five of eight groups are collapsed, so that virtual rewards come in.
COLLAPSED = [[1.0, 0.0, 0.0, 1.0], *[[0.0] * 4, [1.0] * 4] * 2, [0.0] * 4, *[[0.0, 1.0, 0.0, 0.0]] * 2]


class Shelf:
    """The prompts of each step's groups, in turn; the latest of a name is found again."""

    def __init__(self) -> None:
        self.drawn = 0
        self.known: dict[str, Prompt] = {}

    def take(self, n: int) -> list[Prompt]:
        prompts = [group.prompt for group in make_groups(P=n, G=G, seed=self.drawn)]
        self.drawn += 1
        self.known |= {prompt.uid: prompt for prompt in prompts}
        return prompts

    def get(self, uid: str) -> Prompt:
        return self.known[uid]


def sampled(algorithm: Algorithm, controls: Controls, shelf: Any, step: int) -> list[Group]:
    """Groups of their own in each step, for the prompts and at the temperatures that controllers choose."""
    flat = getattr(algorithm.advantage, "homogeneous", 0.0) > 0
    repairs = flat or any(control.kind == "collapse" for control in algorithm.control)
    groups = make_groups(P=P, G=G, seed=step, rewards=COLLAPSED if repairs else None)
    base_PG = torch.tensor([[s.temperature for s in group.samples] for group in groups], dtype=torch.float64)
    planned = controls.plan(base_PG, probe_of(algorithm, groups)).tolist()
    return [
        Group(prompt, tuple(replace(s, temperature=t) for s, t in zip(group.samples, row, strict=True)))
        for prompt, group, row in zip(controls.prompts(shelf, P), groups, planned, strict=True)
    ]


def optimise(learner: Learner, algorithm: Algorithm, batch: Batch, step: int) -> Report:
    """Every update of a step; the report of the last."""
    for _ in range(algorithm.staging.epochs):
        for minibatch in batch.minibatches(algorithm.staging.minibatches):
            report = learner.update(
                algorithm.weigh(minibatch, LONGEST),
                algorithm.objective,
                rate=1e-3,
                seed=step,
                skip_zero_rows=algorithm.skips_zero_rows,
            )
    return report


def curve(module: Any, algorithm: Algorithm) -> list[list[float]]:
    """Return [loss, gradient norm, entropy] of five steps; rollouts of a stage are scored at its start."""
    learner, points = learner_of(module, reference=algorithm.restrained), []
    controls, shelf, stage = Controls(algorithm.control, seed=0), Shelf(), []
    for step in range(STEPS):
        if not stage:
            drawn = [
                sampled(algorithm, controls, shelf, step + i)
                for i in range(min(algorithm.staging.ahead, STEPS - step))
            ]
            stage = [(g, learner.score(laid_out(g, algorithm), algorithm.needs)) for g in drawn]
        groups, scored = stage.pop(0)
        stats, batch = decided(scored, groups, algorithm, controls)
        metrics = optimise(learner, algorithm, batch, step).metrics()
        if "logp_after" in algorithm.needs:
            after_PG = stats.scored(learner.score(scored, frozenset({"old_logp"}))).logp_PG
            stats = replace(stats, drift_PG=stats.logp_PG - after_PG)
        controls.observe(stats)
        points.append([metrics[key] for key in ("train/loss", "train/grad_norm", "train/entropy")])
    return points


@pytest.mark.parametrize("name", CURVES)
def test_golden_curve(module: Any, name: str) -> None:
    found = curve(module, Algorithm.model_validate(CURVES[name]))
    golden = json.loads(GOLDEN.read_text()) if GOLDEN.exists() else {}
    if os.environ.get("UPDATE_GOLDEN"):
        golden[name] = [[float(f"{x:.10g}") for x in point] for point in found]
        GOLDEN.write_text(json.dumps(golden, indent=1) + "\n")
    for point, expected in zip(found, golden[name], strict=True):
        assert point == pytest.approx(expected, rel=1e-6, abs=1e-9)
