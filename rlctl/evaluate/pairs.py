"""Two models on the same problems: paired differences, and which problems changed sides."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from rlctl.evaluate.estimate import intervals
from rlctl.evaluate.summary import Outcome, pass_at
from rlctl.types import Prompt

Judged = Mapping[str, Sequence[tuple[Prompt, Sequence[Outcome]]]]  # by set


def differences(first: Judged, second: Judged, ks: Sequence[int]) -> dict[str, Any]:
    """Return, of each set that both have, second - first over the problems that both have.

    A problem is newly solved where only the second has a right answer among its samples, forgotten
    where only the first has.
    """
    found = {}
    for name in first:
        pairs = _pairs(first[name], second.get(name, ()))
        if pairs:
            found[name] = _difference(*zip(*pairs, strict=True), ks=ks)
    return found


def _pairs(first: Any, second: Any) -> list[tuple[Any, Any]]:
    known = {_identity(prompt): outcomes for prompt, outcomes in first}
    return [(known[key], outcomes) for prompt, outcomes in second if (key := _identity(prompt)) in known]


def _identity(prompt: Prompt) -> Any:
    return prompt.uid, prompt.messages, prompt.gold


def _difference(first: Any, second: Any, *, ks: Sequence[int]) -> dict[str, Any]:
    found = intervals(np.array([pass_at(second, k) - pass_at(first, k) for k in ks]).T)
    solved = [np.array([any(o.correct for o in problem) for problem in side]) for side in (first, second)]
    return {
        "problems": len(first),
        "pass_at": {str(k): interval for k, interval in zip(ks, found, strict=True)},
        "newly_solved": int((~solved[0] & solved[1]).sum()),
        "forgotten": int((solved[0] & ~solved[1]).sum()),
    }
