from __future__ import annotations

import io
import re
import time

import pytest
from pydantic import ValidationError

from rlctl.track import TrackSpec
from rlctl.track import console as console_module
from rlctl.track.console import Console, printable

STEP = {
    "reward/mean": 0.5,
    "rollout/acr": 0.25,
    "rollout/requests": 128,
    "train/grad_norm": 0.0123,
    "budget/tokens": 1000,
    "time/step_s": 2.0,
}


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


def test_a24_each_line_shows_requests_informative_groups_and_gradient() -> None:
    """A-24: people read a loss of 0.0 as "nothing learnt"; these three numbers tell."""
    stream = io.StringIO()
    console = Console(steps=10, stream=stream)
    console.log(0, {"eval/a/pass@1": 0.25, "eval/b/pass@1": 0.75, "eval/a/pass@8": 1.0})
    console.log(1, STEP | {"eval/a/pass@1": 0.0})
    before, first = stream.getvalue().splitlines()
    assert before == "step 0/10  pass@1 0.500"
    assert first.startswith("step 1/10  reward 0.500  zero-variance 25%  informative 75%  pass@1 0.000")
    assert "requests 128  grad 1.23e-02  left" in first


def test_groups_that_were_repaired_count_as_informative() -> None:
    stream = io.StringIO()
    Console(stream=stream).log(1, {"rollout/acr": 0.5, "rollout/acr_effective": 0.0})
    assert stream.getvalue() == "step 1  zero-variance 50%  informative 100%\n"


def test_speed_and_time_left_come_from_this_session(monkeypatch: pytest.MonkeyPatch) -> None:
    now = [0.0]
    monkeypatch.setattr(time, "monotonic", lambda: now[0])
    stream = io.StringIO()
    console = Console(steps=100, tokens=20_000, stream=stream)
    console.log(50, STEP | {"budget/tokens": 10_000})  # resumed: 50 % is spent, at no known pace
    now[0] = 60.0
    console.log(51, STEP | {"budget/tokens": 12_000})  # 10 % of the tokens in a minute, 40 % are left
    first, second = stream.getvalue().splitlines()
    assert "left" not in first
    assert "tokens/s" not in first
    assert second.endswith("grad 1.23e-02  1,000 tokens/s  left 0:04:00")


def test_a_budget_in_minutes_counts_down(monkeypatch: pytest.MonkeyPatch) -> None:
    now = [0.0]
    monkeypatch.setattr(time, "monotonic", lambda: now[0])
    stream = io.StringIO()
    console = Console(minutes=2, stream=stream)
    for step, seconds in enumerate((30.0, 60.0)):
        now[0] = seconds
        console.log(step, {})
    assert stream.getvalue() == "step 0\nstep 1  left 0:01:00\n"


def test_quick_steps_write_the_first_the_last_and_evaluations(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(console_module, "LINE_S", 1e9)
    stream = io.StringIO()
    console = Console(stream=stream)
    for step in range(1, 10):
        console.log(step, {"eval/a/pass@1": 0.5} if step == 4 else {})
    console.close("finished")
    console.close("finished")
    assert re.findall(r"step (\d+)", stream.getvalue()) == ["1", "4", "9"]


def test_a_terminal_gets_a_live_line_and_keeps_the_last(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TERM", "xterm")
    monkeypatch.setenv("COLUMNS", "200")
    stream = Terminal()
    console = Console(steps=2, stream=stream)
    for step in (1, 2):
        console.log(step, STEP)
    console.say("a note")
    console.close("finished")
    text = re.sub(r"\x1b\[[0-9;?]*[a-zA-Z]", "", stream.getvalue())
    assert "a note" in text
    assert "step 2/2  reward 0.500  zero-variance 25%" in text.split("a note")[1]


def test_a_note_is_neither_markup_nor_a_terminal_command() -> None:
    stream = Terminal()
    console = Console(stream=stream)
    before = len(stream.getvalue())
    console.say("[red]\\boxed{4}[/red] \x1b]0;title\x07 \x9b31m \u202e")
    console.close("finished")
    assert "[red]\\boxed{4}[/red] \\x1b]0;title\\x07 \\x9b31m \\u202e" in stream.getvalue()[before:]


def test_printable_keeps_what_is_text() -> None:
    assert printable("1 +\t2\n数学 é 🙂") == "1 +\t2\n数学 é 🙂"
    assert printable("a\rb\x00\x7f\ud800") == "a\\x0db\\x00\\x7f\\ud800"


@pytest.mark.parametrize(
    "value", ["auto", "off", "http://localhost:5000", "sqlite:///runs/mlflow.db", "databricks"]
)
def test_track_takes_what_mlflow_takes(value: str) -> None:
    assert TrackSpec(mlflow=value).mlflow == value


def test_track_refuses_a_word_that_leads_nowhere() -> None:
    with pytest.raises(ValidationError, match="give auto, off or a tracking URI"):
        TrackSpec(mlflow="on")
