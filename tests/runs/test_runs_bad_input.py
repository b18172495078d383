"""The issue's "Bad input": at most three lines that name place and remedy, exit code 2 or 1, no traceback."""

from __future__ import annotations

import json
import os
import shutil
from pathlib import Path

import pytest
from calling import Rlctl
from published import need_data
from small_runs import DENSE, SMALL, Ran, Runs, same_run

from rlctl.recipe import load, run_folder

ROOT = Path(__file__).parents[2]


def sets(*texts: str, small: bool = True) -> list[str]:
    keys = tuple(text.partition("=")[0] + "." for text in texts)
    every = [*(text for text in (SMALL if small else []) if not text.startswith(keys or ("\n",))), *texts]
    return [word for text in every for word in ("--set", text)]


MISTAKES = {
    "unknown key": ("rollout.groupsize=8", "groupsize", "did you mean `group_size`?"),
    "misplaced key": ("rollout.learning_rate=1", "learning_rate", "optim.learning_rate"),
    "foreign key": ("rollout.num_samples=8", "num_samples", "hint"),
    "wrong type": ("budget.steps=soon", "budget.steps", '"soon"', "whole number"),
    "one of a group": ("rollout.group_size=1", "rollout.group_size", "at least 2"),
    "k over samples": ("eval={sets: [{kind: arithmetic}], samples: 2, pass_at: [4]}", "pass@4", "samples"),
    "temperature 0": ("rollout.temperature=0", "rollout.temperature", "more than 0"),
    "no budget": ("budget.steps=null", "budget", "set budget.steps, budget.tokens or budget.minutes"),
    "unknown algorithm": ("algorithm=grpoo", "grpoo", "'grpo'"),
    "unknown data": ("data.train={kind: gsm9k}", "gsm9k", "gsm8k"),
    "broken value": ("data.train={kind: [", "--set data.train", "YAML"),
    "no key=value": ("budget.steps", "--set budget.steps"),
}


@pytest.mark.parametrize("verb", ["train", "check"])
@pytest.mark.parametrize("mistake", list(MISTAKES))
def test_f07_mistakes_in_settings(mistake: str, verb: str, rlctl: Rlctl, tmp_path: Path) -> None:
    """F-07."""
    text, *words = MISTAKES[mistake]
    rlctl(verb, "quickstart", *sets(text, small=False)).refused(2, *words)
    assert list(tmp_path.iterdir()) == []


RECIPE = """\
version: 1
name: mine
model: {kind: tiny, context: 64}
data:
  train: {kind: jsonl, path: sums.jsonl}
  max_prompt_length: 32
rollout:
  max_completion_length: 4
  TEXT
budget: {steps: 3}
"""
MISTAKES_IN_A_FILE = {
    "unknown key": ("gruop_size: 8", "mine.yaml:9", "gruop_size", "group_size"),
    "wrong type": ("group_size: 8.5", "mine.yaml:9", "rollout.group_size", "8.5"),
    "twice": ("max_completion_length: 5", "mine.yaml:9", "max_completion_length"),
    "no YAML": ("group_size: [8", "mine.yaml:"),
    "a tab": ("\tgroup_size: 8", "mine.yaml:9"),
    "one of a group": ("group_size: 1", "mine.yaml:9", "rollout.group_size", "at least 2"),
    "temperature 0": ("temperature: 0", "mine.yaml:9", "rollout.temperature"),
}


@pytest.mark.parametrize("mistake", list(MISTAKES_IN_A_FILE))
def test_f07_mistakes_in_a_file(mistake: str, rlctl: Rlctl, tmp_path: Path) -> None:
    """F-07: the message names file and line."""
    text, *words = MISTAKES_IN_A_FILE[mistake]
    (tmp_path / "mine.yaml").write_text(RECIPE.replace("TEXT", text))
    rlctl("train", "mine.yaml").refused(2, *words)
    assert [path.name for path in tmp_path.iterdir()] == ["mine.yaml"]


def test_no_such_recipe(rlctl: Rlctl) -> None:
    rlctl("train", "quikstart").refused(2, "quikstart", "did you mean `quickstart`?")
    rlctl("train", "no/such.yaml").refused(2, "no/such.yaml")


DATA_MISTAKES = {
    "missing": (None, "sums.jsonl: cannot be read", "path"),
    "empty": ("", "sums.jsonl: no problem in it"),
    "blank": ("\n\n", "sums.jsonl: no problem in it"),
    "no such field": ('{"question": "1+1=", "answer": 2}\n', "no field `prompt`", "question, answer"),
    "later": ('{"prompt": "1+1=", "answer": 2}\n{"prompt": "1+2="}\n', "line 2", "no field `answer`"),
    "no JSON": ('{"prompt": "1+1=", "answer": 2\n', "line 1", "broken JSON"),
    "a list": ("[1, 2]\n", "line 1", "not an object"),
    "no answer": ('{"prompt": "1+1=", "answer": null}\n', "line 1", "answer"),
    "no question": ('{"prompt": "", "answer": 2}\n', "line 1", "question"),
    "all too long": (json.dumps({"prompt": "1+" * 40, "answer": 2}) + "\n", "sums", "max_prompt_length"),
}  # fmt: skip


