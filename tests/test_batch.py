from dataclasses import replace

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from rlctl.batch import Batch, Credit, GroupStats, pack
from rlctl.types import Completion, Group, Prompt, Sample, Verdict


def sample(ids, reward=1.0, correct=True, finish="stop", temperature=1.0):
    logps = tuple(-float(i) for i in ids)
    return Sample(Completion(0, tuple(ids), logps, finish), "", Verdict(reward, correct), temperature)


def group(p, samples, prompt_length=2):
    prompt = Prompt(uid=f"toy:{p}", messages=(("user", "?"),), gold="", ids=(9,) * prompt_length)
    return Group(prompt, tuple(samples))


GROUPS = [
    group(0, [sample([5, 6, 7]), sample([0], 0.0, False), sample([3, 2], -1.0, False, "length", 0.7)]),
    group(1, [sample([], 0.0, False), sample([4, 4, 4, 4], None, False), sample([8, 8])], prompt_length=5),
]


def packed(groups=GROUPS, keep=True):
    stats = GroupStats.of(groups, 4)
    shape = stats.reward_PG.shape
    rows = torch.arange(stats.reward_PG.numel(), dtype=torch.float64).reshape(shape)
    kept = ~stats.reward_PG.isnan() & keep
    return pack(groups, stats).credited(Credit(rows, rows / 10, rows / 20, kept, rows / 40))


def test_statistics_of_judged_groups():
    stats = GroupStats.of(GROUPS, 4)
    assert stats.reward_PG.dtype == torch.float64
    assert stats.reward_PG[0].tolist() == [1.0, 0.0, -1.0]
    assert stats.reward_PG.isnan().tolist() == [[False] * 3, [False, True, False]]
    assert stats.correct_PG.tolist() == [[True, False, False], [False, False, True]]
    assert stats.length_PG.tolist() == [[3, 1, 2], [0, 4, 2]]
    assert stats.truncated_PG.tolist() == [[False, False, True], [False] * 3]
    assert stats.temperature_PG.tolist() == [[1.0, 1.0, 0.7], [1.0] * 3]
    assert stats.keep_PG.all()
    assert stats.uid_P == ("toy:0", "toy:1")
    assert stats.pool_PN is stats.reward_PG


def test_a10_rewards_of_zero_and_below_are_no_missing_rewards():
    """A-10."""
    batch = packed()
    assert batch.length_B.tolist() == [3, 1, 2, 0, 0, 2]  # the fifth has no reward, the fourth no token


def test_pack_lays_rows_out_in_order():
    batch = packed()
    assert len(batch) == 6
    assert batch.tokens_BT.tolist() == [
        [5, 6, 7, 0],
        [0, 0, 0, 0],
        [3, 2, 0, 0],
        [0, 0, 0, 0],
        [4, 4, 4, 4],
        [8, 8, 0, 0],
    ]
    assert batch.engine_logp_BT[0].tolist() == [-5, -6, -7, 0]
    assert batch.prompts_B == ((9, 9),) * 3 + ((9,) * 5,) * 3
    assert batch.group_B.tolist() == [0, 0, 0, 1, 1, 1]
    assert batch.correct_B.tolist() == [1, 1, 1, 1, 1, 1]
    assert batch.advantage_B.tolist() == [0, 1, 2, 3, 4, 5]
    assert batch.clip_low_B.tolist() == pytest.approx([0, 0.1, 0.2, 0.3, 0.4, 0.5])
    assert batch.clip_high_B.tolist() == pytest.approx([0, 0.05, 0.1, 0.15, 0.2, 0.25])
    assert batch.price_B.tolist() == pytest.approx([0, 0.025, 0.05, 0.075, 0.1, 0.125])
    assert batch.temperature_B.tolist() == [1, 1, 0.7, 1, 1, 1]


def test_what_is_laid_out_is_decided_by_credit_alone():
    """Before credit every sampled token is there, and no decision is."""
    stats = GroupStats.of(GROUPS, 4)
    plain = pack(GROUPS, stats)
    assert plain.length_B.tolist() == [3, 1, 2, 0, 4, 2]
    for name in ("advantage_B", "clip_low_B", "clip_high_B", "price_B"):
        assert (getattr(plain, name) == 0).all()
    assert packed().tokens_BT.tolist() == plain.tokens_BT.tolist()


