"""What a call of the command line in this process left behind."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

# What a run says of itself before it meets the mistake.
PROGRESS = ("engine: ", "warm start: ", "checkpoint ", "step ", "arithmetic: ")


@dataclass
class Said:
    """What a call of the command line left: its exit code and both streams."""

    code: int
    out: str
    err: str

    @property
    def lines(self) -> list[str]:
        """The message: every line from `error:` on."""
        assert "Traceback" not in self.err
        lines = [line for line in self.err.splitlines() if not line.startswith(PROGRESS)]
        assert lines[0].startswith("error: "), self.err
        return lines

    def refused(self, code: int, *words: str) -> None:
        assert self.code == code, self.err
        assert 1 <= len(self.lines) <= 3
        text = "\n".join(self.lines)
        for word in words:
            assert word in text, text
        if len(self.lines) > 1:
            assert self.lines[1].startswith("hint: ")


Rlctl = Callable[..., Said]
