"""`rlctl compare`: the rule, what is paired with what, and what is said."""

from __future__ import annotations

import json

import numpy as np
import pytest
from laid import lay_run, lay_sweep
from scipy.stats import ttest_rel
from typer.testing import CliRunner

from rlctl.cli import app
from rlctl.compare import compare, sentences
from rlctl.compare.rule import Difference, holm, verdicts
from rlctl.errors import UserError
from rlctl.evaluate.estimate import over_seeds


def test_by_hand():
    """Differences 0.1, 0.2, 0.3: t = 0.2 / (0.1 / sqrt 3) = 3.464; so p = 1 - t / sqrt(2 + t^2)."""
    found = Difference.of([0.5, 0.4, 0.3], [0.6, 0.6, 0.6])
    assert found.p == pytest.approx(1 - 3.4641016 / 14**0.5)
    assert found.interval["value"] == pytest.approx(0.2)
    assert found.interval["high"] - 0.2 == pytest.approx(4.302653 * 0.1 / 3**0.5)  # table of t
    assert verdicts([found])[0][1] == "not shown"


def test_against_scipy():
    rng = np.random.default_rng(3)
    for n in (3, 5, 9):
        first, second = rng.normal(size=(2, n))
        assert Difference.of(first, second).p == pytest.approx(ttest_rel(second, first).pvalue)


def test_what_is_the_same_is_not_shown_and_what_is_evenly_apart_is():
    same = Difference.of([0.1, 0.2, 0.3], [0.1, 0.2, 0.3])
    assert verdicts([same]) == [(1.0, "not shown")]
    apart = Difference.of([0.1, 0.2, 0.3], [0.3, 0.4, 0.5])
    assert verdicts([apart])[0][1] == "better"


def test_two_seeds_decide_nothing():
    found = Difference.of([0.1, 0.1], [0.9, 0.9])
    assert verdicts([found]) == [(None, "too few seeds")]
    assert np.isnan(over_seeds([0.5])["low"])


def test_holm_by_hand():
    assert holm([0.01, 0.04, 0.03]) == pytest.approx([0.03, 0.06, 0.06])
    assert holm([0.5, 0.9]) == pytest.approx([1.0, 1.0])
    assert holm([]) == []


def test_2000_null_comparisons_are_wrong_in_one_of_twenty():
    """Two runs of one kind: seeds with luck of their own, 200 problems, 4 answers each."""
    rng, wrong = np.random.default_rng(17), 0
    for _ in range(2000):
        skill = rng.beta(2, 2, size=(5, 1, 200))  # the problems of a seed, the same for both
        luck = rng.normal(scale=0.05, size=(5, 2, 1))  # of each training run
        reached = rng.binomial(4, np.clip(skill + luck, 0, 1)).mean(axis=2) / 4
        wrong += verdicts([Difference.of(*reached.T)])[0][1] in ("better", "worse")
    assert 0.035 <= wrong / 2000 <= 0.065


def test_seven_null_comparisons_at_once_are_wrong_in_at_most_one_of_twenty():
    rng, wrong = np.random.default_rng(17), 0
    for _ in range(400):
        base, *others = rng.normal(size=(8, 5))
        wrong += any(v != "not shown" for _, v in verdicts([Difference.of(base, o) for o in others]))
    assert wrong / 400 <= 0.07


def test_a_sweep_is_compared_with_its_first_setting(tmp_path):
    folder = lay_sweep(tmp_path / "s", {"a": [0.5, 0.6, 0.4], "b": [0.7, 0.81, 0.6], "c": [0.1, 0.2, 0.01]})
    found = compare([str(folder)])
    assert [(one["setting"], one["baseline"]) for one in found["comparisons"]] == [("b", "a"), ("c", "a")]
    assert [one["verdict"] for one in found["comparisons"]] == ["better", "worse"]
    text = "\n".join(sentences(found))
    assert "b is better than a: sums/pass@1 +0.203 [+0.189, +0.218] over seeds 1, 2, 3, p = " in text
    assert "corrected for 2" in text
    found = compare([str(folder)], baseline="c")
    assert [(one["setting"], one["verdict"]) for one in found["comparisons"]] == [
        ("a", "better"),
        ("b", "better"),
    ]


