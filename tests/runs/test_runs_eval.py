"""`rlctl eval` on real runs: targets, figures, stores, bad input."""

from __future__ import annotations

import json
import os
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from calling import Rlctl
from small_runs import DENSE, FAST, Ran, Runs, same_run

from rlctl.evaluate import metrics
from rlctl.runfolder import lock

K8 = ("--pass-at", "8")
JUDGE = """
from rlctl.types import Verdict
def odd(response, gold): return Verdict(1.0, response.strip()[-1:] in tuple("13579"), response)
"""


@pytest.fixture(scope="module")
def trained(tmp_path_factory: pytest.TempPathFactory, model_cache: Path) -> Ran:
    """A finished run of three steps with the checkpoints 2 and 3."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("RLCTL_CACHE", str(model_cache))
        return Runs(tmp_path_factory.mktemp("trained"))(FAST, "checkpoint.every=1", place="runs")


@pytest.fixture
def run(trained: Ran, tmp_path: Path) -> Path:
    """A copy of that run, in `runs/` of the folder where the command line is called."""
    folder = tmp_path / "runs" / trained.folder.name
    shutil.copytree(trained.folder, folder)
    return folder


def record(rlctl: Rlctl, *arguments: str) -> Any:
    """Call it with --json; standard output is JSON alone."""
    said = rlctl("eval", *arguments, "--json")
    assert said.code == 0, said.err
    return json.loads(said.out)


def generations(run: Path) -> dict[str, bytes]:
    return {file.parent.name: file.read_bytes() for file in run.glob("evals/*/generations.jsonl")}


def test_without_a_target_the_newest_run_and_its_sets(rlctl: Rlctl, run: Path) -> None:
    older = shutil.copytree(run, run.with_name("quickstart-older"))
    os.utime(older / "status.json", (1, 1))
    found = record(rlctl)
    assert (found["target"], found["step"]) == (run.name, 3)
    assert list(found["sets"]) == ["arithmetic"]
    (arithmetic,) = found["sets"].values()
    assert set(arithmetic) == {
        "problems", "samples", "pass_at", "majority", "strict", "lenient", "errors", "truncated_share",
        "unparseable_share", "length_tokens", "of",
    }  # fmt: skip
    assert (arithmetic["problems"], arithmetic["samples"]) == (16, 2)
    assert list(arithmetic["pass_at"]) == list(arithmetic["majority"]) == ["1", "2"]
    assert arithmetic["lenient"] == arithmetic["pass_at"]["1"]
    assert found["sampling"] == {
        "samples": 2, "temperature": 1.0, "top_p": 1.0, "top_k": None, "max_completion_length": 4, "stop": [],
        "seed": 17, "engine": "transformers",
    }  # fmt: skip
    assert found["verifier"].startswith("task arithmetic, math")
    (folder,) = (run / "evals").iterdir()
    assert json.loads((folder / "result.json").read_text()) == found
    assert (folder / "pass_at_k.png").read_bytes()[:4] == b"\x89PNG"
    assert not (older / "evals").exists()


def test_k_alone_asks_for_so_many_samples_and_all_powers_of_two(rlctl: Rlctl, run: Path) -> None:
    found = record(rlctl, run.name, "--pass-at", "12")["sets"]["arithmetic"]
    assert found["samples"] == 12
    assert list(found["pass_at"]) == ["1", "2", "4", "8", "12"]
    values = [estimate["value"] for estimate in found["pass_at"].values()]
    assert values == sorted(values)
    assert all(e["low"] <= e["value"] <= e["high"] for e in found["pass_at"].values())
    more = record(rlctl, run.name, "--pass-at", "4", "--samples", "16")["sets"]["arithmetic"]
    assert (more["samples"], list(more["pass_at"])) == (16, ["1", "2", "4"])


def test_nothing_is_generated_twice(
    rlctl: Rlctl, run: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Another k, fewer samples, another verifier: from what is stored, by no call of the engine."""
    from rlctl.engine.transformers import TransformersEngine

    first = record(rlctl, run.name, *K8, "--samples", "16")
    stored = generations(run)
    monkeypatch.setattr(TransformersEngine, "generate", None)
    assert record(rlctl, run.name, *K8, "--samples", "16") == first
    fewer = record(rlctl, run.name, "--pass-at", "4")
    assert (fewer["sets"]["arithmetic"]["samples"], fewer["verifier"][:6]) == (4, "task a")
    judge = tmp_path / "judge.py"
    judge.write_text(JUDGE)
    odd = record(
        rlctl, run.name, *K8, "--samples", "16", "--set", f"verifier={{kind: python, path: '{judge}:odd'}}"
    )
    texts = [json.loads(line)["response"] for line in next(iter(stored.values())).splitlines()]
    share = sum(text.strip()[-1:] in tuple("13579") for text in texts) / len(texts)
    assert odd["sets"]["arithmetic"]["pass_at"]["1"]["value"] == pytest.approx(share)
    assert generations(run) == stored


