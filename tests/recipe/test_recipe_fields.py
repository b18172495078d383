"""Every key of the recipe: settable, kept by dump and load, read by some code."""

import re
from pathlib import Path

import pytest
from hypothesis import HealthCheck, Phase, assume, given, settings
from hypothesis import strategies as st
from recipe_cases import BASE, SINGLE, at, leaves, read, settable

from rlctl.errors import UserError
from rlctl.recipe import Recipe, dump, load_text, recipe_hash, run_folder
from rlctl.recipe.schema import walk

CASES = [(dotted, setup) for dotted, _, setup in leaves()]


@pytest.mark.parametrize(("dotted", "setup"), CASES, ids=[f"{key}-{len(made)}" for key, made in CASES])
def test_f12_every_field_is_settable(dotted, setup):
    """F-12; and F-08: what is set, be it 0, false, null or empty, stays."""
    several = dotted.split(".")[-1] not in SINGLE and dotted not in ("verifier.shaping", "verifier.0.shaping")
    assert len(settable(dotted, setup)) >= 1 + several


def again(recipe):
    return load_text(dump(recipe), "again.yaml", folder=Path("/elsewhere"))


@settings(
    max_examples=40,
    deadline=None,
    phases=[Phase.explicit, Phase.generate],
    suppress_health_check=list(HealthCheck),
)
@given(st.data())
def test_f04_load_of_dump_is_the_same_recipe(data):
    """F-04: for every field, explicit nulls included."""
    chosen = data.draw(st.lists(st.sampled_from(CASES), max_size=8))
    overrides = [item for _, setup in chosen for item in setup]
    overrides += [data.draw(st.sampled_from(settable(dotted, setup))) for dotted, setup in chosen]
    try:
        recipe = read(*overrides)
    except UserError:
        assume(False)
    assert again(recipe) == recipe


@settings(max_examples=40, deadline=None)
@given(st.text(), st.lists(st.text(), max_size=3), st.floats(1e-12, 1e12))
def test_f04_any_text_and_number_survives(text, stop, rate):
    """F-04, G-01: long and strange prompts too."""
    recipe = read()
    recipe = recipe.model_copy(
        update={
            "data": recipe.data.model_copy(update={"system_prompt": text}),
            "rollout": recipe.rollout.model_copy(update={"stop": tuple(stop)}),
            "optim": recipe.optim.model_copy(update={"learning_rate": rate}),
        }
    )
    assert again(recipe) == recipe


@pytest.mark.parametrize(
    "text", ["None", "null", "~", "no", "1e-6", "true", "08", "2024-01-01", "", " x\n", "x" * 20_000]
)
def test_f04_texts_that_look_like_something_else_survive(text):
    recipe = read()
    recipe = recipe.model_copy(update={"data": recipe.data.model_copy(update={"system_prompt": text})})
    assert again(recipe).data.system_prompt == text


def test_f05_defaults_are_in_the_schema_alone():
    """F-05: a recipe that says nothing equals the specs' own defaults."""
    recipe = load_text(BASE.replace("eval: {samples: 64}\n", ""), "base.yaml")
    for name in ("rollout", "resources", "checkpoint", "track", "algorithm", "engine"):
        assert getattr(recipe, name) == Recipe.model_fields[name].default


def test_f11_nothing_leaves_the_machine_by_default():
    """F-11: no key uploads; the tracking store is local unless a URI or the environment names another."""
    fields = {dotted for dotted, _, _ in walk(Recipe)} - {"verifier.share"}  # of the answers that get a coin
    assert not [dotted for dotted in fields if re.search("push|upload|share|public", dotted)]
    assert at(read(), "track.mlflow") == "auto"


# Chosen by pydantic, laid under the other stages, or without a second value.
NOT_READ = {"kind", "version", "preset"}


def test_d06_every_field_is_read_somewhere():
    """D-06, rule 11: `.field` stands in some code."""
    source = "\n".join(
        file.read_text(encoding="utf-8") for file in (Path(__file__).parents[2] / "rlctl").rglob("*.py")
    )
    names = {dotted.split(".")[-1]: dotted for dotted, _, _ in walk(Recipe)}
    unread = [
        dotted
        for name, dotted in names.items()
        if name not in NOT_READ and not re.search(rf"\.{name}\b(?!\()", source)
    ]
    assert not unread


CHANGES = {
    "budget.steps=99": False,
    "budget.minutes=5": False,
    "checkpoint.every=3": False,
    "track.mlflow=off": False,
    "eval.samples=128": False,
    "output_dir=other": False,
    "seed=18": True,
    "name=other": True,
    "rollout.group_size=4": True,
    "algorithm.kl=0.1": True,
    "model.lora.rank=2": True,
    "data.train.digits=3": True,
    "data.overlap=drop": True,
}


@pytest.mark.parametrize(("change", "another"), CHANGES.items())
def test_hash_names_the_run(change, another):
    assert (recipe_hash(read(change)) != recipe_hash(read())) is another


def test_run_folder_is_name_and_hash(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    recipe = read()
    assert run_folder(recipe) == tmp_path / "runs" / f"base-{recipe_hash(recipe)[:8]}"
    assert run_folder(read("output_dir=a")).parent == tmp_path / "a"
    assert re.fullmatch("[0-9a-f]{64}", recipe_hash(recipe))
