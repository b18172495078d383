"""AVSPO's virtual rewards in the statistics, and nowhere else."""

import math
from dataclasses import fields, replace

import pytest
import torch
from algorithm_cases import MAX_LENGTH, algorithm, problem, stats

from rlctl.algorithm.advantage import Centred, LeaveOneOut, ZScore
from rlctl.algorithm.control import Controls
from rlctl.algorithm.control.collapse import Collapse

NAN = float("nan")
ALWAYS = {"kind": "collapse", "threshold": 0.0, "rate": 0.0}
EXACT = {"kind": "zscore", "std": "population", "eps": 0.0}

# algorithms.md 2.2, G = 8: ACR, K, |A| of equal virtual rewards, |A| of stratified ones.
TABLE = [(0.05, 2, 0.500, 0.469), (0.15, 4, 0.707, 0.620), (0.40, 6, 0.866, 0.728), (1.00, 8, 1.000, 0.812)]


def column(rows):
    return torch.tensor(rows, dtype=torch.float64)


@pytest.mark.parametrize(("acr", "K", "equal", "stratified"), TABLE)
@pytest.mark.parametrize("correct", [False, True])
def test_table_through_the_real_score(acr, K, equal, stratified, correct):
    own, sign = float(correct), 1 if correct else -1
    layers = [k / (K + 1) if correct else 0.1 * k / K for k in range(1, K + 1)]
    for values, size in (([0.3] * K, equal), (layers, stratified)):
        known = stats([[own] * 8], virtual_PV=column([[own - sign * v for v in values]]))
        found = ZScore(std="population", eps=0.0)(known)[0].tolist()
        S1, S2 = sum(values), sum(v * v for v in values)
        assert found == pytest.approx([sign * S1 / math.sqrt((8 + K) * S2 - S1**2)] * 8)
        assert round(abs(found[0]), 3) == size
        assert abs(found[0]) <= math.sqrt(K / 8) + 1e-12


@pytest.mark.parametrize(("acr", "K", "equal", "stratified"), TABLE)
def test_table_through_a_whole_step(acr, K, equal, stratified):
    """Twenty groups of eight, `acr` of them collapsed, in turn all wrong and all right."""
    flat = round(20 * acr)
    groups = [[float(p % 2)] * 8 for p in range(flat)] + [[1.0] * 3 + [0.0] * 5] * (20 - flat)
    row = algorithm({"preset": "avspo", "advantage": EXACT, "control": [ALWAYS]})
    tuned = Controls(row.control, seed=0).tune(stats(groups), None)
    assert tuned.virtual_PV.shape == (20, K)
    advantage_PG = row.credit(tuned).advantage_PG
    signs = column([[1.0 if p % 2 else -1.0] * 8 for p in range(flat)])
    torch.testing.assert_close(advantage_PG[:flat], signs * stratified, rtol=0, atol=5.1e-4)
    plain = row.credit(stats(groups)).advantage_PG
    assert torch.equal(advantage_PG[flat:], plain[flat:])


def test_the_anchor_s_scale_says_nothing():
    """Only the shape of the virtual rewards matters."""
    found = []
    for anchor in (0.01, 0.1, 5.0):
        values = Collapse(anchor=anchor).offsets(False, 4, lambda: 0.0)
        found.append(ZScore(std="population", eps=0.0)(stats([[0.0] * 8], virtual_PV=column([values]))))
    torch.testing.assert_close(found[0], found[1])
    torch.testing.assert_close(found[2], found[1])


def test_other_advantages_see_them_too():
    """Of [0, 0] and 1: mean 1/3. Centred -1/3; against the other two of three: -1/2."""
    known = stats([[0.0, 0.0]], virtual_PV=column([[1.0]]))
    torch.testing.assert_close(Centred()(known), column([[-1 / 3] * 2]))
    torch.testing.assert_close(LeaveOneOut()(known), column([[-1 / 2] * 2]))
    bessel = math.sqrt((2 / 9 + 4 / 9) / 2)
    torch.testing.assert_close(ZScore(eps=0.0)(known), column([[-1 / 3 / bessel] * 2]))


def test_a_batch_s_std_counts_them():
    known = stats([[0.0, 0.0], [1.0, 0.0]], virtual_PV=column([[1.0], [NAN]]))
    std = column([0.0, 0.0, 1.0, 1.0, 0.0]).std()
    expected = column([[-1 / 3, -1 / 3], [0.5, -0.5]]) / std
    torch.testing.assert_close(ZScore(scale="batch", eps=0.0)(known), expected)


