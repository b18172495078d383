import math

import pytest
import torch
from algorithm_cases import MAX_LENGTH, NAMES, algorithm, problem, stats
from hypothesis import given, settings
from hypothesis import strategies as st

from rlctl.algorithm.presets import PRESETS
from rlctl.algorithm.reweight import Codapo, EntropyDriven, Focal, codapo_value

# algorithms.md 3.1: gamma 0.5, G = 8, population std, X = 1..7
TABLE = [2.475, 1.500, 1.021, 0.707, 0.474, 0.289, 0.134]
UNWEIGHTED = [2.646, None, None, None, None, None, 0.378]


def test_focal_table_of_the_paper():
    groups = stats([[1.0] * X + [0.0] * (8 - X) for X in range(1, 8)])
    row = {"advantage": {"std": "population", "eps": 0}}
    plain = algorithm(row).credit(groups).advantage_PG[:, 0].tolist()
    focal = algorithm({**row, "reweight": [{"kind": "focal", "gamma": 0.5}]}).credit(groups)
    assert [round(a, 3) for a in focal.advantage_PG[:, 0].tolist()] == TABLE
    assert [round(plain[0], 3), round(plain[-1], 3)] == [UNWEIGHTED[0], UNWEIGHTED[-1]]


@pytest.mark.parametrize(("gamma", "mean"), [(0.5, 0.679), (1.0, 0.5), (2.0, 0.3125)])
def test_focal_mean_scale_over_success_rates(gamma, mean):
    """algorithms.md 3.1: the mean of (1 - p)^gamma, weighed by std(p), is a ratio of gamma functions."""
    closed = 4 / math.sqrt(math.pi) * math.gamma(gamma + 1.5) / math.gamma(gamma + 3)
    assert closed == pytest.approx(mean, abs=5e-4)
    G = 400
    groups = stats([[1.0] * X + [0.0] * (G - X) for X in range(1, G)])
    spread_P1 = groups.verifier_PG.std(1, correction=0, keepdim=True)
    found = (Focal(gamma=gamma)(groups) * spread_P1).sum() / spread_P1.sum()
    assert float(found) == pytest.approx(closed, abs=2e-3)


def test_focal_counts_correct_answers_and_not_rewards():
    half = stats([[3.0, 2.0, 1.0, 0.0]], correct_PG=torch.tensor([[True, True, False, False]]))
    assert Focal(gamma=1.0)(half).tolist() == [[0.5]]
    assert Focal(gamma=2.0)(half).tolist() == [[0.25]]
    assert Focal(gamma=1.0)(stats([[1.0, 1.0], [0.0, 0.0]])).tolist() == [[0.0], [1.0]]


def test_focal_leaves_unjudged_answers_out():
    assert Focal(gamma=1.0)(stats([[1.0, 0.0, float("nan"), float("nan")]])).tolist() == [[0.5]]


def test_entries_multiply():
    groups = stats([[1.0, 0.0, 0.0, 0.0]])
    twice = algorithm({"reweight": [{"kind": "focal", "gamma": 1.0}, {"kind": "focal", "gamma": 2.0}]})
    once = algorithm({"reweight": [{"kind": "focal", "gamma": 3.0}]})
    torch.testing.assert_close(twice.credit(groups).advantage_PG, once.credit(groups).advantage_PG)


@pytest.mark.parametrize("name", NAMES)
def test_gamma_zero_is_bitwise_the_row(name):
    plain = algorithm(name)
    own = PRESETS[name].stages.get("reweight", [])
    neutral = algorithm({"preset": name, "reweight": [*own, {"kind": "focal", "gamma": 0}]})
    toy = problem(3)
    for a, b in zip(toy.whole(plain), toy.whole(neutral), strict=True):
        assert torch.equal(a, b)


# algorithms.md 6.1: V_d of 0..8 correct answers of 8.
VALUE = [0.0, 0.4375, 0.75, 0.9375, 1.0, 0.9375, 0.75, 0.4375, 0.0]


def column(rows):
    return torch.tensor(rows, dtype=torch.float64)


def test_codapo_values_of_each_accuracy():
    """A sure policy (log-probs 0) leaves the difficulty alone: exact numbers, floored by 0.1 in the code."""
    groups = stats([[1.0] * c + [0.0] * (8 - c) for c in range(9)])
    groups = stats(groups.reward_PG.tolist(), logp_PG=torch.zeros(9, 8, dtype=torch.float64))
    assert codapo_value(groups)[:, 0].tolist() == VALUE
    assert Codapo(offset=0.0)(groups)[:, 0].tolist() == VALUE
    assert Codapo()(groups)[:, 0].tolist() == [v + 0.1 for v in VALUE]


