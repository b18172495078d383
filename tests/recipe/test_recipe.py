"""Layers of a recipe, its paths, and what `auto` stands for."""

from pathlib import Path

import pytest
from recipe_cases import BASE, read

from rlctl.algorithm import Algorithm
from rlctl.errors import UserError
from rlctl.recipe import dump, load, load_text
from rlctl.recipe.shelf import find, shipped

ROOT = Path(__file__).parents[2]


def test_precedence_defaults_preset_recipe_set():
    """Rule 5."""
    text = BASE + "algorithm: {preset: dapo, clip: {low: 0.1}}\n"
    clip = read(text=text).algorithm.clip
    assert (clip.low, clip.high) == (0.1, 0.28)  # the recipe's, the preset's
    clip = read("algorithm.clip.low=0.05", text=text).algorithm.clip
    assert (clip.low, clip.high) == (0.05, 0.28)
    assert read(text=text).algorithm.kl == 0.0  # the default's


def test_bare_preset_name_is_short_for_a_table():
    assert read("algorithm=dapo").algorithm == Algorithm(preset="dapo")
    assert read(text=BASE + "algorithm: dapo\n").algorithm == Algorithm(preset="dapo")
    assert read("algorithm.kl=0.1", text=BASE + "algorithm: dapo\n").algorithm == Algorithm(
        preset="dapo", kl=0.1
    )


def test_another_preset_replaces_the_whole_row():
    """Else a resolved recipe, which spells every stage out, would keep them under another name."""
    resolved = dump(read("algorithm=gspo"))
    for override in ("algorithm=dapo", "algorithm.preset=dapo", "algorithm={preset: dapo}"):
        assert read(override, text=resolved).algorithm == Algorithm(preset="dapo")
    assert read("algorithm=dapo", "algorithm.kl=0.1", text=resolved).algorithm == Algorithm(
        preset="dapo", kl=0.1
    )


def test_a_table_with_a_kind_replaces_and_any_other_merges():
    text = BASE.replace("{kind: tiny, context: 4096}", "{kind: tiny, context: 4096, layers: 2}")
    assert read("model.width=64", text=text).model.layers == 2
    assert read("model={kind: tiny, context: 4096}", text=text).model.layers == 4
    assert read("model.lora.rank=8").model.lora.rank == 8  # on null: a new table
    assert read("model.lora.rank=8", text=text).model.layers == 2


def test_entries_of_a_list_by_number():
    text = BASE.replace("eval: {", "eval: {sets: [{kind: maze}, {kind: arithmetic, limit: 9}], ")
    sets = read("eval.sets.1.digits=3", "eval.sets.0.limit=5", text=text).eval.sets
    assert (sets[1].digits, sets[1].limit, sets[0].limit) == (3, 9, 5)
    assert read("eval.sets=[{kind: maze}]", "eval.sets.0.size=5").eval.sets[0].size == 5
    assert read("eval.sets.1.kind=maze", text=text).eval.sets[1].limit is None
    with pytest.raises(UserError, match="the list has 2 entries"):
        read("eval.sets.2.limit=3", text=text)


def test_the_later_override_wins():
    assert read("seed=1", "seed=2").seed == 2
    assert read("rollout={group_size: 4}", "rollout.group_size=5").rollout.group_size == 5


@pytest.mark.parametrize(
    ("overrides", "rate"),
    [
        (["model={kind: pretrained, path: a/b}"], 1e-6),
        (["model={kind: pretrained, path: a/b, lora: {}}"], 1e-5),
        ([], 2e-4),
        (["model.lora.rank=8"], 2e-3),
        (["optim.learning_rate=0.5"], 0.5),
    ],
)
def test_learning_rate_auto(overrides, rate):
    assert read(*overrides).optim.learning_rate == rate


def test_nulls_of_eval_are_filled_in():
    recipe = read("eval.samples=null", "rollout.max_completion_length=100")
    assert (recipe.eval.samples, recipe.eval.max_completion_length) == (8, 100)
    assert read("eval.samples=null", "eval.pass_at=[]").eval.samples == 1


