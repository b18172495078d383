"""What is left out of the gain, and that nothing else is."""

import math

import pytest
import torch
from algorithm_cases import MAX_LENGTH, algorithm, problem
from hypothesis import given, settings
from hypothesis import strategies as st

from rlctl.algorithm.veto import SequenceMask, Suffix
from rlctl.batch import Batch

HALF = math.log(2)


def rows(advantages, lengths, T=4, **columns):
    """Rows of so many trained tokens, all log-probs -1 unless given."""
    B = len(advantages)
    flat_BT = torch.full((B, T), -1.0, dtype=torch.float64)
    zero_B = torch.zeros(B, dtype=torch.float64)
    made = {
        "prompts_B": ((1,),) * B,
        "tokens_BT": torch.zeros(B, T, dtype=torch.int64),
        "mask_BT": torch.arange(T) < torch.tensor(lengths)[:, None],
        "engine_logp_BT": flat_BT,
        "temperature_B": zero_B + 1,
        "group_B": torch.zeros(B, dtype=torch.int64),
        "correct_B": torch.zeros(B, dtype=torch.int64),
        "advantage_B": torch.tensor(advantages, dtype=torch.float64),
        "clip_low_B": zero_B + 1,
        "clip_high_B": zero_B + 9,
        "price_B": zero_B,
        "old_logp_BT": flat_BT,
    }
    return Batch(**(made | columns))


# log ratios in units of ln 2; the threshold 0.3 lies between one and two of them.
FALLS = [0.0, -2.0, 0.0, 3.0]
SINKS = [1.0, -2.0, -2.0, -2.0]  # means 1, -1/2, -1, -5/4
RISES = [0.0, 0.0, 2.0, -2.0]


@pytest.mark.parametrize(
    ("trigger", "threshold", "ratios", "kept"),
    [
        ("low", 0.3, FALLS, [1, 1, 0, 0]),
        ("low", 0.3, RISES, [1, 1, 1, 1]),  # only the last token fires, and nothing follows
        ("low", 0.2, FALLS, [1, 1, 1, 1]),  # a ratio of 1/4 is not below
        ("high", 0.3, FALLS, [1, 1, 1, 1]),
        ("high", 0.3, RISES, [1, 1, 1, 0]),
        ("either", 0.3, FALLS, [1, 1, 0, 0]),
        ("either", 0.3, RISES, [1, 1, 1, 0]),
        ("prefix", 0.6, SINKS, [1, 1, 1, 0]),  # -1 < log2 0.6 = -0.74
        ("prefix", 0.8, SINKS, [1, 1, 0, 0]),  # -1/2 < log2 0.8 = -0.32
        ("prefix", 0.4, SINKS, [1, 1, 1, 1]),  # -5/4 > log2 0.4 = -1.32
    ],
)
def test_suffix_by_hand(trigger, threshold, ratios, kept):
    """What follows the first trigger is dropped, that token itself stays; rows of A >= 0 are untouched."""
    batch = rows([-1.0, 1.0, 0.0], [4, 4, 4])
    log_ratio_BT = torch.tensor([ratios] * 3, dtype=torch.float64) * HALF
    factor_BT = Suffix(trigger=trigger, threshold=threshold)(log_ratio_BT, batch)
    assert factor_BT.tolist() == [kept, [1] * 4, [1] * 4]
    assert factor_BT.dtype == torch.float64


def test_suffix_sees_trained_tokens_only():
    """What stands behind a row fires nothing and is no token that could be kept."""
    log_ratio_BT = torch.tensor([[0.0, 0.0, -9.0, -9.0], [-9.0, 0.0, 0.0, 0.0]], dtype=torch.float64)
    for trigger in ("low", "either", "prefix"):
        factor_BT = Suffix(trigger=trigger)(log_ratio_BT, rows([-1.0, -1.0], [2, 3]))
        assert factor_BT.tolist() == [[1, 1, 0, 0], [1, 0, 0, 0]]


LOG_RATIOS = st.lists(st.floats(-3, 3), min_size=1, max_size=6)


