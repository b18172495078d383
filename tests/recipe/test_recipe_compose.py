"""Stages that do not go together are refused, with the keys and a way out; what cannot act is warned of."""

from __future__ import annotations

import pytest
from recipe_cases import read

from rlctl.algorithm.presets import PRESETS
from rlctl.errors import UserError
from rlctl.recipe import load
from rlctl.recipe.checks import warnings
from rlctl.recipe.shelf import shipped

COLLAPSE = "algorithm.control=[{kind: collapse}]"
CONTROLLED = ("algorithm.control=[{kind: clip}]", "algorithm.clip={kind: controlled}")
UNCORRECTED = "algorithm.correction={kind: none}"
PRICED = ("algorithm.control=[{kind: price}]", "algorithm.clip={kind: target}")

REFUSED = {
    "two of a kind": (["algorithm.control=[{kind: focus}, {kind: focus}]"], "focus"),
    "clip without its controller": (["algorithm.clip={kind: controlled}"], "{kind: clip}"),
    "target without its controller": (["algorithm.clip={kind: target}"], "{kind: price}"),
    "controller without its clip": (["algorithm.control=[{kind: price}]"], "algorithm.clip={kind: target}"),
    "controller of another clip": ([PRICED[0], "algorithm.clip={kind: none}"], "{kind: target}"),
    "price without surrogate": (["algorithm.clip={kind: dual}"], "both"),
    "surrogate without price": (["algorithm.surrogate={kind: priced}"], "both"),
    "no probe": ([*CONTROLLED], "algorithm.probe={samples: 8}"),
    "repair of dropped groups": ([COLLAPSE, "algorithm.admit={kind: mixed}"], "{kind: everything}"),
    "repair that no one sees": ([COLLAPSE, "algorithm.advantage={kind: dual_anchor}"], "zscore"),
    "repair at a price": (["algorithm=quatro", COLLAPSE], "clip and surrogate"),
    "equal groups at a price": (
        ["algorithm=quatro", "algorithm.advantage={kind: zscore, homogeneous: 0.5}"],
        "clip and surrogate",
    ),
    "a goal at a price": (
        ["algorithm=quatro", "algorithm.advantage={kind: dual_anchor}"],
        "clip and surrogate",
    ),
    "bounds by the step's KL in a stage": (["algorithm=agpo", "algorithm.staging.ahead=2"], "ahead=1"),
    "price by the step's KL in a stage": (["algorithm=ppo_lambda", "algorithm.staging.ahead=2"], "ahead=1"),
    "focus and admission": (["algorithm=codapo", "algorithm.admit={kind: mixed}"], "focus"),
    "focus and stages": (["algorithm=codapo", "algorithm.staging.ahead=2"], "focus"),
    "ratio of another law": (["algorithm.ratio_temperature=one"], "algorithm.correction={kind: none}"),
    "veto by another law": (
        ["algorithm=agpo", "algorithm.ratio_temperature=one", "algorithm.veto={kind: sequence}", UNCORRECTED],
        "no `veto: sequence`",
    ),
    "recount without rows": (
        ["algorithm=mu_grpo", "algorithm.veto.recount=true", "algorithm.aggregate=token"],
        "aggregate",
    ),
    "two plans of temperatures": (
        ["algorithm=agpo", "algorithm.control=[{kind: temperature}, {kind: slots}, {kind: clip}]"],
        "keep one",
    ),
    "bounds that no one looks at": (["algorithm=gapo", "algorithm.surrogate={kind: soft_gate}"], "soft_gate"),
    "flat groups dropped": (["algorithm=dapo", "algorithm.advantage.homogeneous=1.0"], "homogeneous"),
    "temperatures reversed": (
        ["algorithm=agpo", "algorithm.control=[{kind: temperature, low: 2, high: 1}, {kind: clip}]"],
        "low is 2, above high, which is 1",
    ),
    "bounds reversed": (
        [CONTROLLED[1], "algorithm.probe={}", "algorithm.control=[{kind: clip, low: 0.5, high: 0.1}]"],
        "low is 0.5, above high",
    ),
    "range reversed": (
        [CONTROLLED[1], "algorithm.probe={}", "algorithm.control=[{kind: clip, entropy_range: [2, 0.5]}]"],
        "[least, most]",
    ),
    "group's bounds reversed": (["algorithm=gapo", "algorithm.clip.low=0.3"], "low <= high"),
    "threshold below its floor": (
        ["algorithm.control=[{kind: collapse, threshold: 0.3, floor: 0.4}]"],
        "floor is 0.4, above threshold, which is 0.3",
    ),
    "a key into a list": (["algorithm=agpo", "algorithm.control.0.low=0.9"], "whole list"),
    "slots that do not divide": (["algorithm=mdp", "rollout.group_size=6"], "multiple"),
}
WARNED = {
    "clip in time": (["algorithm=gapo", "algorithm.staging.minibatches=1"], "clip: group cannot act"),
    "controlled in time": (["algorithm=agpo", "algorithm.staging.epochs=1"], "clip: controlled cannot act"),
    "veto in time": (["algorithm=mu_grpo", "algorithm.staging.ahead=1"], "veto cannot act"),
    "probe unread": (["algorithm.probe={}"], "no controller reads it"),
    "focal and repair": ([COLLAPSE, "algorithm.reweight=[{kind: focal}]"], "all-wrong ones only"),
    "codapo and repair": ([COLLAPSE, "algorithm.reweight=[{kind: codapo}]"], "nearly undoes"),
    "two repairs": ([COLLAPSE, "algorithm.advantage.homogeneous=0.5"], "leaves alone"),
    "focal and gapo": (["algorithm=gapo", "algorithm.reweight=[{kind: focal}]"], "try each alone"),
    "gapo by the std": (["algorithm=gapo", "algorithm.advantage={kind: zscore}"], "{kind: centred}"),
    "temperature of slots": (["algorithm=mdp", "rollout.temperature=0.7"], "sets its own"),
    "temperature out of range": (["algorithm=agpo", "rollout.temperature=0.3"], "between 0.5 and 1.5"),
    "stages without an end": (
        ["algorithm=mu_grpo", "budget={steps: null, tokens: 1000}"],
        "set budget.steps",
    ),
    "one stage": (["algorithm=mu_grpo"], "only one stage"),  # 16 ahead of 10 steps
}


