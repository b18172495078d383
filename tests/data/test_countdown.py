from __future__ import annotations

import itertools
from collections import Counter

import pytest
from pydantic import ValidationError

from rlctl.data import CountdownSource
from rlctl.data.countdown import judge, problems
from rlctl.types import Prompt

PROMPT = Prompt("countdown:0", (("user", "3 5 7=22:"),), "22", {"numbers": (3, 5, 7)})


@pytest.mark.parametrize("text", ["3*5+7", "7+5*3", "(3*5)+7", "((7))+(5*3)", " 3 * 5 + 7 "])
def test_many_solutions_are_correct(text):
    verdict = judge(PROMPT, text)
    assert verdict.correct and verdict.reward == 1.0


@pytest.mark.parametrize(
    "text",
    [
        "3*5+7+7-7",  # a number twice
        "7+7+5+3",  # a number twice, right value
        "22",  # none of the numbers
        "15+7",  # not the numbers
        "35-7-3-3",
        "3+5+7",  # wrong value
        "(3+7)*5",
        "5*3",  # a number left out
        "9" * 60,
    ],
)
def test_wrong_expressions_are_parsed_and_refused(text):
    verdict = judge(PROMPT, text)
    assert not verdict.correct and verdict.reward == 0.0
    assert verdict.answer == text


@pytest.mark.parametrize(
    "text",
    [
        "__import__('os').getpid()",
        "3*5+7=22",
        "3*5\n+7",
        "3**5-7",
        "9**9**9**9",
        "-3+5*5",
        "+3*5+7",
        "3*5+07",
        "3 5*7",
        "3(5)+7",
        "3*5+",
        "(3*5+7",
        "3//5+7",
        "3*5+7#",
        "3*5+7j",
        "3_5+7",
        "()",
        "(3,5,7)",
        "(" * 31 + "3" + ")" * 31 + "*5+7",
        "(" * 500_000,
        "٣*5+7",
    ],
)
def test_no_code_is_run_and_nothing_else_is_parsed(text):
    verdict = judge(PROMPT, text)
    assert not verdict.correct and verdict.reward == 0.0 and verdict.answer is None


def test_generated_expressions_use_the_numbers_once():
    for numbers in (2, 3, 4, 5):
        spec = CountdownSource(kind="countdown", numbers=numbers, largest=20, problems=200)
        for prompt in problems(spec, "train", 1):
            given, _, target = prompt.text.rstrip(":").partition("=")
            used = Counter("".join(c if c.isdigit() else " " for c in prompt.demo).split())
            assert used == Counter(given.split()) and max(used.values()) == 1
            assert str(eval(prompt.demo)) == target == prompt.gold


def test_problems_have_several_solutions_and_demonstrations_differ():
    spec = CountdownSource(kind="countdown", largest=5, problems=100)
    demos = {}
    for seed in range(3):
        for prompt in problems(spec, "train", seed):
            solutions = [
                text
                for a, b, c in itertools.permutations(prompt.meta["numbers"])
                for x, y in itertools.product("+-*", repeat=2)
                for text in (f"{a}{x}{b}{y}{c}", f"{a}{x}({b}{y}{c})", f"({a}{x}{b}){y}{c}")
                if judge(prompt, text).correct
            ]
            assert len(solutions) >= 2
            demos.setdefault(prompt.text, set()).add(prompt.demo)
    assert sum(len(found) > 1 for found in demos.values()) > 10  # of those that several seeds drew


def test_more_numbers_than_there_are_is_refused():
    with pytest.raises(ValidationError, match="largest"):
        CountdownSource(kind="countdown", numbers=5, largest=4)
    smallest = CountdownSource(kind="countdown", numbers=2, largest=2)
    both = [prompt.text for split in ("train", "test") for prompt in problems(smallest, split, 1)]
    assert sorted(both) == ["1 2=1:", "1 2=2:", "1 2=3:", "2 1=1:", "2 1=2:", "2 1=3:"]
