import math
from types import SimpleNamespace

import numpy as np
import pytest
import torch

from rlctl.lab import rank
from rlctl.types import Completion, Group, Prompt, Sample, Verdict


def test_effective_rank_by_hand():
    assert rank.effective_rank(np.array([2.0, 2.0, 2.0])) == pytest.approx(3.0)
    assert rank.effective_rank(np.array([5.0, 0.0])) == pytest.approx(1.0)
    entropy = -(0.75 * math.log(0.75) + 0.25 * math.log(0.25))
    assert rank.effective_rank(np.array([3.0, 1.0])) == pytest.approx(math.exp(entropy))


def test_energy_rank_by_hand():
    """Squares 81, 18, 1 of 100: two hold exactly 99 %."""
    values = np.sqrt(np.array([1.0, 81.0, 18.0]))
    assert rank.energy_rank(values) == 2
    assert rank.energy_rank(values, energy=0.8) == 1
    assert rank.energy_rank(values, energy=1.0) == 3


def test_singular_values_without_the_matrix():
    rng = np.random.default_rng(0)
    matrix = rng.normal(size=(4, 50))
    matrix[3] = matrix[1]  # two equal answers
    scale = np.array([0.75, -0.25, -0.25, -0.25])
    ours = rank.singular_values(matrix @ matrix.T, scale)
    theirs = np.linalg.svd(scale[:, None] * matrix, compute_uv=False)
    assert np.sort(ours)[::-1][:3] == pytest.approx(theirs[:3])
    assert ours[0] == 0


class Bigram(torch.nn.Module):
    """Softmax over three tokens, by the one before: its gradients are known in closed form."""

    def __init__(self):
        super().__init__()
        self.logits_VV = torch.nn.Parameter(torch.zeros(3, 3, dtype=torch.float64))
        self.device = "cpu"

    def forward(self, input_ids, use_cache):
        return SimpleNamespace(logits=self.logits_VV[input_ids])


def group_of(answers):
    samples = tuple(
        Sample(Completion(n, ids, (0.0,) * len(ids), "stop"), "", Verdict(1.0, correct), 1.0)
        for n, (ids, correct) in enumerate(answers)
    )
    return Group(Prompt("t:1", (), "", ids=(0,)), samples)


def test_gradients_of_a_known_policy():
    """Uniform over 3: token 1 after 0 gives (-1, 2, -1)/3 in row 0; 2 after 1 (-1, -1, 2)/3 in row 1."""
    gram = rank.gram_of(Bigram(), group_of([((1,), True), ((1, 2), False), ((2,), False)]))
    assert gram == pytest.approx(np.array([[6, 6, -3], [6, 12, -3], [-3, -3, 6]]) / 9)


def test_measure_leaves_collapsed_groups_out():
    mixed = group_of([((1,), True), ((2,), False)])
    collapsed = group_of([((1,), True), ((1,), True)])
    gram = np.array([[1.0, 0.0], [0.0, 1.0]])
    row = rank.measure([mixed, collapsed], [gram, gram * 9], 2)
    assert row is not None
    assert (row["groups"], row["distinct"]) == (1, 2)
    assert row["score_rank"] == pytest.approx(2.0)
    assert row["advantage_rank"] == pytest.approx(2.0)  # +-1/2: both rows shrink alike
    assert rank.measure([collapsed], [gram], 2) is None


def test_the_experiment(tmp_path, monkeypatch):
    """No rank exceeds the number of distinct answers."""
    monkeypatch.setenv("RLCTL_CACHE", str(tmp_path))
    small = rank.RECIPE.replace("layers: 2, width: 64", "layers: 1, width: 32").replace(
        "digits: 2", "digits: 1"
    )
    monkeypatch.setattr(rank, "RECIPE", small.replace("steps: 250", "steps: 60"))
    said = []
    rows = rank.run(prompts=24, seed=0, say=said.append).tables["rank"]
    assert said
    assert rows[-1]["G"] == 16
    for row in rows:
        for kind in ("score_rank", "advantage_rank", "score_energy", "advantage_energy"):
            assert 1 <= row[kind] <= row["distinct"] <= row["G"]
