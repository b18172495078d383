import math
from itertools import product

import pytest

from rlctl.algorithm.control.collapse import Collapse
from rlctl.lab import collapse
from rlctl.plan import zero_variance


def test_law_against_all_outcomes():
    for p, size in ((0.3, 1), (0.3, 4), (0.9, 5)):
        total = sum(
            math.prod(p if right else 1 - p for right in group)
            for group in product((True, False), repeat=size)
            if len(set(group)) == 1
        )
        assert zero_variance(p, size) == pytest.approx(total, abs=1e-12)


def test_sampling_agrees_within_its_error():
    rows = collapse.run(trials=20_000, seed=1).tables["collapse"]
    likely = [row for row in rows if row["formula"] > 1e-3]  # a rarer event is no normal deviate
    assert len(likely) > 30
    assert max(abs(row["sampled"] - row["formula"]) / row["standard_error"] for row in likely) < 4


@pytest.mark.parametrize(
    ("acr", "count", "equal", "stratified"),
    [(0.05, 2, 0.500, 0.469), (0.15, 4, 0.707, 0.620), (0.4, 6, 0.866, 0.728), (1.0, 8, 1.000, 0.812)],
)
def test_avspo_table(acr, count, equal, stratified):
    """The table of algorithms.md 2.2, G = 8, and its formula -S1 / sqrt((G + K) S2 - S1^2)."""
    row = collapse.virtual_advantages(acr, Collapse())
    assert row["K"] == count
    assert row["equal"] == pytest.approx(equal, abs=5.1e-4)
    assert row["equal"] == pytest.approx(row["bound"], abs=1e-12)
    assert row["stratified_wrong"] == pytest.approx(stratified, abs=5.1e-4)
    values = [0.1 * k / count for k in range(1, count + 1)]
    sum1, sum2 = sum(values), sum(value * value for value in values)
    assert row["stratified_wrong"] == pytest.approx(sum1 / math.sqrt((8 + count) * sum2 - sum1**2))
    assert row["stratified_right"] == pytest.approx(row["stratified_wrong"])  # the same shape, mirrored


def test_direction_of_the_repair():
    assert collapse.advantage(0.0, [0.1]) == pytest.approx(-math.sqrt(1 / 8))
    assert collapse.advantage(1.0, [-0.5]) == pytest.approx(math.sqrt(1 / 8))
