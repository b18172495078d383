"""The response matches a pattern."""

from __future__ import annotations

import re

from rlctl.types import Prompt, Verdict
from rlctl.verify import RegexVerifier
from rlctl.verify.base import BuiltVerifier, graded


class RegexJudge(BuiltVerifier):
    """Reward 1 where `re.search` finds the pattern; `(?s)` in front lets a dot match a line's end."""

    name = "regex"

    def __init__(self, spec: RegexVerifier) -> None:
        self._pattern, self._prefix = re.compile(spec.pattern), spec.prefix

    def judge(self, prompt: Prompt, text: str) -> Verdict:
        """Correct where the pattern is found in prefix and response; the answer is what matched."""
        match = self._pattern.search(self._prefix + text)
        if match is None:
            return graded(False, None, "the pattern is not found")
        return graded(True, match[0], "the pattern is found")
