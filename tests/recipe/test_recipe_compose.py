"""Stages that do not go together are refused, with the keys and a way out; what cannot act is warned of."""

from __future__ import annotations

import pytest
from recipe_cases import read

from rlctl.algorithm.presets import PRESETS
from rlctl.errors import UserError
from rlctl.recipe.checks import warnings

COLLAPSE = "algorithm.control=[{kind: collapse}]"
CONTROLLED = ("algorithm.control=[{kind: clip}]", "algorithm.clip={kind: controlled}")
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
    "focus and admission": (["algorithm=codapo", "algorithm.admit={kind: mixed}"], "focus"),
    "focus and stages": (["algorithm=codapo", "algorithm.staging.ahead=2"], "focus"),
    "ratio of another law": (["algorithm.ratio_temperature=one"], "algorithm.correction={kind: none}"),
    "recount without rows": (
        ["algorithm=mu_grpo", "algorithm.veto.recount=true", "algorithm.aggregate=token"],
        "aggregate",
    ),
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


@pytest.mark.parametrize(("overrides", "text"), WARNED.values(), ids=WARNED)
def test_warned(overrides: list[str], text: str) -> None:
    assert any(text in note for note in warnings(read(*overrides)))


@pytest.mark.parametrize("name", PRESETS)
def test_rows_of_the_table_go_together(name: str) -> None:
    found = warnings(read(f"algorithm={name}", "budget.steps=100"))
    assert [note for note in found if "algorithm." in note or "reweight" in note] == []
