"""An evaluation that is interrupted and killed, as a real process, ends as one that was left alone."""

from __future__ import annotations

import json
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
from kills import START
from small_runs import FAST, Runs

ASKED = ("--pass-at", "256", "--samples", "512", "--json")  # eight blocks
HANG_S = 120


def process(run: Path) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [sys.executable, "-c", START, "eval", str(run), *ASKED],
        stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
    )  # fmt: skip


def stop(run: Path, number: int) -> tuple[int, str]:
    """Begin, send a signal once another block is there; return the exit code and what was said."""
    before, session, end = blocks(run), process(run), time.monotonic() + HANG_S
    while blocks(run) == before and session.poll() is None and time.monotonic() < end:
        time.sleep(0.005)
    session.send_signal(number)
    _, said = session.communicate(timeout=HANG_S)
    return session.returncode, said


def blocks(run: Path) -> int:
    return sum(text.count(b"\n") for text in stored(run)) // 1024


def stored(run: Path) -> list[bytes]:
    return [file.read_bytes() for file in run.glob("evals/*/generations.jsonl")]


def finish(run: Path) -> object:
    session = process(run)
    out, said = session.communicate(timeout=HANG_S)
    assert session.returncode == 0, said
    return json.loads(out)


@pytest.mark.heavy
def test_e13_interrupted_and_killed_and_resumed(runs: Runs) -> None:
    """E-13: SIGINT exits 130 and keeps whole blocks; after SIGKILL the same JSON and the same generations."""
    ran = runs(FAST).folder
    alone = shutil.copytree(ran, runs.root / "alone" / ran.name)
    code, said = stop(ran, signal.SIGINT)
    assert (code, "the same command goes on" in said) == (130, True), said
    kept = stored(ran)[0]
    assert 1 <= blocks(ran) < 8
    assert stop(ran, signal.SIGKILL)[0] == -signal.SIGKILL
    assert stored(ran)[0].startswith(kept)
    assert 2 <= blocks(ran) < 8
    assert finish(ran) == finish(alone)
    assert stored(ran) == stored(alone)
