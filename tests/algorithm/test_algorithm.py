import ast
import json
import subprocess
import sys
from dataclasses import fields, replace
from pathlib import Path

import pytest
import torch
from algorithm_cases import MAX_LENGTH, NAMES, VARIANTS, algorithm, label, problem
from pydantic import ValidationError

from rlctl.algorithm import Algorithm
from rlctl.algorithm.presets import PRESETS
from rlctl.algorithm.reweight import Codapo
from rlctl.batch import GroupStats
from rlctl.spec import Spec

ROOT = Path(__file__).parents[2]

# recipe.md's record, spelled out
SPELLED = {
    "preset": "dapo",
    "shaping": [{"kind": "overlong", "buffer": 256, "penalty": 1.0}],
    "admit": {"kind": "mixed"},
    "advantage": {"kind": "zscore", "std": "bessel", "eps": 1.0e-6},
    "reweight": [{"kind": "focal", "gamma": 1.0}],
    "level": "token",
    "clip": {"kind": "fixed", "low": 0.2, "high": 0.28},
    "surrogate": {"kind": "clipped"},
    "veto": None,
    "aggregate": "token",
    "kl": 0.0,
    "kl_negative": None,
    "kl_estimator": "k3",
    "kl_aggregate": None,
    "entropy_coef": 0.0,
    "correction": {"kind": "token_truncate", "max": 2.0},
    "staging": {"minibatches": 1, "epochs": 1, "ahead": 1},
    "ratio_temperature": "sampling",
    "probe": None,
    "control": [],
}


def test_the_record_of_the_design_is_the_record():
    assert list(Algorithm.model_fields) == list(SPELLED)
    buffer = {"shaping": SPELLED["shaping"], "reweight": SPELLED["reweight"]}
    assert algorithm(SPELLED) == algorithm({"preset": "dapo", **buffer})


@pytest.mark.parametrize("spec", VARIANTS, ids=label)
def test_what_is_dumped_loads_as_the_same(spec):
    row = algorithm(spec)
    assert algorithm(row.model_dump()) == row
    assert algorithm(json.loads(row.model_dump_json())) == row
    assert algorithm(row) == row
    hash(row)


@pytest.mark.parametrize("name", NAMES)
def test_every_row_sets_only_what_differs(name):
    """A row that repeats a default would hide what the algorithm is about."""
    defaults, row = Algorithm().model_dump(mode="json"), algorithm(name).model_dump(mode="json")
    for field in PRESETS[name].stages:
        assert row[field] != defaults[field]
    assert algorithm(name) == algorithm({"preset": name})


def test_the_table():
    rows = {name: algorithm(name) for name in NAMES}
    assert {n: (getattr(r.clip, "low", None), getattr(r.clip, "high", None)) for n, r in rows.items()} == {
        "grpo": (0.2, 0.2),
        "dr_grpo": (0.2, 0.2),
        "dapo": (0.2, 0.28),
        "cispo": (1.0, 4.0),
        "gspo": (3e-4, 4e-4),
        "sapo": (None, None),
        "rloo": (None, None),
        "agpo": (None, None),
        "gapo": (0.2, 0.28),
        "gapo_seq": (3e-3, 5e-3),
        "avspo": (0.2, 0.2),
        "f_grpo": (0.2, 0.2),
        "f_dapo": (0.2, 0.28),
        "f_cispo": (1.0, 5.0),
        "codapo": (0.2, 0.2),
        "mu_grpo": (1.0, 1.0),
        "edge": (0.2, 0.2),
        "mdp": (0.2, 0.2),
        "ppo_lambda": (None, None),
        "quatro": (None, None),
    }
    token = {"dapo", "cispo", "f_grpo", "f_dapo", "f_cispo", "codapo", "edge"}
    others = {"dr_grpo": "constant", "rloo": "row_sum"}
    assert {n: r.aggregate for n, r in rows.items()} == {
        n: "token" if n in token else others.get(n, "sequence") for n in NAMES
    }
    assert {n: r.kl for n, r in rows.items() if r.restrained} == {"agpo": 0.03, "mdp": 0.01}
    assert {n for n, r in rows.items() if not r.skips_zero_rows} == {"agpo", "mdp", "quatro"}
    assert {n: c.kind for n, r in rows.items() for c in r.control[-1:]} == {
        "agpo": "clip",
        "avspo": "collapse",
        "codapo": "focus",
        "mdp": "slots",
        "ppo_lambda": "price",
    }
    fresh = {n for n, r in rows.items() if not r.staging.stale}
    assert fresh == {"grpo", "dr_grpo", "dapo", "cispo", "rloo", "avspo", "codapo", "edge", "mdp"}