def test_rule5_paths_start_at_the_file_or_at_the_working_directory(tmp_path, monkeypatch):
    folder, cwd = tmp_path / "recipes", tmp_path / "cwd"
    for made in (folder / "model", folder, cwd):
        made.mkdir(parents=True, exist_ok=True)
    (folder / "r.yaml").write_text(
        """\
version: 1
name: r
model: {kind: pretrained, path: model}
data:
  root: sets
  template: t.jinja
  train: [{kind: jsonl, path: ../a.jsonl}, {kind: hub, path: a/b}]
verifier: [{kind: python, path: "grade.py:judge"}, {kind: python, path: "grade.more:judge"}]
budget: {steps: 1}
eval: {sets: [{kind: jsonl, path: e.jsonl}]}
"""
    )
    monkeypatch.chdir(cwd)
    recipe = load("../recipes/r.yaml")
    assert recipe.model.path == str(folder / "model")
    assert recipe.data.root == str(folder / "sets")
    assert recipe.data.template == str(folder / "t.jinja")
    assert [source.path for source in recipe.data.train] == [str(tmp_path / "a.jsonl"), "a/b"]
    assert [part.path for part in recipe.verifier] == [f"{folder}/grade.py:judge", "grade.more:judge"]
    assert recipe.eval.sets[0].path == str(folder / "e.jsonl")
    assert recipe.output_dir == str(cwd / "runs")
    changed = load(
        "../recipes/r.yaml",
        ["eval.sets.0.path=e.jsonl", "model.path=./m", "data.template=none", "output_dir=o"],
    )
    assert changed.eval.sets[0].path == str(cwd / "e.jsonl")
    assert changed.model.path == str(cwd / "m")
    assert (changed.data.template, changed.output_dir) == ("none", str(cwd / "o"))
    assert changed.data.root == str(folder / "sets")
    assert load("../recipes/r.yaml", ["model.path=Qwen/Qwen3-0.6B"]).model.path == "Qwen/Qwen3-0.6B"


def test_f03_home_is_understood(monkeypatch, tmp_path):
    monkeypatch.setenv("HOME", str(tmp_path))
    assert read("output_dir=~/runs").output_dir == str(tmp_path / "runs")


@pytest.mark.parametrize("name", shipped())
def test_shipped_recipes_are_whole_short_and_described(name):
    """Rule 12: found by name from anywhere; under 40 lines."""
    recipe = load(name)
    lines = find(name).read_text(encoding="utf-8").splitlines()
    assert len(lines) < 40
    assert lines[0].startswith("# ")
    assert load_text(dump(recipe), "again") == recipe


def test_shipped_recipes_by_path_and_name():
    assert {"quickstart", "gsm8k_grpo"} <= set(shipped())
    assert load(ROOT / "recipes/quickstart.yaml") == load("quickstart")


def test_every_row_runs_the_quickstart_recipe():
    from rlctl.algorithm.presets import PRESETS

    for name in PRESETS:
        assert load("quickstart", [f"algorithm={name}", "model.lora.rank=8"]).algorithm.preset == name


def test_shipped_recipes_are_inside_the_wheel_as_well(tmp_path):
    """The wheel has them as `rlctl/recipes`; both places are looked at."""
    import shutil
    import subprocess
    import sys

    shutil.copytree(ROOT / "rlctl", tmp_path / "rlctl", ignore=shutil.ignore_patterns("__pycache__"))
    shutil.copytree(ROOT / "recipes", tmp_path / "rlctl/recipes")
    code = "from rlctl.recipe.shelf import find; print(find('quickstart'))"
    found = subprocess.run(
        [sys.executable, "-c", code], cwd=tmp_path, capture_output=True, text=True, check=True
    )
    assert Path(found.stdout.strip()) == tmp_path / "rlctl/recipes/quickstart.yaml"