def test_scores_become_means_of_rows():
    """By hand: tokens 5 6 7, 0, 3 2, none, 4 4 4 4 and 8 8; NaN behind a row says nothing."""
    stats = GroupStats.of(GROUPS, 4)
    batch = pack(GROUPS, stats)
    value_BT = batch.tokens_BT.double().where(batch.mask_BT, float("nan"))
    found = stats.scored(batch.with_(old_logp_BT=-value_BT, entropy_BT=value_BT / 2))
    assert found.logp_PG.tolist() == [[-6.0, 0.0, -2.5], [0.0, -4.0, -8.0]]
    assert found.entropy_PG.tolist() == [[3.0, 0.0, 1.25], [0.0, 2.0, 4.0]]
    assert found.entropy_t1_PG is None
    assert found.logp_PG.dtype == torch.float64
    assert stats.logp_PG is None
    again = stats.scored(batch.with_(entropy_t1_BT=value_BT.float()))
    assert again.entropy_t1_PG.tolist() == [[6.0, 0.0, 2.5], [0.0, 4.0, 8.0]]
    assert again.logp_PG is again.entropy_PG is None


def test_token_means_weigh_rows_by_their_tokens():
    """Lengths 3 1 2 and 0 4 2: (3 * 1 + 1 * 2 + 2 * 6) / 6 and (4 * 1 + 2 * -5) / 6."""
    stats = GroupStats.of(GROUPS, 4)
    column_PG = torch.tensor([[1.0, 2.0, 6.0], [99.0, 1.0, -5.0]], dtype=torch.float64)
    assert stats.token_mean(column_PG).tolist() == pytest.approx([17 / 6, -1.0])
    assert replace(stats, drift_PG=column_PG).kl_step() == pytest.approx(17 / 12)  # a fall below 0 counts 0
    empty = GroupStats.of([group(0, [sample([])])], 4)
    assert empty.token_mean(torch.ones(1, 1)).tolist() == [0.0]


def test_the_pool_is_the_group_and_then_the_virtual_rewards():
    virtual_PV = torch.tensor([[0.1, 0.2], [float("nan")] * 2], dtype=torch.float64)
    stats = replace(GroupStats.of(GROUPS, 4), virtual_PV=virtual_PV)
    assert stats.pool_PN[0].tolist() == [1.0, 0.0, -1.0, 0.1, 0.2]
    assert stats.pool_PN[1].isnan().tolist() == [False, True, False, True, True]


def test_columns_of_every_kind_are_cut_and_moved_together():
    """`rows`, `to` and the shape check know each optional column."""
    batch = packed()
    names = ("kl_scale_BT", "old_logp_BT", "ref_logp_BT", "entropy_BT", "entropy_t1_BT", "weight_BT")
    full = batch.with_(**{name: batch.tokens_BT.double() + i for i, name in enumerate(names)})
    part = full.rows(torch.tensor([5, 0])).to("cpu", torch.float32)
    for i, name in enumerate(names):
        assert getattr(part, name).tolist() == [[8 + i, 8 + i, i], [5 + i, 6 + i, 7 + i]]
        assert getattr(part, name).dtype == torch.float32
        with pytest.raises(AssertionError, match=name):
            batch.with_(**{name: torch.zeros(6, 3)})
    assert part.price_B.tolist() == [0.125, 0.0]


def test_b18_b19_the_mask_goes_by_length_and_not_by_token_id():
    """B-18, B-19, B-22: a sampled token that equals the padding id is trained; ids stay as sampled."""
    batch = packed([group(0, [sample([7, 0, 0]), sample([1], finish="length")])])
    assert batch.mask_BT.tolist() == [[True] * 3, [True, False, False]]
    assert batch.tokens_BT[0].tolist() == [7, 0, 0]
    assert batch.tokens_BT[1][batch.mask_BT[1]].tolist() == [1]


def test_a11_groups_stay_apart_though_their_prompts_read_the_same():
    """A-11: rows belong to a group by its place, not by its text."""
    twin = [group(0, [sample([1]), sample([2], 0.0, False)]), group(0, [sample([3]), sample([4])])]
    batch = packed(twin)
    assert batch.group_B.tolist() == [0, 0, 1, 1]
    assert batch.correct_B.tolist() == [1, 1, 2, 2]


