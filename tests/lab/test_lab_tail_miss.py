from itertools import product

import numpy as np
import pytest

from rlctl.lab import tail_miss

TABLE = {  # mu, rho: the values at N = 2, 8, 32, 128, the peak's N and value (algorithms.md 3.2)
    (0.8, 0.05): (0.304, 0.610, 0.271, 0.005, 8, 0.610),
    (0.5, 0.05): (0.475, 0.810, 0.445, 0.039, 6, 0.832),
    (0.5, 0.2): (0.400, 0.426, 0.034, 0.000, 4, 0.568),
    (0.3, 0.05): (0.399, 0.828, 0.617, 0.144, 9, 0.832),  # 0.83246; printed there as 0.833
    (0.3, 0.1): (0.378, 0.726, 0.377, 0.020, 8, 0.726),
    (0.2, 0.05): (0.304, 0.755, 0.724, 0.276, 15, 0.825),
}


@pytest.mark.parametrize(("case", "row"), TABLE.items())
def test_table_to_three_decimals(case, row):
    for size, value in zip((2, 8, 32, 128), row, strict=False):
        assert tail_miss.missed(*case, size) == pytest.approx(value, abs=5.1e-4)
    size, value = tail_miss.peak(*case)
    assert size == row[4]
    assert value == pytest.approx(row[5], abs=5.1e-4)


def test_the_experiment_shows_the_table():
    assert set(TABLE) == set(tail_miss.CASES)


@pytest.mark.parametrize("size", [1, 2, 3, 5])
def test_formula_against_all_outcomes(size):
    mu, rho = 0.3, 0.2
    chance = {"rare": mu * rho, "common": mu * (1 - rho), "wrong": 1 - mu}
    total = 0.0
    for answers in product(chance, repeat=size):
        if "wrong" in answers and "common" in answers and "rare" not in answers:
            total += np.prod([chance[answer] for answer in answers])
    assert tail_miss.missed(mu, rho, size) == pytest.approx(total, abs=1e-12)


def test_sampling_agrees_within_its_error():
    rows = tail_miss.run(trials=20_000, seed=1).tables["tail_miss"]
    assert len(rows) == 42
    gaps = [abs(row["sampled"] - row["formula"]) / row["standard_error"] for row in rows]
    assert max(gaps) < 4  # 42 draws: by chance once in 370 seeds
    assert np.mean(np.square(gaps)) < 2  # 1 is expected
