"""Stored responses judged: strict and lenient, lost samples, hostile answers, paired differences."""

import pytest
from collecting import EXACT, make_prompts

from rlctl.errors import RunError
from rlctl.evaluate.judge import judge
from rlctl.evaluate.pairs import differences
from rlctl.evaluate.summary import Outcome, summarise
from rlctl.types import Prompt, Verdict
from rlctl.verify import MathVerifier, RegexVerifier
from rlctl.verify.build import build


def row(uid, response, finish="stop", tokens=3):
    return {"uid": uid, "response": response, "finish": finish, "tokens": tokens}


def judged(responses, verifier=EXACT, gold="yes"):
    """Judge (response, finish) pairs of one problem."""
    prompts = {"toy:0": Prompt("toy:0", (("user", "q"),), gold)}
    built = build(verifier, {}) if not hasattr(verifier, "judge") else verifier
    try:
        return judge((row("toy:0", *response) for response in responses), prompts, built)["toy:0"]
    finally:
        built.close()


def test_e16_strict_and_lenient():
    """E-16: strict is finished and marked; lenient is the verifier's word."""
    outcomes = judged(
        [
            ("So \\boxed{42}.", "stop"),
            ("So \\boxed{42}.", "length"),
            ("The answer is 42.", "stop"),
            ("#### 42", "stop"),
            ("6 times 7 gives 42", "stop"),  # right, though only the last number
            ("\\boxed{41}, no, 42", "stop"),
        ],
        MathVerifier(),
        gold="42",
    )
    assert [o.correct for o in outcomes] == [True, True, True, True, True, False]
    assert [o.strict for o in outcomes] == [True, False, True, True, False, False]
    found = summarise([outcomes], [1])
    assert found["lenient"]["value"] == found["pass_at"]["1"]["value"] == pytest.approx(5 / 6)
    assert found["strict"]["value"] == pytest.approx(3 / 6)
    assert found["truncated_share"] == pytest.approx(1 / 6)


def test_e16_in_a_list_every_part_that_counts_must_find_its_mark():
    parts = (MathVerifier(), RegexVerifier(pattern="so", weight=0.1))
    outcomes = judged([("so \\boxed{42}", "stop"), ("so 42", "stop"), ("\\boxed{42}", "stop")], parts, "42")
    assert [(o.correct, o.strict) for o in outcomes] == [(True, True), (True, False), (True, True)]


class Counting:
    """Counts what it is asked; fails on `bad`."""

    name = "counting"

    def __init__(self):
        self.asked = []

    def judge(self, prompt, text):
        self.asked.append((prompt.uid, text))
        error = "deadline" if text.startswith("bad") else None
        return Verdict(float(text == "yes"), text == "yes", text, error=error)

    def close(self):
        pass


def test_equal_responses_are_judged_once():
    prompts = {p.uid: p for p in make_prompts(2)}
    counting = Counting()
    rows = [row(uid, text) for text in ("yes", "no", "yes") for uid in prompts] * 300
    found = judge(iter(rows), prompts, counting)
    assert sorted(counting.asked) == sorted((uid, text) for uid in prompts for text in ("yes", "no"))
    assert [len(outcomes) for outcomes in found.values()] == [900, 900]
    assert sum(o.correct for o in found["toy:1"]) == 600


def test_e12_a_lost_sample_is_wrong_and_never_judged():
    """E-12: it stays in the denominator, is told, and is no fault of the verifier."""
    counting = Counting()
    outcomes = judged([("yes", "stop"), *[("", "error")] * 3], counting)
    assert counting.asked == [("toy:0", "yes")]
    found = summarise([outcomes], [1, 4])
    assert (found["pass_at"]["1"]["value"], found["samples"], found["errors"]) == (0.25, 4, 3)


def test_a_verifier_that_fails_on_too_many_answers_stops_the_evaluation():
    """Bounded and named: hostile answers neither hang nor end as a silent zero."""
    with pytest.raises(RunError, match=r"the verifier failed on 30 of 60 answers, .* deadline"):
        judged([(f"{'bad' if i % 2 else 'fine'} {i}", "stop") for i in range(60)], Counting())
    few = judged([("bad", "stop"), *((f"fine {i}", "stop") for i in range(60))], Counting())
    assert sum(o.error is not None for o in few) == 1


def outcomes(*correct):
    return [Outcome(c, c, "x", False, 1, None) for c in correct]


def test_paired_differences_by_hand():
    """Four problems in common, of which one is newly solved, one forgotten; others are left out."""
    prompts = make_prompts(6)
    R, W = True, False
    first = {"toy": list(zip(prompts[:5], map(outcomes, [R, R, W, W, R], [W, R, W, W, W]), strict=False))}
    second = {"toy": list(zip(prompts[1:], map(outcomes, [R, W, R, W, R], [R, W, W, W, R]), strict=False))}
    found = differences(first, second, [1, 2])["toy"]
    # Problems 1 to 4, first: 1, 0, 0, 1/2; second: 1, 0, 1/2, 0.
    assert found["problems"] == 4
    assert found["pass_at"]["1"]["value"] == pytest.approx((0 + 0 + 0.5 - 0.5) / 4)
    assert found["pass_at"]["2"]["value"] == pytest.approx((0 + 0 + 1 - 1) / 4)
    assert (found["newly_solved"], found["forgotten"]) == (1, 1)
    assert found["pass_at"]["1"]["low"] < 0 < found["pass_at"]["1"]["high"]


def test_only_the_same_problems_are_compared():
    """An equal uid with another question or gold is another problem; sets of other names too."""
    one, other = make_prompts(2)
    changed = Prompt(one.uid, one.messages, "no", ids=one.ids)
    solved = outcomes(True)
    assert differences({"toy": [(one, solved)]}, {"toy": [(changed, solved)]}, [1]) == {}
    assert differences({"toy": [(one, solved)]}, {"else": [(one, solved)]}, [1]) == {}
    assert differences({"toy": [(one, solved)]}, {"toy": [(other, solved)]}, [1]) == {}


def test_a_difference_is_told_apart_better_in_pairs():
    """The interval is that of the differences, not of two means: problems of all difficulties."""
    prompts = make_prompts(40)
    hard = [outcomes(*(i > 8 * p // 40 for i in range(8))) for p in range(40)]
    harder = [outcomes(*(i > 8 * p // 40 + 1 for i in range(8))) for p in range(40)]
    first, second = ({"toy": list(zip(prompts, side, strict=True))} for side in (hard, harder))
    found = differences(first, second, [1])["toy"]["pass_at"]["1"]
    assert found["high"] < 0
    assert found["high"] - found["low"] < 0.05
