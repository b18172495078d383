"""What a probe says of a prompt."""

import math
import statistics
from dataclasses import replace

import pytest
from controlling import group
from hypothesis import given, settings
from hypothesis import strategies as st

from rlctl.algorithm.control.probe import ProbeSpec, vote_entropy, vote_key


@pytest.mark.parametrize(
    ("text", "key"),
    [
        (r"so \boxed{42}", "42"),
        (r"\boxed{1} no, \boxed{ X }", "x"),
        (r"\boxed{\frac{1}{2}} #### 3", "3"),  # inner braces are not read
        ("1 + 1 #### 42 ", "42"),
        ("#### 1 #### Two", "two"),
        ("final answer is 1,024.", "1024"),
        ("between -1.5 and 3/4", "3/4"),
        ("+7", "+7"),
        ("  No\n number  HERE ", "no number here"),
        ("", ""),
    ],
)
def test_what_a_text_votes_for(text, key):
    assert vote_key(text) == key


def test_vote_entropy_by_hand():
    assert vote_entropy(["a"] * 5) == 0.0
    assert vote_entropy(["a", "b"]) == pytest.approx(math.log(2))
    assert vote_entropy(["a", "a", "a", "b"]) == pytest.approx(
        -(0.75 * math.log(0.75) + 0.25 * math.log(0.25))
    )


@given(st.lists(st.sampled_from("abcd"), min_size=1, max_size=12))
@settings(max_examples=60, deadline=None)
def test_vote_entropy_a_second_way_and_in_bounds(keys):
    """The mean surprise of a vote; 0 to ln n, whatever the order."""
    n = len(keys)
    surprise = sum(-math.log(keys.count(key) / n) for key in keys) / n
    assert vote_entropy(keys) == pytest.approx(surprise, abs=1e-12)
    assert -1e-12 <= vote_entropy(keys) <= math.log(n) + 1e-12
    assert vote_entropy(sorted(keys)) == pytest.approx(vote_entropy(keys), abs=1e-12)


REWARDS = st.lists(st.sampled_from([0.0, 0.25, 1.0]), min_size=3, max_size=8)


def loops_skewness(rewards):
    n, mean = len(rewards), statistics.fmean(rewards)
    s = statistics.stdev(rewards)
    if s < 1e-6:
        return 0.0
    return math.sqrt(n * (n - 1)) / (n - 2) * sum(((r - mean) / s) ** 3 for r in rewards) / n


def loops_dispersion(kind, rewards):
    if kind == "mad":
        middle = sorted(rewards)[(len(rewards) - 1) // 2]
        away = sorted(abs(r - middle) for r in rewards)
        robust = 1.4826 * away[(len(away) - 1) // 2]
    elif kind == "iqr":
        low, _, high = statistics.quantiles(rewards, n=4, method="inclusive")
        robust = (high - low) / 1.349
    else:
        robust = statistics.stdev(rewards)
    return robust


@given(REWARDS, st.sampled_from(["bessel", "mad", "iqr"]))
@settings(max_examples=60, deadline=None)
def test_moments_of_a_probe_a_second_way(rewards, kind):
    found = ProbeSpec(dispersion=kind).measure([group("t:0", rewards, [f"{r}" for r in rewards])])
    assert found.dispersion_P.tolist() == [pytest.approx(loops_dispersion(kind, rewards), abs=1e-9)]
    assert found.skewness_P.tolist() == [pytest.approx(loops_skewness(rewards), abs=1e-9)]
    assert found.votes_P.tolist() == [pytest.approx(vote_entropy([f"{r}" for r in rewards]))]


def test_one_number_a_prompt_and_nothing_but_numbers():
    """What was not judged is left out; its text still votes."""
    groups = [
        group("t:0", [1.0, None, 0.0], ["1", "2", "3"]),
        group("t:1", [None, None, None], ["1", "1", "1"]),
    ]
    found = ProbeSpec().measure(groups)
    assert found.dispersion_P.tolist() == [pytest.approx(math.sqrt(0.5)), 0.0]
    assert found.votes_P.tolist() == [pytest.approx(math.log(3)), 0.0]
    assert found.skewness_P.tolist() == [pytest.approx(0.0), 0.0]
    for kind in ("mad", "iqr"):
        assert ProbeSpec(dispersion=kind).measure(groups).dispersion_P[1] == 0.0


def test_a_robust_spread_of_a_probe_gives_way_to_no_other():
    """algorithms.md 1.2 has no fallback: one wrong answer of eight has the mad 0 and the iqr 0."""
    seven_of_eight = [group("t:0", [1.0] * 7 + [0.0])]
    for kind in ("mad", "iqr"):
        assert ProbeSpec(dispersion=kind).measure(seven_of_eight).dispersion_P.tolist() == [0.0]
    assert ProbeSpec().measure(seven_of_eight).dispersion_P.tolist() == [pytest.approx(0.125**0.5)]


def test_what_the_engine_gave_up_has_no_vote():
    """It has no text: of the answers 7, 7 and one that failed, all agree; of none, none differ."""
    whole = group("t:0", [1.0, 1.0, None], ["7", "7", ""])

    def failed(sample):
        return replace(sample, completion=replace(sample.completion, finish="error"))

    one = replace(whole, samples=(*whole.samples[:2], failed(whole.samples[2])))
    all_ = replace(whole, samples=tuple(map(failed, whole.samples)))
    assert ProbeSpec().measure([whole]).votes_P.item() == pytest.approx(vote_entropy(["7", "7", ""]))
    assert ProbeSpec().measure([one, all_]).votes_P.tolist() == [0.0, 0.0]
