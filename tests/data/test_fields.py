from __future__ import annotations

import pytest

from rlctl.data.fields import Fields, last_boxed, to_prompt
from rlctl.errors import UserError


def gold(value, transform="none"):
    return to_prompt({"q": "?", "a": value}, Fields(("q",), ("a",), transform), "here").gold


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        ("  42 ", "42"),
        (27.0, "27"),
        (2.5, "2.5"),
        (0, "0"),
        (0.0, "0"),
        (-3.0, "-3"),
        (12345678901234567890, "12345678901234567890"),
        (["$2n-2$"], "$2n-2$"),
        (["1", 2.0], ("1", "2")),
        ("一百", "一百"),
    ],
)
def test_answers_become_text(value, expected):
    """A-10: a gold of 0 is an answer, not a missing one."""
    assert gold(value) == expected


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("2 + 3 = 5\n#### 5", "5"),
        ("#### 1\n#### -1,234,567", "-1234567"),
        ("#### (1,2)", "(1,2)"),
        ("#### 1,2345", "1,2345"),
    ],
)
def test_after_hashes(text, expected):
    assert gold(text, "after_hashes") == expected


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        (r"so \boxed{1} and then \boxed{\frac{1}{2}} .", r"\frac{1}{2}"),
        (r"\boxed{\{1, 2\}}", r"\{1, 2\}"),
        (r"\boxed {7} then \boxed{8", "7"),
        (r"\boxed{a \boxed{b} c}", "b"),
        ("none", None),
    ],
)
def test_last_boxed(text, expected):
    assert last_boxed(text) == expected


@pytest.mark.parametrize(
    ("value", "transform"),
    [
        *((nothing, "none") for nothing in ("", None, True, {"x": 1}, [], float("nan"))),
        ("5", "after_hashes"),
        ("####  ", "after_hashes"),
        (r"\boxed{5", "boxed"),
        (r"\boxed{}", "boxed"),
    ],
)
def test_what_is_no_answer_is_refused(value, transform):
    with pytest.raises(UserError, match="here, field `a`") as error:
        gold(value, transform)
    assert len(str(error.value).splitlines()) <= 3


def test_questions_are_texts_or_conversations():
    fields = Fields(("q",), ("a",))
    chat = [{"role": "system", "content": "Be short."}, {"role": "user", "content": "1+1?", "name": "x"}]
    assert to_prompt({"q": chat, "a": "2"}, fields, "here").messages == (
        ("system", "Be short."),
        ("user", "1+1?"),
    )
    for wrong in (
        "",
        "  ",
        5,
        None,
        [],
        ["hello"],
        [{"role": "user"}],
        [chat[1], {"role": "user", "content": ""}],
    ):
        with pytest.raises(UserError, match="here, field `q`: no question"):
            to_prompt({"q": wrong, "a": "2"}, fields, "here")


def test_missing_fields_name_those_that_are_there():
    with pytest.raises(UserError) as error:
        to_prompt({"question": "?", "gold": "1"}, Fields(("prompt",), ("gold",)), "x.jsonl, line 3")
    assert "x.jsonl, line 3: no field `prompt`; there are: question, gold" in str(error.value)
    assert len(str(error.value).splitlines()) == 2


def test_parts_of_a_question_are_joined_as_sentences():
    row = {"Body": "There are 3 apples ", "Question": "How many?", "a": 3.0}
    assert to_prompt(row, Fields(("Body", "Question"), ("a",)), "").text == "There are 3 apples. How many?"
