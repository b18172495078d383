"""Stops a run whose verifier fails too often."""

from __future__ import annotations

from collections.abc import Iterable
from typing import ClassVar

from rlctl.errors import RunError
from rlctl.types import Verdict


class FailureGuard:
    """Counts verifier errors; one of them is a wrong answer, too many of them are a broken verifier.

    The share is taken over one step, or over as many steps as it takes to see `MINIMUM` verdicts.
    """

    MAX_SHARE: ClassVar[float] = 0.1
    MINIMUM: ClassVar[int] = 20

    def __init__(self, max_share: float = MAX_SHARE, minimum: int = MINIMUM) -> None:
        self._max_share = max_share
        self._minimum = minimum
        self._seen = 0
        self._errors: list[str] = []

    def observe(self, verdicts: Iterable[Verdict]) -> int:
        """Take in the verdicts of a step and return how many of them are errors.

        Raises:
            RunError: errors / verdicts > max_share; its reason is `verifier`.
        """
        verdicts = list(verdicts)
        errors = [verdict.error for verdict in verdicts if verdict.error is not None]
        self._seen += len(verdicts)
        self._errors += errors
        if self._seen >= self._minimum:
            self._check()
            self._seen, self._errors = 0, []
        return len(errors)

    def _check(self) -> None:
        if len(self._errors) > self._max_share * self._seen:
            last = " ".join(self._errors[-1].split())[:200]
            share = f"{len(self._errors)} of {self._seen} answers"
            raise RunError(
                f"the verifier failed on {share}, the last time with: {last}",
                "mend the verifier or the data and resume the run",
                reason="verifier",
            )
