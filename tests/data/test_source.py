from __future__ import annotations

import json
from collections import Counter

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from rlctl.data.load import Dataset
from rlctl.data.source import Mixture
from rlctl.types import Prompt, PromptSource


def dataset(name, size, weight=1.0):
    prompts = tuple(Prompt(f"{name}:{k}", (("user", f"{k}?"),), str(k)) for k in range(size))
    return Dataset(name, prompts, weight=weight)


def uids(prompts):
    return [prompt.uid for prompt in prompts]


def later(source, datasets, seed):
    """A source as a new process would make it from the checkpoint."""
    fresh = Mixture(datasets, seed)
    fresh.restore(json.loads(json.dumps(source.state())))
    return fresh


def test_each_epoch_brings_every_prompt_once_in_another_order():
    source: PromptSource = Mixture([dataset("a", 20)], seed=1)
    epochs = [uids(source.take(20)) for _ in range(3)]
    assert all(sorted(epoch) == sorted(f"a:{k}" for k in range(20)) for epoch in epochs)
    assert epochs[0] != epochs[1] != epochs[2] != epochs[0]
    assert uids(Mixture([dataset("a", 20)], seed=1).take(20)) == epochs[0]
    assert uids(Mixture([dataset("a", 20)], seed=2).take(20)) != epochs[0]


@pytest.mark.parametrize("stop", [3, 10, 13, 20, 27])
def test_d01_d02_d03_resume_continues_mid_epoch_and_across_epochs(stop):
    """D-01, D-02, D-03: a resume at any point, epoch ends and later epochs included, changes nothing."""
    sets = [dataset("a", 10)]
    whole = uids(Mixture(sets, seed=4).take(40))
    source = Mixture(sets, seed=4)
    before = uids(source.take(stop))
    resumed = later(source, sets, seed=4)
    assert before + uids(resumed.take(40 - stop)) == whole
    assert resumed.state() == {"drawn": {"a": 40}}


def test_d07_two_and_a_half_epochs_with_a_resume_in_each():
    """D-07: no prompt is skipped or repeated, whatever the size of a step."""
    sets = [dataset("a", 8)]
    source, seen = Mixture(sets, seed=4), []
    for step in [3, 3, 3, 3, 3, 3, 2]:
        seen += uids(source.take(step))
        source = later(source, sets, seed=4)
    assert Counter(seen[:8]) == Counter(seen[8:16]) == Counter(f"a:{k}" for k in range(8))
    assert len(set(seen[16:])) == 4


@settings(max_examples=50, deadline=None)
@given(
    sizes=st.lists(st.integers(1, 9), min_size=2, max_size=4),
    steps=st.lists(st.integers(0, 7), max_size=12),
    seed=st.integers(),
)
def test_d04_a_mixture_continues_its_draws(sizes, steps, seed):
    """D-04: the order of sets and the place in each set go on, resumed after every step."""
    sets = [dataset(f"s{k}", size, weight=k + 1.0) for k, size in enumerate(sizes)]
    source, seen = Mixture(sets, seed), []
    for step in steps:
        seen += uids(source.take(step))
        source = later(source, sets, seed)
    assert seen == uids(Mixture(sets, seed).take(sum(steps)))


def test_weights_are_shares_of_the_draws():
    source = Mixture([dataset("few", 5, weight=3.0), dataset("many", 500, weight=1.0)], seed=1)
    counts = Counter(prompt.set for prompt in source.take(2000))
    assert abs(counts["few"] / 2000 - 0.75) < 0.04  # four standard deviations


def test_a12_sets_with_equal_ids_are_drawn_apart():
    source = Mixture([dataset("a", 5), dataset("b", 5)], seed=1)
    assert Counter(prompt.set for prompt in source.take(200)).keys() == {"a", "b"}
    assert source.get("a:3").uid == "a:3" and source.get("b:3").uid == "b:3"
    with pytest.raises(AssertionError, match="different names"):
        Mixture([dataset("a", 5), dataset("a", 6)], seed=1)


def test_d11_fingerprint_covers_names_weights_and_problems():
    """D-11: the checkpoint stores this; a shrunk set is resumed without an index out of range."""
    one = Mixture([dataset("a", 5), dataset("b", 5)], seed=1).fingerprint
    assert one == Mixture([dataset("a", 5), dataset("b", 5)], seed=2).fingerprint
    others = [[dataset("a", 5), dataset("b", 6)], [dataset("a", 5), dataset("b", 5, 2.0)], [dataset("a", 5)]]
    assert one not in {Mixture(sets, seed=1).fingerprint for sets in others}
    source = Mixture([dataset("a", 9)], seed=1)
    source.take(8)
    assert len(later(source, [dataset("a", 4)], seed=1).take(10)) == 10