def test_codapo_s_confidence_by_hand():
    """Row means -1 and -3 (of rows however long) give exp(-2); half are correct, so v = exp(-2)."""
    known = stats([[1.0, 0.0]], logp_PG=column([[-1.0, -3.0]]), length_PG=torch.tensor([[1, 9]]))
    assert codapo_value(known).item() == pytest.approx(math.exp(-2))


@settings(max_examples=60, deadline=None)
@given(
    st.lists(st.tuples(st.floats(-5, 0), st.sampled_from([0.0, 1.0, float("nan")])), min_size=2, max_size=8)
)
def test_codapo_by_loops(members):
    """Difficulty is counted among the judged."""
    judged = [r for _, r in members if not math.isnan(r)]
    d = 1 - sum(judged) / len(judged) if judged else 1.0
    c = math.exp(sum(x for x, _ in members) / len(members))
    known = stats([[r for _, r in members]], logp_PG=column([[x for x, _ in members]]))
    assert codapo_value(known).item() == pytest.approx(c * (1 - 4 * (d - 0.5) ** 2), abs=1e-12)


def test_codapo_leaves_equal_groups_the_offset_alone():
    row = algorithm({"reweight": [{"kind": "codapo"}], "advantage": {"homogeneous": 1.0}})
    known = stats([[1.0, 1.0], [0.0, 0.0]], logp_PG=column([[-1.0, -1.0]] * 2))
    torch.testing.assert_close(row.credit(known).advantage_PG, column([[0.1, 0.1], [-0.1, -0.1]]))


def test_entropy_factor_by_hand():
    """Entropies 1, 2, 3 of mean 2: factors 2, 1, 2/3; the same for both signs of the advantage."""
    known = stats([[1.0, 0.0, 0.0]], entropy_PG=column([[1.0, 2.0, 3.0]]))
    torch.testing.assert_close(EntropyDriven()(known), column([[2.0, 1.0, 2 / 3]]))
    torch.testing.assert_close(EntropyDriven(bound=1.25)(known), column([[1.25, 1.0, 0.8]]))
    assert (EntropyDriven(bound=1.0)(known) == 1).all()


@settings(max_examples=60, deadline=None)
@given(st.lists(st.lists(st.floats(0, 4), min_size=4, max_size=4), min_size=1, max_size=3), st.floats(1, 20))
def test_entropy_factor_by_loops(groups, bound):
    found = EntropyDriven(bound=bound)(stats([[0.0] * 4] * len(groups), entropy_PG=column(groups))).tolist()
    for row, entropies in zip(found, groups, strict=True):
        entropies = [max(P, 1e-12) for P in entropies]
        mean = sum(entropies) / 4
        assert row == pytest.approx([1 / min(max(P / mean, 1 / bound), bound) for P in entropies])


def test_entropy_factor_of_groups_of_their_own_and_of_no_choice_at_all():
    known = stats([[1.0, 0.0]] * 3, entropy_PG=column([[1.0, 3.0], [10.0, 30.0], [0.0, 0.0]]))
    torch.testing.assert_close(EntropyDriven()(known), column([[2.0, 2 / 3], [2.0, 2 / 3], [1.0, 1.0]]))


def test_a_collapsed_group_stays_silent_under_every_factor():
    reweight = [{"kind": "entropy"}, {"kind": "codapo"}, {"kind": "focal", "gamma": 0.5}]
    known = stats([[0.0] * 3], entropy_PG=column([[1.0, 2.0, 3.0]]), logp_PG=column([[-1.0] * 3]))
    credit = algorithm({"reweight": reweight}).credit(known)
    assert (credit.advantage_PG == 0).all()
    assert credit.factor_PG[0].tolist() == pytest.approx([0.2, 0.1, 0.1 * 2 / 3])
    assert credit.metrics() == pytest.approx(
        {
            "train/reweight/mean": 0.1 * (2 + 1 + 2 / 3) / 3,
            "train/reweight/min": 0.1 * 2 / 3,
            "train/reweight/max": 0.2,
        }
    )
    assert algorithm("grpo").credit(known).metrics() == {}


@pytest.mark.parametrize("name", ["f_grpo", "codapo", "edge"])
def test_no_gradient_flows_through_a_factor(name):
    """It is a number of the batch, decided before the update."""
    toy = problem(0)
    toy.theta = toy.old.clone()
    row = algorithm({"preset": name, "correction": {"kind": "none"}})
    batch = row.weigh(toy.batch(row), MAX_LENGTH)
    _, slope = toy.gradient(row, [batch])
    by_hand = torch.zeros_like(slope)
    by_hand[batch.tokens_BT] = -batch.weight_BT * batch.advantage_B[:, None]
    torch.testing.assert_close(slope[1:], by_hand[1:], rtol=0, atol=1e-14)
