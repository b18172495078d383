"""Ctrl-C and SIGTERM at every place of a run; what is resumed is the run that was left alone."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from kills import START
from small_runs import JUDGES, SMALL, Ran, Runs, once, same_run

TRAP = f"verifier={{kind: python, path: '{JUDGES}:trap'}}"
STEP, EVAL = 16, 32  # calls of the judge
HANG_S = 120

Trap = Callable[..., None]


@pytest.fixture
def trap(monkeypatch: pytest.MonkeyPatch) -> Trap:
    """Let the judge's call `at` send a signal; 0: none."""

    def lay(at: int, name: str = "SIGINT") -> None:
        monkeypatch.setenv("TRAP", str(at))
        monkeypatch.setenv("TRAP_SIGNAL", name)

    return lay


def interrupted(ran: Ran, step: int) -> None:
    assert ran.code == 130
    assert ran.said == ("interrupted", "interrupt")
    assert ran.status["step"] == step
    assert ran.checkpoints[-1] == f"step-{step:06d}"


@pytest.mark.parametrize("name", ["SIGINT", "SIGTERM"])
@pytest.mark.parametrize("call", [1, STEP], ids=["first answer", "last answer"])
def test_a_step_that_samples_is_abandoned(name: str, call: int, runs: Runs, trap: Trap) -> None:
    sets = (TRAP, "eval.at_start=false", "budget.steps=4")
    trap(2 * STEP + call, name)
    ran = runs(*sets)
    interrupted(ran, 2)
    assert once(ran.metrics) == [1, 2]
    assert {row["step"] for row in ran.rollouts} == {1, 2}
    trap(0)
    same_run(runs(*sets, resume="must"), runs(*sets, place="whole"))


def test_again_and_again(runs: Runs, trap: Trap) -> None:
    """Every session is interrupted in the second step that it samples, with refills on top."""
    sets = (TRAP, "algorithm=dapo", "eval.at_start=false", "eval.at_end=false", "budget.steps=5")
    codes = []
    while not codes or codes[-1]:
        trap(2 * STEP)
        codes.append(runs(*sets).code)
        assert len(codes) < 9
    assert codes[:-1] == [130] * (len(codes) - 1)
    assert len(codes) > 2
    trap(0)
    same_run(runs.ran(*sets), runs(*sets, place="whole"))


