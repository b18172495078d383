import json
import os
import subprocess
import sys
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from itertools import pairwise
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rlctl.types import Prompt
from rlctl.verify import MathVerifier
from rlctl.verify.extract import extract
from rlctl.verify.math import MathJudge, _compare

CASES = Path(__file__).parents[2].parent / "shared/data/verifier/cases.jsonl"
TOWER = r"\boxed{9^{9^{9^{9}}}}"


@pytest.fixture(scope="module")
def judge():
    judge = MathJudge(MathVerifier(deadline_s=2.0, workers=2))
    yield judge
    judge.close()


@pytest.fixture(scope="module")
def cases():
    if not CASES.exists():
        assert "CI" not in os.environ, f"{CASES} is missing"
        pytest.skip("the shared graded cases are not here")
    return [json.loads(line) for line in CASES.read_text().splitlines()]


def prompt(gold, uid="set:1"):
    return Prompt(uid, (), gold)


@pytest.mark.parametrize(
    ("response", "answer"),
    [
        (r"\boxed{41} no, \boxed{42}.", "42"),
        (r"\boxed{\frac{\sqrt{3}}{2}}", r"\frac{\sqrt{3}}{2}"),
        (r"\boxed{\boxed{42}}", "42"),
        (r"\boxed{\{1,2\}}", r"\{1,2\}"),
        (r"\boxed{1} and \boxed{2", None),
        (r"\boxed{42} Final: \boxed{}", None),
        (r"\boxed{1 so \boxed{2}", "2"),
        (r"\boxed{41} The answer is 42.", "41"),
        ("#### 41\n#### 1,234", "1,234"),
        ("Answer: 42\nConfidence: 95%", "42"),
        ("The answer is 3.5kg", "3.5kg"),
        ("The answer is 1, 2 and 3.", "1, 2 and 3"),
        (r"The answer is $\frac{1}{2}$, as 1 < 2", r"\frac{1}{2}"),
        ("The answer is (B) because A fails", "(B)"),
        ("所以答案是４２。", "42"),
        ("Answer:", None),
        ("So she kept 8-5", "5"),
        ("so -5", "-5"),
        ("from 3 to .5 kg", ".5"),
        ("<think>\\boxed{1}</think> 2", "2"),
        (r"\boxed{10²}", "10^{2}"),
        (r"\boxed{1½}", r"1\frac{1}{2}"),
        ("no number", None),
        ("", None),
    ],
)
def test_extract(response, answer):
    assert extract(response) == answer


@given(st.text(alphabet="\\boxed{}0123.,-/ ^$<|>answer:#½²", max_size=300))
def test_extract_and_compare_take_any_text(text):
    answer = extract(text)
    assert answer is None or answer.strip()
    assert _compare("7", text) in (True, False, None)


@given(st.integers(), st.integers(), st.integers(1, 10**6))
def test_v05_plain_numbers_are_compared_exactly(a, b, n):
    """V-05."""
    big = 10**18 + a
    assert _compare(str(big), f"{big + b:,}") is (b == 0)
    assert _compare(f"{a}/{n}", f"{a * 3}/{n * 3}") is True
    assert _compare(f"{a}/{n}", f"{a * 3 + 1}/{n * 3}") is False


def test_verdicts(judge):
    verdict = judge.judge(prompt("0.5"), r"\boxed{\frac{1}{2}}")
    assert (verdict.reward, verdict.correct, verdict.answer) == (1.0, True, r"\frac{1}{2}")
    verdict = judge.judge(prompt("0.5"), r"\boxed{\frac{1}{3}}")
    assert (verdict.reward, verdict.correct, verdict.error) == (0.0, False, None)
    assert judge.judge(prompt(("3", r"\sqrt{2}")), r"\boxed{2^{1/2}}").correct
    assert not judge.judge(prompt(("3", r"\sqrt{2}")), r"\boxed{2}").correct


