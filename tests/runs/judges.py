"""Judges for the tests of whole runs, named by recipes as `{kind: python, path: judges.py:name}`."""

from __future__ import annotations

import itertools
import os
import signal
import time

_calls = itertools.count(1)  # of this session: the file is loaded anew by each


def dense(response: str, gold: str) -> float:
    """A reward that differs within nearly every group, so that every step moves the weights."""
    return sum(map(ord, response)) % 97 / 97


def trap(response: str, gold: str) -> float:
    """`dense`; the call whose number stands in $TRAP sends $TRAP_SIGNAL to this process."""
    if next(_calls) == int(os.environ.get("TRAP", "0")):
        os.kill(os.getpid(), getattr(signal, os.environ["TRAP_SIGNAL"]))
        time.sleep(0.2)  # the main thread waits for this verdict when the signal comes
    return dense(response, gold)


def hang(response: str, gold: str) -> float:
    """`dense`, but every call takes as long as $HANG says."""
    time.sleep(float(os.environ.get("HANG", "0")))
    return dense(response, gold)


def broken(response: str, gold: str) -> float:
    """Fails from the call on whose number stands in $BROKEN_FROM."""
    if next(_calls) >= int(os.environ["BROKEN_FROM"]):
        raise ValueError("the judge is\nbroken")
    return dense(response, gold)


def signs(response: str, gold: str) -> float:
    """Nothing but 0 and -1."""
    return -float(len(response) % 2)
