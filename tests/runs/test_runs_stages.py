"""Steps that are collected ahead: stale weights, budgets, and stops at every step of a stage."""

from __future__ import annotations

import copy
import json
import os
import signal
from collections.abc import Callable, Iterator
from typing import Any

import pytest
import torch
from kills import kill_and_resume
from safetensors.torch import load_file
from small_runs import DENSE, JUDGES, SMALL, Runs, broken_off, cut_short, same_run

from rlctl.errors import RunError

AHEAD = "algorithm={preset: mu_grpo, staging: {ahead: 3}}"
MANY = "algorithm={preset: mu_grpo, staging: {ahead: 3, minibatches: 2, epochs: 2}}"
REFUSING = "algorithm={preset: dapo, staging: {ahead: 3}}"
SIX = ("budget.steps=6", "checkpoint.every=1")
QUIET = "eval={sets: []}"
FAST = "optim.learning_rate=0.003"
TRAP = f"verifier={{kind: python, path: '{JUDGES}:trap'}}"

Trap = Callable[..., None]


@pytest.fixture
def trap(monkeypatch: pytest.MonkeyPatch) -> Trap:
    """Let the judge's call `at` send a signal; 0: none."""

    def lay(at: int) -> None:
        monkeypatch.setenv("TRAP", str(at))
        monkeypatch.setenv("TRAP_SIGNAL", "SIGINT")

    return lay


@pytest.fixture
def updates(monkeypatch: pytest.MonkeyPatch) -> list[Any]:
    """(batch of an update, the learner's log-probs of it right before)."""
    from rlctl.learner.learner import Learner

    seen: list[Any] = []
    update = Learner.update

    def watched(self: Learner, batch: Any, *arguments: Any, **settings: Any) -> Any:
        seen.append((batch, self.score(batch, frozenset({"old_logp"})).old_logp_BT))
        return update(self, batch, *arguments, **settings)

    monkeypatch.setattr(Learner, "update", watched)
    return seen


def gap(one: torch.Tensor, other: torch.Tensor, batch: Any) -> float:
    return float((one - other)[batch.mask_BT].abs().max())


