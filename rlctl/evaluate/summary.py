"""From judged samples to the figures of one data set."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from statistics import fmean
from typing import Any, Self

import numpy as np

from rlctl.evaluate.estimate import Array, intervals, majority_at_k, pass_at_k
from rlctl.types import Finish, Verdict


@dataclass(frozen=True, slots=True)
class Outcome:
    """What counts of one judged sample."""

    correct: bool  # lenient: the verifier's word
    strict: bool  # correct, finished, and marked as the answer
    answer: str | None
    truncated: bool
    tokens: int
    error: str | None

    @classmethod
    def of(cls, verdict: Verdict, finish: Finish, tokens: int) -> Self:
        """Read it off a verdict and off how the completion ended."""
        truncated = finish == "length"
        strict = verdict.correct and verdict.marked and not truncated
        return cls(verdict.correct, strict, verdict.answer, truncated, tokens, verdict.error)


Outcomes = Sequence[Sequence[Outcome]]  # problems of n samples each


def pass_at(problems: Outcomes, k: int) -> Array:
    """Return pass@k of each problem."""
    return np.array([pass_at_k(len(problem), sum(o.correct for o in problem), k) for problem in problems])


def summarise(problems: Outcomes, ks: Sequence[int]) -> dict[str, Any]:
    """Return the figures of a set; problems are the unit of the intervals."""
    passed = [pass_at(problems, k) for k in ks]
    voted = [[_majority(problem, k) for problem in problems] for k in ks]
    strict = [fmean(o.strict for o in problem) for problem in problems]
    lenient = [fmean(o.correct for o in problem) for problem in problems]
    found = iter(intervals(np.array([*passed, *voted, strict, lenient]).T))
    samples = [outcome for problem in problems for outcome in problem]
    return {
        "problems": len(problems),
        "samples": len(problems[0]),
        "pass_at": {str(k): next(found) for k in ks},
        "majority": {str(k): next(found) for k in ks},
        "strict": next(found),
        "lenient": next(found),
        "errors": sum(o.error is not None for o in samples),
        "truncated_share": fmean(o.truncated for o in samples),
        "unparseable_share": fmean(o.answer is None for o in samples),
        "length_tokens": fmean(o.tokens for o in samples),
    }


def _majority(problem: Sequence[Outcome], k: int) -> float:
    return majority_at_k([o.answer for o in problem], [o.correct for o in problem], k)
