from __future__ import annotations

import re
from pathlib import Path

from hypothesis import given, settings
from hypothesis import strategies as st
from mlflow.utils import validation

from rlctl.track.names import MAX_METRICS, Names, clean, parameters


def test_g02_names_that_mlflow_refuses_are_changed_once() -> None:
    """G-02: `pass@256`, `math//x`, Chinese names."""
    names = Names()
    sent = names.rename(
        {"eval/math/pass@256": 0.5, "math//x": 1.0, "数学/得分": 2.0, "reward/mean": 3.0, "../up": 4.0}
    )
    assert sent == {
        "eval/math/pass_at_256": 0.5,
        "math/x": 1.0,
        "数学/得分": 2.0,
        "reward/mean": 3.0,
        "up": 4.0,
    }
    assert names.changed == {
        "eval/math/pass@256": "eval/math/pass_at_256",
        "math//x": "math/x",
        "../up": "up",
    }


def test_g02_two_names_never_become_one() -> None:
    """G-02: sanitising must not mix two metrics."""
    names = Names()
    assert names.rename({"a@b": 1.0, "a_at_b": 2.0, "a//b": 3.0, "a/b": 4.0}) == {
        "a_at_b": 1.0, "a_at_b_2": 2.0, "a/b": 3.0, "a/b_2": 4.0,
    }  # fmt: skip
    assert names.rename({"a_at_b": 5.0}) == {"a_at_b_2": 5.0}


@settings(deadline=None)
@given(st.lists(st.text(), unique=True, max_size=8))
def test_g02_any_text_gives_distinct_names_that_mlflow_takes(texts: list[str]) -> None:
    """G-02: checked against MLflow's own rule."""
    names = Names()
    sent = names.rename(dict.fromkeys(texts, 1.0))
    assert len(sent) == len(texts)
    for name in sent:
        validation._validate_metric(name, 1.0, 0, 0)


def test_g04_metrics_past_the_limit_stay_on_this_machine() -> None:
    """G-04: at most 200 metric keys, always the same ones."""
    names = Names()
    many = {f"m/{index}": 1.0 for index in range(1000)}
    assert list(names.rename(many)) == [f"m/{index}" for index in range(MAX_METRICS)]
    assert list(names.rename(dict(reversed(many.items())))) == [
        f"m/{index}" for index in reversed(range(MAX_METRICS))
    ]
    assert names.changed["m/200"] == ""


def test_a_metric_without_a_value_is_not_sent() -> None:
    assert Names().rename({"a": None, "b": 0.0}) == {"b": 0.0}


def test_g01_parameters_are_short_scalars(tmp_path: Path) -> None:
    """G-01: long values are cut with a mark, tables get dotted keys."""
    recipe = tmp_path / "recipe.yaml"
    recipe.write_text(
        "seed: 17\n"
        f"data: {{system_prompt: '{'x' * 20000}', root: null, train: [{{kind: gsm8k}}, {{kind: svamp}}]}}\n"
        "optim: {betas: [0.9, 0.999], warmup: true}\n"
        "empty: {}\n"
    )
    found = parameters(recipe)
    prompt = found.pop("data.system_prompt")
    assert found == {
        "seed": "17",
        "data.train.0.kind": "gsm8k",
        "data.train.1.kind": "svamp",
        "optim.betas": "[0.9, 0.999]",
        "optim.warmup": "True",
    }
    assert len(prompt) == 250
    assert re.fullmatch(r"x+… \[cut from 20000 characters, see recipe.yaml\]", prompt)


def test_g01_at_most_200_parameters(tmp_path: Path) -> None:
    """G-01: a recipe of any size stays within MLflow's limits."""
    recipe = tmp_path / "recipe.yaml"
    recipe.write_text("\n".join(f"k{index}: 1" for index in range(500)))
    assert len(parameters(recipe)) == 200
    assert parameters(tmp_path / "none.yaml") == {}


def test_clean_keeps_names_that_are_fine() -> None:
    for name in ("reward/mean", "train/clip_share/c3", "control/agpo/step kl", "a.b-c"):
        assert clean(name) == name
    assert clean("") == clean("..") == "_"
