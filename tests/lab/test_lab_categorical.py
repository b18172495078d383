from statistics import fmean

import numpy as np
import pytest
import torch

from rlctl.lab import categorical
from rlctl.lab.categorical import World, simulate

LARGE = {2: 0.994, 32: 0.962, 256: 0.043, 1024: 0.033, 8192: 0.043, 131072: 0.995}  # algorithms.md 3.4


def test_the_start_is_the_papers():
    for actions, anchor, leaf in ((128_000, 4.65e-4, 6.30e-5), (12_800, 4.63e-3, 6.27e-4)):
        world = World(actions)
        p = categorical.softmax(world.logits())
        assert world.correct == actions * 10 // 128
        assert p[: world.correct].sum() == pytest.approx(0.63, abs=2e-3)
        assert (p[0], p[1]) == (pytest.approx(anchor, rel=5e-3), pytest.approx(leaf, rel=5e-3))


@pytest.mark.parametrize("form", ["ratio", "literal"])
def test_gradient_is_that_of_the_loss(form):
    """By autograd through (1/N) sum_j (R_j - mean R) x_j, x = p / sg(p) or p, times (1 - mu)^gamma."""
    world = World(actions=256, form=form)
    rng = np.random.default_rng(0)
    logits = torch.tensor(rng.normal(size=256), requires_grad=True)
    p = logits.softmax(0)
    counts = rng.multinomial(64, p.detach().numpy())
    sampled = torch.tensor(np.repeat(np.arange(256), counts))
    reward = torch.where(sampled < world.correct, 1.0, -1.0).double()
    factor = p / p.detach() if form == "ratio" else p
    success = (reward > 0).double().mean()
    assert 0 < success < 1
    loss = (1 - success) ** 0.5 * ((reward - reward.mean()) * factor[sampled]).mean()
    loss.backward()
    assert logits.grad is not None
    ours = world.gradient(p.detach().numpy(), counts, gamma=0.5)
    assert np.allclose(ours, logits.grad.numpy(), rtol=1e-9, atol=1e-12)


def test_adam_is_torchs():
    logits = np.zeros(5)
    theirs = torch.zeros(5, dtype=torch.float64, requires_grad=True)
    adam = categorical.Adam(5)
    torchs = torch.optim.Adam([theirs], lr=1e-2, betas=(0.9, 0.999), eps=1e-8, maximize=True)
    for step in range(20):
        gradient = np.array([0.0, 1.0, -2.0, 1e-7, step - 10.0])
        theirs.grad = torch.tensor(gradient)
        torchs.step()
        adam.raise_(logits, gradient.copy())
    assert np.allclose(logits, theirs.detach().numpy(), rtol=1e-9, atol=1e-15)


def test_retained_mass_by_hand():
    """With no step, all is retained; a group of one answer teaches nothing either."""
    assert simulate(World(actions=128, steps=0), 8, 0.0, 0)[1] == pytest.approx(1.0)
    assert simulate(World(actions=128, steps=5), 1, 0.0, 0)[1] == pytest.approx(1.0)


def test_three_regimes_and_focal():
    """12,800 actions: few answers keep the rare correct ones, some lose them, very many keep them."""
    world = World(12_800)
    retained = {(n, g): simulate(world, n, g, 0)[1] for n, g in ((2, 0), (128, 0), (8192, 0), (128, 1))}
    assert retained[2, 0] > 0.9
    assert retained[128, 0] < 0.15
    assert retained[8192, 0] > 0.95
    assert retained[128, 1] > retained[128, 0] + 0.05


def test_literal_form_has_no_third_regime():
    assert simulate(World(1280, "literal"), 8192, 0.0, 0)[1] < 0.5
    assert simulate(World(1280), 8192, 0.0, 0)[1] > 0.9


@pytest.mark.heavy
@pytest.mark.timeout(1800)
@pytest.mark.parametrize(("size", "retained"), LARGE.items())
def test_table_of_128000_actions(size, retained):
    found = [simulate(World(128_000), size, 0.0, seed)[1] for seed in range(3)]
    assert fmean(found) == pytest.approx(retained, abs=0.05)