@pytest.mark.parametrize(
    ("name", "needs"),
    [
        ("grpo", set()),
        ("gspo", {"old_logp"}),
        ("agpo", {"old_logp", "ref_logp", "entropy_t1", "probe", "logp_after"}),
        ("avspo", set()),
        ("f_grpo", {"old_logp"}),
        ("codapo", {"old_logp"}),
        ("mu_grpo", {"old_logp"}),
        ("edge", {"entropy"}),
        ("mdp", {"ref_logp"}),
        ("ppo_lambda", {"old_logp", "logp_after"}),
        ("quatro", {"old_logp"}),
    ],
)
def test_what_a_row_needs(name, needs):
    assert algorithm(name).needs == needs


# algorithms.md 1.6, 2.2, 3.6, 4.2, 6.2, 7.3 and 8.6: the numbers of the sources, field by field.
DEFAULTS = {
    "agpo": [
        ("advantage", {"kind": "zscore", "std": "bessel", "eps": 0.0}),
        ("kl_estimator", "k1"),
        ("kl_aggregate", "group"),
        ("staging", {"minibatches": 1, "epochs": 4}),
        ("control.0", {"low": 0.5, "high": 1.5, "strength": 0.15, "rate": 0.1}),
        ("control.0", {"dispersion_weight": 1.0, "vote_weight": 1.0, "skew_weight": 0.0}),
        ("control.1", {"base": 0.2, "low": 0.05, "high": 0.4, "kl_rate": 0.1, "entropy_rate": 0.01}),
        ("control.1", {"dispersion_weight": 1.0, "kl_weight": 0.5, "vote_weight": 0.1, "skew_weight": 0.0}),
        ("control.1", {"entropy_range": [0.5, 1.5]}),
    ],
    "gapo": [("advantage", {"kind": "centred"}), ("staging", {"minibatches": 4})],
    "gapo_seq": [("advantage", {"kind": "centred"}), ("level", "sequence")],
    "avspo": [
        ("advantage", {"std": "population"}),
        ("control.0", {"values": "stratified", "count": "power", "alpha": 0.5, "anchor": 0.1}),
        ("control.0", {"threshold": 0.5, "rate": 0.01, "floor": 0.05}),
    ],
    "f_grpo": [("reweight.0", {"kind": "focal", "gamma": 0.5}), ("advantage", {"std": "population"})],
    "f_dapo": [("reweight.0", {"gamma": 0.5}), ("admit", {"kind": "everything"}), ("shaping", [])],
    "f_cispo": [("reweight.0", {"gamma": 1.0}), ("surrogate", {"kind": "clipped_weight"})],
    "codapo": [
        ("reweight.0", {"kind": "codapo", "offset": 0.1}),
        ("surrogate", {"dual": 3.0}),
        ("control.0", {"select": "quantile", "quantile": 0.75, "repeat": 4, "top": 4}),
    ],
    "mdp": [
        ("advantage", {"mix": 0.2, "slope": 0.8, "gain": 1.25, "loss": 2.0, "goal": "fixed"}),
        ("kl_negative", 0.025),
        ("control.0", {"temperatures": [0.1, 0.4, 0.7, 1.0]}),
    ],
}


@pytest.mark.parametrize(("name", "place", "wanted"), [(n, *x) for n, xs in DEFAULTS.items() for x in xs])
def test_defaults_are_the_sources(name, place, wanted):
    found = algorithm(name).model_dump(mode="json")
    for key in place.split("."):
        found = found[int(key) if key.isdigit() else key]
    assert (found | wanted if isinstance(wanted, dict) else wanted) == found


def test_tables_with_a_kind_replace_and_others_merge():
    assert algorithm({"preset": "dapo", "clip": {"low": 0.1}}).clip.model_dump() == {
        "kind": "fixed",
        "low": 0.1,
        "high": 0.28,
    }
    assert algorithm({"preset": "dapo", "clip": {"kind": "fixed", "low": 0.1}}).clip.high == 0.2
    assert algorithm({"preset": "gspo", "staging": {"epochs": 2}}).staging.updates == 8
    assert algorithm({"clip": {"high": 0.3}}).preset == "grpo"


def test_needs():
    assert algorithm("grpo").needs == frozenset()
    assert algorithm({"staging": {"epochs": 2}}).needs == {"old_logp"}
    assert algorithm({"staging": {"ahead": 2}}).needs == {"old_logp"}
    assert algorithm({"preset": "gspo", "kl": 0.1}).needs == {"old_logp", "ref_logp"}
    assert algorithm({"kl_negative": 0.1}).needs == {"ref_logp"}
    assert algorithm({"kl_negative": 0.0}).needs == frozenset()
    assert algorithm({"veto": {"kind": "suffix"}}).needs == frozenset()
    assert algorithm({"veto": {"kind": "sequence"}}).needs == {"old_logp"}