def test_what_changes_the_samples_is_generated_anew(rlctl: Rlctl, run: Path) -> None:
    """Temperature, length, seed, problems, weights: each has generations of its own."""
    asked: list[tuple[str, ...]] = [
        (),
        ("--set", "eval.temperature=0.5"),
        ("--set", "eval.max_completion_length=3"),
        ("--set", "seed=18"),
        ("--set", "eval.sets.0.problems=9"),
        ("--step", "2"),
    ]
    for number, extra in enumerate(asked, 1):
        record(rlctl, run.name, *extra)
        assert len(generations(run)) == number
    record(rlctl, run.name, "--step", "3")  # the weights of the final model, from the checkpoint
    assert len(generations(run)) == len(asked)


def test_the_steps_of_a_run(rlctl: Rlctl, run: Path) -> None:
    """Step 0 is the model before training; a step that has no checkpoint is refused with those there are."""
    found = {step: record(rlctl, run.name, *K8, "--step", step) for step in ("0", "2", "3")}
    assert [one["step"] for one in found.values()] == [0, 2, 3]
    final = record(rlctl, run.name, *K8)
    assert final == found["3"]
    texts = generations(run).values()
    assert len(set(texts)) == 3
    rlctl("eval", run.name, "--step", "1").refused(2, "no whole checkpoint of step 1", "the steps 2, 3")
    (run / "checkpoints/step-000002/model.safetensors").write_bytes(b"torn")
    rlctl("eval", run.name, "--step", "2").refused(2, "no whole checkpoint of step 2")
    status = json.loads((run / "status.json").read_text())
    (run / "status.json").write_text(json.dumps({**status, "state": "interrupted"}))
    assert record(rlctl, run.name, *K8) == final  # the newest checkpoint


def test_before_training_is_the_evaluation_before_training(rlctl: Rlctl, run: Path, trained: Ran) -> None:
    """Same problems, law and estimates; only the seeds of the samples are others."""
    inside = trained.evals[0]
    outside = record(rlctl, run.name, "--step", "0", "--pass-at", "2")
    assert inside["sets"]["arithmetic"]["of"] == outside["sets"]["arithmetic"]["of"]
    assert inside["sampling"] == {k: v for k, v in outside["sampling"].items() if k != "engine"}
    assert inside["verifier"] == outside["verifier"]
    assert inside["sets"]["arithmetic"].keys() == outside["sets"]["arithmetic"].keys()


def test_an_adapter(rlctl: Rlctl, runs: Runs) -> None:
    """The checkpoint's adapter on its base, and the final one added in, answer alike."""
    ran = runs(DENSE, "model.lora.rank=4", "optim.learning_rate=5e-3", place="lora")
    found = [record(rlctl, str(ran.folder), *K8, *step) for step in (("--step", "3"), (), ("--step", "0"))]
    one, final, before = ([json.loads(line) for line in text.splitlines()] for text in _in_order(ran.folder))
    assert [one["step"] for one in found] == [3, 3, 0]

    def texts(rows: Any) -> list[str]:
        return [row["response"] for row in sorted(rows, key=lambda row: (row["uid"], row["sample"]))]

    same = sum(a == b for a, b in zip(texts(one), texts(final), strict=True))
    assert same >= 0.98 * len(texts(one))  # rounding of the addition
    assert texts(one) != texts(before)


def _in_order(run: Path) -> list[bytes]:
    files = sorted(run.glob("evals/*/generations.jsonl"), key=lambda file: file.stat().st_mtime_ns)
    return [file.read_bytes() for file in files]


def test_a_model_beside_a_recipe(rlctl: Rlctl, run: Path, tmp_path: Path) -> None:
    """A folder with the data, verifier and template of a recipe: here the run's own final model."""
    recipe = str(run / "recipe.yaml")
    model = str(shutil.copytree(run / "final", tmp_path / "model"))
    found = record(rlctl, model, "--recipe", recipe, *K8, "--set", f"output_dir={tmp_path}/out")
    assert (found["target"], found["step"]) == (model, None)
    own = record(rlctl, run.name, *K8)
    assert found["sets"] == own["sets"]
    assert len(list((tmp_path / "out/evals").iterdir())) == 1
    rlctl("eval", model).refused(2, "is no run", "--recipe RECIPE")
    rlctl("eval", model, "--recipe", recipe, "--step", "3").refused(2, "--step 3", "has no steps")
    rlctl("eval", "runs/typo").refused(2, "runs/typo: is no run", "--recipe")
    rlctl("eval", "typo").refused(2, "typo: no such run")