@pytest.mark.parametrize(("at", "step"), [(1, 1), (2, 2), (3, 2), (4, 3)])
def test_a_step_that_changed_weights_is_finished_first(
    at: int, step: int, runs: Runs, trap: Trap, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A signal before the first of two updates of steps 2 and 3 (1, 3), or after it (2, 4)."""
    from rlctl.learner.learner import Learner

    trap(0)
    sets = (TRAP, "algorithm.staging.minibatches=2", "eval.every=3")
    update, calls = Learner.update, []

    def signalled(*args: Any, **settings: Any) -> Any:
        calls.append(1)
        if len(calls) == 2 + at:
            os.kill(os.getpid(), signal.SIGINT)
        return update(*args, **settings)

    with monkeypatch.context() as patch:
        patch.setattr(Learner, "update", signalled)
        ran = runs(*sets)
    interrupted(ran, step)
    assert once(ran.metrics)[-1] == min(step, 2)
    same_run(runs(*sets), runs(*sets, place="whole"))


@pytest.mark.parametrize("call", [1, EVAL])
def test_an_evaluation_is_made_anew(call: int, runs: Runs, trap: Trap) -> None:
    """The step before it stands in metrics.jsonl once it is resumed, with its evaluation, once."""
    sets = (TRAP, "eval.every=2", "budget.steps=4", "eval.at_start=false")
    trap(2 * STEP + call)
    ran = runs(*sets)
    interrupted(ran, 2)
    assert once(ran.metrics) == [1]
    assert ran.evals == []
    trap(5)  # once more, in the same evaluation
    interrupted(runs(*sets), 2)
    trap(0)
    whole = runs(*sets, place="whole")
    same_run(runs(*sets), whole)
    assert runs.ran(*sets).evals == whole.evals
    assert [line["step"] for line in whole.evals] == [2, 4]
    assert runs.ran(*sets).series("eval/arithmetic/pass@1") == whole.series("eval/arithmetic/pass@1")


def test_the_evaluation_before_training(runs: Runs, trap: Trap) -> None:
    trap(EVAL)
    ran = runs(TRAP)
    interrupted(ran, 0)
    assert ran.metrics == ran.evals == []
    trap(0)
    whole = runs(TRAP, place="whole")
    same_run(runs(TRAP), whole)
    assert ran.evals == whole.evals


def test_the_evaluation_after_training(runs: Runs, trap: Trap) -> None:
    """The budget is spent, yet the run is not finished: it is once resumed."""
    sets = (TRAP, "eval.at_start=false")
    trap(3 * STEP + 7)
    interrupted(runs(*sets), 3)
    trap(0)
    ran = runs(*sets)
    assert (ran.code, ran.said) == (0, ("finished", "steps"))
    same_run(ran, runs(*sets, place="whole"))
    assert [line["step"] for line in ran.evals] == [3]


def test_the_evaluation_after_an_early_stop(runs: Runs, trap: Trap) -> None:
    sets = (TRAP, "eval.at_start=false", "early_stop={metric: reward/std, threshold: 0.0}")
    trap(STEP + 7)
    interrupted(runs(*sets), 1)
    trap(0)
    ran = runs(*sets)
    assert (ran.code, ran.said, ran.status["step"]) == (0, ("finished", "early_stop"), 1)
    same_run(ran, runs(*sets, place="whole"))
    assert [line["step"] for line in ran.evals] == [1]


def test_while_it_is_built(runs: Runs, trap: Trap, monkeypatch: pytest.MonkeyPatch) -> None:
    """Not swallowed by an `except Exception` of a library either."""
    from rlctl.data.render import Renderer

    def signalled(*_: Any) -> Any:
        try:
            os.kill(os.getpid(), signal.SIGTERM)
            time.sleep(5)
        except Exception:
            pytest.fail("swallowed")

    trap(0)
    with monkeypatch.context() as patch:
        patch.setattr(Renderer, "fit", signalled)
        ran = runs(TRAP)
    assert (ran.code, ran.said) == (130, ("interrupted", "interrupt"))
    assert ran.status["step"] == 0
    assert ran.checkpoints == []
    same_run(runs(TRAP), runs(TRAP, place="whole"))
    built = runs(TRAP, "budget.steps=4").status
    with monkeypatch.context() as patch:
        patch.setattr(Renderer, "fit", signalled)
        ran = runs(TRAP, "budget.steps=5")
    assert ran.status == built | {"state": "interrupted", "stop_reason": "interrupt"}


def test_d17_g03_one_mlflow_run_over_two_sessions(runs: Runs, trap: Trap) -> None:
    """D-17, G-03: KILLED after Ctrl-C; resumed with a larger budget the same run goes on, to FINISHED."""
    from mlflow import MlflowClient

    sets = (TRAP, "track.mlflow=auto", "eval.at_start=false")
    trap(2 * STEP + 3)
    ran = runs(*sets)
    interrupted(ran, 2)
    client = MlflowClient(f"sqlite:///{runs.root / 'runs' / 'mlflow.db'}")
    run_id = ran.status["mlflow_run_id"]
    assert client.get_run(run_id).info.status == "KILLED"
    trap(0)
    assert runs(*sets, "budget.steps=6").status["mlflow_run_id"] == run_id
    run = client.get_run(run_id)
    assert run.info.status == "FINISHED"
    assert run.data.params["budget.steps"] == "3"  # MLflow lets no parameter change
    history = client.get_metric_history(run_id, "reward/mean")
    assert [(point.step, point.value) for point in history] == list(enumerate(ran.series("reward/mean"), 1))
    assert [point.step for point in history] == [1, 2, 3, 4, 5, 6]


@pytest.mark.parametrize("signals", [1, pytest.param(2, marks=pytest.mark.heavy)])
def test_a_judge_that_hangs_holds_nobody_up(signals: int, runs: Runs, tmp_path: Path) -> None:
    """A real process: neither the first signal nor, at once, the second waits for a judge at work."""
    hang = f"verifier={{kind: python, path: '{JUDGES}:hang'}}"
    sets = [*SMALL, hang, "eval.at_start=false", f"output_dir={tmp_path / 'runs'}"]
    arguments = [word for text in sets for word in ("--set", text)]
    process = subprocess.Popen(
        [sys.executable, "-c", START, "train", "quickstart", *arguments],
        env={**os.environ, "HANG": "600"}, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
    )  # fmt: skip
    assert process.stderr
    while "begins at step 0" not in process.stderr.readline():
        assert process.poll() is None
    time.sleep(1)
    for _ in range(signals):
        process.send_signal(signal.SIGTERM)
    out, err = process.communicate(timeout=HANG_S)
    assert process.returncode == 130
    assert "Traceback" not in err
    ran = runs.ran(hang, "eval.at_start=false")
    if signals == 1:
        assert "interrupted (interrupt)" in out
        interrupted(Ran(ran.folder, 130), 0)
