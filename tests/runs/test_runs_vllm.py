"""Whole runs with the real vLLM: equal again after a stop or a kill, and nothing left behind."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import psutil
import pytest
from kills import START, kill_and_resume, leave_alone
from small_runs import DENSE, SMALL, Runs, same_run

pytestmark = pytest.mark.vllm
ENGINE = ("engine={kind: vllm, dtype: float32}", "model.heads=1")  # vLLM has no kernel for 16 wide heads
HANG_S = 240
EXIT_S = 30  # promised from a signal or a fault to the exit

# What each script changes before it runs `rlctl train` for real.
FAULTS = {
    "exception": """
from rlctl.learner.learner import Learner
update = Learner.update
def fail(self, *args, **settings):
    fail.calls += 1
    if fail.calls == 3: raise ZeroDivisionError("a bug in the loop")
    return update(self, *args, **settings)
fail.calls = 0
Learner.update = fail
""",
    "dead engine": """
from vllm import LLMEngine
from rlctl.learner.learner import Learner
update = Learner.update
def die(self):
    raise RuntimeError("Executor failed.")
def last(self, *args, **settings):
    last.calls += 1
    if last.calls == 3: LLMEngine.step = die
    return update(self, *args, **settings)
last.calls = 0
Learner.update = last
""",
    "SIGINT": "",
    "SIGTERM": "",
}


@pytest.mark.parametrize("lora", ["null", "{rank: 4}"])
def test_c06_a_resumed_run_is_bitwise_the_run_left_alone(lora: str, runs: Runs) -> None:
    """C-06: on a CPU vLLM is deterministic: same weights, optimiser, rollouts, rewards."""
    sets = (*ENGINE, DENSE, f"model.lora={lora}", "checkpoint.every=1", "eval.every=1")
    whole = runs(*sets, "budget.steps=3", place="whole")
    runs(*sets, "budget.steps=1")
    resumed = runs(*sets, "budget.steps=3")
    same_run(resumed, whole)
    assert resumed.evals == whole.evals
    assert all(line["mismatch/probe"] < 1e-4 for line in whole.metrics[1:])
    assert all(line["mismatch/max"] < 1e-3 for line in whole.metrics[1:])


@pytest.mark.heavy
def test_c06_kills_change_nothing(tmp_path: Path, model_cache: Path) -> None:
    """C-06, D-10: two SIGKILLs at random moments, real processes."""
    sets = [*SMALL, *ENGINE, "budget.steps=12", "track.mlflow=auto"]
    whole = leave_alone(tmp_path / "whole", sets)
    found = kill_and_resume(tmp_path / "killed", 2, 3, whole, sets)
    assert found.faults == []


def process(tmp_path: Path, fault: str) -> subprocess.Popen[bytes]:
    sets = [*SMALL, *ENGINE, DENSE, "budget.steps=4000", "checkpoint.every=1", f"output_dir={tmp_path}"]
    arguments = [word for text in sets for word in ("--set", text)]
    with (tmp_path / "log").open("wb") as log:
        return subprocess.Popen(
            [sys.executable, "-c", FAULTS[fault] + START, "train", "quickstart", *arguments],
            stdout=log, stderr=log, start_new_session=True,
        )  # fmt: skip


def steps(tmp_path: Path) -> int:
    done = list(tmp_path.glob("quickstart-*/checkpoints/step-*/DONE"))
    return max((int(mark.parent.name[5:]) for mark in done), default=-1)


def waited(condition: object, process: subprocess.Popen[bytes], log: Path) -> Iterator[float]:
    began = time.monotonic()
    while not condition():  # type: ignore[operator]
        assert process.poll() is None and time.monotonic() - began < HANG_S, log.read_text()
        yield time.monotonic() - began
        time.sleep(0.05)


@pytest.mark.parametrize(
    ("fault", "code", "said"),
    [
        ("SIGINT", 130, "interrupt"),
        ("SIGTERM", 130, "interrupt"),
        ("exception", 1, "a bug in the loop"),
        ("dead engine", 1, "vLLM died"),
    ],
)
def test_c11_nothing_is_left_behind(
    tmp_path: Path, model_cache: Path, fault: str, code: int, said: str
) -> None:
    """C-10, C-11: a signal, an exception in the loop, a dead engine: no child, 30 s, the checkpoint kept."""
    started = process(tmp_path, fault)
    try:
        family = set()
        for _ in waited(lambda: steps(tmp_path) >= 2, started, tmp_path / "log"):
            family |= set(psutil.Process(started.pid).children(recursive=True))
        if fault.startswith("SIG"):
            os.kill(started.pid, signal.Signals[fault])
        assert started.wait(EXIT_S) == code
        assert [child for child in family if child.is_running()] == []
        assert steps(tmp_path) >= 2
        assert said in (tmp_path / "log").read_text() + next(tmp_path.glob("*/status.json")).read_text()
    finally:
        started.kill()


def test_threads_and_affinity_are_the_recipes_while_vllm_is_loaded(runs: Runs) -> None:
    """C-14: one thread as asked; verifier workers run where this process may, without vLLM's preloads."""
    import torch

    from rlctl.parts import build

    recipe = runs.recipe(*ENGINE, "verifier={kind: math}", "resources.cpus=1")
    said: list[str] = []
    parts = build(recipe, said.append)
    try:
        assert any(line.startswith("engine: vllm") for line in said)
        parts.sync(0)
        prompt = parts.source.take(1)[0]
        assert parts.verifier.judge(prompt, f"\\boxed{{{prompt.gold}}}").correct
        assert torch.get_num_threads() == 1
        workers = [
            child
            for child in psutil.Process().children(recursive=True)
            if "rlctl" in " ".join(child.cmdline()) and child.is_running()
        ]
        assert workers
        for worker in workers:
            assert set(worker.cpu_affinity()) == os.sched_getaffinity(0) == os.sched_getaffinity(1)
            assert "LD_PRELOAD" not in worker.environ()
    finally:
        parts.close()


def test_auto_takes_vllm_where_it_imports_and_says_so(runs: Runs) -> None:
    from rlctl.parts import build

    said: list[str] = []
    parts = build(runs.recipe("engine={kind: auto}", "model.heads=1"), said.append)
    parts.close()
    assert parts.engine_kind == "vllm" and any(line.startswith("engine: vllm") for line in said)
