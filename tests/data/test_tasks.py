"""What every generated task must hold to: splits, determinism, demonstrations, characters."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from rlctl.data import ArithmeticSource, CountdownSource, MazeSource
from rlctl.data.load import TASKS, load

SPECS = [
    ArithmeticSource(kind="arithmetic", problems=300),
    ArithmeticSource(kind="arithmetic", operations=("+", "-", "*"), digits=1, problems=10_000),
    ArithmeticSource(kind="arithmetic", operations=("*",), digits=6, problems=300),
    CountdownSource(kind="countdown", problems=300),
    CountdownSource(kind="countdown", numbers=2, problems=300),
    CountdownSource(kind="countdown", numbers=5, largest=99, problems=200),
    MazeSource(kind="maze", problems=100),
    MazeSource(kind="maze", size=5, problems=1000),
    MazeSource(kind="maze", size=33, problems=20),
]
every_spec = pytest.mark.parametrize("spec", SPECS, ids=lambda spec: f"{spec.kind}{SPECS.index(spec)}")
sources = st.one_of(
    st.builds(
        ArithmeticSource,
        kind=st.just("arithmetic"),
        operations=st.lists(st.sampled_from("+-*"), min_size=1, unique=True).map(tuple),
        digits=st.integers(1, 6),
        problems=st.integers(1, 200),
    ),
    st.builds(
        CountdownSource,
        kind=st.just("countdown"),
        numbers=st.integers(2, 5),
        largest=st.integers(5, 99),
        problems=st.integers(1, 100),
    ),
    st.builds(MazeSource, kind=st.just("maze"), size=st.sampled_from([7, 9]), problems=st.integers(1, 40)),
)


def texts(spec, split, seed):
    return [prompt.text for prompt in TASKS[spec.kind].problems(spec, split, seed)]


@settings(max_examples=25, deadline=None)
@given(spec=sources, seeds=st.tuples(st.integers(), st.integers()))
def test_splits_never_overlap_and_problems_differ(spec, seeds):
    train, test = texts(spec, "train", seeds[0]), texts(spec, "test", seeds[1])
    assert not set(train) & set(test)
    for found in (train, test):
        assert len(set(found)) == len(found) <= spec.problems
    assert train and test


def test_splits_stay_apart_over_sizes():
    """A problem's split does not depend on the options that it was drawn with."""
    small = CountdownSource(kind="countdown", numbers=2, largest=9, problems=1000)
    large = CountdownSource(kind="countdown", numbers=2, largest=12, problems=1000)
    held_out = set(texts(small, "test", 1))
    assert held_out < set(texts(large, "test", 2)) and not held_out & set(texts(large, "train", 3))


def test_turned_problems_share_a_split():
    sums = ArithmeticSource(kind="arithmetic", operations=("+",), digits=1, problems=1000)
    held_out = set(texts(sums, "test", 3))
    assert held_out == {f"{text[2]}+{text[0]}=" for text in held_out}
    small = CountdownSource(kind="countdown", numbers=2, largest=6, problems=1000)
    held_out = set(texts(small, "test", 3))
    assert held_out == {f"{text[2]} {text[0]}{text[3:]}" for text in held_out}


@every_spec
def test_deterministic_by_seed(spec):
    first = list(TASKS[spec.kind].problems(spec, "train", 1))
    assert first == list(TASKS[spec.kind].problems(spec, "train", 1))
    assert [p.text for p in first] != texts(spec, "train", 2)


@every_spec
@pytest.mark.parametrize("split", ["train", "test"])
def test_demonstrations_are_correct_and_printable(spec, split):
    dataset = load(spec, split=split, seed=5)
    for prompt in dataset.prompts:
        verdict = dataset.judge(prompt, prompt.demo)
        assert verdict.correct and verdict.reward == 1.0 and verdict.answer == prompt.demo
        characters = prompt.text.replace("\n", "") + prompt.demo
        assert characters.isascii() and characters.isprintable()


@every_spec
def test_junk_is_unparseable(spec):
    dataset = load(spec, split="train", seed=5)
    prompt = dataset.prompts[0]
    for junk in [
        "",
        " ",
        "?",
        "é",
        "٣",
        "\x00",
        f"{prompt.demo} or so",
        f"={prompt.demo}",
        "(" * 100_000,
        "9" * 100_000,
    ]:
        verdict = dataset.judge(prompt, junk)
        assert (verdict.correct, verdict.reward, verdict.answer) == (False, 0.0, None), junk[:20]


@every_spec
def test_surrounding_white_space_does_not_matter(spec):
    dataset = load(spec, split="train", seed=5)
    prompt = dataset.prompts[0]
    assert dataset.judge(prompt, f" {prompt.demo}\n").correct


def test_prompts_are_short():
    def longest(spec):
        return max(map(len, texts(spec, "train", 1)))

    assert longest(ArithmeticSource(kind="arithmetic", operations=("*",), digits=6, problems=500)) < 16
    assert longest(CountdownSource(kind="countdown", numbers=5, largest=99, problems=500)) < 24
    assert longest(MazeSource(kind="maze", size=9, problems=20)) == 9 * 10
