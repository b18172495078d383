import math

import pytest

from rlctl.lab import clip

TOKEN = [0.2800, 0.2686, 0.2571, 0.2457, 0.2343, 0.2229, 0.2114, 0.2000]
SEQUENCE = [5.000e-3, 4.714e-3, 4.429e-3, 4.143e-3, 3.857e-3, 3.571e-3, 3.286e-3, 3.000e-3]


def test_gapo_schedule_of_eight_answers():
    """The schedule of algorithms.md 4.1, both hosts; the exact form is (1 + high)^((8 - c) / 7) - 1."""
    rows = clip.run(group_size=8).tables["gapo"]
    assert [row["token_linear"] for row in rows] == pytest.approx(TOKEN, abs=5e-5)
    assert [row["sequence_linear"] for row in rows] == pytest.approx(SEQUENCE, abs=5e-7)
    exact = [math.exp((8 - c) / 7 * math.log(1.28)) - 1 for c in range(1, 9)]
    assert [row["token_exact"] for row in rows] == pytest.approx(exact, abs=1e-12)


def test_agpo_by_hand():
    """At p = 1/2: 0.2 (1 + 0.1 ln 2) / (1 + 0.5); at p = 0 nothing is uncertain: 0.2."""
    rows = {row["success"]: row for row in clip.run(group_size=2).tables["agpo"]}
    assert rows[0.5]["bound"] == pytest.approx(0.2 * (1 + 0.1 * math.log(2)) / 1.5)
    assert rows[0.0] == {"success": 0.0, "sigma": 0.0, "vote_entropy": 0.0, "bound": 0.2}
    assert rows[0.2]["sigma"] == pytest.approx(0.4)
    for p in (0.05, 0.25, 0.45):
        assert rows[p]["bound"] == pytest.approx(rows[round(1 - p, 2)]["bound"])
