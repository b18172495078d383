r"""Units around a number: `5\text{ cm}`, `\$5`, `50\%`, `90°`, `2516_8`, `5 apples`, `2\text{ million}`."""

from __future__ import annotations

import re
from typing import NamedTuple

from rlctl.verify.rational import Value, rational

PERCENT = "%"

_SPELLINGS = """
mm millimeter millimetre 毫米 | cm centimeter centimetre 厘米 | m meter metre 米
km kilometer kilometre 千米 公里 | in inch inches 英寸 | ft foot feet 英尺 | yd yard | mi mile 英里
mg milligram 毫克 | g gram 克 | kg kilogram 千克 公斤 | t ton tonne 吨 | lb pound | oz ounce
ml milliliter millilitre 毫升 | l liter litre 升 | mph | kph | ° degree deg 度 | % percent pct percentage
s sec second 秒 | min minute 分钟 | h hr hour 小时 | day 天 | week 周 | month 月 | yr year 年
$ dollar usd | ¢ cent | € euro eur | £ gbp | ¥ yuan rmb 元
"""
_NAMES = {
    name: names[0]
    for group in _SPELLINGS.replace("\n", "|").split("|")
    if (names := group.split())
    for name in names
}
_SCALES = {"hundred": 2, "thousand": 3, "million": 6, "billion": 9, "trillion": 12, "万": 4, "亿": 8}
_BEFORE = {"square": "^2", "sq": "^2", "cubic": "^3", "cu": "^3"}
_BEHIND = {"squared": "^2", "cubed": "^3"}
# With one of these, a text behind a number says more than its unit: `42 \text{ is wrong}`.
_CLAIM = re.compile(
    r"\b(?:is|are|was|were|be|not?|never|and|or|but|if|unless|than|then|to|of|minus|plus|wrong|false|incorrect"
    r"|least|most|[eid]|pi)\b",
    re.IGNORECASE,
)

_CURRENCY = re.compile(r"(-?)\s*\\?([$€£¥¢])\s*(?=[-.\d\\])")
_BASE = re.compile(r"(-?\d+)_(?:\{(\d+)\}|(\d+))")
_SIGN = re.compile(r"\s*\\?([%$€£¥¢°])$")
_BOXED = re.compile(r"(?<![-+*/=^_(,{\s])((?:\s*/?\s*\\text\s*\{[^{}]*\}(?:\^(?:\{-?\d\}|\d))?){1,4})$")
_WORDS = re.compile(r"(?<=[\d.)}])(\s*[^\W\d_]+(?:[ ./]{1,2}[^\W\d_]+){0,3}(?:\^\d)?)$")
_TOKEN = re.compile(r"[万亿]|[^\W\d_万亿]+|\^\{?-?\d|[/°%$€£¥¢]")


class Quantity(NamedTuple):
    """A text without its unit; `value` where it is a plain number; `unit` in one spelling, or empty."""

    text: str
    value: Value
    unit: str
    bits: int


def quantity(text: str, *, any_word: bool) -> Quantity:
    r"""Take the unit off a text: a sign, a `\text{}` or a known name of two letters and more behind it.

    With `any_word` every word behind a plain number is a unit, and `m` in `5 m` is one too.

    Raises:
        TooLarge: from `rational`.
    """
    money = ""
    if found := _CURRENCY.match(text):
        money, text = found[2], found[1] + text[found.end() :]
    if found := _BASE.fullmatch(text):
        return _read(found[1], f"base {found[2] or found[3]}")
    if found := _SIGN.search(text):
        return _read(text[: found.start()], _one_spelling([found[1]]))
    return _worded(text, money, any_word) or _read(text, money)


def _worded(text: str, money: str, any_word: bool) -> Quantity | None:
    """Take words off; None where there are none, or where they are no unit."""
    boxed = _BOXED.search(text)
    found = boxed or _WORDS.search(text)
    if not found or _CLAIM.search(found[1]):
        return None
    names = [token.replace("{", "") for token in _TOKEN.findall(found[1].replace("\\text", "").casefold())]
    scale = _SCALES.get(names[0], 0) if names else 0
    names = names[scale > 0 :]
    read = _read(text[: found.start()], _one_spelling([*money, *names]))
    any_word = any_word and read.value is not None
    if not boxed and not all(_is_unit(name, any_word, apart=found[1][0] == " ") for name in names):
        return None
    if scale == 0:
        return read
    return _read(rf"({read.text})\cdot 10^{scale}", read.unit) if read.value is not None else None


def _read(text: str, unit: str) -> Quantity:
    value, bits = rational(text)
    return Quantity(text.strip(), value, unit, bits)


def _is_unit(name: str, any_word: bool, apart: bool) -> bool:
    """Whether a bare word is a unit; one letter, or two unknown ones, may be variables."""
    known = name in _NAMES or name.removesuffix("s") in _NAMES
    if len(name) == 1 and name.isascii() and name.isalpha():
        return known and any_word and apart
    return known or not name.isalpha() or (any_word and (len(name) > 2 or not name.isascii()))


def _one_spelling(names: list[str]) -> str:
    """`square centimeters`, `cm squared` and `cm^2` are all `cm^2`; `per` is `/`."""
    said: list[str] = []
    power = ""
    for name in names:
        if name in _BEFORE:
            power = _BEFORE[name]
        elif said and (name in _BEHIND or name[0] == "^"):
            said[-1] += _BEHIND.get(name, name)
        else:
            said.append("/" if name == "per" else _singular(name) + power)
            power = ""
    return " ".join(dict.fromkeys(said))


def _singular(name: str) -> str:
    one = name.removesuffix("s") if len(name) > 2 else name
    return _NAMES.get(name) or _NAMES.get(one) or (one if len(one) > 2 else name)
