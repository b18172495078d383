"""Ctrl-C and SIGTERM: what changed no weight yet is abandoned; a second signal exits at once."""

from __future__ import annotations

import os
import signal
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType
from typing import Any

from rlctl.errors import Interrupted

EXIT_CODE = 130


class Stopper:
    """Turns the first signal into `Interrupted`, at a moment when nothing is lost."""

    def __init__(self) -> None:
        self.requested = False
        self._abandonable = False

    def __enter__(self) -> Stopper:
        self._before: dict[int, Any] = {
            number: signal.signal(number, self._handle) for number in (signal.SIGINT, signal.SIGTERM)
        }
        return self

    def __exit__(self, *_: object) -> None:
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
            self._abandonable = False  # raise once only
            raise Interrupted
