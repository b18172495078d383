"""MLflow, never in the way: a process of its own reads metrics.jsonl and passes it on.

A thread would not do. Importing mlflow and making a store takes seconds of Python, which holds up
a training loop in the same interpreter by a quarter of a second at a time and halves the speed of
small tensor operations. It would also import beside the main thread, where two can meet in a cycle.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import uuid
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import asdict
from pathlib import Path
from typing import Any

from rlctl.track.courier import Job, State

# What the process sets for mlflow unless the user has: nothing leaves the machine unasked (telemetry),
# and a dead server is given up on quickly (the default waits for 246 s); the courier itself tries again.
ENVIRONMENT = {
    "GIT_PYTHON_REFRESH": "quiet",
    "MLFLOW_DISABLE_TELEMETRY": "true",
    "MLFLOW_HTTP_REQUEST_MAX_RETRIES": "0",
    "MLFLOW_HTTP_REQUEST_TIMEOUT": "5",
    "OMP_NUM_THREADS": "1",
}
ASK_S = 60.0


def destination(mlflow: str, output_dir: Path) -> str | None:
    """Return the tracking URI that the recipe's `track.mlflow` means; None is off.

    `auto` takes $MLFLOW_TRACKING_URI, else the store `mlflow.db` in `output_dir`.
    """
    if mlflow == "off":
        return None
    if mlflow == "auto":
        return os.environ.get("MLFLOW_TRACKING_URI") or f"sqlite:///{output_dir.resolve() / 'mlflow.db'}"
    return mlflow


def run_key(folder: Path) -> str:
    """Return the key by which MLflow finds a run folder again; made on first use."""
    path = folder / "run_key"
    if not path.exists():
        path.write_text(uuid.uuid4().hex + "\n")
    return path.read_text().strip()


def add(uri: str, folder: Path, step: int, metrics: Mapping[str, float]) -> str | None:
    """Add metrics of an earlier step to the run that a folder has in MLflow; return what went wrong."""
    run_id = State.read(folder).run_id
    if run_id is None:
        return "it does not know the run"
    return _ask("addition", uri=uri, run_id=run_id, step=step, metrics=dict(metrics))


def gather(uri: str, experiment: str, folder: Path, state: str, artifacts: Sequence[str] = ()) -> str | None:
    """Bring the run that other runs belong to up to date, made on first use; return what went wrong.

    `state` is running, finished, interrupted or failed; `artifacts` are files of the folder. Its id is in
    `mlflow.json` from then on.
    """
    experiment = os.environ.get("MLFLOW_EXPERIMENT_NAME") or experiment
    key, place = run_key(folder), str(folder.resolve())
    return _ask(
        "parent", uri=uri, experiment=experiment, key=key, folder=place, state=state, artifacts=[*artifacts]
    )


def _ask(process: str, **job: Any) -> str | None:
    """Let a process of its own do a job for MLflow; return what went wrong."""
    try:
        done = subprocess.run(
            _command(process),
            env=_environment(),
            input=json.dumps(job),
            capture_output=True,
            text=True,
            timeout=ASK_S,
        )
    except subprocess.TimeoutExpired:
        return f"no answer in {ASK_S:.0f} s"
    return done.stdout.strip() or (f"exit code {done.returncode}" if done.returncode else None)


def _command(name: str) -> list[str]:
    return [sys.executable, "-P", "-m", f"rlctl.track.{name}"]


def _environment() -> dict[str, str]:
    path = os.pathsep.join(entry for entry in sys.path if entry)
    return {**ENVIRONMENT, **os.environ, "PYTHONPATH": path}


class MlflowTracker:
    """Starts the courier of a run folder, and ends it.

    The run with tag `rlctl.run` = `run_key(folder)` is continued, or made in `experiment`
    ($MLFLOW_EXPERIMENT_NAME wins), below the run `parent`. Steps that are there already are not sent again.
    """

    def __init__(
        self,
        uri: str,
        experiment: str,
        folder: Path,
        say: Callable[[str], None] = print,
        parent: str | None = None,
    ) -> None:
        self._folder = folder
        self._say = say
        self._problem: str | None = None
        State(State.read(folder).run_id).write(folder)
        experiment = os.environ.get("MLFLOW_EXPERIMENT_NAME") or experiment
        turn = uuid.uuid4().hex
        job = Job(uri, experiment, folder.name, run_key(folder), str(folder.resolve()), turn, parent)
        job.take()
        self._process = subprocess.Popen(
            _command("courier"),
            env=_environment(),
            stdin=subprocess.PIPE,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            start_new_session=True,  # Ctrl-C is for the run; the courier learns of its end by `close`
        )
        assert self._process.stdin
        self._orders = self._process.stdin
        self._tell(json.dumps(asdict(job)))

    @property
    def run_id(self) -> str | None:
        """MLflow's id of the run; None until it is known."""
        return State.read(self._folder).run_id

    def log(self, step: int, metrics: Mapping[str, float]) -> None:
        """Say what troubles the courier; it reads the numbers from metrics.jsonl by itself."""
        problem = State.read(self._folder).problem
        if problem and not self._problem:
            self._say(
                f"MLflow does not take the run ({problem}). The run goes on; metrics.jsonl is sent later."
            )
        elif self._problem and not problem:
            self._say("MLflow takes the run again.")
        self._problem = problem

    def close(self, state: str, timeout_s: float = 60.0) -> None:
        """Send the rest and end the run as `state`: finished, interrupted or failed.

        A server that does not answer costs one try of 5 s; `timeout_s` bounds one that answers slowly.
        """
        if not self._orders.closed:
            self._tell(state)
        with suppress(OSError):
            self._orders.close()
        try:
            code = self._process.wait(timeout_s)
        except subprocess.TimeoutExpired:
            self._process.kill()
            code = self._process.wait()
        if code:
            problem = State.read(self._folder).problem or f"exit code {code}"
            self._say(f"MLflow has not got the whole run ({problem}); metrics.jsonl has.")

    def _tell(self, line: str) -> None:
        with suppress(BrokenPipeError):  # a courier that is gone is reported by `close`
            self._orders.write(f"{line}\n".encode())
            self._orders.flush()
