"""Symbolic comparison by math-verify; loaded by a worker process, never imported.

Everything here may hang or die: the worker has a deadline. Decimals become fractions before they are read,
so that no comparison rounds; nothing is evaluated as Python.
"""

from __future__ import annotations

import logging
import re
from functools import lru_cache
from typing import Any

from latex2sympy2_extended.latex2sympy2 import (
    ConversionConfig,
    NormalizationConfig,
    latex2sympy,
    normalize_latex,
)
from math_verify import verify
from math_verify.grader import should_treat_as_complex
from sympy import Eq, Expr, FiniteSet, I, Integral, Limit, Product, Rational, Sum, Symbol, simplify

logging.disable()  # math-verify warns of the missing time-outs

# Units are taken off before; math-verify's own rule takes `6m` for 6.
_NORMAL = NormalizationConfig(basic_latex=True, malformed_operators=True, units=False, boxed="none")
_CASE = ConversionConfig(lowercase_symbols=False)  # R and r differ: else R - r is 0
_UNFINISHED = (Sum, Product, Integral, Limit)
_DECIMAL = re.compile(r"(\d*)\.(\d+)")


def grade(pairs: list[tuple[str, str, str | None, int]]) -> list[bool]:
    """Say of each (gold, answer, tolerance, digits) whether they are equal."""
    return [_equal(*pair) for pair in pairs]


def parses(gold: str) -> bool:
    """Whether there is an expression in the gold."""
    return _parse(gold) is not None


def _equal(gold: str, answer: str, near: str | None, digits: int) -> bool:
    target, guess = _parse(gold), _parse(answer)
    if target is None or guess is None:
        return False
    if target.has(*_UNFINISHED) or guess.has(*_UNFINISHED):
        return bool(target == guess)
    if near is not None and isinstance(guess, Expr) and guess.is_number:
        gap = (guess - target).evalf(30)
        if gap.is_comparable and abs(gap) <= Rational(near):
            return True
    if isinstance(target, Eq) and isinstance(guess, Eq) and _is_scalar(*target.args, *guess.args):
        return _same_equation(target, guess)
    if _is_scalar(target, guess) and _far_apart(target, guess):
        return False
    if Symbol in (type(target), type(guess)) and _is_scalar(target, guess):
        return bool(simplify(target - guess) == 0)  # math-verify would compare their names
    return bool(
        verify(target, guess, numeric_precision=digits, allow_set_relation_comp=True, timeout_seconds=None)
    )


def _is_scalar(*parts: Any) -> bool:
    return all(isinstance(part, Expr) for part in parts)


def _far_apart(left: Any, right: Any) -> bool:
    """Whether they differ at some point by more than rounding can: most wrong answers, told quickly."""
    symbols = sorted(left.free_symbols | right.free_symbols, key=str)
    point = {symbol: Rational(2 * place + 7, 5) for place, symbol in enumerate(symbols)}
    value, other = left.subs(point).evalf(30), right.subs(point).evalf(30)
    gap, size = abs(value - other).evalf(), (abs(value) + abs(other)).evalf()
    return bool(gap.is_comparable and size.is_comparable and gap > 1e-10 * size and gap > 1e-20)


def _same_equation(left: Any, right: Any) -> bool:
    """One is a multiple of the other; comparing solutions would call any two without a solution equal."""
    ratio = simplify((left.lhs - left.rhs) / (right.lhs - right.rhs))
    return bool(ratio.is_number and ratio.is_finite and ratio.is_nonzero)


@lru_cache(4096)
def _parse(text: str) -> Any:
    text = _DECIMAL.sub(_fraction, text).replace("°", "").replace("'", r"^{\prime}")
    text = normalize_latex(text, _NORMAL)
    try:
        found = latex2sympy(
            text,
            is_real=not should_treat_as_complex(text),
            normalization_config=None,
            conversion_config=_CASE,
        )
        if not found.has(*_UNFINISHED):
            found = found.xreplace({Symbol("i", real=True): I, Symbol("i", real=False): I})
        if isinstance(found, FiniteSet) and len(found.args) == 1:
            found = found.args[0]  # `{2}` in braces, for the reader
    except Exception:
        return None
    return found


def _fraction(decimal: re.Match[str]) -> str:
    whole, places = decimal.groups()
    return rf"{{\frac{{{int(whole + places)}}}{{{10 ** len(places)}}}}}"
