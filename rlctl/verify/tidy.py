r"""One way to write an answer, and its parts: the elements of a list, a tuple, an interval, a matrix."""

from __future__ import annotations

import re
from itertools import accumulate
from typing import NamedTuple

from rlctl.verify.extract import GROUPED, clean

_ONE_NAME = {
    **dict.fromkeys(("dfrac", "tfrac", "cfrac"), r"\frac"),
    **dict.fromkeys(("dbinom", "tbinom"), r"\binom"),
    **dict.fromkeys(("mbox", "mathrm", "textrm", "textbf", "textit", "textnormal", "operatorname"), r"\text"),
    **dict.fromkeys(("left", "right", "big", "Big", "bigl", "bigr", "Bigl", "Bigr"), ""),
    **dict.fromkeys(("displaystyle", "textstyle", "quad", "qquad"), " "),
    **dict.fromkeys(("dots", "cdots", "dotsc"), r"\ldots"),
    **{"lbrace": r"\{", "rbrace": r"\}", "degree": "°", "varnothing": r"\emptyset"},
}
_COMMAND = re.compile(rf"\\({'|'.join(_ONE_NAME)})(?![A-Za-z])")
_REWRITES = [
    (re.compile(pattern), replacement)
    for pattern, replacement in (
        (r"(?<=\d)\\[,!;:]\s*(?=\d{3})|(?<=,)\\!\s*(?=\d)", ""),  # between the digits of one number
        (r"(?<!\\)\\[,;:!> ]|~", " "),
        (r"(?<!\\)\$", ""),
        (r"\{,\}", ","),
        (r"\^\s*(?:\{\s*\\circ\s*\}|\\circ(?![A-Za-z]))", "°"),
        (r"\\text\s*\{([eid])\}", r"\1"),  # the constants in roman letters
        (r"\s+", " "),
    )
]
_TEXT = re.compile(r"\\text\s*\{([^{}]*)\}")
_GROUPED = re.compile(rf"([^,()\[\]{{}}\d]*-?)({GROUPED})((?:\.\d+)?[^,()\[\]]*)")
_MATRIX = re.compile(r"\\begin\{([a-z]*matrix|array)\}(?:\{[lcr|]*\})?(.*)\\end\{\1\}")
_BRACKETS = re.compile(r"[(\[{]|[)\]}]")


def tidy(text: str) -> str:
    """Without styles, spacing commands, math delimiters, outer braces and digit grouping."""
    text = _unwrapped(clean(text).strip())
    text = _COMMAND.sub(lambda found: _ONE_NAME[found[1]], text)
    for pattern, replacement in _REWRITES:
        text = pattern.sub(replacement, text)
    text = _unwrapped(text.strip()).strip()
    if whole := _TEXT.fullmatch(text):
        text = whole[1].strip()
    if number := _GROUPED.fullmatch(text):
        text = number[1] + number[2].replace(",", "") + number[3]
    return text.removesuffix(".").rstrip()


def _unwrapped(text: str) -> str:
    """Without the braces around all of it, in one pass: a model may write thousands of them."""
    head, tail = len(text) - len(text.lstrip("{")), len(text) - len(text.rstrip("}"))
    steps = ((char == "{") - (char == "}") for char in text[head : len(text) - tail])
    outer = max(0, min(tail, min(accumulate(steps, initial=head))))
    return text[outer : len(text) - outer]


def flat(text: str) -> str:
    r"""A tidy text without `\text{}`, and without the blanks that separate nothing."""
    text = " ".join(_TEXT.sub(r"\1", text).split())
    return re.sub(r"(?<!\w) | (?!\w)", "", text)


def split(text: str, mark: str) -> list[str]:
    """Split at a mark that stands outside of all brackets; `=` is not the one of `<=`."""
    pieces, depth, start = [], 0, 0
    for found in re.finditer(rf"(?<![<>!:]){re.escape(mark)}|[(\[{{]|[)\]}}]", text):
        if found[0] == mark:
            if depth == 0:
                pieces.append(text[start : found.start()].strip())
                start = found.end()
        else:
            depth += 1 if found[0] in "([{" else -1
    return [*pieces, text[start:].strip()]


class Parts(NamedTuple):
    """Elements and what holds them: `,` (a bare list), `{}`, `()`, `[)` and such, or `2x2`."""

    kind: str
    items: list[str]


def parts(text: str) -> Parts | None:
    r"""Take a list, set, tuple, interval or matrix apart; None: it is none. `\pm 3` is a list of two."""
    if len(items := _signed(split(text, ","))) > 1:
        return Parts(",", items)
    if matrix := _MATRIX.fullmatch(text):
        rows = [row.split("&") for row in matrix[2].removesuffix("\\\\").split("\\\\")]
        return Parts(f"{len(rows)}x{len(rows[0])}", [cell.strip() for row in rows for cell in row])
    opening = 2 if text.startswith(r"\{") else 1
    if text[:opening] in ("(", "[", r"\{") and text[-1:] in (")", "]", "}") and _closes_at_end(text):
        inner = text[opening:-opening] if text.endswith(r"\}") else text[opening:-1]
        items = split(inner, ",")
        if opening == 2:
            return Parts("{}", _signed(items))
        if len(items) > 1:
            return Parts(text[0] + text[-1], items)
    return None


def _signed(items: list[str]) -> list[str]:
    halves = [split(item, r"\pm") for item in items]
    return [sign.join(half) for half in halves for sign in ("+-" if len(half) == 2 else [r"\pm"])]


def _closes_at_end(text: str) -> bool:
    depths = list(accumulate(1 if found[0] in "([{" else -1 for found in _BRACKETS.finditer(text)))
    return depths.index(0) == len(depths) - 1 if 0 in depths else False
