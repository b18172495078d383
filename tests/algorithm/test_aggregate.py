import pytest
import torch
from algorithm_cases import algorithm, chunks, problem

from rlctl.algorithm.aggregate import token_weights

MASK = torch.tensor([[1, 1, 1, 0], [1, 0, 0, 0], [0, 0, 0, 0]]).bool()
GROUP = torch.tensor([0, 0, 1])


@pytest.mark.parametrize(
    ("aggregate", "first", "second"),
    [
        ("token", 1 / 4, 1 / 4),
        ("sequence", 1 / 6, 1 / 2),
        ("constant", 1 / 20, 1 / 20),
        ("row_sum", 1 / 2, 1 / 2),
        ("group", 1 / 4, 1 / 4),  # both rows are of one group; the other has no token
    ],
)
def test_b09_weights_by_hand(aggregate, first, second):
    """B-09, B-02: a row without trained tokens gives no 0/0 and counts in no denominator."""
    weight_BT = token_weights(aggregate, MASK, GROUP, 10)
    expected = [[first, first, first, 0], [second, 0, 0, 0], [0, 0, 0, 0]]
    torch.testing.assert_close(weight_BT, torch.tensor(expected, dtype=torch.float64))


def test_a_mean_over_groups_by_hand():
    """Groups of 4 and 2 tokens: 1/8 and 1/4 a token, so that each prompt weighs a half."""
    mask_BT = torch.tensor([[1, 1, 1], [1, 1, 0], [1, 0, 0]]).bool()
    found = token_weights("group", mask_BT, torch.tensor([7, 3, 7]), 10)
    expected = [[1 / 8] * 3, [1 / 4, 1 / 4, 0], [1 / 8, 0, 0]]
    torch.testing.assert_close(found, torch.tensor(expected, dtype=torch.float64))


@pytest.mark.parametrize("aggregate", ["token", "group", "sequence", "constant", "row_sum"])
def test_b09_nothing_to_train(aggregate):
    assert (token_weights(aggregate, torch.zeros(2, 3, dtype=torch.bool), GROUP[:2], 10) == 0).all()


@pytest.mark.parametrize("aggregate", ["token", "sequence", "constant"])
def test_b25_square_batches(aggregate):
    """B-25: with as many rows as tokens a missing keepdim goes unnoticed in the shapes."""
    mask_BT = torch.tensor([[1, 1, 1], [1, 1, 0], [1, 0, 0]]).bool()
    weight_BT = token_weights(aggregate, mask_BT, GROUP, 3)
    row_sums = {"token": [3 / 6, 2 / 6, 1 / 6], "sequence": [1 / 3] * 3, "constant": [3 / 9, 2 / 9, 1 / 9]}
    torch.testing.assert_close(weight_BT.sum(1), torch.tensor(row_sums[aggregate], dtype=torch.float64))


@pytest.mark.parametrize("aggregate", ["token", "group", "sequence", "constant", "row_sum"])
def test_b03_uneven_parts_weigh_by_their_tokens(aggregate):
    """B-03: one long row in its own part, many short ones in another."""
    row = algorithm({"aggregate": aggregate})
    toy = problem(5, P=2, G=6)
    weighed = row.weigh(toy.batch(row), 10)
    _, whole = toy.gradient(row, [weighed])
    _, split = toy.gradient(row, list(chunks(weighed, 1)))
    torch.testing.assert_close(split, whole, rtol=0, atol=1e-12)


def test_zero_advantage_rows_stay_in_the_denominator():
    row = algorithm("grpo")
    toy = problem(2, P=4)
    batch = row.weigh(toy.batch(row), 10)
    assert (batch.advantage_B == 0).sum() >= 4
    torch.testing.assert_close(batch.weight_BT.sum(), torch.tensor(1.0, dtype=torch.float64))
    alive = batch.rows((batch.advantage_B != 0).nonzero().flatten())
    assert row.skips_zero_rows
    for whole, part in zip(toy.gradient(row, [batch]), toy.gradient(row, [alive]), strict=True):
        torch.testing.assert_close(part, whole, rtol=0, atol=1e-14)
