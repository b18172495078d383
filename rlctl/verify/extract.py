r"""What a response answers: one route in a fixed order, so that hedging earns nothing.

1. The last complete `\boxed{}`; an unfinished last box is no answer.
2. Without a box, what follows the last `####`, or the last phrase of the "answer is" kind.
3. Without a phrase, the last number, with a percent sign behind it.
"""

from __future__ import annotations

import re
import unicodedata
from functools import lru_cache

_BOX = re.compile(r"\\(?:boxed|fbox)\s*\{|\\.|[{}]", re.DOTALL)
_PHRASE = re.compile(
    r"####|\banswer\b[^.\n\d]{0,40}?(?:\bis\b|[:=])|答案[^。\n\d]{0,10}?[是为:=]", re.IGNORECASE
)
# Commas group digits by three, or by two as in India. A sign after a digit, letter or bracket is a minus
# between two terms: `8-5` ends in 5. Repetitions are bounded, so that time grows with the length only.
GROUPED = r"(?:\d{1,3}(?:,\d{3}){1,20}(?!\d|,\d)|\d{1,2}(?:,\d{2}){1,20},\d{3}(?!\d|,\d))"
_DIGITS = rf"(?:{GROUPED}|\d+)"
NUMBER = rf"(?>(?:(?<![\w)])[-+])?(?:{_DIGITS}(?:\.\d+)?|\.\d+)(?:/\d+)?)"
_NUMBERS = re.compile(rf"{NUMBER}(?: ?\\?%)?")
# A number that stands alone, neither part of a term nor first of a list.
_LEADING_NUMBER = re.compile(rf"\\?\$?\s*({NUMBER}(?:\s*\\?%)?+)(?!\s*[-+*/^=\\]|[\w/(]|,\s*[\d(])")
_LEADING_CHOICE = re.compile(r"(\([A-Z]\)|[A-Z](?=[.,:;)]|$))")
_MATH = re.compile(r"\$\$?(.+?)\$\$?|\\\((.+?)\\\)|\\\[(.+?)\\\]")
_INVISIBLE = dict.fromkeys(map(ord, "\x00\u200b\u200c\u200d\u2060\ufeff"))
_SAME = str.maketrans({"−": "-", "–": "-", "—": "-", "‐": "-", "‑": "-"})
_SUPERSCRIPT = re.compile("[⁰¹²³⁴-⁹⁻⁺]+")


def extract(response: str) -> str | None:
    """The answer as text, or None."""
    return locate(response)[0]


def locate(response: str) -> tuple[str | None, bool]:
    """The answer as text, or None; and whether a box or a phrase marks it (else it is the last number)."""
    text = clean(response.rpartition("</think>")[2])
    if (boxed := _last_box(text)) is not None:
        return boxed.strip() or None, True
    phrases = list(_PHRASE.finditer(text))
    if phrases:
        return _leading_answer(text[phrases[-1].end() :]), True
    numbers = _NUMBERS.findall(text)
    return (numbers[-1] if numbers else None), False


def clean(text: str) -> str:
    """One way to write digits, minus and blanks; nothing invisible; no special tokens at the end."""
    text = text.translate(_INVISIBLE).rstrip()
    while text.endswith("|>") and "<|" in text:
        text = text[: text.rindex("<|")].rstrip()
    if text.isascii():
        return text
    text = _SUPERSCRIPT.sub(lambda found: "^{" + unicodedata.normalize("NFKC", found[0]) + "}", text)
    return "".join(map(_usual, text)).translate(_SAME)


@lru_cache(4096)
def _usual(char: str) -> str:
    """The usual way to write a character: `４` and `٤` are 4, `½` is a fraction."""
    if char.isdecimal():
        return str(unicodedata.decimal(char))
    kind = unicodedata.decomposition(char).partition(" ")[0]
    if kind == "<fraction>":
        top, _, bottom = unicodedata.normalize("NFKC", char).partition("\u2044")
        return rf"\frac{{{top}}}{{{bottom}}}"
    return unicodedata.normalize("NFKC", char) if kind in ("<wide>", "<noBreak>") else char


def _last_box(text: str) -> str | None:
    """Content of the last box, of nested ones the inner; "" where it is unfinished; None without a box."""
    opened: list[tuple[int, int] | None] = []  # (start of a box, start of its content); None: a brace
    last = (-1, "")
    for token in _BOX.finditer(text):
        if token[0] == "{":
            opened.append(None)
        elif token[0] == "}":
            if opened and (box := opened.pop()) and box[0] > last[0]:
                last = box[0], text[box[1] : token.start()]
        elif token[0] != r"\{" and token[0].endswith("{"):
            opened.append((token.start(), token.end()))
    unfinished = max((box[0] for box in opened if box), default=-1)
    if unfinished > last[0]:
        return ""
    return last[1] if last[0] >= 0 else None


def _leading_answer(text: str) -> str | None:
    """What a phrase announces: a formula, else a number, else a choice letter, else the sentence."""
    line = text.lstrip(" \t\n*:=").partition("\n")[0]
    if formula := _MATH.match(line):
        return next(filter(None, formula.groups())).strip() or None
    for pattern in (_LEADING_NUMBER, _LEADING_CHOICE):
        if found := pattern.match(line):
            return found[1].strip()
    return re.split(r"\.(?:\s|$)|。", line)[0].strip(" *`$") or None
