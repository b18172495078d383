"""How a run ends: its reason, its last checkpoint, and the best one."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest
from small_runs import DENSE, JUDGES, Runs, once, same_run

from rlctl.errors import RunError

NEVER = "verifier={kind: exact, weight: 0.0}"  # every reward is 0
NO_START = ("eval.at_start=false", "eval.at_end=false")


def state(ran: Any) -> dict[str, Any]:
    return json.loads(ran.file("state.json"))


def test_a19_never_solvable_data(runs: Runs) -> None:
    """A-19: bounded refills, then a clean end with a name."""
    ran = runs("algorithm=dapo", NEVER, "rollout.max_refills=2")
    assert (ran.code, ran.said) == (0, ("finished", "no_signal"))
    assert ran.checkpoints == ["step-000001"]
    assert ran.series("rollout/refills") == [2]
    assert ran.series("rollout/requests") == [3 * 16]
    assert ran.series("rollout/groups_trained") == [0]
    assert ran.series("rollout/acr") == [1.0]
    assert [line["step"] for line in ran.evals] == [0, 1]
    assert (ran.folder / "final/model.safetensors").exists()
    assert ran.status["tokens"] == ran.metrics[-1]["budget/tokens"] == sum(r["tokens"] for r in ran.rollouts)
    assert {row["advantage"] for row in ran.rollouts} == {None}


def test_a20_refill_at_the_last_step(runs: Runs) -> None:
    """A-20: the last step samples again and again, and leaves its evaluation and checkpoint all the same."""
    ran = runs("algorithm=dapo", "rollout.max_refills=9", "budget.steps=2", "checkpoint.every=50")
    assert (ran.code, ran.said) == (0, ("finished", "steps"))
    assert ran.series("rollout/refills")[-1] > 0
    assert ran.checkpoints == ["step-000002"]
    assert [line["step"] for line in ran.evals] == [0, 2]
    assert ran.series("rollout/groups_trained") == [4, 4]


@pytest.mark.parametrize("preset", ["grpo", "rloo", "gspo"])
def test_a21_every_advantage_is_zero(preset: str, runs: Runs) -> None:
    """A-21: no optimiser step, no crash, counted; the run goes on."""
    ran = runs(f"algorithm={preset}", NEVER)
    assert (ran.code, ran.said) == (0, ("finished", "steps"))
    assert ran.series("train/updates") == [0, 0, 0]
    assert all(n > 0 for n in ran.series("train/skipped_updates"))
    assert {row["advantage"] for row in ran.rollouts} == {0.0}
    same_run(ran, runs(f"algorithm={preset}", NEVER, place="again"))


@pytest.mark.parametrize(("limit", "reason"), [("tokens: 250", "tokens"), ("minutes: 0.001", "minutes")])
def test_budgets_in_tokens_and_minutes(limit: str, reason: str, runs: Runs) -> None:
    """The first limit that is reached ends the run, after a whole step and with a checkpoint."""
    ran = runs(DENSE, f"budget={{steps: 99, {limit}}}")
    assert (ran.code, ran.said) == (0, ("finished", reason))
    assert ran.checkpoints[-1] == f"step-{ran.status['step']:06d}"
    assert ran.status["step"] < 99
    assert [line["step"] for line in ran.evals] == [0, ran.status["step"]]
    spent = ran.series("budget/tokens")
    if reason == "tokens":
        assert spent[-1] >= 250 > ([0, *spent])[-2]
        assert all(tokens < 250 for tokens in spent[:-1])


def test_evaluation_is_free(runs: Runs) -> None:
    """Rule 10: the token budget counts training alone."""
    few = runs(DENSE, "eval.every=1", "eval.samples=2", place="few")
    many = runs(DENSE, "eval.every=1", "eval.samples=9", place="many")
    assert few.status["tokens"] == many.status["tokens"] == sum(row["tokens"] for row in few.rollouts)


def test_early_stop(runs: Runs) -> None:
    """It ends with an evaluation, a checkpoint and a final folder, and stays ended under the same budget."""
    stop = "early_stop={metric: budget/tokens, threshold: 100}"
    ran = runs(DENSE, stop, "budget.steps=50")
    assert (ran.code, ran.said) == (0, ("finished", "early_stop"))
    last = ran.status["step"]
    assert ran.series("budget/tokens")[-1] >= 100
    assert len(ran.series("budget/tokens")) == last < 50
    assert ran.checkpoints[-1] == f"step-{last:06d}"
    assert [line["step"] for line in ran.evals] == [0, last]
    metrics = ran.metrics
    assert runs(DENSE, stop, "budget.steps=50").metrics == metrics
    assert runs(DENSE, stop, "budget.steps=60").metrics == metrics


def test_d12_the_best_checkpoint_stays(runs: Runs) -> None:
    """D-12: the one with the highest value; of equals the latest."""
    sets = (DENSE, "budget.steps=8", "checkpoint={every: 1, keep: 1, best: reward/mean}")
    ran = runs(*sets)
    rewards = ran.series("reward/mean")
    best = max(range(8), key=lambda step: (rewards[step], step)) + 1
    assert best < 8
    assert ran.checkpoints == [f"step-{best:06d}", "step-000008"]
    tie = runs(NEVER, "budget.steps=4", "checkpoint={every: 3, keep: 1, best: reward/mean}", place="tie")
    assert tie.checkpoints == ["step-000004"]
    assert state(tie)["best"] == {"value": 0.0, "step": 4}


def test_d12_the_best_is_known_after_a_resume(runs: Runs) -> None:
    """D-12 over sessions: a later, worse step does not push the best one out."""
    keep = "checkpoint={every: 1, keep: 1, best: reward/mean}"
    whole = runs(DENSE, "budget.steps=8", keep, place="whole")
    for steps in range(1, 9):
        ran = runs(DENSE, f"budget.steps={steps}", keep)
    assert ran.checkpoints == whole.checkpoints
    same_run(ran, whole)


def test_the_best_between_two_saves(runs: Runs) -> None:
    """A best step is saved although no checkpoint is due."""
    ran = runs(DENSE, "budget.steps=8", "checkpoint={every: 50, keep: 3, best: reward/mean}")
    rewards = ran.series("reward/mean")
    highs = [step for step in range(1, 9) if rewards[step - 1] >= max(rewards[:step])]
    assert set(ran.checkpoints) >= {f"step-{step:06d}" for step in [*highs[-2:], 8]}


def test_old_checkpoints_go(runs: Runs) -> None:
    ran = runs(DENSE, "budget.steps=7", "checkpoint={every: 2, keep: 2}")
    assert ran.checkpoints == ["step-000006", "step-000007"]


def test_v26_a_judge_that_breaks(runs: Runs, monkeypatch: pytest.MonkeyPatch) -> None:
    """V-26: above a share of failures the run stops, says why, and keeps its last finished step."""
    broken = f"verifier={{kind: python, path: '{JUDGES}:broken'}}"
    sets = (broken, *NO_START, "rollout.prompts_per_step=8", "budget.steps=4", "checkpoint.every=50")
    monkeypatch.setenv("BROKEN_FROM", str(2 * 32 + 20))
    with pytest.raises(RunError) as caught:
        runs(*sets)
    assert caught.value.exit_code == 1
    lines = str(caught.value).splitlines()
    assert 2 <= len(lines) <= 3
    assert "13 of 32 answers" in lines[0]
    assert "ValueError: the judge is broken" in lines[0]
    ran = runs.ran(*sets)
    assert (ran.said, ran.status["step"]) == (("failed", "verifier"), 2)
    assert ran.checkpoints == ["step-000002"]
    assert once(ran.metrics) == [1, 2]
    monkeypatch.setenv("BROKEN_FROM", "999")
    same_run(runs(*sets), runs(*sets, place="whole"))


def test_v26_a_few_failures_are_wrong_answers(runs: Runs, monkeypatch: pytest.MonkeyPatch) -> None:
    """V-26: below the share the run goes on; each failure is counted and scores 0."""
    broken = f"verifier={{kind: python, path: '{JUDGES}:broken'}}"
    monkeypatch.setenv("BROKEN_FROM", str(3 * 32 - 1))
    ran = runs(broken, *NO_START, "rollout.prompts_per_step=8")
    assert (ran.code, ran.series("rollout/verifier_errors")) == (0, [0, 0, 2])


def test_a_gradient_that_is_not_finite(runs: Runs, monkeypatch: pytest.MonkeyPatch) -> None:
    """Stopped before the optimiser step; the run resumes from the checkpoint before."""
    from rlctl.learner import learner

    sets = (DENSE, "budget.steps=4", "checkpoint.every=1")
    real, calls = learner.token_logps, []

    def poisoned(*arguments: Any) -> Any:
        calls.append(1)
        logp, entropy = real(*arguments)
        return (logp * float("nan") if len(calls) == 3 else logp), entropy

    with monkeypatch.context() as patch, pytest.raises(RunError, match="not finite"):
        patch.setattr(learner, "token_logps", poisoned)
        runs(*sets)
    ran = runs.ran(*sets)
    assert ran.said == ("failed", "nonfinite")
    assert ran.checkpoints[-1] == "step-000002"
    same_run(runs(*sets), runs(*sets, place="whole"))


def test_a_bug_keeps_its_traceback_and_the_run_its_checkpoints(
    runs: Runs, monkeypatch: pytest.MonkeyPatch
) -> None:
    from rlctl.train import Run

    sets = (DENSE, "checkpoint.every=1")
    with monkeypatch.context() as patch, pytest.raises(ZeroDivisionError):
        patch.setattr(Run, "_optimise", lambda self, *_: 1 / 0)
        runs(*sets)
    ran = runs.ran(*sets)
    assert (ran.said, ran.status["step"]) == (("failed", "error"), 0)
    same_run(runs(*sets), runs(*sets, place="whole"))


def test_before_and_after_are_of_the_same_questions(runs: Runs, capsys: pytest.CaptureFixture[str]) -> None:
    runs("budget.steps=1")
    capsys.readouterr()
    runs("budget.steps=2", "eval.sets.0.problems=9")
    assert "->" not in capsys.readouterr().out


def test_c03_weights_go_to_the_engine_once_it_is_awake(runs: Runs, monkeypatch: pytest.MonkeyPatch) -> None:
    """C-01, C-03: score and update while it rests, then wake, then sync: a step of its own, in each step."""
    from rlctl.engine.transformers import TransformersEngine
    from rlctl.learner.learner import Learner
    from rlctl.sync import Sync

    taken: list[str] = []

    @contextmanager
    def resting(self: Any) -> Iterator[None]:
        taken.append("rest")
        yield
        taken.append("wake")

    def noted(owner: Any, name: str, word: str) -> None:
        inner = getattr(owner, name)
        monkeypatch.setattr(owner, name, lambda *a, **k: (taken.append(word), inner(*a, **k))[1])

    monkeypatch.setattr(TransformersEngine, "resting", resting)
    noted(Learner, "update", "update")
    noted(Sync, "__call__", "sync")
    runs(DENSE, "budget.steps=2")
    assert taken == ["sync", *["rest", "update", "wake", "sync"] * 2]