@pytest.mark.parametrize("mistake", list(DATA_MISTAKES))
def test_mistakes_in_a_data_file(mistake: str, rlctl: Rlctl, tmp_path: Path) -> None:
    text, *words = DATA_MISTAKES[mistake]
    if text is not None:
        (tmp_path / "sums.jsonl").write_text(text)
    source = sets("data.train={kind: jsonl, path: sums.jsonl}", "model.warm_start.steps=0")
    rlctl("train", "quickstart", *source).refused(2, *words)


def test_a_jsonl_without_demonstrations_cannot_warm_start(rlctl: Rlctl, tmp_path: Path) -> None:
    (tmp_path / "sums.jsonl").write_text('{"prompt": "1+1=", "answer": 2}\n')
    found = rlctl("train", "quickstart", *sets("data.train={kind: jsonl, path: sums.jsonl}"))
    found.refused(2, "model.warm_start", "model.warm_start.steps to 0")


def test_no_hub(rlctl: Rlctl, monkeypatch: pytest.MonkeyPatch) -> None:
    """The model is missing: the message names it, and how to name one that lies here."""
    for name in ("HF_HUB_OFFLINE", "TRANSFORMERS_OFFLINE"):
        monkeypatch.setenv(name, "1")
    found = rlctl("train", "gsm8k_grpo", "--set", f"data.root={need_data()}")
    found.refused(2, "Qwen/Qwen2.5-Math-1.5B-Instruct", "model.path")


def test_a_judge_that_is_not_there(rlctl: Rlctl, tmp_path: Path) -> None:
    for path, word in {
        "grade.py:judge": "no such file",
        "nowhere.at_all:judge": "cannot be imported",
    }.items():
        rlctl("train", "quickstart", *sets(f"verifier={{kind: python, path: '{path}'}}")).refused(
            2, word, path[:8]
        )
    (tmp_path / "grade.py").write_text("import no_such_module_of_mine\n")
    found = rlctl("train", "quickstart", *sets("verifier={kind: python, path: 'grade.py:judge'}"))
    found.refused(2, "no_such_module_of_mine", "grade.py")


def last(tmp_path: Path, *texts: str) -> Ran:
    """The folder of the small recipe with `texts` in this test's working directory."""
    every = sets(*texts)[1::2]
    return Ran(run_folder(load("quickstart", every)), -1)


@pytest.mark.parametrize("file", ["model.safetensors", "state.json", "DONE"])
def test_a_damaged_checkpoint(file: str, rlctl: Rlctl, tmp_path: Path) -> None:
    """`auto` goes on from the newest whole one and says so, `must` refuses; both name the damaged one."""
    settings = sets(DENSE, "checkpoint.every=1", "budget.steps=4")
    assert rlctl("train", "quickstart", *sets(DENSE, "checkpoint.every=1")).code == 0
    ran = last(tmp_path, DENSE)
    damaged = ran.folder / "checkpoints/step-000003" / file
    damaged.write_bytes(damaged.read_bytes()[:-9])
    rlctl("train", "quickstart", *settings, "--resume", "must").refused(1, "step-000003", "--resume auto")
    found = rlctl("train", "quickstart", *settings)
    assert found.code == 0
    assert "step-000003" in found.out + found.err
    assert "passed over" in found.out + found.err
    assert "resumed at step 2" in found.out + found.err
    settings = sets(DENSE, "checkpoint.every=1", "budget.steps=4", "output_dir=elsewhere")
    assert rlctl("train", "quickstart", *settings).code == 0
    same_run(last(tmp_path, DENSE), last(tmp_path, DENSE, "output_dir=elsewhere"))


def test_all_checkpoints_damaged_begins_anew(rlctl: Rlctl, tmp_path: Path) -> None:
    assert rlctl("train", "quickstart", *sets(DENSE, "checkpoint.every=1")).code == 0
    ran = last(tmp_path, DENSE)
    weights = ran.file("model.safetensors")
    for folder in (ran.folder / "checkpoints").iterdir():
        (folder / "DONE").unlink()
    rlctl("train", "quickstart", *sets(DENSE), "--resume", "must").refused(1, "step-000003")
    found = rlctl("train", "quickstart", *sets(DENSE, "checkpoint.every=1"))
    assert (found.code, "begins at step 0" in found.out + found.err) == (0, True)
    assert ran.file("model.safetensors") == weights
    assert [line["step"] for line in ran.metrics] == [0, 1, 2, 3]