@settings(max_examples=100, deadline=None)
@given(
    st.lists(st.tuples(LOG_RATIOS, st.sampled_from([-1.0, 0.0, 1.0])), min_size=1, max_size=4),
    st.sampled_from(["low", "high", "either", "prefix"]),
    st.sampled_from([0.1, 0.5, 0.8]),
    st.booleans(),
)
def test_suffix_by_loops(drawn, trigger, threshold, recount):
    batch = rows([A for _, A in drawn], [len(row) for row, _ in drawn], T=6)
    log_ratio_BT = torch.zeros(len(drawn), 6, dtype=torch.float64)
    expected = []
    for b, (row, A) in enumerate(drawn):
        log_ratio_BT[b, : len(row)] = torch.tensor(row)
        kept, fired = [], False
        for t, x in enumerate(row):
            kept.append(0.0 if fired and A < 0 else 1.0)
            mean = sum(log_ratio_BT[b, : t + 1].tolist()) / (t + 1)
            fired = (
                fired
                or {
                    "low": math.exp(x) < threshold,
                    "high": math.exp(x) > 1 / threshold,
                    "either": abs(x) > -math.log(threshold),
                    "prefix": math.exp(mean) < threshold,
                }[trigger]
            )
        share = len(row) / sum(kept) if recount else 1.0
        expected.append([k * share for k in kept] + [0.0] * (6 - len(row)))
    found = Suffix(trigger=trigger, threshold=threshold, recount=recount)(log_ratio_BT, batch)
    torch.testing.assert_close(found, torch.tensor(expected, dtype=torch.float64))


def test_recount_spreads_a_row_s_weight_over_what_is_left():
    """Two of four tokens are left and count double, so the row weighs what it did; by default it does not."""
    log_ratio_BT = torch.tensor([FALLS], dtype=torch.float64) * HALF
    batch = rows([-1.0], [4])
    assert Suffix(threshold=0.3, recount=True)(log_ratio_BT, batch).tolist() == [[2, 2, 0, 0]]
    assert Suffix(threshold=0.3)(log_ratio_BT, batch).sum() == 2


def test_a_vetoed_token_has_no_gradient_and_is_not_called_clipped():
    """By hand in a whole row: ratios 1, 1/4, 1, 8 under [0, 2]; the reference still holds all four."""
    log_ratio_BT = torch.tensor([FALLS], dtype=torch.float64) * HALF
    batch = rows([-1.0], [4], clip_high_B=torch.ones(1, dtype=torch.float64))
    batch = batch.with_(ref_logp_BT=batch.old_logp_BT - 1.0)
    row = algorithm({"preset": "mu_grpo", "veto": {"threshold": 0.3}, "kl": 0.5, "kl_estimator": "k1"})
    logp_BT = (batch.old_logp_BT + log_ratio_BT).requires_grad_()
    found = row.objective(logp_BT, None, batch)
    found.gain_BT.sum().backward()
    assert logp_BT.grad[0].tolist() == pytest.approx([-1 - 0.5, -0.25 - 0.5, -0.5, -0.5])
    assert found.vetoed_BT.tolist() == [[False, False, True, True]]
    assert not found.clipped_BT.any()
    free = algorithm({"preset": "mu_grpo", "veto": None}).objective(logp_BT, None, batch)
    assert free.vetoed_BT.tolist() == [[False] * 4]
    assert free.gain_BT.tolist()[0] == pytest.approx([-1, -0.25, -1, -8])


def test_each_token_is_counted_once_as_vetoed_or_clipped():
    """Three ratios of 1/4 below a bound of 1/2: the first fires and is clipped, the rest are left out."""
    log_ratio_BT = torch.tensor([[-2.0, -2.0, -2.0, 0.0]], dtype=torch.float64) * HALF
    batch = rows([-1.0], [3], clip_low_B=torch.full((1,), 0.5, dtype=torch.float64))
    row = algorithm({"veto": {"kind": "suffix", "threshold": 0.3}})
    found = row.objective(batch.old_logp_BT + log_ratio_BT, None, batch)
    assert found.clipped_BT.tolist() == [[True, False, False, False]]
    assert found.vetoed_BT.tolist() == [[False, True, True, False]]


