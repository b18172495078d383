import math

import pytest
import torch
from algorithm_cases import stats
from hypothesis import given, settings
from hypothesis import strategies as st

from rlctl.algorithm import Algorithm
from rlctl.algorithm.advantage import Centred, LeaveOneOut, ZScore

NAN = float("nan")
REWARDS = [[1.0, 0.0, 0.0, 0.0], [1.0, 1.0, 0.0, 0.0]]
BATCH_STD = math.sqrt((3 * 0.625**2 + 5 * 0.375**2) / 7)  # mean 3/8, three of them 1
KINDS = [
    ZScore(),
    ZScore(scale="batch"),
    ZScore(std="population"),
    ZScore(std="mad"),
    ZScore(std="iqr"),
    Centred(),
    LeaveOneOut(),
]


def check(stage, rewards, expected):
    torch.testing.assert_close(
        stage(stats(rewards)),
        torch.tensor(expected, dtype=torch.float64),
        rtol=0,
        atol=1e-12,
    )


@pytest.mark.parametrize(
    ("stage", "expected"),
    [
        # bessel std of the first group: sqrt((9/16 + 3/16) / 3) = 1/2, of the second sqrt(1/3)
        (ZScore(eps=0), [[1.5, -0.5, -0.5, -0.5], [math.sqrt(3) / 2] * 2 + [-math.sqrt(3) / 2] * 2]),
        (
            ZScore(eps=0, std="population"),
            [[math.sqrt(3)] + [-1 / math.sqrt(3)] * 3, [1.0, 1.0, -1.0, -1.0]],
        ),
        (
            ZScore(eps=0.5),
            [[0.75, -0.25, -0.25, -0.25], [0.5 / (1 / math.sqrt(3) + 0.5) * s for s in (1, 1, -1, -1)]],
        ),
        (
            ZScore(eps=0, scale="batch"),
            [
                [d / BATCH_STD for d in (0.75, -0.25, -0.25, -0.25)],
                [d / BATCH_STD for d in (0.5, 0.5, -0.5, -0.5)],
            ],
        ),
        (Centred(), [[0.75, -0.25, -0.25, -0.25], [0.5, 0.5, -0.5, -0.5]]),
        (LeaveOneOut(), [[1.0, -1 / 3, -1 / 3, -1 / 3], [2 / 3, 2 / 3, -2 / 3, -2 / 3]]),
    ],
)
def test_a01_each_option_in_closed_form(stage, expected):
    """A-01."""
    check(stage, REWARDS, expected)


@pytest.mark.parametrize("stage", KINDS)
def test_a05_one_judged_member_gets_zero(stage):
    """A-05: 7 of 8 members are gone; the survivor's reward never becomes its advantage."""
    check(stage, [[1.0] + [NAN] * 7, [NAN] * 8], [[0.0] * 8] * 2)


@pytest.mark.parametrize("stage", KINDS)
@pytest.mark.parametrize("reward", [0.0, 1.0, -3.0, 0.1 + 0.2, 1e6])
def test_a06_equal_rewards_give_exactly_zero(stage, reward):
    """A-06."""
    check(stage, [[reward] * 8], [[0.0] * 8])
    as_float32 = stats([[reward] * 8], reward_PG=torch.tensor([[reward] * 8], dtype=torch.float32))
    assert (stage(as_float32) == 0).all()


@pytest.mark.parametrize("stage", KINDS)
def test_a07_rounding_is_no_difference(stage):
    """A-07: sums that should be equal differ in their last bits."""
    rewards = [0.1 + 0.2, 0.3, 0.1 + 0.1 + 0.1, 0.7 - 0.4, 0.3, 0.1 + 0.2, 0.3, 0.9 / 3]
    assert len(set(rewards)) > 1
    assert (stage(stats([rewards])) == 0).all()
    as_float32 = torch.tensor([[0.1 + 0.2, 0.3] * 4], dtype=torch.float32)
    assert (stage(stats([rewards], reward_PG=as_float32)) == 0).all()
    assert (stage(stats([[0.0, 2e-6]])) != 0).any()  # the lower median is one of the two


@pytest.mark.parametrize("stage", KINDS)
def test_a08_an_unjudged_row_leaves_its_group(stage):
    """A-08, A-09: siblings are compared among themselves; the row itself gets 0 and an empty mask."""
    with_gap = stage(stats([[1.0, NAN, 0.0, 0.0], [0.0, 1.0, 0.0, 1.0]]))
    assert with_gap[0, 1] == 0
    assert with_gap.isfinite().all()
    if not (isinstance(stage, ZScore) and stage.scale == "batch"):
        alone = stage(stats([[1.0, 0.0, 0.0]]))
        torch.testing.assert_close(with_gap[0, [0, 2, 3]], alone[0], rtol=0, atol=1e-14)
    credit = Algorithm(advantage=stage).credit(stats([[1.0, NAN, 0.0, 0.0]]))
    assert credit.keep_PG.tolist() == [[True, False, True, True]]


def test_batch_scale_leaves_unjudged_rows_out_of_the_std():
    rewards = stats([[1.0, 0.0, NAN], [NAN, NAN, 3.0]])
    spread = torch.tensor([1.0, 0.0, 3.0], dtype=torch.float64).std()
    expected = torch.tensor([[0.5, -0.5, 0], [0, 0, 0]], dtype=torch.float64) / spread
    torch.testing.assert_close(ZScore(scale="batch", eps=0)(rewards), expected)


GRID = st.integers(-8, 8).map(lambda i: i / 4)
MATRIX = st.integers(2, 6).flatmap(
    lambda g: st.lists(st.lists(GRID, min_size=g, max_size=g), min_size=1, max_size=4)
)


@settings(max_examples=30, deadline=None)
@given(MATRIX, st.sampled_from(KINDS), st.floats(-100, 100), st.randoms())
def test_invariance_to_shift_and_order(rewards, stage, shift, rng):
    R = torch.tensor(rewards, dtype=torch.float64)
    A = stage(stats(rewards))
    torch.testing.assert_close(stage(stats((R + shift).tolist())), A, rtol=0, atol=1e-10)
    order = rng.sample(range(R.shape[1]), R.shape[1])
    torch.testing.assert_close(stage(stats(R[:, order].tolist())), A[:, order], rtol=0, atol=1e-12)
    assert A.sum(1).abs().max() < 1e-9
    assert A.dtype == torch.float64
