from hypothesis import given
from hypothesis import strategies as st

from rlctl.seeds import derive_seed

PARTS = st.lists(st.integers(0, 10**6) | st.sampled_from(["train", "probe", "eval"]), min_size=1, max_size=6)


@given(PARTS, PARTS)
def test_a13_different_parts_give_different_seeds(one, other):
    """A-13: order, number and place of the parts all count."""
    assert (derive_seed(*one) == derive_seed(*other)) == (one == other)


@given(PARTS)
def test_a_seed_fits_63_bits(parts):
    assert 0 <= derive_seed(*parts) < 2**63


def test_parts_are_not_run_together():
    assert len({derive_seed(1, 23), derive_seed(12, 3), derive_seed(123), derive_seed(1, 2, 3)}) == 4


def test_a_whole_run_has_no_seed_twice():
    """A-13: 100 steps of 8 groups, 3 rounds and 8 samples, for three purposes."""
    seeds = {
        derive_seed(17, purpose, step, p, refill, g)
        for purpose in ("train", "probe", "eval")
        for step in range(100)
        for p in range(8)
        for refill in range(3)
        for g in range(8)
    }
    assert len(seeds) == 3 * 100 * 8 * 3 * 8


def test_seeds_stay_as_they_are():
    """A run that is resumed under another Python or machine draws what it drew before."""
    assert derive_seed(17, "train", 1, 0, 0, 0) == 1710081255439598912
