import ast
import json
import subprocess
import sys
from pathlib import Path

import pytest
from algorithm_cases import NAMES, VARIANTS, algorithm, label
from pydantic import ValidationError

from rlctl.algorithm import Algorithm
from rlctl.algorithm.presets import PRESETS
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
    "kl_estimator": "k3",
    "entropy_coef": 0.0,
    "correction": {"kind": "token_truncate", "max": 2.0},
    "staging": {"minibatches": 1, "epochs": 1, "ahead": 1},
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
    }
    assert {n: r.aggregate for n, r in rows.items()} == {
        "grpo": "sequence",
        "dr_grpo": "constant",
        "dapo": "token",
        "cispo": "token",
        "gspo": "sequence",
        "sapo": "sequence",
        "rloo": "row_sum",
    }
    assert {n for n, r in rows.items() if r.needs} == {"gspo", "sapo"}
    assert all(r.kl == 0 and r.skips_zero_rows for r in rows.values())


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
    assert algorithm({"preset": "gspo", "kl": 0.1, "entropy_coef": -0.1}).needs == {
        "old_logp",
        "ref_logp",
        "entropy",
    }


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
        ({"control": [{"kind": "collapse"}]}, ("control",), "at most 0"),
        ({"probe": {"samples": 8}}, ("probe",), "None"),
        (7, (), "valid dictionary"),
    ],
)
def test_errors_name_the_place_and_the_way_out(spec, where, says):
    with pytest.raises(ValidationError) as caught:
        algorithm(spec)
    (error,) = caught.value.errors()
    assert error["loc"] == where
    assert says in error["msg"]


@pytest.mark.parametrize("aggregate", ["token", "constant", "row_sum"])
def test_b04_a_sequence_ratio_owns_its_aggregation(aggregate):
    """B-04."""
    with pytest.raises(ValidationError, match="needs `aggregate: sequence`"):
        algorithm({"preset": "gspo", "aggregate": aggregate})


def test_a_bare_name_stands_for_the_record_inside_a_recipe():
    class Holder(Spec):
        algorithm: Algorithm = Algorithm()

    assert Holder.model_validate({"algorithm": "rloo"}).algorithm == algorithm("rloo")


def test_preset_names_stand_in_the_table_only():
    """Nothing asks which algorithm it is; the table alone knows names."""
    found = [
        f"{path.relative_to(ROOT)}:{node.lineno} {node.value}"
        for path in (ROOT / "rlctl").rglob("*.py")
        if path.name != "presets.py"
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8")))
        if isinstance(node, ast.Constant) and node.value in NAMES
    ]
    assert not found


def test_the_import_needs_no_torch():
    code = "import sys, rlctl.algorithm as a; a.Algorithm(preset='dapo'); print('torch' in sys.modules)"
    shown = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, cwd=ROOT)
    assert shown.stdout.strip() == "False"
