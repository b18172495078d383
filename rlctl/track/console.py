"""What a person sees of a run while it goes on: progress on a terminal, plain lines elsewhere."""

from __future__ import annotations

import sys
import time
import unicodedata
from collections.abc import Mapping
from typing import TYPE_CHECKING, TextIO

if TYPE_CHECKING:
    from rich.console import Console as Terminal
    from rich.progress import Progress

LINE_S = 1.0  # least time between two plain lines

Metrics = Mapping[str, float | None]


def printable(text: str) -> str:
    """Return model text with all that could drive a terminal spelled out: an escape becomes four letters."""
    return "".join(
        char if char in "\n\t" or unicodedata.category(char) not in ("Cc", "Cf", "Cs") else _spelled(char)
        for char in text
    )


def _spelled(char: str) -> str:
    return char.encode("ascii", "backslashreplace").decode() if char > "\x7f" else f"\\x{ord(char):02x}"


class Console:
    """Follows a run on standard error; standard output stays free for results.

    The budgets are the recipe's, None where there is none; the one that is spent furthest tells how far
    the run is. On a terminal there is one live line; elsewhere the first step, the last, each evaluation
    and at most one line a second are written.
    """

    def __init__(
        self,
        steps: int | None = None,
        tokens: int | None = None,
        minutes: float | None = None,
        *,
        stream: TextIO | None = None,
    ) -> None:
        from rich.console import Console as Terminal

        self._terminal = Terminal(file=stream or sys.stderr, highlight=False, soft_wrap=True)
        self._budget = {"steps": steps, "tokens": tokens, "minutes": minutes}
        self._start = time.monotonic()
        self._first: tuple[float, float] | None = None  # share spent at the first step seen, and when
        self._tokens: float | None = None
        self._evaluated: float | None = None
        self._last_line = float("-inf")
        self._held: str | None = None
        self._live = _live(self._terminal) if self._terminal.is_terminal else None

    def say(self, text: str) -> None:
        """Print a note above the progress; the text is taken as it is, never as markup."""
        self._terminal.print(printable(text), markup=False)

    def log(self, step: int, metrics: Metrics) -> None:
        """Show a step."""
        is_score = [name for name in metrics if name.startswith("eval/") and name.endswith("/pass@1")]
        scores = [score for name in is_score if (score := metrics[name]) is not None]
        if scores:
            self._evaluated = sum(scores) / len(scores)
        spent = self._spent(step, metrics)
        line = "  ".join([self._place(step), *self._numbers(metrics), *self._left(spent)])
        if self._live:
            self._live.update(self._live.task_ids[0], completed=spent, line=line)
        elif scores or time.monotonic() - self._last_line >= LINE_S:
            self._write(line)
        else:
            self._held = line

    def close(self, state: str) -> None:
        """Leave the last step on the screen."""
        if self._live:
            self._live.stop()
        elif self._held:
            self._write(self._held)

    def _write(self, line: str) -> None:
        self._terminal.print(line, markup=False)
        self._last_line, self._held = time.monotonic(), None

    def _place(self, step: int) -> str:
        total = self._budget["steps"]
        return f"step {step}/{total}" if total else f"step {step}"

    def _numbers(self, metrics: Metrics) -> list[str]:
        """Name what tells that a run is alive: a loss of 0.0 does not, informative groups do."""
        silent = metrics.get("rollout/acr_effective", metrics.get("rollout/acr"))
        shown = {
            "reward {:.3f}": metrics.get("reward/mean"),
            "zero-variance {:.0%}": metrics.get("rollout/acr"),
            "informative {:.0%}": None if silent is None else 1 - silent,
            "pass@1 {:.3f}": self._evaluated,
            "requests {:.0f}": metrics.get("rollout/requests"),
            "grad {:.2e}": metrics.get("train/grad_norm"),
            "{:,.0f} tokens/s": self._speed(metrics),
        }
        return [form.format(value) for form, value in shown.items() if value is not None]

    def _speed(self, metrics: Metrics) -> float | None:
        tokens, seconds = metrics.get("budget/tokens"), metrics.get("time/step_s")
        before, self._tokens = self._tokens, tokens if tokens is not None else self._tokens
        if tokens is None or before is None or not seconds:
            return None
        return (tokens - before) / seconds

    def _spent(self, step: int, metrics: Metrics) -> float:
        """Return the share of the budget that is spent, 0 to 1."""
        minutes = (time.monotonic() - self._start) / 60
        used = {"steps": step, "tokens": metrics.get("budget/tokens") or 0, "minutes": minutes}
        shares = [used[unit] / total for unit, total in self._budget.items() if total]
        return min(1.0, max(shares, default=0.0))

    def _left(self, spent: float) -> list[str]:
        """Return the time left at the pace since the first step seen, if there is a pace yet."""
        now = time.monotonic()
        if self._first is None:
            self._first = spent, now
        share = spent - self._first[0]
        if share <= 0:
            return []
        seconds = round((now - self._first[1]) * (1 - spent) / share)
        return [f"left {seconds // 3600}:{seconds // 60 % 60:02d}:{seconds % 60:02d}"]


def _live(terminal: Terminal) -> Progress:
    from rich.progress import BarColumn, Progress, TextColumn

    columns = BarColumn(bar_width=20), TextColumn("{task.fields[line]}", markup=False)
    live = Progress(*columns, console=terminal, refresh_per_second=4)
    live.add_task("", total=1.0, line="starting")
    live.start()
    return live
