"""The published sets: every gold is understood, or known not to be, and equals itself in another spelling."""

import json
import re
from fractions import Fraction

import pytest
from published import need_data

from rlctl.data import NamedSource
from rlctl.data.load import load
from rlctl.types import Prompt
from rlctl.verify import MathVerifier
from rlctl.verify.math import MathJudge

# Beyond latex2sympy: `np.`, `M_{\odot}`, `\hbar`, `E_{1}`, `m_{\max}`, a sentence, a slip of the set.
UNREADABLE = {"minerva_math": 5, "olympiadbench": 3}
SETS = ["math500", "aime24", "aime25", "amc23", "minerva_math", "olympiadbench", "svamp", "cmath"]


@pytest.fixture(scope="module")
def judge():
    judge = MathJudge(MathVerifier(workers=2, deadline_s=20.0))
    yield judge
    judge.close()


def prompts(name):
    return load(NamedSource(kind=name), root=str(need_data()), split="test", seed=0).prompts


def respelled(gold):
    """The same in another hand: what LaTeX has two names for, and blanks where they mean nothing."""
    text = re.sub(r"(?<!\\)\$|\\left|\\right", "", gold).replace(r"\frac", r"\dfrac")
    return re.sub(r"([-+=(]|,(?!\d{3}|\\!))", r" \1 ", text).replace(r"\pi", r"\pi\, ")


@pytest.mark.parametrize("name", SETS)
def test_v07_golds_of_the_published_sets(judge, name):
    """V-07: at most the known ones cannot be parsed; 99 % equal themselves, in a box and respelled."""
    every = [(p, gold) for p in prompts(name) for gold in ([p.gold] if isinstance(p.gold, str) else p.gold)]
    bad = judge.check_golds([p for p, _ in every])
    assert len(bad) <= UNREADABLE.get(name, 0), [p.gold for p in bad]
    for spell in (str, respelled):
        wrong = [
            (gold, verdict.reason)
            for p, gold in every
            if not (verdict := judge.judge(p, rf"The answer is $\boxed{{{spell(gold)}}}$.")).correct
        ]
        print(f"{name}, {spell.__name__}: {len(every) - len(wrong)} of {len(every)}", wrong)
        assert len(wrong) <= 0.01 * len(every), wrong


def test_gsm8k_solutions_against_their_own_and_the_next_answer():
    """V-09: all of their own, none of the next but where the numbers are equal; no worker is needed."""
    questions = prompts("gsm8k")
    lines = (need_data() / "gsm8k/test.jsonl").read_text().splitlines()
    solutions = [json.loads(line)["answer"] for line in lines]
    judge = MathJudge(MathVerifier())
    assert len(questions) == len(solutions) == 1319
    for n, (question, solution) in enumerate(zip(questions, solutions, strict=True)):
        assert judge.judge(question, solution).correct, question.uid
        following = questions[(n + 1) % len(questions)]
        same = Fraction(question.gold) == Fraction(following.gold)
        assert judge.judge(following, solution).correct is same, (question.uid, following.uid)
    assert judge._pool is None


def test_v15_a_wrong_answer_is_wrong_whatever_stands_beside_it(judge):
    """V-15: several golds are accepted, none of them lends itself to another prompt."""
    both = Prompt("set:1", (), ("3", r"\sqrt{2}"))
    texts = [r"\boxed{3}", r"\boxed{2^{1/2}}", r"\boxed{2}", "", r"\boxed{\frac{}}"]
    assert [judge.judge(both, text).correct for text in texts] == [True, True, False, False, False]
