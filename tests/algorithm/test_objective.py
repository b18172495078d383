import pytest
import torch
from algorithm_cases import (
    LIVELY,
    MAX_LENGTH,
    NAMES,
    VARIANTS,
    algorithm,
    anchored,
    chunks,
    label,
    padded,
    problem,
)
from algorithm_loops import loops_loss
from hypothesis import given, settings
from hypothesis import strategies as st

EVERY = pytest.mark.parametrize("spec", VARIANTS, ids=label)
TIGHT = {"rtol": 0, "atol": 1e-10}


@EVERY
@pytest.mark.parametrize("seed", [0, 1])
def test_every_row_equals_its_formula_in_loops(spec, seed):
    toy = problem(seed)
    loss, slope = toy.whole(algorithm(spec))
    loss_by_loops, slope_by_loops = loops_loss(spec, toy)
    assert loss.item() == pytest.approx(loss_by_loops, abs=1e-12)
    torch.testing.assert_close(slope, torch.tensor(slope_by_loops, dtype=torch.float64), rtol=0, atol=1e-12)
    assert slope.abs().max() > 1e-4


@EVERY
def test_a_row_at_the_mean_of_its_group(spec):
    """Rewards 0, 1/2, 1: an advantage of 0 among others. What of its gradient is left out must be 0."""
    row, toy = algorithm(spec), problem(3, P=2, G=3)
    for member, reward in zip(toy.rows, [0.0, 0.5, 1.0] * 2, strict=True):
        member.reward = reward
    loss, slope = toy.whole(row)
    loss_by_loops, slope_by_loops = loops_loss(spec, toy)
    assert loss.item() == pytest.approx(loss_by_loops, abs=1e-12)
    torch.testing.assert_close(slope, torch.tensor(slope_by_loops, dtype=torch.float64), **TIGHT)


@pytest.mark.parametrize("spec", LIVELY, ids=label)
def test_what_the_toy_is_to_show_takes_part(spec):
    toy = problem(0)
    (_, slope), (_, plain) = (toy.whole(algorithm(each)) for each in (spec, spec["preset"]))
    assert (slope - plain).abs().max() > 1e-3


@EVERY
@pytest.mark.parametrize("minibatches", [1, 3])
def test_b01_the_gradient_does_not_depend_on_the_split(spec, minibatches):
    """B-01, A-15: parts of 1, 2, 3, 8 rows, and parts by tokens, add up to every optimiser step."""
    row, toy = algorithm(spec), problem(7, P=5)
    steps = list(toy.batch(row).minibatches(minibatches))
    assert len(steps) == minibatches
    for step in steps:
        weighed = row.weigh(step, MAX_LENGTH)
        loss, slope = toy.gradient(row, [weighed])
        splits = [list(chunks(weighed, size)) for size in (1, 2, 3, 8)]
        splits += [list(weighed.micro(tokens)) for tokens in (1, 20, 45, 10_000)]
        for parts in splits:
            loss_of_parts, slope_of_parts = toy.gradient(row, parts)
            torch.testing.assert_close(loss_of_parts, loss, **TIGHT)
            torch.testing.assert_close(slope_of_parts, slope, **TIGHT)


@settings(max_examples=40, deadline=None)
@given(
    spec=st.sampled_from(VARIANTS),
    seed=st.integers(0, 50),
    extra=st.integers(0, 5),
    shift=st.floats(-50, 50),
    order=st.permutations(range(4)),
)
def test_b24_padding_order_and_a_constant_reward_change_nothing(spec, seed, extra, shift, order):
    """B-24 for every row: padded with NaN, permuted within groups, shifted in reward."""
    row, toy = algorithm(spec), problem(seed)
    loss, slope = toy.whole(row)
    shift = 0.0 if anchored(spec) else shift
    changed = padded(toy.batch(row, toy.groups(order, shift)), extra, float("nan"))
    changed_loss, changed_slope = toy.whole(row, changed)
    torch.testing.assert_close(changed_loss, loss, **TIGHT)
    torch.testing.assert_close(changed_slope, slope, **TIGHT)


@EVERY
@pytest.mark.parametrize("poison", [float("nan"), float("inf"), -float("inf"), 1e30])
def test_b08_what_is_masked_reaches_neither_loss_nor_gradient(spec, poison):
    """B-08: NaN and inf in every column where nothing is trained; kl and entropy switched on."""
    row, toy = algorithm({**spec, "kl": 0.1, "kl_estimator": "k3_ratio", "entropy_coef": 0.01}), problem(2)
    loss, slope = toy.whole(row)
    batch = padded(toy.batch(row), 2, poison)
    for name in ("engine_logp_BT", "old_logp_BT", "ref_logp_BT"):
        batch = batch.with_(**{name: getattr(batch, name).where(batch.mask_BT, poison)})
    toy.theta[0] = poison  # the padding token's log-prob and entropy
    poisoned_loss, poisoned_slope = toy.whole(row, batch)
    torch.testing.assert_close(poisoned_loss, loss, **TIGHT)
    torch.testing.assert_close(poisoned_slope[1:], slope[1:], **TIGHT)
    objective = row.objective(toy.theta[batch.tokens_BT], toy.theta[batch.tokens_BT], batch)
    assert objective.gain_BT.isfinite().all()
    assert objective.kl_BT.isfinite().all()
    assert not (objective.clipped_BT | objective.vetoed_BT)[~batch.mask_BT].any()


