"""Weighted lists, a task's own judges, and `build`."""

import re
from dataclasses import replace

import pytest

from rlctl.errors import UserError
from rlctl.types import Prompt, Verdict
from rlctl.verify import ExactVerifier, MathVerifier, PythonVerifier, RegexVerifier
from rlctl.verify.build import build
from rlctl.verify.task import TaskVerifier

PROMPT = Prompt("set:1", (), "7")


@pytest.fixture
def parts(tmp_path):
    (tmp_path / "own.py").write_text(
        "def none(response, gold): return None\n"
        "def bad(response, gold): raise ValueError('oh')\n"
        "def half(response, gold): return 0.5\n"
    )
    return lambda name, **fields: PythonVerifier(path=f"{tmp_path}/own.py:{name}", **fields)


def judge(spec, text):
    verifier = build(spec, {})
    try:
        return replace(verifier.judge(PROMPT, text), reason=None)
    finally:
        verifier.close()


def test_weighted_sum_with_shaping():
    spec = (
        ExactVerifier(weight=2.0),
        RegexVerifier(pattern=r"^\d$", weight=0.25),
        RegexVerifier(pattern="x", weight=-1.0),
    )
    assert judge(spec, "7") == Verdict(2.25, True, "7", {"exact": 1.0, "regex": 1.0, "regex_2": 0.0})
    assert judge(spec, "8") == Verdict(0.25, False, "8", {"exact": 0.0, "regex": 1.0, "regex_2": 0.0})
    assert judge(spec, "7x") == Verdict(-1.0, False, "7x", {"exact": 0.0, "regex": 0.0, "regex_2": 1.0})


def test_shaping_never_counts_as_correct():
    assert judge((RegexVerifier(pattern=".", weight=5.0),), "7") == Verdict(5.0, False, None, {"regex": 1.0})
    assert judge(RegexVerifier(pattern="."), "7").correct is False
    assert judge(RegexVerifier(pattern=".", shaping=False), "7") == Verdict(1.0, True, "7")
    assert judge(ExactVerifier(weight=0.5), "7") == Verdict(0.5, True, "7", {"exact": 1.0})


def test_every_part_that_counts_must_be_correct():
    spec = (ExactVerifier(), RegexVerifier(pattern=r"\.$", shaping=False))
    assert judge(spec, "7") == Verdict(1.0, False, "7", {"exact": 1.0, "regex": 0.0})


def test_the_reasons_are_those_of_the_parts_that_count():
    spec = (ExactVerifier(), RegexVerifier(pattern="8", shaping=False), RegexVerifier(pattern="x"))
    assert build(spec, {}).judge(PROMPT, "7").reason == "same text; the pattern is not found"
    assert build(RegexVerifier(pattern="7"), {}).judge(PROMPT, "7").reason is None


@pytest.mark.parametrize("shaping", [False, True])
def test_a08_one_part_not_judged_leaves_the_whole_unjudged(parts, shaping):
    """A-08."""
    verdict = judge((ExactVerifier(), parts("none", shaping=shaping)), "7")
    assert (verdict.reward, verdict.parts, verdict.error) == (None, {"exact": 1.0}, None)
    assert verdict.correct is shaping


@pytest.mark.parametrize("shaping", [False, True])
def test_v26_a_failed_part_fails_the_whole(parts, shaping):
    """V-26."""
    verdict = judge((ExactVerifier(), parts("none"), parts("bad", shaping=shaping)), "7")
    assert (verdict.reward, verdict.correct) == (0.0, False)
    assert verdict.error == "python_2: ValueError: oh"


def test_golds_are_checked_by_the_parts_that_count(parts):
    empty = Prompt("set:2", (), "")
    assert build((ExactVerifier(), parts("half")), {}).check_golds([PROMPT, empty]) == [empty]
    assert build((ExactVerifier(shaping=True), parts("half")), {}).check_golds([PROMPT, empty]) == []


def test_auto_takes_the_tasks_own_judge_and_math_elsewhere():
    judges = {"maze": lambda prompt, text: Verdict(0.75, True, text)}
    verifier = build("auto", judges)
    assert verifier.judge(Prompt("maze:1", (), ""), "left") == Verdict(0.75, True, "left")
    assert verifier.judge(Prompt("sums:1", (), "7"), "so 3 + 4 = 7.0") == Verdict(
        1.0, True, "7.0", reason="equal numbers", marked=False
    )
    assert re.fullmatch(r"task maze, math \(math-verify [\d.]+\)", verifier.name)
    assert verifier.check_golds([Prompt("maze:1", (), "")]) == []
    verifier.close()
    assert build("auto", {}).name == build(MathVerifier(), judges).name


def test_an_explicit_verifier_ignores_the_tasks_judge():
    assert build(ExactVerifier(), {"set": lambda p, t: Verdict(9.0, True)}).judge(PROMPT, "7").reward == 1.0


def test_v26_a_failing_task_judge(parts):
    """V-26, A-09."""
    task = TaskVerifier({"set": lambda p, t: Verdict(float("nan"), True), "other": lambda p, t: 1 / 0})
    for uid in ("set:1", "other:1"):
        verdict = task.judge(Prompt(uid, (), "7"), "7")
        assert verdict.error and (verdict.reward, verdict.correct) == (0.0, False)


def test_a_set_without_a_judge():
    task = TaskVerifier({"maze": lambda p, t: Verdict(1.0, True)})
    with pytest.raises(UserError, match="`set` has no judge"):
        task.judge(PROMPT, "7")
    with pytest.raises(UserError, match="`set` has no judge"):
        task.check_golds([PROMPT])
    task.close()
