import os
import signal
import subprocess
import sys
import time

import pytest

from rlctl.errors import Interrupted
from rlctl.interrupt import EXIT_CODE, Stopper

SIGNALS = [signal.SIGINT, signal.SIGTERM]

TWICE = """
import os, signal, sys, time
from rlctl.interrupt import Stopper
with Stopper():
    os.kill(os.getpid(), signal.{first})
    print("first", flush=True)
    try:
        os.kill(os.getpid(), signal.{second})
        time.sleep(60)
    finally:
        print("a clean-up that must not run", flush=True)
"""


def send(number):
    os.kill(os.getpid(), number)
    time.sleep(0)  # Python runs its handler between two instructions


@pytest.mark.parametrize("number", SIGNALS)
def test_what_may_be_abandoned_is_broken_off(number):
    with Stopper() as stop:
        with pytest.raises(Interrupted), stop.abandonable():
            send(number)
            time.sleep(60)
        assert stop.requested


@pytest.mark.parametrize("number", SIGNALS)
def test_an_update_is_finished_first(number):
    """Outside of what may be abandoned a signal only raises a flag; the next such part does not begin."""
    done = []
    with Stopper() as stop:
        send(number)
        done.append("update")
        assert stop.requested
        with pytest.raises(Interrupted), stop.abandonable():
            done.append("sampling")
    assert done == ["update"]


def test_a_signal_breaks_into_a_wait():
    """A sleeping main thread, as when it waits for verdicts, is woken by a signal from outside."""
    kill = f"import os, signal, time; time.sleep(0.2); os.kill({os.getpid()}, signal.SIGTERM)"
    with Stopper() as stop:
        sender = subprocess.Popen([sys.executable, "-c", kill])
        with pytest.raises(Interrupted), stop.abandonable():
            time.sleep(60)
        sender.wait()


def test_a_finaliser_does_not_swallow_it():
    """What a finaliser or a callback of the garbage collector raises goes nowhere: it is raised again."""

    class Held:
        def __del__(self):
            send(signal.SIGINT)

    hook = sys.unraisablehook
    with Stopper() as stop, pytest.raises(Interrupted), stop.abandonable():
        held = Held()
        del held
        time.sleep(60)
    assert sys.unraisablehook is hook


def test_it_raises_once_only():
    """While what was interrupted tidies up, nothing interrupts it again."""
    with Stopper() as stop:
        with pytest.raises(Interrupted), stop.abandonable():
            send(signal.SIGINT)
            time.sleep(60)
        assert not stop._abandonable


def test_errors_of_what_runs_inside_come_through():
    with Stopper() as stop:
        with pytest.raises(ValueError), stop.abandonable():
            raise ValueError
        send(signal.SIGINT)  # no longer abandonable
        assert stop.requested


@pytest.mark.parametrize(("first", "second"), [("SIGINT", "SIGINT"), ("SIGTERM", "SIGINT")])
def test_a_second_signal_exits_at_once(first, second):
    script = TWICE.format(first=first, second=second)
    found = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, timeout=60)
    assert found.returncode == EXIT_CODE == 130
    assert found.stdout == "first\n"
    assert found.stderr == ""


def test_the_former_handlers_come_back():
    before = [signal.getsignal(number) for number in SIGNALS]
    with Stopper():
        assert [signal.getsignal(number) for number in SIGNALS] != before
    assert [signal.getsignal(number) for number in SIGNALS] == before
