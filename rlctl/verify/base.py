"""What every verifier shares: the base class, and the ways to a verdict."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from math import isfinite
from numbers import Real
from typing import Any

from rlctl.errors import Interrupted
from rlctl.types import Prompt, Verdict


class BuiltVerifier(ABC):
    """A verifier made from its spec; a `rlctl.types.Verifier` that also checks golds at load time."""

    name: str

    @abstractmethod
    def judge(self, prompt: Prompt, text: str) -> Verdict:
        """Judge one response; may be called from several threads at once."""

    def check_golds(self, prompts: Sequence[Prompt]) -> list[Prompt]:
        """Prompts whose gold this verifier cannot understand, so that no response can be correct."""
        return []

    def close(self) -> None:
        """Let go of processes and threads; judging is over."""
        return None


def golds(prompt: Prompt) -> tuple[str, ...]:
    """The accepted answers; any of them will do."""
    return (prompt.gold,) if isinstance(prompt.gold, str) else prompt.gold


def graded(correct: bool, answer: str | None, reason: str) -> Verdict:
    """Reward 1 for a correct answer and 0 for a wrong one."""
    return Verdict(reward=float(correct), correct=correct, answer=answer, reason=reason)


def failed(error: str, answer: str | None = None, parts: Mapping[str, float] | None = None) -> Verdict:
    """The verifier itself failed: a wrong answer, counted by `FailureGuard`."""
    return Verdict(reward=0.0, correct=False, answer=answer, parts=parts or {}, error=error, reason=error)


def guarded(call: Callable[[], Any]) -> Verdict:
    """Turn what foreign judging code returns, or raises, into a verdict.

    Libraries raise time-outs that are no `Exception`; all but a request to end the program is caught.
    """
    try:
        return as_verdict(call())
    except (KeyboardInterrupt, SystemExit, Interrupted):
        raise
    except BaseException as error:
        return failed(f"{type(error).__name__}: {error}")


def as_verdict(result: Any) -> Verdict:
    """Read a reward, a bool, None (not judged), a mapping of `Verdict`'s fields, or a `Verdict`.

    Where nothing else says so, correct means reward >= 1.

    Raises:
        TypeError: it is none of these.
        ValueError: the reward or a part of it is not finite.
    """
    verdict = _read(result.item() if hasattr(result, "item") else result)  # a numpy or torch scalar
    if verdict.reward is not None:
        verdict = replace(verdict, reward=float(verdict.reward))
    for value in (verdict.reward, *verdict.parts.values()):
        if value is not None and not isfinite(value):
            raise ValueError(f"the judge returned the reward {value}")
    return verdict


def _read(result: Any) -> Verdict:
    if isinstance(result, Verdict):
        return result
    if result is None:
        return Verdict(reward=None, correct=False)
    if isinstance(result, Real):  # bool is one
        return Verdict(reward=float(result), correct=float(result) >= 1.0)
    if isinstance(result, Mapping):
        reward = result.get("reward")
        return Verdict(**{"reward": None, "correct": reward is not None and reward >= 1.0, **result})
    raise TypeError(f"the judge returned a {type(result).__name__}, not a reward")
