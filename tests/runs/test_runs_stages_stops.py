"""Runs that are broken off inside a stage of collected steps go on as if they had not been."""

from __future__ import annotations

import os
import signal
from collections.abc import Callable
from typing import Any

import pytest
from kills import kill_and_resume
from small_runs import (
    AHEAD,
    DENSE,
    FAST,
    JUDGES,
    QUIET,
    SIX,
    SMALL,
    Runs,
    broken_off,
    cut_short,
    same_run,
)

from rlctl.errors import RunError

MANY = "algorithm={preset: mu_grpo, staging: {ahead: 3, minibatches: 2, epochs: 2}}"
REFUSING = "algorithm={preset: dapo, staging: {ahead: 3}}"
TRAP = f"verifier={{kind: python, path: '{JUDGES}:trap'}}"

Trap = Callable[..., None]


@pytest.fixture
def trap(monkeypatch: pytest.MonkeyPatch) -> Trap:
    """Let the judge's call `at` send a signal; 0: none."""

    def lay(at: int) -> None:
        monkeypatch.setenv("TRAP", str(at))
        monkeypatch.setenv("TRAP_SIGNAL", "SIGINT")

    return lay


STOPS = {"": AHEAD, "many updates": MANY, "refused groups": REFUSING}


@pytest.mark.parametrize("step", [1, 2, 3, 4])
@pytest.mark.parametrize("case", list(STOPS))
def test_d05_broken_off_at_every_step_of_a_stage(case: str, step: int, runs: Runs) -> None:
    """D-05: 3 is the last of its stage, 4 the first of the next."""
    sets = (STOPS[case], DENSE, FAST, *SIX, QUIET)
    same_run(broken_off(runs, step, *sets), runs(*sets, place="whole"))


def test_d05_killed_between_two_checkpoints(runs: Runs) -> None:
    """D-05: what was collected after the checkpoint is collected again."""
    sets = (MANY, DENSE, FAST, "budget.steps=7", "checkpoint.every=5", QUIET)
    whole = runs(*sets, place="whole")
    same_run(broken_off(runs, 4, *sets), whole)


@pytest.mark.parametrize("update", [2, 5, 6, 8, 9, 12])
def test_d05_interrupted_at_every_step_of_a_stage(
    update: int, runs: Runs, monkeypatch: pytest.MonkeyPatch
) -> None:
    """D-05: Ctrl-C before the first of a step's four updates undoes it (5, 9), later it is finished."""
    from rlctl.learner.learner import Learner

    sets = (MANY, DENSE, FAST, *SIX, QUIET)
    real, calls = Learner.update, []

    def signalled(*args: Any, **settings: Any) -> Any:
        calls.append(1)
        if len(calls) == update:
            os.kill(os.getpid(), signal.SIGINT)
        return real(*args, **settings)

    with monkeypatch.context() as patch:
        patch.setattr(Learner, "update", signalled)
        ran = runs(*sets)
    assert ran.said == ("interrupted", "interrupt")
    assert ran.status["step"] == (update - 1) // 4 + (update % 4 != 1)
    same_run(runs(*sets, resume="must"), runs(*sets, place="whole"))


@pytest.mark.parametrize("call", [1, 20, 48])
@pytest.mark.parametrize("stage", [0, 1])
def test_d05_interrupted_while_a_stage_is_collected(stage: int, call: int, runs: Runs, trap: Trap) -> None:
    """D-05: nothing of it counts; the same prompts are asked again."""
    sets = (AHEAD, TRAP, *SIX, QUIET)
    trap(48 * stage + call)
    ran = runs(*sets)
    assert (ran.said, ran.status["step"]) == (("interrupted", "interrupt"), 3 * stage)
    trap(0)
    same_run(runs(*sets), runs(*sets, place="whole"))


def test_d05_interrupted_between_two_portions(
    runs: Runs, trap: Trap, monkeypatch: pytest.MonkeyPatch
) -> None:
    """D-05: the second step of the stage is on the disk already; the first is written last."""
    from rlctl import feed

    monkeypatch.setattr(feed, "ROWS_AT_ONCE", 16)
    sets = (AHEAD, TRAP, *SIX, QUIET)
    trap(48 + 32 + 5)
    ran = runs(*sets)
    assert ran.status["step"] == 3 and (ran.folder / "stage/step-000005.json").exists()
    trap(0)
    same_run(runs(*sets), runs(*sets, place="whole"))


@pytest.mark.parametrize("suffix", ["json", "safetensors"])
def test_d09_a_stage_that_is_damaged(suffix: str, runs: Runs) -> None:
    """D-09: said in two lines; without the checkpoints inside it the run goes on from before."""
    sets = (AHEAD, DENSE, FAST, *SIX, "checkpoint.keep=9", QUIET)
    ran = cut_short(runs, 5, *sets)
    (ran.folder / f"stage/step-000006.{suffix}").write_bytes(b"{")
    with pytest.raises(RunError) as caught:
        runs(*sets)
    lines = str(caught.value).splitlines()
    assert len(lines) == 2 and "step-000006" in lines[0]
    for step in (4, 5):
        folder = ran.folder / f"checkpoints/step-{step:06d}"
        folder.rename(ran.folder / f"gone-{step}")
    same_run(runs(*sets), runs(*sets, place="whole"))


@pytest.mark.heavy
def test_d05_sigkill_inside_stages(runs: Runs) -> None:
    """D-05 for real processes: twelve steps in stages of five, a checkpoint every second step."""
    stages = "algorithm={preset: mu_grpo, staging: {ahead: 5, epochs: 2}}"
    whole = runs(stages, "budget.steps=12", "checkpoint.every=2", "eval.every=5", place="whole")
    small = [text for text in SMALL if not text.startswith(("track.", "budget."))]
    found = kill_and_resume(runs.root / "killed", 3, 5, whole.folder, [*small, "eval.every=5", stages])
    assert found.faults == []
    assert len(found.resumed_at) == 3