def test_two_sweeps_pair_what_they_call_alike(tmp_path):
    first = lay_sweep(tmp_path / "one", {"a": [0.5, 0.6, 0.4], "b": [0.5, 0.6, 0.4]})
    again = lay_sweep(tmp_path / "again", {"b": [0.5, 0.6, 0.4], "a": [0.5, 0.6, 0.4], "z": [0.0, 0.0, 0.0]})
    found = compare([str(first), str(again)])["comparisons"]
    assert [one["verdict"] for one in found] == ["not shown"] * 2
    assert [one["setting"] for one in found] == ["again: b", "again: a"]
    crippled = lay_sweep(tmp_path / "crippled", {"alone": [0.1, 0.2, 0.01]})
    default = lay_sweep(tmp_path / "default", {"base": [0.5, 0.61, 0.4]})
    (one,) = compare([str(default), str(crippled)])["comparisons"]
    assert one["verdict"] == "worse"


def test_runs_that_differ_in_their_seed_alone_are_one_setting(tmp_path):
    kinds = {"slow": 1e-6, "fast": 1e-3}
    runs = [
        lay_run(tmp_path / f"{name}-{seed}", seed, {"1": rate * 100 + seed / 100 + seed**2 * rate}, rate=rate)
        for seed in (1, 2, 3)
        for name, rate in kinds.items()
    ]
    (one,) = compare([str(run) for run in runs])["comparisons"]
    assert (one["baseline"], one["setting"], one["seeds"]) == ("slow-1", "fast-1", [1, 2, 3])
    assert one["verdict"] == "better"


def test_cost_stands_beside_it(tmp_path):
    """Gains of 0.3 with a million tokens and 0.4 with two: 0.3 and 0.2 for a million."""
    for seed in (1, 2, 3):
        lay_run(tmp_path / f"a{seed}", seed, {"1": 0.5, "4": 0.6}, begins={"1": 0.2}, kind="a")
        lay_run(
            tmp_path / f"b{seed}", seed, {"1": 0.6, "4": 0.6}, begins={"1": 0.2}, kind="b", tokens=2_000_000
        )
    (one,) = compare([str(tmp_path / f"{kind}{seed}") for kind in "ab" for seed in (1, 2, 3)])["comparisons"]
    assert one["per_million_tokens"]["value"] == pytest.approx(-0.1)
    assert not one["same_cost"]
    assert one["others"]["sums/pass@4"]["value"] == 0.0


def test_what_is_not_finished_is_left_out_and_named(tmp_path):
    folder = lay_sweep(tmp_path / "s", {"a": [0.5, 0.6, 0.4], "b": [0.7, 0.8, 0.6]})
    (folder / "02-3" / "status.json").write_text(json.dumps({"state": "failed"}))
    found = compare([str(folder)])
    assert found["comparisons"][0]["verdict"] == "too few seeds"
    assert found["left_out"] == ["b, 02-3: failed"]


def test_mistakes(tmp_path):
    lone = lay_sweep(tmp_path / "lone", {"a": [0.5, 0.6]})
    two = lay_sweep(tmp_path / "two", {"b": [0.5], "c": [0.5]})
    run = lay_run(tmp_path / "run", 1, {"1": 0.5})
    other = lay_run(tmp_path / "other", 2, {"1": 0.5}, kind="x")
    bare = lay_run(tmp_path / "bare", 1, {"1": 0.5}, state="interrupted", kind="y")
    moved = lay_run(tmp_path / "moved", 1, {"1": 0.5}, kind="z")
    evals = (moved / "evals.jsonl").read_text().replace("asked-1", "asked-else")
    (moved / "evals.jsonl").write_text(evals)
    for names, message in (
        ([lone], "one setting alone"),
        ([lone, two], "no setting in common"),
        ([lone, run], "a sweep and a run"),
        ([run, other], "no seed in common"),
        ([run, bare], "no run of it is finished"),
        ([run, moved], "not asked in the same way"),
    ):
        with pytest.raises(UserError, match=message):
            compare([str(name) for name in names])
    with pytest.raises(UserError, match="sums/pass@3"):
        compare([str(two)], metric="sums/pass@3")
    with pytest.raises(UserError, match="--baseline"):
        compare([str(two)], baseline="d")


def test_on_the_command_line(tmp_path):
    folder = lay_sweep(tmp_path / "s", {"a": [0.5], "b": [0.7]})
    said = CliRunner().invoke(app, ["compare", str(folder), "--json"])
    (one,) = json.loads(said.stdout)["comparisons"]
    assert one["difference"] == {"value": pytest.approx(0.2), "low": None, "high": None}
    said = CliRunner().invoke(app, ["compare", str(folder)])
    assert "too few seeds (1) to say" in said.stdout
    assert "rule: seeds are the unit" in said.stdout
