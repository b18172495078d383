"""What a user did wrong, said in at most three lines: what and where, then what to do instead."""

from __future__ import annotations


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


class Interrupted(Exception):
    """SIGINT or SIGTERM arrived while a step was generating or judging."""