def test_rows_are_cut_to_the_longest_of_them():
    batch = packed()
    part = batch.rows(torch.tensor([2, 1]))
    assert part.tokens_BT.tolist() == [[3, 2], [0, 0]]
    assert part.mask_BT.tolist() == [[True, True], [True, False]]
    assert part.advantage_B.tolist() == [2, 1]
    assert part.prompts_B == ((9, 9), (9, 9))
    assert batch.rows(torch.tensor([3, 4])).tokens_BT.shape == (2, 1)  # nothing to train, still a shape
    weighed = batch.with_(weight_BT=batch.mask_BT.double(), old_logp_BT=batch.engine_logp_BT)
    part = weighed.rows(torch.tensor([5]))
    assert part.weight_BT.tolist() == [[1, 1]]
    assert part.old_logp_BT.tolist() == [[-8, -8]]


@pytest.mark.parametrize(
    ("count", "sizes"), [(1, [10]), (2, [6, 4]), (3, [4, 4, 2]), (5, [2] * 5), (9, [2] * 5)]
)
def test_minibatches_hold_whole_groups(count, sizes):
    batch = packed([group(p, [sample([p + 1]), sample([p + 1, 1])]) for p in range(5)])
    parts = list(batch.minibatches(count))
    assert [len(part) for part in parts] == sizes
    assert torch.cat([part.group_B for part in parts]).tolist() == batch.group_B.tolist()


LENGTHS = st.lists(st.integers(0, 9), min_size=1, max_size=12)


@settings(max_examples=60, deadline=None)
@given(LENGTHS, st.integers(1, 60))
def test_micro_holds_every_row_once_and_under_the_limit(lengths, tokens):
    batch = packed([group(0, [sample(range(1, n + 1)) for n in lengths], prompt_length=3)])
    parts = list(batch.micro(tokens))
    assert sorted(torch.cat([part.advantage_B for part in parts]).tolist()) == list(range(len(lengths)))
    longest = [3 + int(part.length_B.max()) for part in parts]
    assert longest == sorted(longest, reverse=True)
    for part, size in zip(parts, longest, strict=True):
        assert len(part) == 1 or len(part) * size <= tokens
        assert part.tokens_BT.shape[1] == max(size - 3, 1)
    for part in parts[:-1]:  # none could have taken one row more
        assert (len(part) + 1) * (3 + int(part.length_B.max())) > tokens


def test_shapes_are_checked_once():
    batch, stats = packed(), GroupStats.of(GROUPS, 4)
    with pytest.raises(AssertionError, match="advantage_B"):
        batch.with_(advantage_B=torch.zeros(6, 1))
    with pytest.raises(AssertionError, match="weight_BT"):
        batch.with_(weight_BT=torch.zeros(6, 3))
    with pytest.raises(AssertionError, match="prompts"):
        batch.with_(prompts_B=((1,),))
    with pytest.raises(AssertionError, match="reward_PG"):
        replace(stats, reward_PG=torch.zeros(3, 2))
    with pytest.raises(AssertionError, match="logp_PG"):
        replace(stats, logp_PG=torch.zeros(2, 4))
    with pytest.raises(AssertionError, match="clip_P"):
        replace(stats, clip_P=torch.zeros(3))
    with pytest.raises(AssertionError, match="virtual_PV"):
        replace(stats, virtual_PV=torch.zeros(3, 5))
    with pytest.raises(AssertionError, match="P x G"):
        replace(stats, verifier_PG=torch.zeros(6))


def test_moving_changes_the_floating_columns_only():
    batch = packed().with_(weight_BT=torch.ones(6, 4, dtype=torch.float64))
    moved = batch.to("cpu", torch.float32)
    assert isinstance(moved, Batch)
    assert {moved.advantage_B.dtype, moved.weight_BT.dtype, moved.engine_logp_BT.dtype} == {torch.float32}
    assert (moved.tokens_BT.dtype, moved.mask_BT.dtype) == (torch.int64, torch.bool)
    assert batch.to("cpu").advantage_B.dtype == torch.float64


def test_b26_columns_share_no_memory():
    """B-26: what is written to one row stays there."""
    batch = packed()
    for name in ("correct_B", "advantage_B", "temperature_B", "group_B", "price_B"):
        column = getattr(batch, name)
        before = column.clone()
        column[0] += 5
        assert (column != before).tolist() == [True] + [False] * 5
