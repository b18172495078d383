"""A run in several sessions is the run in one: weights, rewards and rollouts, bitwise."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Sequence
from pathlib import Path

import pytest
from small_runs import DENSE, Ran, Runs, broken_off, once, same_run

from rlctl.errors import UserError

LORA = ("model.lora.rank=4", "model.lora.dropout=0.3")
# Twice the same file: the weights of the mixture and both positions must come back.
TWO_SETS = ("data.train=[{kind: arithmetic, digits: 1, weight: 2}, {kind: countdown, problems: 9}]",
            "data.max_prompt_length=48", "rollout.max_completion_length=12")  # fmt: skip
CASES = {
    "grpo": (),
    "epochs": ("algorithm={preset: gspo, staging: {minibatches: 2, epochs: 2}}",),
    "kl": ("algorithm.kl=0.1",),
    "lora with dropout": LORA,
    "lora with kl": (*LORA, "algorithm.kl=0.1"),
    "dapo": ("algorithm=dapo",),
    "two sets": TWO_SETS,
    "linear": ("optim.schedule=cosine", "optim.warmup_steps=2", "optim.weight_decay=0.1"),
}


def in_sessions(runs: Runs, ends: Sequence[int], *sets: str, place: str) -> Ran:
    """Run to each of `ends` in turn, each time from the last checkpoint."""
    for number, end in enumerate(ends):
        ran = runs(*sets, f"budget.steps={end}", place=place, resume="must" if number else "never")
        assert (ran.code, ran.said, ran.status["step"]) == (0, ("finished", "steps"), end)
    return ran


@pytest.mark.parametrize("case", [name for name in CASES if name != "linear"])
def test_d01_d10_three_and_three_steps_are_six(case: str, runs: Runs) -> None:
    """D-01, D-10: the checkpoint at the end of a spent budget goes on under a larger one."""
    sets = (DENSE, *CASES[case])
    same_run(in_sessions(runs, [3, 6], *sets, place="twice"), in_sessions(runs, [6], *sets, place="at once"))


@pytest.mark.parametrize("case", ["grpo", "two sets"])
def test_d01_d04_a_session_for_every_step(case: str, runs: Runs) -> None:
    """D-01, D-04: the draws of a mixture of two sets go on as well."""
    sets = (DENSE, *CASES[case])
    split = in_sessions(runs, [1, 2, 3, 4, 5, 6], *sets, place="split")
    whole = in_sessions(runs, [6], *sets, place="whole")
    same_run(split, whole)
    if case == "two sets":
        assert len({row["uid"].partition(":")[0] for row in whole.rollouts}) == 2


@pytest.mark.parametrize("case", ["linear", "lora with dropout"])
def test_d08_schedule_and_moments_go_on(case: str, runs: Runs) -> None:
    """D-08: a run that is broken off after step 3 and resumed with the same recipe."""
    sets = (DENSE, *CASES[case], "budget.steps=6", "checkpoint.every=1")
    whole = runs(*sets, place="whole")
    same_run(broken_off(runs, 3, *sets), whole)


@pytest.mark.parametrize("sets", [1, 2])
def test_d02_d03_d07_epochs(sets: int, runs: Runs, tmp_path: Path) -> None:
    """D-02, D-03, D-07: 2.5 epochs of 16 problems, a resume in the middle of each, and across their ends."""
    file = tmp_path / "sums.jsonl"
    file.write_text("".join(f'{{"prompt": "{n}+1=", "answer": "{n + 1}"}}\n' for n in range(16)))
    source = f"{{kind: jsonl, path: '{file}'}}"
    data = (
        f"data.train=[{source}, {{kind: jsonl, path: '{file}', name: again}}]"
        if sets == 2
        else f"data.train={source}"
    )
    settings = (DENSE, data, "model.warm_start.steps=0")
    split = in_sessions(runs, [2, 5, 6, 9, 10], *settings, place="split")
    same_run(split, in_sessions(runs, [10], *settings, place="whole"))
    if sets == 1:
        drawn = [row["uid"] for row in split.rollouts if row["sample"] == 0]
        first, second, third = drawn[:16], drawn[16:32], drawn[32:]
        assert len(drawn) == 40
        assert set(first) == set(second) == {f"sums:{n}" for n in range(16)}
        assert first != second
        assert third != first[:8]
        assert max(Counter(third).values()) == 1


def test_d02_a_changed_eval_does_not_touch_training(runs: Runs) -> None:
    """B-32 at the size of a run: what is evaluated, and how often, changes no weight."""
    often = runs(DENSE, "eval.every=1", "eval.samples=3", place="often")
    never = runs(DENSE, "eval={sets: []}", place="never")
    assert often.folder.name == never.folder.name
    assert often.file("model.safetensors") == never.file("model.safetensors")
    assert often.rollouts == never.rollouts
    assert len(often.evals) == 4
    assert never.evals == []


def test_g08_counters_go_on(runs: Runs) -> None:
    """G-08: tokens and seconds add up over the sessions."""
    first = in_sessions(runs, [3], DENSE, place="a").status
    second = in_sessions(runs, [3, 6], DENSE, place="b")
    assert second.status["tokens"] == second.metrics[-1]["budget/tokens"] > first["tokens"]
    assert second.status["seconds"] > first["seconds"] / 2
    state = json.loads(second.file("state.json"))
    assert (state["step"], state["tokens"]) == (6, second.status["tokens"])


def test_d13_auto_in_a_folder_without_a_checkpoint_begins_and_says_so(
    runs: Runs, capsys: pytest.CaptureFixture[str]
) -> None:
    """D-13, D-14: what an earlier session left there is not taken for this one's."""
    ran = runs.ran(DENSE)
    ran.folder.mkdir(parents=True)
    (ran.folder / "metrics.jsonl").write_text(
        '{"step": 1, "time/unix_s": 1, "reward/mean": 9.0}\n{"step": 2, "rew'
    )
    (ran.folder / "rollouts.jsonl").write_text('{"step": 7, "uid": "stale:0"}\n')
    (ran.folder / "checkpoints").mkdir()
    runs(DENSE)
    said = capsys.readouterr()
    assert "begins at step 0" in said.out + said.err
    same_run(ran, runs(DENSE, place="clean"))


