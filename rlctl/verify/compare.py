r"""Is an answer the gold answer? What can be told exactly is told here, the rest is asked of sympy.

Texts are compared as text, as a choice or as words; then lists, tuples, intervals and matrices element by
element; then numbers and their units, exactly. Expressions that are left are `Pair`s for the worker.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from fractions import Fraction
from types import MappingProxyType
from typing import NamedTuple

from rlctl.verify.rational import TooLarge, rational
from rlctl.verify.tidy import Parts, flat, parts, split, tidy
from rlctl.verify.units import PERCENT, Quantity, quantity

MAX_LENGTH = 2000  # characters of an answer; nobody's is longer, and int() of 5000 digits raises
RELATIVE = Fraction(1, 10**6)  # what a decimal gold may be missed by, if the answer rounds to it

_CHOICE = re.compile(r"\(?([A-J])\)?")
_CHOSEN = re.compile(r"(?:\(([A-J])\)|([A-J])(?=[.:)]|$))[.:)]?((?:(?!\b[A-J]\b).)*)")
_WORDS = re.compile(r"(?=.*?(?:[A-Za-z]{3}|[A-Z]{2}|[\u4e00-\u9fff]))[^\W\d_][\w\s',.:;&()-]*")
_FUNCTION = re.compile(r"\b(?:sin|cos|tan|cot|sec|csc|log|exp|sqrt|min|max|gcd|lcm|mod)\b")
_DOTS = re.compile(r"\\ldots|\.\.\.|…")
_UNFINISHED = re.compile(
    r"\\(?:i{0,3}int|oint|sum|prod|lim(?:sup|inf)?)(?![A-Za-z])|\\frac\s*\{?d\}?\s*\{?d|[∫∑∏]"
)
_AND = re.compile(
    r",?\s*(?:\\text\s*\{([^{}]*)\}|(?<![A-Za-z\\])(?:and|or)(?![A-Za-z])|\\lor(?![A-Za-z])|;)\s*"
)
_DECIMAL = re.compile(r"-?\d*\.(\d+)(?:[eE]([-+]?\d{1,3}))?")
# What may be left out in front of `=`: `x`, `f(2)`, of an answer also `m+n`, but never `3+x`.
_ASIDE = re.compile(r"_(?:\{[^{}]*\}|\w)|\^\{?-1\}?(?=\()|(?<=[A-Za-z})'])\([^()]*\)")
_COUNTED = re.compile(r"[\d<>]|\\(?:[lg]eq?|[lg]t|ne|in)(?![A-Za-z])")
_COMPOSED = re.compile(rf"{_COUNTED.pattern}|[-+*/^]|\\frac")


class Pair(NamedTuple):
    """A question for sympy. `near`: how far from a decimal gold the answer may lie; `digits` to work with."""

    gold: str
    answer: str
    near: str | None
    digits: int


class Comparison:
    """`equal` is None while `pairs` are open; compare again with what is `known` of them."""

    def __init__(self, gold: str, answer: str, known: Mapping[Pair, bool] = MappingProxyType({})) -> None:
        self.known = known
        self.pairs: list[Pair] = []
        self.reason = ""
        try:
            self.equal = self._texts(tidy(gold), tidy(answer))
        except TooLarge as error:
            self.equal = self._say(False, str(error))

    def _say(self, equal: bool, reason: str) -> bool:
        self.reason = reason
        return equal

    def _texts(self, gold: str, answer: str) -> bool | None:
        if not gold:
            return self._say(False, "the gold answer is empty")
        if flat(gold) == flat(answer):
            return self._say(True, "same text")
        if len(answer) > MAX_LENGTH or len(gold) > MAX_LENGTH:
            return self._say(False, "too long")
        if choice := _CHOICE.fullmatch(flat(gold)):
            same = _chosen(flat(answer)) == choice[1]
            return self._say(same, "same choice" if same else "not this choice")
        if (words := _words(gold)) is not None:
            same = words == _bare(answer)
            return self._say(same, "same words" if same else "words differ")
        if _DOTS.search(gold) or _DOTS.search(answer):
            return self._say(False, "a pattern with dots counts as text, and the texts differ")
        if _UNFINISHED.search(answer) and not _UNFINISHED.search(gold):
            return self._say(False, "left to be worked out")
        return self._same(_listed(gold), _listed(answer))

    def _same(self, gold: str, answer: str) -> bool | None:
        """Compare what may be a collection or an equation."""
        if flat(gold) == flat(answer):
            return self._say(True, "same text")
        bare = _without_names(gold, answer)
        if bare is None:
            return self._say(False, "an equation where a value is asked")
        left, right = parts(bare[0]), parts(bare[1])
        return self._elements(left, right) if left and right else self._expressions(*bare)

    def _elements(self, gold: Parts, answer: Parts) -> bool | None:
        kinds = {gold.kind, answer.kind}
        if len(kinds) == 2 and kinds not in ({",", "()"}, {",", "{}"}):
            return self._say(False, "other brackets")
        if len(gold.items) != len(answer.items):
            return self._say(False, "other number of elements")
        if kinds <= {",", "{}"} and not _names_left_out(gold.items, answer.items):
            return self._in_any_order(gold.items, answer.items)
        equal: bool | None = True
        for pair in zip(gold.items, answer.items, strict=True):
            same = self._same(*pair)
            if same is False:
                return False
            equal = equal and same
        return equal

    def _in_any_order(self, gold: list[str], answer: list[str]) -> bool | None:
        rest, undecided = list(answer), False
        for item in gold:
            found = [self._same(item, other) for other in rest]
            if True in found:
                del rest[found.index(True)]
            elif None in found:
                undecided = True
            else:
                return self._say(False, "an element is missing")
        return None if undecided else self._say(True, "same elements")

    def _expressions(self, gold: str, answer: str) -> bool | None:
        left = quantity(gold, any_word=False)
        right = quantity(answer, any_word=left.value is not None)
        if left.unit and right.unit and left.unit != right.unit:
            return self._say(False, "unit differs")
        near = _tolerance(left.text)
        if left.value is not None and right.value is not None:
            return self._say(*_numbers(left, right, near))
        if left.value is not None and (several := parts(answer)) and len(several.items) > 1:
            return self._say(False, "several values where one is asked")
        if left.value is not None and _words(right.text) is not None:
            return self._say(False, "words where a number is asked")
        digits = 50 + len(gold) + len(answer) + (left.bits + right.bits) // 3
        pair = Pair(left.text, right.text, None if near is None else str(near), digits)
        if pair in self.known:
            return self._say(self.known[pair], f"expressions {'are equal' if self.known[pair] else 'differ'}")
        self.pairs.append(pair)
        return None


def expressions(gold: str) -> list[str]:
    """The parts of a gold answer that sympy must be able to read; none in numbers, words and choices."""
    text = tidy(gold)
    if text and (_CHOICE.fullmatch(flat(text)) or _words(text) is not None or _DOTS.search(text)):
        return []
    try:
        return _leaves(_listed(text))
    except TooLarge:
        return [""]  # which it is not able to read


def _leaves(text: str) -> list[str]:
    sides = split(text, "=")
    if found := parts(sides[-1] if len(split(text, ",")) == 1 else text):
        return [leaf for item in found.items for leaf in _leaves(item)]
    read = quantity(text, any_word=False)
    return [] if read.value is not None else [read.text]


def _chosen(answer: str) -> str | None:
    found = _CHOSEN.fullmatch(answer.upper() if len(answer) <= 3 else answer)
    return (found[1] or found[2]) if found else None


def _words(gold: str) -> str | None:
    """A gold answer in words, such as `June 20`; never a formula."""
    text = flat(gold)
    return _bare(gold) if _WORDS.fullmatch(text) and not _FUNCTION.search(text) else None


def _bare(text: str) -> str:
    return re.sub(r"[\W_]+", " ", flat(text)).strip().casefold()


def _listed(text: str) -> str:
    """A comma for each `and` and `or`; other words stay."""
    return _AND.sub(
        lambda found: ", " if (found[1] or "and").strip(" ,") in ("and", "or") else found[0], text
    )


def _without_names(gold: str, answer: str) -> tuple[str, str] | None:
    """Drop `x=` where one of the two has it, or both the same; None: the answer is another equation."""
    left, right = _sides(gold), _sides(answer)
    if len(left) == 1 < len(right):
        return (gold, right[-1]) if _drops(right, _COUNTED) else None
    if len(right) == 1 < len(left):
        return (left[-1] if _drops(left, _COMPOSED) else gold), answer
    return (left[-1], right[-1]) if flat(left[0]) == flat(right[0]) else (gold, answer)


def _sides(text: str) -> list[str]:
    return [text] if len(split(text, ",")) > 1 else split(text, "=")


def _drops(sides: list[str], refused: re.Pattern[str]) -> bool:
    """Whether the last side says it all: behind a name, or where all sides are the same number."""
    name = _ASIDE.sub("", sides[0])
    if re.search(r"[A-Za-z]", name) and not refused.search(name):
        return True
    values = {rational(side)[0] for side in sides}
    return len(values) == 1 and None not in values


def _names_left_out(gold: list[str], answer: list[str]) -> bool:
    """The gold says `x=2, y=3` and the answer `2, 3`: then the order tells which is which."""
    names = {split(item, "=")[0] for item in gold if len(split(item, "=")) > 1}
    return len(names) > 1 and not any("=" in item for item in answer)


def _tolerance(gold: str) -> Fraction | None:
    """Of a decimal gold: a millionth of it, and no more than half a unit of its last digit."""
    found = _DECIMAL.fullmatch(gold)
    if not found:
        return None
    last = Fraction(10) ** (int(found[2] or 0) - len(found[1]))
    return min(abs(Fraction(found[0])) * RELATIVE, last / 2)


def _numbers(gold: Quantity, answer: Quantity, near: Fraction | None) -> tuple[bool, str]:
    assert gold.value is not None and answer.value is not None
    values = [answer.value]
    if answer.unit == PERCENT and gold.unit != PERCENT:
        values.append(answer.value / 100)
    if gold.value in values:
        return True, "equal numbers"
    if near is not None and any(abs(gold.value - value) <= near for value in values):
        return True, "equal within the tolerance of a decimal"
    return False, "numbers differ"