def test_several_targets_are_compared_with_the_first(rlctl: Rlctl, run: Path, runs: Runs) -> None:
    """Paired by problem: the difference of the means is the mean of the differences."""
    other = runs("optim.learning_rate=0.02", "budget.steps=6", place="other").folder
    found = record(rlctl, run.name, str(other), *K8)
    first, second = found["targets"]
    (pair,) = found["differences"]
    assert (pair["target"], pair["against"]) == (other.name, run.name)
    difference = pair["sets"]["arithmetic"]
    assert difference["problems"] == 16
    for k in ("1", "2", "4", "8"):
        one, two = (one["sets"]["arithmetic"]["pass_at"][k]["value"] for one in (first, second))
        assert difference["pass_at"][k]["value"] == pytest.approx(two - one)
        assert difference["pass_at"][k]["low"] <= two - one <= difference["pass_at"][k]["high"]
    said = rlctl("eval", run.name, str(other), *K8)
    assert f"{other.name}, step 6 minus {run.name}, step 3" in said.out
    assert second["sets"]["arithmetic"]["pass_at"]["1"] != first["sets"]["arithmetic"]["pass_at"]["1"]
    assert f"newly solved {difference['newly_solved']}, forgotten {difference['forgotten']}" in said.out
    same = record(rlctl, run.name, str(run), *K8)["differences"][0]["sets"]["arithmetic"]
    assert (same["newly_solved"], same["forgotten"]) == (0, 0)
    assert set(same["pass_at"]["8"].values()) == {0.0}


def test_targets_with_other_problems_or_samples(rlctl: Rlctl, run: Path, runs: Runs) -> None:
    other = runs("eval.sets.0.digits=2", "eval.samples=3", place="other").folder
    rlctl("eval", run.name, str(other)).refused(2, "different numbers of samples", "--samples")
    found = record(rlctl, run.name, str(other), "--pass-at", "2")
    assert found["differences"][0]["sets"] == {}
    assert "no problem in common" in rlctl("eval", run.name, str(other), "--pass-at", "2").out


def test_the_table(rlctl: Rlctl, run: Path) -> None:
    """The law is complete and printed (E-10); notes and progress go aside."""
    said = rlctl("eval", run.name, *K8)
    for word in (
        "pass@k",
        "majority@k",
        "strict",
        "lenient",
        "truncated",
        "unparseable",
        "tokens on average",
    ):
        assert word in said.out
    for word in ("samples 8", "temperature 1", "top_p 1", "max_completion_length 4", "seed 17", "top_k none"):
        assert word in said.out
    assert "16 problems, 8 samples each" in said.out
    assert "generations.jsonl" in said.err


Lay = Callable[[Path], tuple[str, ...]]

REFUSED: dict[str, tuple[tuple[str, ...], tuple[str, ...]]] = {
    "k above n": (("--pass-at", "8", "--samples", "4"), ("pass@8 needs at least 8 samples",)),
    "greedy": (
        ("--pass-at", "2", "--set", "eval.temperature=0"),
        ("is 0, so all 2 samples", "eval.pass_at=[1]"),
    ),
    "no set": (("--set", "eval.sets=[]"), ("eval.sets is empty", "--set 'eval.sets=")),
    "another model": (("--set", "model.layers=2"), ("another model", "--recipe")),
    "misspelt": (("--set", "eval.temprature=1"), ("temprature", "temperature")),
    "no such verifier": (("--set", "verifier={kind: maths}"), ("maths", "math")),
}


@pytest.mark.parametrize("mistake", REFUSED)
def test_e01_e07_what_is_refused(mistake: str, rlctl: Rlctl, run: Path) -> None:
    """E-01, E-07 and other mistakes: named before anything is generated."""
    arguments, words = REFUSED[mistake]
    rlctl("eval", run.name, *arguments).refused(2, *words)
    assert not (run / "evals").exists()


def test_e02_e07_greedy_takes_one_sample(rlctl: Rlctl, run: Path) -> None:
    """E-02, E-07: at temperature 0 only pass@1 is offered."""
    found = record(rlctl, run.name, "--pass-at", "1", "--set", "eval.temperature=0")["sets"]["arithmetic"]
    assert (found["samples"], list(found["pass_at"])) == (1, ["1"])


def test_an_empty_file_and_golds_that_do_not_parse(rlctl: Rlctl, run: Path, tmp_path: Path) -> None:
    file = tmp_path / "toy.jsonl"
    toy = ("--set", f"eval.sets=[{{kind: jsonl, path: '{file}'}}]", "--set", "verifier={kind: math}")
    file.write_text("")
    rlctl("eval", run.name, *toy).refused(2, "toy.jsonl: no problem in it")
    rows = [{"prompt": f"{n}+1=", "answer": str(n + 1) if n % 3 else r"\frac{"} for n in range(9)]
    file.write_text("".join(json.dumps(row) + "\n" for row in rows))
    rlctl("eval", run.name, *toy).refused(2, "toy: the verifier cannot parse 3 of 9 gold answers", "toy:0")


