"""The exact and the regex verifier."""

import pytest
from pydantic import TypeAdapter, ValidationError

from rlctl.types import Prompt, Verdict
from rlctl.verify import ExactVerifier, RegexVerifier, VerifierSpec
from rlctl.verify.exact import ExactJudge
from rlctl.verify.regex import RegexJudge


def prompt(gold, uid="set:1"):
    return Prompt(uid, (("user", "?"),), gold)


def test_exact():
    judge = ExactJudge(ExactVerifier())
    assert judge.judge(prompt("Paris"), " Paris\n") == Verdict(1.0, True, "Paris", reason="same text")
    assert judge.judge(prompt("Paris"), "paris") == Verdict(0.0, False, "paris", reason="texts differ")
    assert judge.judge(prompt(("Paris", "paris ")), "paris").correct
    assert ExactJudge(ExactVerifier(ignore_case=True)).judge(prompt("PARIS"), "paris").correct


def test_v17_nothing_never_equals_nothing():
    """V-17."""
    judge = ExactJudge(ExactVerifier())
    assert judge.judge(prompt(""), " ") == Verdict(0.0, False, None, reason="no answer")
    assert judge.judge(prompt(()), "").correct is False
    bad, good = prompt(("", " "), "set:bad"), prompt(("", "x"), "set:good")
    assert judge.check_golds([bad, good]) == [bad]


def test_regex():
    judge = RegexJudge(RegexVerifier(pattern=r"(?s)<think>.*</think>"))
    found = judge.judge(prompt("7"), "so <think>a\nb</think> 7")
    assert found == Verdict(1.0, True, "<think>a\nb</think>", reason="the pattern is found")
    assert judge.judge(prompt("7"), "7") == Verdict(0.0, False, None, reason="the pattern is not found")
    assert judge.check_golds([prompt("7")]) == []


def test_v19_what_the_chat_template_begins_belongs_to_the_answer():
    """V-19: the prompt ends with `<think>`, so the response has only the closing tag."""
    pattern, response = r"(?s)^<think>.+?</think>.", "2 + 5 is 7\n</think>7"
    assert not RegexJudge(RegexVerifier(pattern=pattern)).judge(prompt("7"), response).correct
    assert RegexJudge(RegexVerifier(pattern=pattern, prefix="<think>\n")).judge(prompt("7"), response).correct


@pytest.mark.parametrize(
    ("section", "words"),
    [
        ({"kind": "regex", "pattern": "("}, "no regular expression"),
        ({"kind": "regex", "pattern": "x"}, "shaping: false"),
        ([{"kind": "exact", "shaping": True}, {"kind": "regex", "pattern": "x"}], "shaping: false"),
        ([], "shaping: false"),
        ({"kind": "exact", "ignore": True}, "Extra inputs"),
    ],
)
def test_sections_that_are_refused(section, words):
    with pytest.raises(ValidationError, match=words):
        TypeAdapter(VerifierSpec).validate_python(section)


def test_sections_that_are_fine():
    read = TypeAdapter(VerifierSpec).validate_python
    assert read("auto") == "auto"
    assert read({"kind": "regex", "pattern": "x", "shaping": False}) == RegexVerifier(
        pattern="x", shaping=False
    )
    assert read([{"kind": "exact"}, {"kind": "regex", "pattern": "x", "weight": 0.1}]) == (
        ExactVerifier(),
        RegexVerifier(pattern="x", weight=0.1),
    )