def test_no_virtual_reward_is_no_difference():
    known = stats([[0.0, 1.0, 1.0], [1.0] * 3])
    absent = replace(known, virtual_PV=column([[NAN] * 2] * 2))
    for stage in (
        ZScore(),
        ZScore(std="mad"),
        ZScore(std="iqr"),
        ZScore(scale="batch"),
        Centred(),
        LeaveOneOut(),
    ):
        torch.testing.assert_close(stage(absent), stage(known), rtol=0, atol=1e-14)


@pytest.mark.parametrize("V", [1, 3, 7])
@pytest.mark.parametrize("shaping", [[], [{"kind": "overlong"}]])
def test_virtual_rewards_enter_the_statistics_only(V, shaping):
    """No log-prob term, row or token count changes with V: only the collapsed group's advantages do."""
    row, toy = algorithm({"preset": "avspo", "shaping": shaping}), problem(0)
    groups = toy.groups()
    scored = toy.scored(row, groups)
    known = toy.tuned(row, scored, groups)
    assert known.virtual_PV is None
    flat = (known.verifier_PG == known.verifier_PG[:, :1]).all(1)
    assert 0 < flat.sum() < len(groups)
    virtual_PV = column([[0.1 * (v + 1) if wrong else NAN for v in range(V)] for wrong in flat.tolist()])
    plain, changed = (
        row.weigh(scored.credited(row.credit(each)), MAX_LENGTH)
        for each in (known, replace(known, virtual_PV=virtual_PV))
    )
    for name in (f.name for f in fields(plain)):
        one, other = getattr(plain, name), getattr(changed, name)
        if name == "advantage_B":
            touched_P = (one != other).reshape(len(groups), -1).any(1)
            assert torch.equal(touched_P, flat)
        elif isinstance(one, torch.Tensor):
            assert torch.equal(one, other), name
        else:
            assert one == other, name
    for batch in (plain, changed):
        assert len(batch) == len(toy.rows)
        assert batch.mask_BT.sum() == sum(r.length for r in toy.rows)
    # The loss is that of the same rows with these advantages written in by hand.
    by_hand = plain.with_(advantage_B=changed.advantage_B.clone())
    for a, b in zip(toy.gradient(row, [changed]), toy.gradient(row, [by_hand]), strict=True):
        assert torch.equal(a, b)


def test_collapsed_groups_teach_only_where_it_fires():
    """Raw ACR 1/2: below the threshold nothing of them is trained, above it every row is."""
    groups = [[0.0] * 4, [1.0] * 4, [1.0, 0.0, 0.0, 0.0], [1.0, 1.0, 0.0, 0.0]]
    for threshold, silent in ((0.5, 2), (0.49, 0)):
        row = algorithm({"preset": "avspo", "control": [{"kind": "collapse", "threshold": threshold}]})
        tuned = Controls(row.control, seed=0).tune(stats(groups), None)
        advantage_PG = row.credit(tuned).advantage_PG
        assert (advantage_PG == 0).all(1).sum() == silent
        assert (advantage_PG != 0).any(1).sum() == 4 - silent


@pytest.mark.parametrize("c", [0.25, 1.0])
def test_the_plain_control_of_equal_groups(c):
    """+c where all are correct, -c where all are wrong, nothing else; an unjudged row has no part in it."""
    groups = [[1.0] * 4, [0.0] * 4, [1.0, 0.0, 0.0, 0.0], [1.0, NAN, 1.0, NAN], [1.0, NAN, NAN, NAN]]
    found = ZScore(homogeneous=c)(stats(groups))
    plain = ZScore()(stats(groups))
    expected = [[c] * 4, [-c] * 4, plain[2].tolist(), [c, 0.0, c, 0.0], [0.0] * 4]
    torch.testing.assert_close(found, column(expected))
    assert (plain[[0, 1, 3, 4]] == 0).all()


def test_repaired_groups_are_not_flat_any_more():
    """The control acts where rewards and virtual rewards are equal, so the two do not add up."""
    known = stats([[0.0] * 4], virtual_PV=column([[0.1, 0.2]]))
    assert torch.equal(ZScore(homogeneous=5.0)(known), ZScore()(known))
