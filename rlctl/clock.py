"""Seconds of a step, by part."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager


class Clock:
    """Counts each second once: a part that runs inside another is not counted in the outer one."""

    def __init__(self, now: Callable[[], float] = time.monotonic) -> None:
        self.now = now
        self.started = self.mark = now()
        self.parts: dict[str, float] = {"score": 0.0, "update": 0.0, "sync": 0.0}
        self.open: list[str] = []

    @contextmanager
    def __call__(self, part: str) -> Iterator[None]:
        """Time what runs inside as `part`."""
        self._lap()
        self.open.append(part)
        try:
            yield
        finally:
            self._lap()
            self.open.pop()

    def metrics(self) -> dict[str, float]:
        """Return `time/<part>_s` and the whole step's."""
        return {f"time/{part}_s": seconds for part, seconds in self.parts.items()} | {
            "time/step_s": self.now() - self.started
        }

    def _lap(self) -> None:
        now = self.now()
        if self.open:
            self.parts[self.open[-1]] += now - self.mark
        self.mark = now
