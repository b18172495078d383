"""The response is the gold answer, letter by letter."""

from __future__ import annotations

from collections.abc import Sequence

from rlctl.types import Prompt, Verdict
from rlctl.verify import ExactVerifier
from rlctl.verify.base import BuiltVerifier, golds, graded


class ExactJudge(BuiltVerifier):
    """Compares whole strings, without the white space at their ends; nothing equals nothing."""

    name = "exact"

    def __init__(self, spec: ExactVerifier) -> None:
        self._ignore_case = spec.ignore_case

    def judge(self, prompt: Prompt, text: str) -> Verdict:
        """Correct where the response is one of the golds."""
        answer = text.strip()
        correct = self._plain(answer) in map(self._plain, golds(prompt))
        if not answer:
            return graded(False, None, "no answer")
        return graded(correct, answer, "same text" if correct else "texts differ")

    def check_golds(self, prompts: Sequence[Prompt]) -> list[Prompt]:
        """Prompts of which every gold is empty."""
        return [prompt for prompt in prompts if not any(map(str.strip, golds(prompt)))]

    def _plain(self, text: str) -> str:
        text = text.strip()
        return text.casefold() if self._ignore_case else text