@pytest.mark.parametrize(
    ("spec", "where", "says"),
    [
        ("dpao", ("preset",), "nearest is 'dapo'"),
        ({"preset": "gsop"}, ("preset",), "nearest is 'gspo'"),
        ({"preset": "zzzzzz"}, ("preset",), "grpo, dr_grpo"),
        ({"preset": 3}, ("preset",), "valid string"),
        ({"kl": -0.1}, ("kl",), "greater than or equal to 0"),
        ({"kl": "0.1"}, ("kl",), "valid number"),
        ({"clip": {"kind": "fixd"}}, ("clip",), "'fixed', 'none'"),
        ({"preset": "sapo", "clip": {"low": 0.1}}, ("clip", "none", "low"), "not permitted"),
        ({"clip": {"low": float("inf")}}, ("clip", "fixed", "low"), "finite"),
        ({"epsilon": 0.1}, ("epsilon",), "not permitted"),
        ({"staging": {"minibatches": 1.5}}, ("staging", "minibatches"), "valid integer"),
        ({"staging": {"minibatches": 0}}, ("staging", "minibatches"), "greater than or equal to 1"),
        ({"staging": {"ahead": 0}}, ("staging", "ahead"), "greater than or equal to 1"),
        ({"control": [{"kind": "colapse"}]}, ("control", 0), "'collapse'"),
        ({"probe": {"samples": 1}}, ("probe", "samples"), "greater than or equal to 2"),
        ({"surrogate": {"dual": 1.0}}, ("surrogate", "clipped", "dual"), "greater than 1"),
        ({"veto": {"kind": "suffix", "threshold": 1.0}}, ("veto", "suffix", "threshold"), "less than 1"),
        ({"ratio_temperature": "two"}, ("ratio_temperature",), "'sampling' or 'one'"),
        (7, (), "valid dictionary"),
    ],
)
def test_errors_name_the_place_and_the_way_out(spec, where, says):
    with pytest.raises(ValidationError) as caught:
        algorithm(spec)
    (error,) = caught.value.errors()
    assert error["loc"] == where
    assert says in error["msg"]


@pytest.mark.parametrize("aggregate", ["token", "group", "constant", "row_sum"])
@pytest.mark.parametrize("preset", ["gspo", "gapo_seq", "quatro"])
def test_b04_a_sequence_ratio_owns_its_aggregation(preset, aggregate):
    """B-04."""
    with pytest.raises(ValidationError, match="needs `aggregate: sequence`"):
        algorithm({"preset": preset, "aggregate": aggregate})


def test_a_bare_name_stands_for_the_record_inside_a_recipe():
    class Holder(Spec):
        algorithm: Algorithm = Algorithm()

    assert Holder.model_validate({"algorithm": "rloo"}).algorithm == algorithm("rloo")


def test_preset_names_stand_in_the_table_only():
    """Nothing asks which algorithm it is: names are the table's, its notes' and the lab's, for its plots."""
    names = set(NAMES) - {Codapo().kind}  # a stage that is called like its row
    found = [
        f"{path.relative_to(ROOT)}:{node.lineno} {node.value}"
        for path in (ROOT / "rlctl").rglob("*.py")
        if path.name not in {"presets.py", "notes.py"} and path.parent.name != "lab"
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8")))
        if isinstance(node, ast.Constant) and node.value in names
    ]
    assert not found


def test_the_import_needs_no_torch():
    code = "import sys, rlctl.algorithm as a; a.Algorithm(preset='dapo'); print('torch' in sys.modules)"
    shown = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, cwd=ROOT)
    assert shown.stdout.strip() == "False"


def test_rows_are_laid_out_at_the_temperature_of_the_ratio():
    """`one` is the authors' form of AGPO: log-probs at temperature 1, whatever was sampled at."""
    groups = [
        replace(group, samples=tuple(replace(s, temperature=0.5 + 0.1 * p) for s in group.samples))
        for p, group in enumerate(problem(0).groups())
    ]
    stats = GroupStats.of(groups, MAX_LENGTH)
    sampled, one = (algorithm({"ratio_temperature": x}).pack(groups, stats) for x in ("sampling", "one"))
    assert sampled.temperature_B.reshape(4, 4)[:, 0].tolist() == pytest.approx([0.5, 0.6, 0.7, 0.8])
    assert one.temperature_B.tolist() == [1.0] * 16
    assert one.temperature_B.dtype == sampled.temperature_B.dtype
    for name in (f.name for f in fields(one) if f.name != "temperature_B"):
        same, other = getattr(one, name), getattr(sampled, name)
        assert torch.equal(same, other) if isinstance(same, torch.Tensor) else same == other
