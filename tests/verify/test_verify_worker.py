import asyncio
import os
import signal
import subprocess
import sys
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from itertools import pairwise
from pathlib import Path

import pytest

from rlctl.verify.worker import WorkerError, WorkerPool

SCRIPT = """
import os, signal, sys, time

class Timeout(BaseException): pass

def echo(value): return value
def pid(): return os.getpid()
def modules(): return [m for m in ("torch", "numpy", "rlctl", "pydantic") if m in sys.modules]
def noise(): print("{\\"id\\": 0, \\"result\\": \\"forged\\"}", flush=True); return "true"
def hang(): 9 ** 9 ** 9
def nap(seconds): time.sleep(seconds); return seconds
def fail(): raise Timeout("late")
def leave(): sys.exit(0)
def drop(): os._exit(0)
def hog(): return len(bytearray(16 << 30))
"""


@pytest.fixture
def script(tmp_path):
    path = tmp_path / "functions.py"
    path.write_text(SCRIPT)
    return path


@pytest.fixture
def pool(script):
    pool = WorkerPool(script, 2, 0.5)
    yield pool
    pool.close()


def alive(pid):
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except FileNotFoundError:
        return False


def wait_until(true, seconds=20.0):
    end = time.monotonic() + seconds
    while not true():
        assert time.monotonic() < end, "it never came true"
        time.sleep(0.02)


def test_v15_results_are_not_mixed_up_between_threads(pool):
    """V-15."""
    values = [f"{n}" * 50 for n in range(300)]
    with ThreadPoolExecutor(8) as threads:
        assert list(threads.map(lambda value: pool.call("echo", value), values)) == values


def test_v02_from_an_event_loop(pool):
    """V-02."""

    async def main():
        return pool.call("echo", 0), await asyncio.gather(
            *(asyncio.to_thread(pool.call, "echo", n) for n in range(20))
        )

    assert asyncio.run(main()) == (0, list(range(20)))


def test_a_worker_is_light_and_large_or_odd_texts_arrive(pool):
    assert pool.call("modules") == []
    for text in ("x" * 300_000, "\ud800 lone", "a\nb\r\u2028\x00"):
        assert pool.call("echo", text) == text


@pytest.mark.parametrize("function", ["fail", "leave", "hog"])
def test_v16_a_worker_survives_every_exception(script, function):
    """V-16: also those that are no `Exception`, and memory that runs out."""
    pool = WorkerPool(script, 1, 5.0)
    before = pool.call("pid")
    with pytest.raises(WorkerError, match=r"Timeout: late|SystemExit: 0|MemoryError"):
        pool.call(function)
    assert pool.call("pid") == before
    pool.close()


def test_what_a_worker_prints_is_no_reply(pool):
    assert pool.call("noise") == "true"


def test_a_dead_worker_is_replaced(pool):
    with pytest.raises(WorkerError, match="died with exit code 0"):
        pool.call("drop")
    assert pool.call("echo", 1) == 1


def test_v01_v03_hanging_calls_are_killed_and_the_rest_of_the_world_goes_on(pool):
    """V-01, V-03, V-23: a big power holds the interpreter's lock, so only a kill from outside helps.

    A batch of 20 takes no longer than 20 deadlines over 2 workers, and starting them anew.
    """
    beats, stop = [], threading.Event()

    def heart():
        while not stop.wait(0.02):
            beats.append(time.monotonic())

    def hang(_):
        with pytest.raises(WorkerError, match="deadline"):
            pool.call("hang")

    pids = {pool.call("pid")}
    thread = threading.Thread(target=heart)
    thread.start()
    started = time.monotonic()
    with ThreadPoolExecutor(4) as threads:
        list(threads.map(hang, range(20)))
    seconds = time.monotonic() - started
    stop.set()
    thread.join()
    assert max(b - a for a, b in pairwise(beats)) < 0.5, "the process stood still"
    assert seconds < 20 * 0.5 / 2 + 5, "the deadline was not kept"
    assert pool.call("echo", "healthy") == "healthy"
    wait_until(lambda: not any(map(alive, pids)))


def test_an_interrupted_call_leaves_no_late_reply(script):
    pool = WorkerPool(script, 1, 5.0)
    pool.call("echo", 0)

    def interrupt(*_):
        raise KeyboardInterrupt

    old = signal.signal(signal.SIGALRM, interrupt)
    signal.setitimer(signal.ITIMER_REAL, 0.2)
    try:
        with pytest.raises(KeyboardInterrupt):
            pool.call("nap", 0.5)
    finally:
        signal.signal(signal.SIGALRM, old)
    time.sleep(0.5)
    assert pool.call("echo", "mine") == "mine"
    pool.close()


def test_ctrl_c_and_sigterm_are_the_parents(pool):
    pid = pool.call("pid")
    os.kill(pid, signal.SIGINT)
    os.kill(pid, signal.SIGTERM)
    assert pool.call("pid") == pid
    assert os.getpgid(pid) != os.getpgid(0)


def test_a_script_that_does_not_load_says_why(tmp_path):
    (tmp_path / "bad.py").write_text("import no_such_module_here")
    pool = WorkerPool(tmp_path / "bad.py", 1, 1.0)
    with pytest.raises(WorkerError, match="did not start: ModuleNotFoundError"):
        pool.call("echo", 1)
    pool.close()


def test_close_ends_every_process(script):
    pool = WorkerPool(script, 2, 1.0)
    processes = [worker._process.pid for worker in pool._idle]
    assert len(processes) == 3
    pool.close()
    assert not any(map(alive, processes))
    with pytest.raises(RuntimeError, match="closed"):
        pool.call("echo", 1)


PARENT = """
import sys, threading, time
from itertools import pairwise
from pathlib import Path
from rlctl.verify.worker import WorkerPool

pool = WorkerPool(Path(sys.argv[1]), 2, 1.5)
busy = pool.call("pid")
threading.Thread(target=pool.call, args=("hang",), daemon=True).start()
time.sleep(0.3)
print(busy, pool.call("pid"), *(w._process.pid for w in pool._idle), flush=True)
time.sleep(600)
"""


def test_v20_workers_do_not_outlive_a_killed_parent(script):
    """V-20: neither the idle ones nor one that hangs where no Python code can run."""
    parent = subprocess.Popen([sys.executable, "-c", PARENT, str(script)], stdout=subprocess.PIPE, text=True)
    pids = [int(pid) for pid in parent.stdout.readline().split()]
    assert len(set(pids)) == 3 and all(map(alive, pids))
    parent.kill()
    parent.wait()
    parent.stdout.close()
    wait_until(lambda: not any(map(alive, pids)))