def test_a_finished_run_says_so(runs: Runs, capsys: pytest.CaptureFixture[str]) -> None:
    ran = runs(DENSE)
    before = {path: path.read_bytes() for path in ran.folder.rglob("*") if path.is_file()}
    again = runs(DENSE)
    assert again.code == 0
    said = capsys.readouterr()
    assert "is finished" in said.out + said.err
    after = {path: path.read_bytes() for path in ran.folder.rglob("*") if path.is_file()}
    assert after.keys() == before.keys()
    assert [path.name for path in after if after[path] != before[path] and path.name != ".lock"] == []
    assert once(again.metrics) == [0, 1, 2, 3]


@pytest.mark.parametrize("budget", ["tokens: 200", "minutes: 0.0001"])
def test_other_budgets_are_spent_too(budget: str, runs: Runs, capsys: pytest.CaptureFixture[str]) -> None:
    ran = runs(DENSE, f"budget={{steps: null, {budget}}}")
    assert ran.code == 0
    assert ran.said == ("finished", budget.partition(":")[0])
    steps = ran.status["step"]
    assert runs(DENSE, f"budget={{steps: null, {budget}}}").status["step"] == steps
    larger = runs(DENSE, f"budget.steps={steps + 2}")
    assert larger.status["step"] == steps + 2
    same_run(larger, runs(DENSE, f"budget.steps={steps + 2}", place="at once"))


def test_a_cache_that_was_emptied(runs: Runs, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """An adapter's checkpoint does not hold the base: it is made again, bit by bit the same."""
    sets = (DENSE, *LORA, "algorithm.kl=0.1")
    whole = in_sessions(runs, [4], *sets, place="whole")
    in_sessions(runs, [2], *sets, place="split")
    monkeypatch.setenv("RLCTL_CACHE", str(tmp_path / "empty"))
    same_run(runs(*sets, "budget.steps=4", place="split"), whole)


def test_the_saved_recipe_is_the_run(runs: Runs, capsys: pytest.CaptureFixture[str]) -> None:
    """`recipe.yaml` of a run folder leads back to the folder, whatever made it."""
    ran = runs(DENSE, "algorithm=dapo", "optim.learning_rate=3e-4")
    again = runs(base=str(ran.folder / "recipe.yaml"))
    assert (again.folder, again.code) == (ran.folder, 0)
    assert "is finished" in "".join(capsys.readouterr())


def test_a_run_that_would_go_on_with_another_engine_is_refused(
    runs: Runs, monkeypatch: pytest.MonkeyPatch
) -> None:
    """`engine: auto` takes what is installed; a resumed run must find the same."""
    from rlctl.engine import ScriptedEngine, TransformersEngine, build

    sets = ("engine={kind: auto}", DENSE)
    monkeypatch.setattr(build, "_fastest", lambda say: TransformersEngine())
    before = runs(*sets, "budget.steps=1")
    monkeypatch.setattr(build, "_fastest", lambda say: ScriptedEngine(responses=("1",)))
    with pytest.raises(UserError, match="sampled by transformers so far, now it would be scripted") as caught:
        runs(*sets, "budget.steps=2")
    assert caught.value.exit_code == 1 and runs.ran(*sets).checkpoints == before.checkpoints