def test_nothing_but_truncated_or_unparseable_text_is_named(rlctl: Rlctl, run: Path) -> None:
    """A score of zero that has a reason comes with it."""
    cut = rlctl("eval", run.name, "--set", "eval.max_completion_length=1", "--json")
    assert "100.0% of the answers were cut off at 1 tokens: raise eval.max_completion_length" in cut.err
    assert json.loads(cut.out)["sets"]["arithmetic"]["strict"]["value"] == 0.0
    words = ("--set", "engine={kind: scripted, responses: ['none']}")
    silent = rlctl("eval", run.name, *words, "--set", "eval.max_completion_length=9")
    assert silent.code == 0
    assert "in 100.0% of the responses the verifier finds no answer" in silent.err


HOSTILE = r"\boxed{9^{9^{9^{9}}}}", r"\boxed{\frac{1}{0}}", "\x1b[2J\x00", r"\boxed{" * 4, "1e999999999"


def test_hostile_answers_are_bounded_and_named(rlctl: Rlctl, run: Path) -> None:
    """They count as wrong, show no control character and take no longer than a deadline each."""
    responses = json.dumps([*HOSTILE, "7"])
    said = rlctl(
        "eval", run.name, "--pass-at", "4",
        "--set", f"engine={{kind: scripted, responses: {responses}}}",
        "--set", "verifier={kind: math, deadline_s: 1.0}",
        "--set", "eval.max_completion_length=30",
    )  # fmt: skip
    assert "\x1b" not in said.out + said.err
    assert said.code == 0
    assert "tokens on average" in said.out


def test_a_verifier_that_fails_stops_and_what_was_generated_stays(
    rlctl: Rlctl, run: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """V-26 outside of training: exit 1, the last failure in words, no generation lost."""
    judges = Path(__file__).with_name("judges.py")
    monkeypatch.setenv("BROKEN_FROM", "1")
    broken = ("--set", f"verifier={{kind: python, path: '{judges}:broken'}}")
    rlctl("eval", run.name, *K8, *broken).refused(1, "the verifier failed on", "the judge is broken")
    stored = generations(run)
    assert record(rlctl, run.name, *K8)["sets"]["arithmetic"]["errors"] == 0
    assert generations(run) == stored


def test_two_processes_do_not_write_one_file(rlctl: Rlctl, run: Path) -> None:
    record(rlctl, run.name)
    (folder,) = (run / "evals").iterdir()
    handle = lock(folder, "")
    try:
        rlctl("eval", run.name).refused(1, "is in use by process", "wait for it")
    finally:
        os.close(handle)
    assert rlctl("eval", run.name).code == 0


def test_e14_mlflow_gets_the_figures_at_the_step_that_was_evaluated(rlctl: Rlctl, runs: Runs) -> None:
    """E-14: in the run's own MLflow run, once however often it is asked."""
    from mlflow import MlflowClient

    ran = runs("checkpoint.every=1", "track.mlflow=auto", "eval.at_start=false", place="tracked")
    for _ in range(2):
        found = record(rlctl, str(ran.folder), "--step", "2", "--pass-at", "16")
    client = MlflowClient(f"sqlite:///{ran.folder.parent / 'mlflow.db'}")
    run_id = ran.status["mlflow_run_id"]
    for name in ("pass@1", "pass@16", "strict"):
        history = client.get_metric_history(run_id, f"eval/arithmetic/{name}".replace("@", "_at_"))
        value = metrics(found)[f"eval/arithmetic/{name}"]
        assert [(point.step, point.value) for point in history if point.step == 2] == [(2, value)]
    assert client.get_run(run_id).info.status == "FINISHED"
    dead = rlctl("eval", str(ran.folder), "--set", "track.mlflow=http://127.0.0.1:9")
    assert dead.code == 0
    assert "MLflow has not got these figures" in dead.err


def test_b32_training_with_evaluations_in_between_is_training_without(runs: Runs) -> None:
    """B-32, E-04: weights, optimiser, prompts and rollouts bit-equal; dropout draws from a generator."""
    sets = (DENSE, "model.lora={rank: 4, dropout: 0.3}", "budget.steps=4")
    often = runs(*sets, "eval.every=1", "eval.samples=5", place="often")
    once = runs(*sets, "eval.every=99", "eval.at_end=false", place="once")
    assert [len(ran.evals) for ran in (often, once)] == [5, 1]
    same_run(often, once)