def test_v17_two_that_cannot_be_parsed_are_not_equal(judge):
    """V-17."""
    for gold in ("", "$", (), r"\frac{"):
        for response in ("", r"\boxed{}", r"\boxed{$}", "nothing", r"\boxed{\frac}"):
            assert not judge.judge(prompt(gold), response).correct, (gold, response)


def test_agreement_with_the_graded_cases(judge, cases):
    """V-01, V-25: at least what math-verify reaches alone, and no answer takes long or leaves a trace."""

    def grade(case):
        started = time.monotonic()
        verdict = judge.judge(prompt(case["gold"]), case["response"])
        assert verdict.error in (None, "deadline"), case["id"]
        return verdict.correct == case["expected"], time.monotonic() - started

    with ThreadPoolExecutor(2) as threads:
        agreed, seconds = zip(*threads.map(grade, cases), strict=True)
    print(f"{sum(agreed)} of {len(cases)}, slowest {max(seconds):.1f} s")
    assert sum(agreed) / len(cases) >= 0.90
    assert max(seconds) < 30.0  # no limit on speed, but nothing hangs
    assert not Path("/tmp/rlctl_pwned").exists()


def test_v01_v02_a_tower_hurts_nobody(judge):
    """V-01, V-02: in threads; the next answer is right and the process goes on meanwhile."""
    right = r"\boxed{\frac{2}{4}}"
    texts = [TOWER, right, right, TOWER, right, r"\boxed{\frac{1}{3}}"]
    beats, stop = [], threading.Event()

    def heart():
        while not stop.wait(0.02):
            beats.append(time.monotonic())

    thread = threading.Thread(target=heart)
    thread.start()
    with ThreadPoolExecutor(4) as threads:
        verdicts = list(threads.map(lambda text: judge.judge(prompt("1/2"), text), texts))
    stop.set()
    thread.join()
    assert [(v.correct, v.error) for v in verdicts] == [
        (False, "deadline"),
        (True, None),
        (True, None),
        (False, "deadline"),
        (True, None),
        (False, None),
    ]
    assert verdicts[0].answer == TOWER[7:-1]
    assert max(b - a for a, b in pairwise(beats)) < 3.0


def test_v15_a_batch_with_failures_equals_one_by_one(judge):
    """V-15."""
    texts = [r"\boxed{\frac{1}{2}}", "", r"\boxed{\frac{}}", r"\boxed{x+}", r"\boxed{\sqrt{\frac{1}{4}}}"] * 4
    one_by_one = [judge.judge(prompt(r"\frac{1}{2}"), text) for text in texts]
    with ThreadPoolExecutor(4) as threads:
        batch = list(threads.map(lambda text: judge.judge(prompt(r"\frac{1}{2}"), text), texts))
    assert batch == one_by_one
    assert [v.correct for v in batch[:5]] == [True, False, False, False, True]


def test_v07_golds_that_cannot_be_parsed_are_listed(judge):
    """V-07: points, sets, letters and names are understood; broken LaTeX is not."""
    fine = ["(1,2)", r"\{1,2,3\}", "B", r"\text{Evelyn}", "1,234", r"\frac{1}{2}", r"50\%", r"[2,5)"]
    assert judge.unparseable([*fine, r"$t(0,4]$", ""]) == [r"$t(0,4]$", ""]
    bad, half = prompt((r"$t(0,4]$", ""), "set:bad"), prompt(("", "3"), "set:half")
    assert judge.check_golds([bad, half, prompt("7")]) == [bad]


def test_plain_answers_need_no_worker():
    judge = MathJudge(MathVerifier())
    assert judge.judge(prompt("1234"), "it costs $1,234.00.").correct
    assert judge.judge(prompt("-3"), "The answer is 3").correct is False
    assert judge._pool is None


def test_building_imports_nothing_heavy():
    code = (
        "import sys; from rlctl.verify.build import build; build('auto', {});"
        "print([m for m in ('torch', 'numpy', 'sympy', 'math_verify') if m in sys.modules])"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"
