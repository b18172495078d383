"""Task `arithmetic`: `12+34=` -> `46`."""

from __future__ import annotations

import re
from collections.abc import Iterator
from itertools import islice
from random import Random

from rlctl.data import ArithmeticSource
from rlctl.data.tasks import Problem, Split, distinct, judge_exact
from rlctl.types import Prompt, Verdict

_NUMBER = re.compile(r"-?[0-9]{1,32}")


def problems(spec: ArithmeticSource, split: Split, seed: int) -> Iterator[Prompt]:
    """Yield `spec.problems` different problems, or all that are found."""

    def draw(rng: Random) -> Problem:
        operation = rng.choice(spec.operations)
        left, right = (rng.randrange(10**spec.digits) for _ in range(2))
        value = {"+": left + right, "-": left - right, "*": left * right}[operation]
        # 12+34 and 34+12 share a split: knowing the one is knowing the other.
        low, high = (left, right) if operation == "-" else sorted((left, right))
        return Problem(f"{low}{operation}{high}", f"{left}{operation}{right}=", str(value), demo=str(value))

    return islice(distinct(draw, split, seed), spec.problems)


def judge(prompt: Prompt, text: str) -> Verdict:
    """Correct is the number alone, written as usual: no leading zeros, no words around it."""
    return judge_exact(prompt, text, _NUMBER)