@pytest.mark.parametrize("aggregate", ["token", "sequence"])
def test_weights_stay_by_default_and_a_recounted_row_is_the_row_cut_short(aggregate):
    """With `recount` the gradient is that of the batch without the vetoed tokens (sequence mean)."""
    toy = problem(0)
    spec = {"preset": "mu_grpo", "aggregate": aggregate, "veto": {"threshold": 0.8}}
    batch = toy.batch(algorithm(spec))
    weighed = algorithm(spec).weigh(batch, MAX_LENGTH)
    vetoed_BT = algorithm(spec).objective(toy.theta[batch.tokens_BT], None, weighed).vetoed_BT
    assert vetoed_BT.any()
    assert torch.equal(
        weighed.weight_BT, algorithm({**spec, "veto": None}).weigh(batch, MAX_LENGTH).weight_BT
    )
    if aggregate == "sequence":
        recounted = algorithm({**spec, "veto": {"threshold": 0.8, "recount": True}})
        plain = algorithm({**spec, "veto": None})
        cut = batch.with_(mask_BT=batch.mask_BT & ~vetoed_BT)
        for a, b in zip(toy.whole(recounted, batch), toy.whole(plain, cut), strict=True):
            torch.testing.assert_close(a, b, rtol=0, atol=1e-12)


def policies(engine, old, new):
    """A row of three tokens with constant log-probs under three policies."""

    def column(value):
        return torch.full((1, 4), value, dtype=torch.float64)

    batch = rows([-1.0], [3], engine_logp_BT=column(engine), old_logp_BT=column(old))
    return batch, column(new - old)


@pytest.mark.parametrize(
    ("engine", "old", "new", "kept"),
    [
        (-1.0, -1.4, -1.5, False),  # fell by 0.5 from the engine's, by 0.1 from the learner's own
        (-1.4, -1.0, -1.5, True),  # fell by 0.1 from the engine's, by 0.5 from the learner's own
        (-1.0, -1.0, -1.19, True),
        (-1.0, -1.0, -1.21, False),
        (-1.5, -1.5, -1.0, True),  # rose
    ],
)
def test_b33_the_sequence_veto_measures_from_the_policy_that_sampled(engine, old, new, kept):
    """B-33: engine, learner at collection and policy now are three; delta is 0.2."""
    batch, log_ratio_BT = policies(engine, old, new)
    assert SequenceMask(delta=0.2)(log_ratio_BT, batch).tolist() == [[float(kept)] * 3 + [0.0]]
    positive = batch.with_(advantage_B=-batch.advantage_B)
    assert SequenceMask(delta=0.2)(log_ratio_BT, positive).tolist() == [[1.0] * 3 + [0.0]]


def test_b33_the_fall_is_a_mean_over_trained_tokens():
    """B-33: falls of 0, 0.3 and 0.6 mean 0.3; NaN behind the row says nothing."""
    nan = math.nan
    batch = rows([-1.0, -1.0], [3, 2])
    batch = batch.with_(engine_logp_BT=batch.engine_logp_BT.where(batch.mask_BT, nan))
    log_ratio_BT = torch.tensor([[0.0, -0.3, -0.6, 0.0], [0.0, -0.3, 0.0, 0.0]], dtype=torch.float64)
    for delta, kept in ((0.29, [0, 2]), (0.31, [3, 2]), (0.14, [0, 0])):
        assert SequenceMask(delta=delta)(log_ratio_BT, batch).sum(1).tolist() == kept


def test_a_vetoed_row_stays_in_the_denominator():
    row = algorithm({"veto": {"kind": "sequence", "delta": 0.2}, "correction": {"kind": "none"}})
    engine_BT = torch.tensor([[-1.0] * 4, [0.0] * 4], dtype=torch.float64)
    batch = row.weigh(rows([-1.0, -2.0], [4, 4], engine_logp_BT=engine_BT), MAX_LENGTH)
    logp_BT = batch.old_logp_BT.clone().requires_grad_()
    found = row.objective(logp_BT, None, batch)
    (batch.weight_BT * found.gain_BT).sum().backward()
    torch.testing.assert_close(logp_BT.grad, torch.tensor([[-1 / 8] * 4, [0.0] * 4], dtype=torch.float64))
    assert found.vetoed_BT.tolist() == [[False] * 4, [True] * 4]
