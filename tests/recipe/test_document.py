"""YAML 1.2 with lines."""

import pytest

from rlctl.errors import UserError
from rlctl.recipe.document import parse


@pytest.mark.parametrize("text", ["1e-6", "1E-6", "1.0e-6", ".000001", "0.1e-5", "+1e-6"])
def test_f01_every_spelling_of_a_small_float(text):
    value = parse(f"a: {text}", "x").data["a"]
    assert type(value) is float
    assert value == 1e-6


@pytest.mark.parametrize("text", ["no", "on", "off", "yes", "None", "1:30", "2024-01-01", '"8"', "1e", "e5"])
def test_f06_words_that_yaml_1_1_would_turn_are_text(text):
    assert parse(f"a: {text}", "x").data["a"] == text.strip('"')


def test_f06_numbers_booleans_and_null():
    data = parse("{a: 08, b: 0x1f, c: true, d: null, e: ~, f: -3, g: }", "x").data
    assert data == {"a": 8, "b": 31, "c": True, "d": None, "e": None, "f": -3, "g": None}


def test_f06_duplicate_keys_are_refused_with_both_lines():
    with pytest.raises(UserError, match=r"x\.yaml:3: the key `b` stands twice, first in line 2"):
        parse("a:\n  b: 1\n  b: 2\n", "x.yaml")


def test_lines_of_keys_and_items():
    document = parse("a:\n  - x\n  - {k: 1,\n     l: 2}\n", "f")
    assert document.where(("a", 1, "l")) == "f:4"
    assert document.where(("a", 0)) == "f:2"
    assert document.where(("a", 1, "unwritten")) == "f:3"
    assert document.where(("zzz",)) == "f"


@pytest.mark.parametrize(
    ("text", "line"),
    [
        ("a: [1,\nb: 2\n", 3),
        ("a: 1\n\tb: 2", 2),
        ("a: 1\n---\nb: 2", 2),
        ("a: !!python/object:os.system {}", 1),
        ("a: 1\nb: !foo 3", 2),
        ("a: &x {b: *x}", 1),
        ("? [1, 2]\n: 3", 1),
    ],
)
def test_broken_yaml_names_the_line(text, line):
    with pytest.raises(UserError) as caught:
        parse(text, "f.yaml")
    assert caught.value.message.startswith(f"f.yaml:{line}: ")
    assert len(str(caught.value).splitlines()) <= 2


def test_control_characters_are_no_yaml():
    with pytest.raises(UserError, match=r"f\.yaml: broken YAML"):
        parse('a: "\x01"', "f.yaml")


def test_anchors_keep_their_meaning():
    assert parse("a: &x {k: 1}\nb: *x", "f").data == {"a": {"k": 1}, "b": {"k": 1}}


@pytest.mark.parametrize("text", ["a: " + "[" * 2000, "name: !!int abc", "seed: !!bool x"])
def test_what_yaml_cannot_build_is_a_users_mistake(text: str) -> None:
    with pytest.raises(UserError):
        parse(text, "x.yaml")
