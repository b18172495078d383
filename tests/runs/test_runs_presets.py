"""Every row of the table runs, with all weights and with adapters, and leaves what others read."""

from __future__ import annotations

import json

import pytest
from small_runs import DENSE, Runs, once

from rlctl.algorithm import Algorithm
from rlctl.algorithm.presets import PRESETS

EVERY_STEP = [
    "reward/mean",
    "reward/std",
    "rollout/acr",
    "rollout/length_tokens",
    "rollout/truncated_share",
    "rollout/unparseable_share",
    "train/loss",
    "train/grad_norm",
    "train/clip_share",
    "train/entropy",
    "mismatch/mean",
    "mismatch/max",
    "mismatch/kl",
    "time/generate_s",
    "time/judge_s",
    "time/score_s",
    "time/update_s",
    "time/sync_s",
    "time/step_s",
    "budget/tokens",
]
ROLLOUT = [
    "step",
    "uid",
    "sample",
    "prompt",
    "response",
    "reward",
    "correct",
    "answer",
    "gold",
    "finish",
    "tokens",
    "temperature",
    "advantage",
]


@pytest.mark.parametrize("lora", [(), ("model.lora.rank=8",)], ids=["full", "lora"])
@pytest.mark.parametrize("preset", list(PRESETS))
def test_every_row_runs(preset: str, lora: tuple[str, ...], runs: Runs) -> None:
    ran = runs(f"algorithm={preset}", "rollout.prompts_per_step=8", DENSE, *lora)
    assert ran.code == 0
    assert ran.said == ("finished", "steps")
    assert once(ran.metrics) == [0, 1, 2, 3]
    assert len(ran.series("train/grad_norm")) == 3
    assert all(norm > 0 for norm in ran.series("train/grad_norm"))
    updates = Algorithm.model_validate(preset).staging.updates
    taken = zip(ran.series("train/updates"), ran.series("train/skipped_updates"), strict=True)
    assert [sum(pair) for pair in taken] == [updates] * 3
    left = {"adapter_model.safetensors", "base"} if lora else {"model.safetensors"}
    assert left <= {path.name for path in (ran.folder / "final").iterdir()}


def test_names_that_others_read(runs: Runs) -> None:
    """Keys and files of architecture.md, "Names that others read" and "Run folder"."""
    ran = runs("algorithm={preset: grpo, kl: 0.1, entropy_coef: 0.01}", DENSE)
    before, *steps = ran.metrics
    assert {key for key in before if key.startswith(("reward", "train", "rollout"))} == set()
    assert before["step"] == 0
    assert before["eval/arithmetic/pass@1"] == ran.evals[0]["sets"]["arithmetic"]["pass_at"]["1"]["value"]
    for line in steps:
        assert set(EVERY_STEP) <= line.keys()
        assert line["train/kl_ref"] >= 0
        assert any(key.startswith("train/clip_share/c") for key in line)
        assert all(isinstance(value, int | float) for value in line.values())
    assert "eval/arithmetic/pass@1" in steps[-1]
    assert "eval/arithmetic/pass@1" not in steps[0]
    rows = ran.rollouts
    assert [list(row) for row in rows] == [ROLLOUT] * len(rows)
    assert [row["step"] for row in rows] == 16 * [1] + 16 * [2] + 16 * [3]
    assert sum(row["tokens"] for row in rows) == steps[-1]["budget/tokens"]
    assert [e["step"] for e in ran.evals] == [0, 3]
    assert set(ran.evals[0]["sets"]["arithmetic"]["pass_at"]) == {"1", "2"}
    assert list(ran.status) == ["state", "stop_reason", "step", "tokens", "seconds", "mlflow_run_id"]
    assert ran.status["tokens"] == steps[-1]["budget/tokens"]
    there = {path.name for path in ran.folder.iterdir() if not path.name.startswith(".")}
    assert there == {
        "recipe.yaml", "status.json", "metrics.jsonl", "rollouts.jsonl", "evals.jsonl", "checkpoints", "final"
    }  # fmt: skip
    checkpoint = ran.folder / "checkpoints/step-000003"
    names = {path.name for path in checkpoint.iterdir()}
    assert names == {"model.safetensors", "optimizer.safetensors", "state.json", "DONE"}
    assert json.loads((checkpoint / "state.json").read_text())["step"] == 3
