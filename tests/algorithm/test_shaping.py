import pytest
import torch
from algorithm_cases import MAX_LENGTH, algorithm, problem, stats

from rlctl.algorithm.shaping import MaskTruncated, Overlong


def test_overlong_by_hand():
    before = stats([[1.0] * 7], length_PG=torch.tensor([[0, 60, 61, 80, 99, 100, 130]]), max_length=100)
    after = Overlong(buffer=40, penalty=2.0)(before)
    expected = [1.0, 1.0, 1 - 2 / 40, 0.0, 1 - 2 * 39 / 40, -1.0, -1.0]
    torch.testing.assert_close(after.reward_PG[0], torch.tensor(expected, dtype=torch.float64))
    assert after.verifier_PG.tolist() == [[1.0] * 7]
    assert before.reward_PG.tolist() == [[1.0] * 7]


@pytest.mark.parametrize(
    ("buffer", "limit", "used"), [(None, 20480, 4096), (None, 3, 1), (30, 100, 30), (300, 100, 100)]
)
def test_buffer_that_is_used(buffer, limit, used):
    """The published 4096 of 20480 is a fifth; a buffer longer than the limit starts at the first token."""
    lengths = torch.tensor([[limit - used, limit - used + 1, limit]])
    shaped = Overlong(buffer=buffer)(stats([[0.0] * 3], length_PG=lengths, max_length=limit))
    assert shaped.reward_PG[0].tolist() == pytest.approx([0.0, -1 / used, -1.0])


def test_an_unjudged_reward_stays_unjudged():
    shaped = Overlong()(stats([[float("nan"), 1.0]], length_PG=torch.tensor([[10, 10]])))
    assert shaped.reward_PG.isnan().tolist() == [[True, False]]


def test_masked_rows_leave_the_loss_and_keep_their_reward():
    cut = torch.tensor([[True, False, False, False]])
    known = stats([[0.0, 1.0, 0.0, 1.0]], truncated_PG=cut)
    assert MaskTruncated()(known).keep_PG.tolist() == [[False, True, True, True]]
    filtered = algorithm({"shaping": [{"kind": "mask_truncated"}]}).credit(known)
    assert torch.equal(filtered.advantage_PG, algorithm("grpo").credit(known).advantage_PG)
    assert filtered.keep_PG.tolist() == [[False, True, True, True]]


@pytest.mark.parametrize("name", ["grpo", "dr_grpo", "cispo", "rloo", "gspo"])
def test_b02_truncated_rows_leave_the_denominator(name):
    """B-02: half the groups truncated: the loss is that of the other half alone."""
    row = algorithm({"preset": name, "shaping": [{"kind": "mask_truncated"}]})
    toy = problem(1, P=4, length=MAX_LENGTH)
    for completion in toy.rows[8:]:
        completion.length = 3
    groups = toy.groups()
    loss, slope = toy.whole(row, toy.batch(row, groups))
    rest = toy.batch(row, groups[2:])
    loss_of_rest, slope_of_rest = toy.whole(row, rest)
    torch.testing.assert_close(loss, loss_of_rest, rtol=0, atol=1e-14)
    torch.testing.assert_close(slope, slope_of_rest, rtol=0, atol=1e-14)
    assert slope.abs().max() > 1e-3