@pytest.mark.parametrize(("overrides", "hint"), REFUSED.values(), ids=REFUSED)
def test_f09_refused(overrides: list[str], hint: str) -> None:
    """F-09: every rule has an example that breaks it."""
    with pytest.raises(UserError) as caught:
        read(*overrides)
    said = f"{caught.value.message}\n{caught.value.hint}"
    assert hint in said
    assert "algorithm." in said or "rollout." in said
    assert len(said.splitlines()) <= 3


@pytest.mark.parametrize(
    ("overrides", "message"),
    [
        ([PRICED[0]], "algorithm.control: `clip: fixed` does not read what the controller price sets"),
        (
            ["algorithm=dapo", COLLAPSE],
            "algorithm.control: `admit: mixed` drops the groups that the controller collapse repairs",
        ),
        (
            ["algorithm=codapo", "algorithm.admit.kind=mixed"],
            "algorithm.admit: `admit: mixed` draws questions again, but the controller focus chooses them",
        ),
        (
            ["algorithm=quatro", "algorithm.clip.kind=none"],
            "algorithm.clip: `clip: dual` and `surrogate: priced` go together: the one sets a price, "
            "the other alone reads it",
        ),
    ],
)
def test_a_text_names_what_it_speaks_of(overrides: list[str], message: str) -> None:
    """Whichever of the keys stands before it."""
    with pytest.raises(UserError) as caught:
        read(*overrides)
    key, _, text = message.partition(": ")
    place = f"--set {overrides[-1]}: "
    assert caught.value.message == place + (text if overrides[-1].startswith(f"{key}=") else message)


@pytest.mark.parametrize(
    ("preset", "override", "kind"),
    [
        ("mu_grpo", "veto.delta=1", "sequence"),
        ("mu_grpo", "clip.form=exact", "group"),
        ("mu_grpo", "advantage.mix=0.5", "dual_anchor"),
        ("dapo", "clip.margin=0.1", "target"),
        ("ppo_lambda", "clip.low=0.1", "fixed | group"),
        ("mdp", "advantage.std=bessel", "zscore"),
    ],
)
def test_a_key_of_another_kind_than_the_presets(preset: str, override: str, kind: str) -> None:
    with pytest.raises(UserError) as caught:
        read(f"algorithm={preset}", f"algorithm.{override}")
    stage, key = override.partition("=")[0].split(".")
    assert caught.value.message.endswith(f": the kind that the preset chose has no `{key}`")
    assert caught.value.hint == f"it needs another kind: set algorithm.{stage}.kind={kind} too"


@pytest.mark.parametrize(("overrides", "text"), WARNED.values(), ids=WARNED)
def test_warned(overrides: list[str], text: str) -> None:
    assert any(text in note for note in warnings(read(*overrides)))


@pytest.mark.parametrize("name", PRESETS)
def test_rows_of_the_table_go_together(name: str) -> None:
    assert warnings(read(f"algorithm={name}", "budget.steps=100", "eval.sets=[{kind: arithmetic}]")) == []


@pytest.mark.parametrize("name", shipped())
def test_shipped_recipes_go_together(name: str) -> None:
    assert set(warnings(load(name))) <= {"eval.sets is empty: nothing is evaluated"}


@pytest.mark.parametrize(
    "overrides",
    [
        ["algorithm=agpo", "rollout.temperature=1.5"],
        ["algorithm=agpo", "rollout.temperature=0.5"],
        ["algorithm=gapo", "algorithm.advantage={kind: leave_one_out}"],
        ["budget={steps: null, tokens: 9}"],
    ],
)
def test_the_edge_is_not_warned_of(overrides: list[str]) -> None:
    assert warnings(read(*overrides, "eval.sets=[{kind: arithmetic}]")) == []
