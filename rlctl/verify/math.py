"""Mathematical answers: exact comparison here, symbolic comparison in a process that can be killed."""

from __future__ import annotations

import re
import threading
from collections.abc import Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from fractions import Fraction
from importlib.metadata import version
from itertools import accumulate
from pathlib import Path
from typing import NamedTuple

from rlctl.types import Prompt, Verdict
from rlctl.verify import MathVerifier
from rlctl.verify.base import BuiltVerifier, failed, golds, graded, guarded
from rlctl.verify.extract import NUMBER, clean, extract
from rlctl.verify.worker import WorkerError, WorkerPool

MAX_ANSWER = 2000  # characters; nobody's answer is longer, and int() of 5000 digits raises

_DECORATION = re.compile(r"\\(?:displaystyle|left|right)(?![A-Za-z])|\\[,;!:]|\\?\$|\{,\}|~|°|\^\{?\\circ\}?")
_TEXT = re.compile(r"\\(?:text|textbf|textrm|mathrm|mbox)\s*\{([^{}]*)\}")
_PLAIN = re.compile(rf"({NUMBER})\s*(\\?%)?")
_WORD = re.compile(r"[A-Z]{2,}|[A-Za-z][A-Za-z' -]*[A-Za-z]{2}")


class MathJudge(BuiltVerifier):
    """Judges the extracted answer: as a number, as a word, then symbolically by math-verify."""

    def __init__(self, spec: MathVerifier) -> None:
        self.name = f"math (math-verify {version('math-verify')})"
        self._spec = spec
        self._pool: WorkerPool | None = None
        self._lock = threading.Lock()

    def judge(self, prompt: Prompt, text: str) -> Verdict:
        """Wrong with the error `deadline` where the comparison hangs."""
        return guarded(lambda: self._judge(prompt, text))

    def _judge(self, prompt: Prompt, text: str) -> Verdict:
        answer = extract(text)
        if answer is None:
            return graded(False, None)
        accepted = [gold for gold in golds(prompt) if gold.strip()]
        known = [_compare(gold, answer) for gold in accepted]
        rest = [gold for gold, equal in zip(accepted, known, strict=True) if equal is None]
        if any(known) or not rest or len(answer) > MAX_ANSWER:
            return graded(any(known), answer)
        try:
            correct = self._workers().call("grade", [_tidy(gold) for gold in rest], _tidy(answer))
        except WorkerError as error:
            return failed(str(error), answer)
        return graded(correct, answer)

    def check_golds(self, prompts: Sequence[Prompt]) -> list[Prompt]:
        """Prompts of which no gold can be parsed. Starts the workers, for the answers to come."""
        bad = set(self.unparseable(gold for prompt in prompts for gold in golds(prompt)))
        return [prompt for prompt in prompts if bad.issuperset(golds(prompt))]

    def unparseable(self, texts: Iterable[str]) -> list[str]:
        """The golds in which there is neither a number, a word nor an expression."""
        unclear = [text for text in dict.fromkeys(texts) if _number(text) is None and _word(text) is None]
        pool = self._workers()

        def parses(text: str) -> bool:
            try:
                return bool(pool.call("parses", _tidy(text)))
            except WorkerError:
                return False

        with ThreadPoolExecutor(self._spec.workers) as threads:
            good = list(threads.map(parses, unclear))
        return [text for text, fine in zip(unclear, good, strict=True) if not fine]

    def close(self) -> None:
        """End the workers."""
        if self._pool is not None:
            self._pool.close()

    def _workers(self) -> WorkerPool:
        with self._lock:
            if self._pool is None:
                script = Path(__file__).with_name("grade.py")
                self._pool = WorkerPool(script, self._spec.workers, self._spec.deadline_s)
            return self._pool


def _compare(gold: str, answer: str) -> bool | None:
    """Whether they are equal, as far as that is plain; None: ask math-verify."""
    if (plain := _tidy(gold)) and plain == _tidy(answer):
        return True
    number, guess = _number(gold), _number(answer)
    if number is not None and guess is not None:
        as_share = guess.percent and not number.percent  # 50% is also 0.5, unless the gold is a percentage
        return number.value == guess.value or (as_share and number.value == guess.value / 100)
    if (word := _word(gold)) is not None:
        return word == _word(answer)
    return None


def _tidy(text: str) -> str:
    """Without spacing commands, styles, dollar signs and outer braces."""
    text = _DECORATION.sub("", clean(text)).strip()
    return _unwrapped(text).strip().removesuffix(".")


def _unwrapped(text: str) -> str:
    """Without the braces around all of it, in one pass: a model may write thousands of them."""
    head, tail = len(text) - len(text.lstrip("{")), len(text) - len(text.rstrip("}"))
    steps = ((char == "{") - (char == "}") for char in text[head : len(text) - tail])
    outer = max(0, min(tail, min(accumulate(steps, initial=head))))
    return text[outer : len(text) - outer]


class _Number(NamedTuple):
    value: Fraction
    percent: bool


def _number(text: str) -> _Number | None:
    """A plain integer, decimal or fraction, exactly."""
    text = _TEXT.sub(r"\1", _tidy(text))
    found = _PLAIN.fullmatch(text) if len(text) <= MAX_ANSWER else None
    if not found:
        return None
    top, _, bottom = found[1].replace(",", "").partition("/")
    if bottom and int(bottom) == 0:
        return None
    return _Number(Fraction(top) / int(bottom or 1), found[2] is not None)


def _word(text: str) -> str | None:
    r"""A word answer in lower case: in `\text{}`, in capitals, or of three letters and more."""
    text = _tidy(text)
    wrapped = _TEXT.fullmatch(text)
    found = _WORD.fullmatch(wrapped[1].strip() if wrapped else text)
    return found[0].casefold() if found else None