def test_run_folder_in_use(rlctl: Rlctl, tmp_path: Path) -> None:
    from rlctl.runfolder import RunFolder

    holder = RunFolder(last(tmp_path, DENSE).folder)
    holder.open("auto")
    rlctl("train", "quickstart", *sets(DENSE)).refused(
        1, "in use by process", str(os.getpid()), str(holder.path)
    )
    holder.close()
    assert rlctl("train", "quickstart", *sets(DENSE)).code == 0


def test_d13_d14_never_and_must(rlctl: Rlctl, tmp_path: Path) -> None:
    """D-13, D-14: `must` begins nothing, `never` touches nothing that is there."""
    rlctl("train", "quickstart", *sets(DENSE), "--resume", "must").refused(
        2, "no checkpoint", "--resume must"
    )
    assert list(tmp_path.iterdir()) == []
    assert rlctl("train", "quickstart", *sets(DENSE), "--resume", "never").code == 0
    ran = last(tmp_path, DENSE)
    before = {path: path.read_bytes() for path in ran.folder.rglob("*") if path.is_file()}
    more = sets(DENSE, "budget.steps=5")
    rlctl("train", "quickstart", *more, "--resume", "never").refused(2, str(ran.folder), "--resume")
    assert {path: path.read_bytes() for path in ran.folder.rglob("*") if path.is_file()} == before
    found = rlctl("train", "quickstart", *sets(DENSE))
    assert (found.code, "is finished" in found.out + found.err) == (0, True)
    assert rlctl("train", "quickstart", *more, "--resume", "must").code == 0
    assert ran.status["step"] == 5


def test_d11_changed_data(rlctl: Rlctl, tmp_path: Path) -> None:
    """D-11: refused, with the way to accept it; nothing of the run is touched by the refusal."""
    file = tmp_path / "sums.jsonl"
    file.write_text("".join(f'{{"prompt": "10{n}+1=", "answer": {n + 101}}}\n' for n in range(6)))
    source = (DENSE, "data.train={kind: jsonl, path: sums.jsonl}", "model.warm_start.steps=0")
    assert rlctl("train", "quickstart", *sets(*source)).code == 0
    ran = last(tmp_path, *source)
    metrics, status = ran.metrics, ran.status
    file.write_text(file.read_text().replace('"105+1="', '"1+105="'))
    more = sets(*source, "budget.steps=6")
    rlctl("train", "quickstart", *more).refused(
        1, "step-000003", "data changed", "checkpoint.accept_changed_data=true"
    )
    assert (ran.metrics, ran.status["step"]) == (metrics, 3)
    assert {**ran.status, "state": "finished", "stop_reason": "steps"} == status
    assert ran.said == ("failed", "error")
    accepted = sets(*source, "budget.steps=6", "checkpoint.accept_changed_data=true")
    assert rlctl("train", "quickstart", *accepted).code == 0
    assert [line["step"] for line in ran.metrics] == [0, 1, 2, 3, 4, 5, 6]
    assert rlctl("train", "quickstart", *sets(*source, "budget.steps=7")).code == 0  # known by now
    file.write_text(file.read_text() + '{"prompt": "900+9=", "answer": 909}\n')
    rlctl("train", "quickstart", *sets(*source, "budget.steps=8")).refused(1, "data changed")


def test_a_changed_reference_is_refused(rlctl: Rlctl, tmp_path: Path) -> None:
    """With `kl` the model of the beginning takes part in every step; another one under its name does not."""
    first = sets("name=base", "budget.steps=1")
    assert rlctl("train", "quickstart", *first).code == 0
    model = tmp_path / "model"
    shutil.copytree(last(tmp_path, "name=base").folder / "final", model)
    source = (DENSE, "model={kind: pretrained, path: model}", "algorithm.kl=0.1", "optim.learning_rate=1e-3")
    assert rlctl("train", "quickstart", *sets(*source)).code == 0
    ran = last(tmp_path, *source)
    shutil.rmtree(model)
    shutil.copytree(ran.folder / "final", model)
    rlctl("train", "quickstart", *sets(*source, "budget.steps=4")).refused(
        1, "reference", "put the model back"
    )
    assert (ran.said, ran.status["step"]) == (("failed", "error"), 3)


def test_d06_resume_is_read(rlctl: Rlctl) -> None:
    """D-06: an unknown word is refused, not ignored."""
    found = rlctl("train", "quickstart", *sets(DENSE), "--resume", "yes")
    assert found.code == 2
    assert "Traceback" not in found.err
    assert "yes" in found.err


def test_a_place_that_cannot_be_written(rlctl: Rlctl, tmp_path: Path) -> None:
    (tmp_path / "taken").write_text("a file")
    rlctl("train", "quickstart", *sets(DENSE, "output_dir=taken")).refused(1, "taken", "output_dir")


def test_without_a_terminal_the_message_is_all_on_standard_error(rlctl: Rlctl, runs: Runs) -> None:
    found = rlctl("train", "quickstart", *sets("eval.samples=0"))
    assert found.out == ""
    found.refused(2, "eval.samples")
