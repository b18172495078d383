"""Five updates of every row on a seeded model; a change that should not move these numbers must not.

`UPDATE_GOLDEN=1 pytest tests/learner/test_golden.py` writes them anew: the commit says why they moved.
"""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import pytest
from learning import LONGEST, learner_of, make_groups

from rlctl.algorithm import Algorithm
from rlctl.algorithm.presets import PRESETS
from rlctl.batch import GroupStats, pack

GOLDEN = Path(__file__).with_name("golden.json")


def curve(module: Any, algorithm: Algorithm) -> list[list[float]]:
    """Return [loss, gradient norm, entropy] of five steps, each on groups of its own."""
    learner, points = learner_of(module), []
    for step in range(5):
        groups = make_groups(P=8, G=4, seed=step)
        stats = GroupStats.of(groups, LONGEST)
        batch = learner.score(pack(groups, stats, algorithm.credit(stats)), algorithm.needs)
        for minibatch in batch.minibatches(algorithm.staging.minibatches):
            report = learner.update(
                algorithm.weigh(minibatch, LONGEST),
                algorithm.objective,
                rate=1e-3,
                seed=step,
                skip_zero_rows=algorithm.skips_zero_rows,
            )
        metrics = report.metrics()
        points.append([metrics[key] for key in ("train/loss", "train/grad_norm", "train/entropy")])
    return points


@pytest.mark.parametrize("name", [*PRESETS, "grpo+focal"])
def test_golden_curve(module: Any, name: str) -> None:
    preset, _, focal = name.partition("+")
    reweight = [{"kind": "focal", "gamma": 1.0}] if focal else []
    found = curve(module, Algorithm.model_validate({"preset": preset, "reweight": reweight}))
    golden = json.loads(GOLDEN.read_text()) if GOLDEN.exists() else {}
    if os.environ.get("UPDATE_GOLDEN"):
        golden[name] = [[float(f"{x:.10g}") for x in point] for point in found]
        GOLDEN.write_text(json.dumps(golden, indent=1) + "\n")
    for point, expected in zip(found, golden[name], strict=True):
        assert point == pytest.approx(expected, rel=1e-6, abs=1e-9)
