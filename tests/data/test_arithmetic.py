from __future__ import annotations

from rlctl.data import ArithmeticSource
from rlctl.data.arithmetic import judge, problems


def test_golds_are_the_values():
    spec = ArithmeticSource(kind="arithmetic", operations=("+", "-", "*"), problems=500)
    found = list(problems(spec, "train", 1))
    assert {text for prompt in found for text in prompt.text if not text.isdigit()} == set("+-*=")
    assert all(prompt.gold == str(eval(prompt.text.rstrip("="))) for prompt in found)


def test_all_problems_of_a_small_task_are_found():
    spec = ArithmeticSource(kind="arithmetic", digits=1, problems=4096)
    both = [prompt.text for split in ("train", "test") for prompt in problems(spec, split, 1)]
    assert sorted(both) == sorted(f"{a}+{b}=" for a in range(10) for b in range(10))


def test_judge_wants_the_number_alone():
    prompt = next(problems(ArithmeticSource(kind="arithmetic"), "train", 1))
    assert judge(prompt, prompt.gold).correct
    for wrong in (f"-{prompt.gold}", f"0{prompt.gold}", f"{prompt.gold}0"):
        verdict = judge(prompt, wrong)
        assert not verdict.correct and verdict.answer == wrong
    for unparseable in (
        f"{prompt.text}{prompt.gold}",
        f"{prompt.gold}.0",
        f"+{prompt.gold}",
        prompt.text[:-1],
    ):
        assert judge(prompt, unparseable).answer is None
