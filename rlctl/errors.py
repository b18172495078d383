"""What a user did wrong, said in at most three lines: what and where, then what to do instead."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager


class UserError(Exception):
    """A mistake that the user can mend; the command line prints it without a traceback.

    `exit_code` is 2 for a recipe or usage error and 1 for a run that failed.
    """

    def __init__(self, message: str, hint: str = "", *, exit_code: int = 2) -> None:
        super().__init__(message)
        self.message = message
        self.hint = hint
        self.exit_code = exit_code

    def __str__(self) -> str:
        return f"{self.message}\n{self.hint}" if self.hint else self.message


class RunError(UserError):
    """A run that cannot go on; `reason` is the `stop_reason` written into `status.json`."""

    def __init__(self, message: str, hint: str = "", *, reason: str = "error") -> None:
        super().__init__(message, hint, exit_code=1)
        self.reason = reason


class Interrupted(BaseException):
    """SIGINT or SIGTERM arrived while a step was generating or judging.

    No `Exception`, as KeyboardInterrupt is none: a library that tries one thing and falls back on
    another must not swallow it.
    """


@contextmanager
def writing(message: str, hint: str) -> Iterator[None]:
    """Say in a user's words what a full or read-only disk does to the writing inside.

    Raises:
        RunError: `message` with the reason, and `hint`.
    """
    try:
        yield
    except Exception as error:
        from safetensors import SafetensorError  # what its files raise instead of OSError

        if not isinstance(error, OSError | SafetensorError):
            raise
        reason = getattr(error, "strerror", None) or error
        raise RunError(f"{message}: {reason}", hint) from error
