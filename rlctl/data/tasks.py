"""What the generated tasks share: the split, distinct problems, and the judge of a single right answer."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping
from random import Random
from typing import Any, Literal, NamedTuple

from rlctl.seeds import derive_seed
from rlctl.types import Prompt, Verdict

Split = Literal["train", "test"]


class Problem(NamedTuple):
    """A random problem. Problems with equal keys fall into the same split."""

    key: str
    text: str
    gold: str
    demo: str
    meta: Mapping[str, Any] = {}


_HELD_OUT = 8  # one key in eight
_PATIENCE = 2000  # draws in a row without a new problem; more where many were found


def split_of(key: str) -> Split:
    """Return the split of a problem: a hash of the problem itself, so no seed or size mixes the two."""
    return "test" if derive_seed("held-out", key) % _HELD_OUT == 0 else "train"


def distinct(draw: Callable[[Random], Problem], split: Split, seed: int) -> Iterator[Prompt]:
    """Yield the different problems of a split, in the order that the seed draws them.

    Ends once the draws bring nothing new. `load` gives the prompts their uids.
    """
    rng = Random(derive_seed(seed, "problems", split))
    seen: set[str] = set()
    misses = 0
    while misses < _PATIENCE + len(seen):
        problem = draw(rng)
        if problem.text in seen:
            misses += 1
            continue
        misses = 0
        seen.add(problem.text)
        if split_of(problem.key) == split:
            yield Prompt("", (("user", problem.text),), problem.gold, problem.meta, problem.demo)


def verdict(correct: bool, answer: str | None) -> Verdict:
    """Reward 1 for a correct response, else 0."""
    return Verdict(reward=float(correct), correct=correct, answer=answer)


def judge_exact(prompt: Prompt, text: str, form: re.Pattern[str]) -> Verdict:
    """Judge a task with one right answer; a response that has not the `form` counts as unparseable."""
    answer = text.strip()
    if not form.fullmatch(answer):
        return verdict(False, None)
    return verdict(answer == prompt.gold, answer)
