"""The coin of control runs."""

from __future__ import annotations

import random

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import ValidationError

from rlctl.errors import UserError
from rlctl.recipe import load
from rlctl.types import Prompt, Verdict
from rlctl.verify import ExactVerifier, MathVerifier, RandomVerifier
from rlctl.verify.build import build
from rlctl.verify.coin import RandomJudge

ANSWERS = [(Prompt(f"set:{n}", (), "7"), str(k)) for n in range(200) for k in range(10)]


def coins(share=0.5, answers=ANSWERS):
    judge = RandomJudge(RandomVerifier(share=share))
    return [judge.judge(prompt, text).reward for prompt, text in answers]


@pytest.mark.parametrize("share", [0.0, 0.1, 0.5, 0.9, 1.0])
def test_the_share_of_answers_that_get_the_reward(share):
    """Within five standard deviations, and exact at both ends."""
    rewards = coins(share)
    assert set(rewards) <= {0.0, 1.0}
    assert abs(sum(rewards) - 2000 * share) <= 5 * (2000 * share * (1 - share)) ** 0.5


def test_e15_the_coin_knows_nothing_of_right_and_wrong():
    """E-15: right answers get their share as wrong ones do, and differ from question to question."""
    right = coins(answers=[(prompt, "7") for prompt, _ in ANSWERS[::10]])
    assert abs(sum(right) - 100) <= 5 * 50**0.5
    golden = [(Prompt(prompt.uid, (), "8"), text) for prompt, text in ANSWERS]
    assert coins(answers=golden) == coins()


def test_no_state_and_no_order():
    order = random.Random(1).sample(range(2000), 2000)
    shuffled = coins(answers=[ANSWERS[i] for i in order])
    assert [shuffled[order.index(i)] for i in range(0, 2000, 40)] == coins()[::40]


@given(st.text(alphabet=st.characters()), st.floats(0, 1))
def test_any_answer_has_a_coin_and_none_is_correct(text, share):
    verdict = RandomJudge(RandomVerifier(share=share)).judge(ANSWERS[0][0], text + "\ud800")
    assert (verdict.reward in (0.0, 1.0), verdict.correct, verdict.error) == (True, False, None)


def test_e15_a_part_of_weight_zero_says_what_is_correct_and_pays_nothing():
    """E-15, E-05."""
    judge = build((ExactVerifier(weight=0.0), RandomVerifier(share=0.5)), {})
    assert judge.name == "0 × exact + 1 × random"
    for (prompt, text), coin in zip(ANSWERS, coins(), strict=True):
        right = text == "7"
        parts = {"exact": float(right), "random": coin}
        reason = "same text" if right else "texts differ"
        assert judge.judge(prompt, text) == Verdict(coin, right, text, parts, None, reason)


def test_golds_are_those_of_the_part_that_judges():
    judge = build((MathVerifier(weight=0.0), RandomVerifier()), {})
    bad = Prompt("set:2", (), r"\frac{")
    assert judge.check_golds([ANSWERS[0][0], bad]) == [bad]
    judge.close()


def test_a_coin_never_counts():
    with pytest.raises(ValidationError):
        RandomVerifier(shaping=False)
    with pytest.raises(UserError, match="all parts are shaping"):
        load("quickstart", ["verifier={kind: random}"])


def test_e15_the_control_recipe_is_the_quickstart_with_a_coin():
    """E-15: all but the reward is equal, so the two runs compare."""
    control, quickstart = load("control_random_reward"), load("quickstart")
    update = {"name": quickstart.name, "verifier": quickstart.verifier}
    assert control.model_copy(update=update) == quickstart
    exact, coin = control.verifier
    assert (exact, coin) == (ExactVerifier(weight=0.0), RandomVerifier(share=0.5))
