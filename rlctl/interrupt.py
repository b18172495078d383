"""Ctrl-C and SIGTERM: what changed no weight yet is abandoned; a second signal exits at once."""

from __future__ import annotations

import os
import signal
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType
from typing import Any

from rlctl.errors import Interrupted

EXIT_CODE = 130
AGAIN_S = 0.01


class Stopper:
    """Turns the first signal into `Interrupted`, at a moment when nothing is lost."""

    def __init__(self) -> None:
        self.requested = False
        self._abandonable = False

    def __enter__(self) -> Stopper:
        handlers = {signal.SIGINT: self._handle, signal.SIGTERM: self._handle, signal.SIGALRM: self._again}
        self._before: dict[int, Any] = {
            number: signal.signal(number, handler) for number, handler in handlers.items()
        }
        self._hook, sys.unraisablehook = sys.unraisablehook, self._swallowed
        return self

    def __exit__(self, *_: object) -> None:
        signal.setitimer(signal.ITIMER_REAL, 0)
        sys.unraisablehook = self._hook
        for number, handler in self._before.items():
            signal.signal(number, handler)

    @contextmanager
    def abandonable(self) -> Iterator[None]:
        """Let a signal break off what runs inside.

        Raises:
            Interrupted: a signal came, now or before.
        """
        self._abandonable = True
        try:
            if self.requested:
                raise Interrupted
            yield
        finally:
            self._abandonable = False

    def _handle(self, _number: int, _frame: FrameType | None) -> None:
        if self.requested:
            os._exit(EXIT_CODE)
        self.requested = True
        if self._abandonable:
            raise Interrupted

    def _swallowed(self, what: sys.UnraisableHookArgs) -> None:
        # Raised inside a finaliser or a callback of the garbage collector, where no error gets out.
        if what.exc_type is Interrupted:
            signal.setitimer(signal.ITIMER_REAL, AGAIN_S)
        else:
            self._hook(what)

    def _again(self, _number: int, _frame: FrameType | None) -> None:
        if self._abandonable:
            raise Interrupted
