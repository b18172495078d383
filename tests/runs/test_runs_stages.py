"""Steps that are collected ahead: stale weights, budgets, and evaluations inside a stage."""

from __future__ import annotations

import copy
import json
from collections.abc import Iterator
from typing import Any

import pytest
import torch
from safetensors.torch import load_file
from small_runs import AHEAD, DENSE, FAST, QUIET, SIX, Runs, same_run


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


def test_a_stage_of_three_portions_is_charged_with_its_first_step(
    runs: Runs, monkeypatch: pytest.MonkeyPatch
) -> None:
    """So a run that ends inside a stage has paid for all that was sampled, and so has one that goes on."""
    from rlctl import feed

    monkeypatch.setattr(feed, "ROWS_AT_ONCE", 16)
    short = runs(AHEAD, DENSE, QUIET, "early_stop={metric: train/staleness, threshold: 0}")
    assert (short.said, short.status["step"]) == (("finished", "early_stop"), 1)
    whole = runs(AHEAD, DENSE, QUIET, place="whole")
    sampled = sum(row["tokens"] for row in whole.rollouts)
    assert short.status["tokens"] == sampled > sum(row["tokens"] for row in short.rollouts)
    assert whole.series("budget/tokens") == [sampled] * 3
    assert whole.series("rollout/requests") == [48, 0, 0]
    assert [s > 0 for s in whole.series("time/generate_s")] == [True, False, False]


def test_minutes_end_inside_a_stage_and_more_of_them_go_on(runs: Runs) -> None:
    """Also where the stage's tokens have spent their budget: they are used up first."""
    sets = (AHEAD, DENSE, "checkpoint.every=1", QUIET)
    short = runs(*sets, "budget={steps: null, tokens: 10, minutes: 0.0003}")
    assert (short.said, short.status["step"]) == (("finished", "minutes"), 1)
    assert len(list((short.folder / "stage").glob("step-*.json"))) >= 2
    ran = runs(*sets, "budget={steps: null, tokens: 10}")
    assert (ran.said, ran.status["step"]) == (("finished", "tokens"), 3)
    same_run(ran, runs(*sets, "budget={steps: null, tokens: 10}", place="whole"))


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
    assert ran.series("rollout/requests") == [48, 0]
    assert apart.versions(EVALUATED) == [0, 2]
