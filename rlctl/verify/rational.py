r"""Exact arithmetic on what a model wrote: `\frac{1}{2}`, `3\cdot 2^{-99}`, `1 1/2`, `\binom{5}{2}`, `6e23`.

Pure Python and bounded: a power tower is refused before anything is multiplied.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from fractions import Fraction
from math import ceil, comb, factorial
from operator import add, mul, sub, truediv

MAX_BITS = 1 << 16  # of all powers, factorials and binomials in one text: 19,700 decimal digits
MAX_POWER = 1000  # exponent of what is no rational number
MAX_FACTORIAL = 4000
MAX_BINOMIAL = 10_000  # its upper number
MAX_TOWER = 3  # exponents of exponents
MAX_DEPTH = 100  # a parser needs several stack frames for each bracket in a bracket

Value = Fraction | None  # None: no rational number, or not known to be one

_NUMBER = re.compile(r"(\d+\.?\d*|\.\d+)(?:[eE]([-+]?\d+)(?![\w.]))?")
_MIXED = re.compile(r"(\d+)(?:\s+(\d+)/(\d+)(?![\d.])|\s*\\frac\s*(?:\{(\d+)\}|(\d))\s*(?:\{(\d+)\}|(\d)))")
_COMMAND = re.compile(r"\\(?:[A-Za-z]+|.?)", re.DOTALL)
_CLOSING = {"(": ")", "{": "}"}


class TooLarge(ValueError):
    """A number with more digits than anybody writes out as an answer."""


def rational(text: str) -> tuple[Value, int]:
    """The exact value where the whole text is arithmetic on numbers, and the bits of its large parts.

    Raises:
        TooLarge: a power, factorial, binomial or nesting in it is beyond the bounds above.
    """
    reader = _Reader(text)
    return reader.whole(), reader.bits


class _Reader:
    """Recursive descent. What it does not know makes the value None, and reading goes on behind it."""

    def __init__(self, text: str) -> None:
        self.text, self.at, self.depth, self.tower, self.bits = text, 0, 0, 0, 0

    def whole(self) -> Value:
        value = self.sum()
        while self.at < len(self.text):  # a comma, a relation, a bracket too many
            self.at += 1
            self.sum()
            value = None
        return value

    def sum(self) -> Value:
        value = self.term()
        while sign := self.take("+", "-"):
            value = _apply(add if sign == "+" else sub, value, self.term())
        return value

    def term(self) -> Value:
        value, divided = self.factor(), False
        while True:
            if self.take(r"\cdot", r"\times", "*", "×", "·"):
                value = _apply(mul, value, self.factor())
            elif self.take(r"\div", "/", "÷"):
                value, divided = _apply(truediv, value, self.factor()), True
            elif (ahead := self.peek()).isalnum() or ahead in (".", "\\", *_CLOSING):
                # `1 2` is no product, and whether 3 stands below the line in `1/2(3)` nobody knows.
                unclear = divided or (ahead.isdecimal() and self.text[: self.at].rstrip()[-1:].isdecimal())
                factor = self.factor()
                value = None if unclear else _apply(mul, value, factor)
            else:
                return value

    def factor(self) -> Value:
        negative = False
        while sign := self.take("+", "-"):
            negative ^= sign == "-"
        value = self.base()
        while mark := self.take("^", "!!", "!", "_", "'"):
            if mark == "^":
                value = self.power(value, self.exponent())
            elif mark == "!":
                value = self.factorial(value)
            else:
                value = self.argument() and None if mark == "_" else None
        return _apply(mul, value, Fraction(-1)) if negative else value

    def base(self) -> Value:
        self.depth += 1
        if self.depth > MAX_DEPTH:
            raise TooLarge("nested too deeply")
        ahead = self.peek()
        if mixed := _MIXED.match(self.text, self.at):
            self.at = mixed.end()
            whole, top, bottom = (Fraction(digits) for digits in mixed.groups() if digits)
            value = _apply(add, whole, _apply(truediv, top, bottom))
        elif number := _NUMBER.match(self.text, self.at):
            self.at = number.end()
            value = _apply(mul, Fraction(number[1]), self.power(Fraction(10), Fraction(number[2] or 0)))
        elif ahead in _CLOSING:
            self.at += 1
            value = self.sum()
            value = value if self.take(_CLOSING[ahead]) else None
        elif ahead == "\\":
            value = self.command()
        else:
            value = None
            self.at += ahead.isalnum() or ahead == "."
        self.depth -= 1
        return value

    def command(self) -> Value:
        match self.take_command():
            case r"\frac":
                return _apply(truediv, self.argument(), self.argument())
            case r"\binom":
                return self.binomial(self.argument(), self.argument())
        return None

    def argument(self) -> Value:
        """One digit, or what is in braces."""
        if (ahead := self.peek()).isdecimal():
            self.at += 1
            return Fraction(ahead)
        return self.base()

    def exponent(self) -> Value:
        """Also more than one digit, and a sign: `10^-12` is plain enough."""
        self.tower += 1
        if self.tower > MAX_TOWER:
            raise TooLarge("a power tower is too high")
        negative = self.take("-")
        value = self.base()
        self.tower -= 1
        return _apply(mul, value, Fraction(-1 if negative else 1))

    def power(self, base: Value, exponent: Value) -> Value:
        if exponent is None:
            return None
        if base is None or exponent.denominator != 1:
            if abs(exponent) > MAX_POWER:
                raise TooLarge("an exponent is too large")
            self.spend(4 * ceil(abs(exponent)))
            return None
        longest = max(abs(base.numerator), base.denominator)
        self.spend(abs(exponent.numerator) * (longest.bit_length() if longest > 1 else 0))
        return base**exponent.numerator if base or exponent > 0 else None

    def factorial(self, value: Value) -> Value:
        if value is None or value.denominator != 1 or value < 0:
            return None
        if value > MAX_FACTORIAL:
            raise TooLarge("a factorial is too large")
        self.spend(value.numerator * value.numerator.bit_length())
        return Fraction(factorial(value.numerator))

    def binomial(self, upper: Value, lower: Value) -> Value:
        if upper is None or lower is None or {upper.denominator, lower.denominator} != {1}:
            return None
        if upper > MAX_BINOMIAL:
            raise TooLarge("a binomial is too large")
        self.spend(abs(upper.numerator))
        return Fraction(comb(upper.numerator, lower.numerator)) if 0 <= lower <= upper else None

    def spend(self, bits: int) -> None:
        self.bits += bits
        if self.bits > MAX_BITS:
            raise TooLarge("a number is too large")

    def peek(self) -> str:
        """The next sign that is no blank; reading stops before it."""
        while self.text[self.at : self.at + 1].isspace():
            self.at += 1
        return self.text[self.at : self.at + 1]

    def take(self, *marks: str) -> str | None:
        self.peek()
        for mark in marks:
            if self.text.startswith(mark, self.at):
                self.at += len(mark)
                return mark
        return None

    def take_command(self) -> str:
        found = _COMMAND.match(self.text, self.at)
        assert found is not None
        self.at = found.end()
        return found[0]


def _apply(operator: Callable[[Fraction, Fraction], Fraction], left: Value, right: Value) -> Value:
    if left is None or right is None or (operator is truediv and right == 0):
        return None
    return operator(left, right)
