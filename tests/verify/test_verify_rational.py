"""Exact arithmetic on text: the value, what is left alone, and what is refused before it is worked out."""

from fractions import Fraction
from math import comb, factorial
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from rlctl.verify import MathVerifier
from rlctl.verify.compare import MAX_LENGTH
from rlctl.verify.rational import (
    MAX_BINOMIAL,
    MAX_BITS,
    MAX_DEPTH,
    MAX_FACTORIAL,
    MAX_POWER,
    MAX_TOWER,
    TooLarge,
    rational,
)


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("42", 42),
        ("-.5", Fraction(-1, 2)),
        ("3.", 3),
        ("1/2", Fraction(1, 2)),
        ("--3", 3),
        ("1 3/4", Fraction(7, 4)),
        (r"1\frac{3}{4}", Fraction(7, 4)),
        (r"-137 \frac12", Fraction(-275, 2)),
        (r"\frac1{72}", Fraction(1, 72)),
        (r"\frac{\frac12}{-3}", Fraction(-1, 6)),
        (r"1.5\times 10^{3}", 1500),
        ("10^-3", Fraction(1, 1000)),
        ("2^10", 1024),
        ("-2^2", -4),
        ("(-2)^2", 4),
        ("6.02e23", 602 * 10**21),
        ("5!", 120),
        (r"\binom{5}{2}", 10),
        ("2(3)(4)", 24),
        ("2+3*4-6/3", 12),
        (r"\frac{1}{2004!}", Fraction(1, factorial(2004))),
        ("1^{99999999999999999999}", 1),
    ],
)
def test_value(text, value):
    assert rational(text)[0] == value


@pytest.mark.parametrize(
    "text",
    [
        " ",
        "x",
        "2x",
        "1 2",
        "1,000",
        "12:30",
        "1/0",
        r"\frac{1}{0}",
        "0^{-1}",
        "3+",
        "(1",
        "2^{1/2}",
        r"\sqrt{4}",
    ],
)
def test_what_is_no_plain_arithmetic_has_no_value(text):
    assert rational(text)[0] is None


@pytest.mark.parametrize(
    "text", ["1=1", "x_2", "2_3", "5!!", "(-3)!", "n!", "1/2(3)", "2e", "²", ".", "\\", "f(2)", r"\text{2}"]
)
def test_nor_has_what_is_read_in_two_ways(text):
    assert rational(text)[0] is None


@pytest.mark.parametrize(
    "text",
    [
        "9^{9^{9^{9}}}",
        r"\dfrac{5^{5^{5^{5}}}-5}{16}".replace("dfrac", "frac"),
        "x+y^{2^{99}}",
        "e^{e^{e^{e^{e}}}}",
        f"x^{{{MAX_POWER + 1}}}",
        f"({MAX_FACTORIAL + 1})!",
        rf"\binom{{{MAX_BINOMIAL + 1}}}{{2}}",
        "1e99999999",
        f"2^{{{MAX_BITS}}}",
        "(" * 200 + "1" + ")" * 200,
        r"\frac" * 200,
    ],
)
def test_v01_what_is_too_large_is_refused(text):
    """V-01: before it is worked out, wherever it stands."""
    with pytest.raises(TooLarge):
        rational(text)


def test_bits_tell_how_small_a_number_in_an_expression_may_be():
    for text, bits in [(r"\frac{\pi}{2^{99}}", 99), (r"\frac{\pi}{2004!}", factorial(2004).bit_length())]:
        value, spent = rational(text)
        assert value is None
        assert spent >= bits


def test_the_bounds_in_the_documentation():
    text = (Path(__file__).parents[2] / "docs/verifiers.md").read_text()
    for bound in (MAX_LENGTH, MAX_BITS, MAX_FACTORIAL, MAX_BINOMIAL, MAX_POWER, MAX_TOWER, MAX_DEPTH):
        assert f" {bound:,} " in text.replace(";", " ")
    assert f"{MathVerifier().deadline_s} s" in text


SUM = st.deferred(lambda: LEAF | st.tuples(SUM, st.sampled_from("+-*/"), SUM))
LEAF = st.fractions(min_value=0, max_value=50, max_denominator=20)


def written(tree):
    """As LaTeX, and its value by Python's own fractions; None where something is divided by 0."""
    if isinstance(tree, Fraction):
        return rf"\frac{{{tree.numerator}}}{{{tree.denominator}}}", tree
    (left, a), sign, (right, b) = written(tree[0]), tree[1], written(tree[2])
    if a is None or b is None or (sign == "/" and b == 0):
        value = None
    else:
        value = {"+": a + b, "-": a - b, "*": a * b}[sign] if sign != "/" else a / b
    return f"({left}){sign}({right})", value


@given(SUM)
def test_arithmetic_as_python_has_it(tree):
    text, value = written(tree)
    assert rational(text)[0] == value


@given(st.integers(0, 60), st.integers(0, 60))
def test_binomials(n, k):
    assert rational(rf"\binom{{{n}}}{{{k}}}")[0] == (comb(n, k) if k <= n else None)


@settings(max_examples=500)
@given(st.text(alphabet="12.9^!_'{}()\\/*+-x ,=eE%·", max_size=60) | st.text(max_size=30))
def test_any_text_ends(text):
    try:
        value, bits = rational(text)
    except TooLarge:
        return
    assert value is None or isinstance(value, Fraction)
    assert bits <= MAX_BITS
