"""Processes that run one function at a time and can be killed."""

from __future__ import annotations

import json
import select
import signal
import subprocess
import sys
import threading
import time
from collections import deque
from itertools import count
from pathlib import Path
from typing import Any

START_S = 60.0  # imports on a cold, slow disk


class WorkerError(Exception):
    """A call that gave no result: `deadline`, a dead process, or the function's own exception."""


class WorkerPool:
    """`size` processes that have loaded `script`; a call that hangs is killed at its deadline.

    May be used from any thread, with or without an event loop; it needs no signals. A call's time counts
    from when a process takes it. Workers end with their parent, even where that is killed.
    """

    def __init__(self, script: Path, size: int, deadline_s: float) -> None:
        self._script, self._deadline_s = script, deadline_s
        self._closed = False
        self._slots = threading.Semaphore(size)
        # One more than may be busy: where one is killed, the next call finds the other warm.
        self._idle = deque(_Worker(script, deadline_s) for _ in range(size + 1))

    def call(self, function: str, *arguments: Any) -> Any:
        """`function(*arguments)` of the script, by JSON there and back.

        Raises:
            WorkerError: there is no result.
        """
        with self._slots:
            if self._closed:
                raise RuntimeError("this worker pool is closed")
            worker = self._idle.pop()
            healthy = False
            try:
                reply = worker.ask(function, arguments)
                healthy = True
            finally:  # after an interrupt too: its late reply must not meet the next call
                self._give_back(worker, healthy)
        if "error" in reply:
            raise WorkerError(reply["error"])
        return reply["result"]

    def _give_back(self, worker: _Worker, healthy: bool) -> None:
        if healthy:
            self._idle.append(worker)
        else:
            worker.kill()
            self._idle.appendleft(_Worker(self._script, self._deadline_s))
        if self._closed:
            self.close()

    def close(self) -> None:
        """Kill every process."""
        self._closed = True
        while self._idle:
            self._idle.pop().kill()


class _Worker:
    """One process; starting it takes no time, its first call waits until it is ready."""

    def __init__(self, script: Path, deadline_s: float) -> None:
        # -P: the folder of serve.py, which has a math.py, stays out of the import path.
        command = [sys.executable, "-P", str(Path(__file__).with_name("serve.py")), str(script)]
        self._process = subprocess.Popen(
            [*command, str(2 * deadline_s)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            bufsize=0,
            start_new_session=True,  # Ctrl-C is the parent's
        )
        self._deadline_s = deadline_s
        self._ids = count()
        self._ready = False

    def ask(self, function: str, arguments: tuple[Any, ...]) -> dict[str, Any]:
        """Send one call and wait for its reply."""
        if not self._ready:
            started = self._read(START_S)
            if "error" in started:
                raise WorkerError(f"the worker did not start: {started['error']}")
            self._ready = True
        call = {"id": next(self._ids), "function": function, "arguments": arguments}
        self._write(json.dumps(call).encode() + b"\n")
        reply = self._read(self._deadline_s)
        assert reply["id"] == call["id"], "a worker answered another call"
        return reply

    def kill(self) -> None:
        """End the process now and reap it."""
        self._process.kill()
        for pipe in (self._process.stdin, self._process.stdout):
            assert pipe is not None
            pipe.close()
        self._process.wait()

    def _write(self, line: bytes) -> None:
        assert self._process.stdin is not None
        try:
            while line:
                line = line[self._process.stdin.write(line) :]
        except BrokenPipeError:
            raise self._death() from None

    def _read(self, seconds: float) -> dict[str, Any]:
        assert self._process.stdout is not None
        end = time.monotonic() + seconds
        poll = select.poll()  # select() fails on descriptors above 1023
        poll.register(self._process.stdout, select.POLLIN)
        line = b""
        while not line.endswith(b"\n"):
            if not poll.poll(max(0.0, end - time.monotonic()) * 1000):
                raise WorkerError("deadline")
            chunk = self._process.stdout.read(65536)
            if not chunk:
                raise self._death()
            line += chunk
        reply: dict[str, Any] = json.loads(line)
        return reply

    def _death(self) -> WorkerError:
        self._process.kill()  # it may have closed its pipes only
        code = self._process.wait()
        late = code == -signal.SIGALRM
        return WorkerError("deadline" if late else f"the worker died with exit code {code}")