@EVERY
def test_b08_the_gradient_at_masked_positions_is_zero(spec):
    row, toy = algorithm(spec), problem(2)
    batch = row.weigh(toy.batch(row), MAX_LENGTH)
    logp_BT = toy.theta[batch.tokens_BT].where(batch.mask_BT, float("nan")).requires_grad_()
    (batch.weight_BT * row.objective(logp_BT, None, batch).gain_BT).sum().backward()
    assert (logp_BT.grad[~batch.mask_BT] == 0).all()
    assert logp_BT.grad.isfinite().all()


@EVERY
def test_b09_an_unjudged_and_an_empty_row_stay_finite(spec):
    """B-09, A-08, A-22: a row without a reward, one without tokens, and groups of one-token rows."""
    row, toy = algorithm({**spec, "kl": 0.1}), problem(6)
    toy.rows[0].reward = None
    toy.rows[1].length = 0
    for r in toy.rows[8:]:
        r.length = 1
    batch = toy.batch(row)
    assert batch.length_B[:2].tolist() == [0, 0]
    loss, slope = toy.whole(row, batch)
    assert loss.isfinite()
    assert slope.isfinite().all()
    assert (slope[toy.rows[0].start] == 0).all()
    rest = batch.rows(torch.arange(2, len(batch)))
    for a, b in zip(toy.whole(row, rest), (loss, slope), strict=True):
        torch.testing.assert_close(a, b, **TIGHT)


@EVERY
def test_b25_as_many_rows_as_tokens(spec):
    """B-25: 4 rows of 4 tokens, where a broadcast along the wrong axis keeps the shape."""
    toy = problem(11, P=1, G=4, length=4)
    toy.rows[0].reward, toy.rows[1].reward = 1.0, 0.25
    _, slope = toy.whole(algorithm(spec))
    by_loops = torch.tensor(loops_loss(spec, toy)[1], dtype=torch.float64)
    torch.testing.assert_close(slope, by_loops, **TIGHT)


@EVERY
def test_b26_no_column_shares_its_memory(spec):
    """B-26: what is written to one token or one row stays there."""
    row, toy = algorithm({**spec, "kl": 0.1}), problem(0)
    batch = row.weigh(toy.batch(row), MAX_LENGTH)
    objective = row.objective(toy.theta[batch.tokens_BT], None, batch)
    columns = [getattr(batch, f"{n}_B") for n in ("advantage", "clip_low", "clip_high", "price", "correct")]
    for column in [objective.gain_BT, objective.clipped_BT, objective.kl_BT, batch.weight_BT, *columns]:
        before, first = column.clone(), (0,) * column.ndim
        column[first] = 1 - column[first].int() if column.dtype == torch.bool else 77
        assert (column != before).sum() == 1


CLOSE_TO_GRPO = {"preset": "dapo", "clip": {"high": 0.2}, "admit": {"kind": "everything"}, "shaping": []}


def test_dapo_without_its_additions_is_grpo_with_token_mean():
    for seed in range(4):
        toy = problem(seed)
        for a, b in zip(
            toy.whole(algorithm(CLOSE_TO_GRPO)),
            toy.whole(algorithm({"preset": "grpo", "aggregate": "token"})),
            strict=True,
        ):
            assert torch.equal(a, b)


def test_dapo_without_its_additions_is_grpo_at_equal_lengths():
    toy = problem(0, length=5)
    for a, b in zip(toy.whole(algorithm(CLOSE_TO_GRPO)), toy.whole(algorithm("grpo")), strict=True):
        torch.testing.assert_close(a, b, rtol=0, atol=1e-14)


def test_gspo_with_one_token_and_equal_clips_is_grpo():
    toy = problem(0, length=1)
    gspo = algorithm({"preset": "gspo", "clip": {"low": 0.2, "high": 0.2}})
    for a, b in zip(toy.whole(gspo), toy.whole(algorithm("grpo")), strict=True):
        torch.testing.assert_close(a, b, rtol=0, atol=1e-14)


@pytest.mark.parametrize("name", NAMES)
def test_float32_stays_near_float64(name):
    row, toy = algorithm(name), problem(0)
    batch = row.weigh(toy.batch(row), MAX_LENGTH).to("cpu", torch.float32)
    logp_BT = toy.theta[batch.tokens_BT].float()
    gain_BT = row.objective(logp_BT, None, batch).gain_BT
    assert gain_BT.dtype == torch.float32
    assert -(batch.weight_BT * gain_BT).sum().item() == pytest.approx(toy.whole(row)[0].item(), abs=1e-5)
