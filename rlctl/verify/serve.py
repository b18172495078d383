"""The inside of a worker process. Run as a script, so it imports nothing of this package.

`serve.py SCRIPT SECONDS`: load SCRIPT, say so, then answer calls of its functions, one JSON line each,
until standard input ends.
"""

from __future__ import annotations

import json
import os
import resource
import runpy
import signal
import sys
from typing import Any

MEMORY_BYTES = 4 << 30


def main(script: str, seconds: float) -> None:
    """Answer calls; a call that takes longer than `seconds` ends the process."""
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, signal.SIG_IGN)  # the parent decides, by closing the pipe or by SIGKILL
    signal.signal(signal.SIGALRM, signal.SIG_DFL)
    resource.setrlimit(resource.RLIMIT_AS, (MEMORY_BYTES, MEMORY_BYTES))
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    replies = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)  # a library that prints must not forge a reply

    def reply(**fields: Any) -> None:
        print(json.dumps(fields), file=replies, flush=True)

    try:
        functions = runpy.run_path(script)
    except BaseException as error:
        reply(error=f"{type(error).__name__}: {error}")
        return
    reply(ready=True)
    for line in sys.stdin:
        call = json.loads(line)
        # The kernel's own alarm: it ends even a hung process whose parent is gone, where Python
        # code would wait for the interpreter's lock.
        signal.setitimer(signal.ITIMER_REAL, seconds)
        try:
            answer = {"result": functions[call["function"]](*call["arguments"])}
        except BaseException as error:  # some libraries' time-outs are no Exception
            answer = {"error": f"{type(error).__name__}: {error}"}
        signal.setitimer(signal.ITIMER_REAL, 0)
        reply(id=call["id"], **answer)


if __name__ == "__main__":
    main(sys.argv[1], float(sys.argv[2]))