def test_behaviour_log_probs_stay_those_of_the_collection(
    runs: Runs, updates: list[Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    """The ratio is 1 in the first step of a stage, and not in the others; the engine's agree throughout."""
    from rlctl.stage import Stage

    monkeypatch.setattr(Stage, "forget", lambda self, through: None)
    ran = runs(AHEAD, DENSE, FAST, "budget.steps=6", QUIET)
    assert len(updates) == 6
    for step, (batch, now_BT) in enumerate(updates, 1):
        stored = load_file(ran.folder / f"stage/step-{step:06d}.safetensors")["old_logp_BT"]
        assert torch.equal(batch.old_logp_BT, stored[:, : batch.old_logp_BT.shape[1]])
        assert gap(batch.old_logp_BT, batch.engine_logp_BT, batch) < 1e-4
        moved = gap(batch.old_logp_BT, now_BT, batch)
        assert moved < 1e-9 if step in (1, 4) else moved > 1e-3, (step, moved)
    assert ran.series("train/staleness") == [0, 1, 2, 0, 1, 2]
    assert all(0 <= share <= 1 for share in ran.series("train/vetoed_share"))


def test_a_stage_is_sampled_at_once_and_leaves_nothing(runs: Runs) -> None:
    ran = runs(AHEAD, DENSE, *SIX, "checkpoint.keep=1", QUIET)
    assert ran.series("rollout/requests") == [48, 0, 0, 48, 0, 0]
    assert [s > 0 for s in ran.series("time/generate_s")] == [True, False, False] * 2
    spent = ran.series("budget/tokens")
    assert spent[0] == spent[1] == spent[2] < spent[3] == spent[5]
    assert spent[-1] == sum(row["tokens"] for row in ran.rollouts)
    assert [row["step"] for row in ran.rollouts] == [s for s in range(1, 7) for _ in range(16)]
    assert not (ran.folder / "stage").exists()


def test_prompts_are_those_of_the_run_that_samples_as_it_goes(runs: Runs) -> None:
    ahead = runs(AHEAD, DENSE, "budget.steps=6", QUIET)
    fresh = runs("algorithm=grpo", DENSE, "budget.steps=6", QUIET)
    assert [row["uid"] for row in ahead.rollouts] == [row["uid"] for row in fresh.rollouts]


def test_disk_space_is_bounded(runs: Runs, monkeypatch: pytest.MonkeyPatch) -> None:
    """With a checkpoint a step, only what a kept checkpoint may still need lies in `stage/`."""
    from rlctl.train import Run

    left: list[list[int]] = []
    save = Run.save

    def watched(self: Run) -> None:
        save(self)
        files = (self.folder.path / "stage").glob("step-*.json")
        left.append(sorted(int(f.stem.removeprefix("step-")) for f in files))

    monkeypatch.setattr(Run, "save", watched)
    runs(AHEAD, DENSE, *SIX, QUIET)
    # two checkpoints are kept, so a step is forgotten once it is older than both
    assert left == [[2, 3], [2, 3], [3], [4, 5, 6], [5, 6], [6]]


@pytest.mark.parametrize("steps", [1, 2, 4, 5])
def test_a_budget_shorter_than_a_stage_samples_no_more(steps: int, runs: Runs) -> None:
    ran = runs(AHEAD, DENSE, f"budget.steps={steps}", QUIET)
    assert ran.said == ("finished", "steps")
    assert sum(ran.series("rollout/requests")) == 16 * steps
    assert json.loads(ran.file("state.json"))["stage"] == steps


def test_whole_stages_in_several_sessions(runs: Runs) -> None:
    """A larger budget goes on bitwise where the smaller one ended with a stage."""
    for steps in (3, 6):
        ran = runs(AHEAD, DENSE, f"budget.steps={steps}", QUIET, place="twice")
    same_run(ran, runs(AHEAD, DENSE, "budget.steps=6", QUIET, place="at once"))


def test_tokens_that_are_paid_for_are_used(runs: Runs) -> None:
    """The first stage spends the budget; the run ends with its last step, and stays ended."""
    budget = "budget={steps: null, tokens: 10}"
    ran = runs(AHEAD, DENSE, budget, QUIET)
    assert ran.said == ("finished", "tokens")
    assert ran.status["step"] == 3
    assert ran.series("budget/tokens")[0] >= 10
    metrics = ran.metrics
    assert runs(AHEAD, DENSE, budget, QUIET).metrics == metrics


def test_minutes_end_inside_a_stage_and_more_of_them_go_on(runs: Runs) -> None:
    """Also where the stage's tokens have spent their budget: they are used up first."""
    sets = (AHEAD, DENSE, "checkpoint.every=1", QUIET)
    short = runs(*sets, "budget={steps: null, tokens: 10, minutes: 0.00001}")
    assert (short.said, short.status["step"]) == (("finished", "minutes"), 1)
    assert len(list((short.folder / "stage").glob("step-*.json"))) >= 2
    ran = runs(*sets, "budget={steps: null, tokens: 10}")
    assert (ran.said, ran.status["step"]) == (("finished", "tokens"), 3)
    same_run(ran, runs(*sets, "budget={steps: null, tokens: 10}", place="whole"))


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
    """D-05: a step of the stage is on the disk already."""
    from rlctl import feed

    monkeypatch.setattr(feed, "ROWS_AT_ONCE", 16)
    sets = (AHEAD, TRAP, *SIX, QUIET)
    trap(48 + 16 + 5)
    ran = runs(*sets)
    assert ran.status["step"] == 3 and (ran.folder / "stage/step-000004.json").exists()
    trap(0)
    same_run(runs(*sets), runs(*sets, place="whole"))


def test_an_evaluation_inside_a_stage_changes_nothing(runs: Runs) -> None:
    """B-32 in a stage."""
    often = runs(AHEAD, DENSE, FAST, "budget.steps=6", "eval.every=1", place="often")
    never = runs(AHEAD, DENSE, FAST, "budget.steps=6", QUIET, place="never")
    for name in ("model.safetensors", "optimizer.safetensors"):
        assert often.file(name) == never.file(name)
    assert often.rollouts == never.rollouts
    assert [line["step"] for line in often.evals] == [0, 1, 2, 3, 4, 5, 6]


class Apart:
    """Makes engines with a copy of the weights, which only `refresh` brings up to date."""

    def __init__(self) -> None:
        self.asked: list[tuple[int, set[int]]] = []  # (version, lengths asked for), call by call

    def build(self, spec: Any, policy: Any, setting: Any, say: Any) -> Any:
        from rlctl.engine import TransformersEngine as Spec
        from rlctl.engine.transformers import TransformersEngine

        asked = self.asked

        class Engine(TransformersEngine):
            same_program = False
            tolerance = 1e-3

            def refresh(self, weights: Any, version: int) -> None:
                super().refresh(weights, version)
                with torch.no_grad():
                    for name, weight in weights():
                        self.module.get_parameter(name).copy_(weight)

            def generate(self, requests: Any) -> Iterator[Any]:
                asked.append((self.version, {request.max_tokens for request in requests}))
                return super().generate(requests)

        module = copy.deepcopy(policy.module)
        return Engine(module, policy.tokenizer, policy.eos_ids, Spec()), "apart"

    def versions(self, tokens: int) -> list[int]:
        return [version for version, lengths in self.asked if lengths == {tokens}]


@pytest.fixture
def apart(monkeypatch: pytest.MonkeyPatch) -> Apart:
    from rlctl.engine import build

    engines = Apart()
    monkeypatch.setattr(build, "build", engines.build)
    return engines


TRAINED, EVALUATED = 4, 3  # tokens asked for, by purpose
OWN_LENGTH = f"eval.max_completion_length={EVALUATED}"


def test_weights_go_to_the_engine_once_a_stage(runs: Runs, apart: Apart) -> None:
    runs(AHEAD, DENSE, FAST, "budget.steps=7", QUIET)
    assert apart.versions(TRAINED) == [0, 3, 6]


def test_an_evaluation_inside_a_stage_is_of_the_weights_of_then(
    runs: Runs, apart: Apart, updates: list[Any]
) -> None:
    """And the steps after it train on the collection's log-probs all the same."""
    ran = runs(AHEAD, DENSE, FAST, "budget.steps=6", "eval.every=1", OWN_LENGTH)
    assert apart.versions(EVALUATED) == [0, 1, 2, 3, 4, 5, 6]
    assert apart.versions(TRAINED) == [0, 3]
    for step, (batch, now_BT) in enumerate(updates, 1):
        assert gap(batch.old_logp_BT, batch.engine_logp_BT, batch) < 1e-4
        assert (gap(batch.old_logp_BT, now_BT, batch) > 1e-3) == (step not in (1, 4))
    assert len(ran.evals) == 7


def test_an_early_stop_inside_a_stage_evaluates_its_own_weights(runs: Runs, apart: Apart) -> None:
    stop = "early_stop={metric: train/staleness, threshold: 1}"
    ran = runs(AHEAD, DENSE, FAST, "budget.steps=6", "eval.every=50", OWN_LENGTH, stop)
    assert (ran.said, ran.status["step"]) == (("finished", "early_stop"), 2)
    assert apart.versions(EVALUATED) == [0, 2]


def test_a_stage_that_ends_for_want_of_signal_evaluates_its_own_weights(
    runs: Runs, apart: Apart, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Step 2 finds no group to train on: the end is evaluated with what step 1 made of the weights.

    For step 3 nothing is sampled any more.
    """
    from rlctl import feed
    from rlctl.feed import Choices

    monkeypatch.setattr(feed, "ROWS_AT_ONCE", 16)
    admitted: list[int] = []

    def admit(self: Choices, groups: Any) -> list[bool]:
        admitted.append(len(groups))
        return [len(admitted) == 1] * len(groups)

    monkeypatch.setattr(Choices, "admit", admit)
    ran = runs(AHEAD, DENSE, FAST, "budget.steps=6", "eval.every=50", OWN_LENGTH, "rollout.max_refills=1")
    assert (ran.said, ran.status["step"]) == (("finished", "no_signal"), 2)
    assert ran.series("rollout/groups_trained") == [4, 0]
    assert ran.series("rollout/requests") == [16, 32]
    assert apart.versions(EVALUATED) == [0, 2]


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
