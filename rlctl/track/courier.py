"""The process that carries a run folder to MLflow: `python -m rlctl.track.courier`.

Standard input brings a `Job` on its first line and the end of the run on its second; in between, whatever
metrics.jsonl gains is sent. A failure drops the connection, and the next one asks MLflow how far it got.
"""

from __future__ import annotations

import fcntl
import json
import os
import re
import select
import signal
import sys
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext, suppress
from dataclasses import asdict, dataclass
from itertools import islice
from pathlib import Path
from typing import IO, Any

from rlctl.track.jsonl import Tail
from rlctl.track.names import Names, parameters

POLL_S = 0.5
PATIENCE_S = 30.0  # longest wait between two tries
METRICS_PER_CALL = 1000  # as many as MLflow takes
PARAMS_PER_CALL = 100  # the same
MAX_ROLLOUTS = 512  # rows in the artifact
STATUS = {"finished": "FINISHED", "interrupted": "KILLED", "failed": "FAILED"}
TAG = "rlctl.run"
PARENT = "mlflow.parentRunId"  # what MLflow's own pages nest runs by


@dataclass(frozen=True)
class Job:
    """What to carry, and where to."""

    uri: str
    experiment: str
    run_name: str
    run_key: str
    folder: str
    turn: str
    parent: str | None = None  # id of the run that it belongs to

    def take(self) -> None:
        """Make every earlier session's courier of the folder give up, whenever it comes to look."""
        self._turn.write_text(self.turn)

    @property
    def over(self) -> bool:
        """Say whether a later session has a courier of its own, which sends whatever is left."""
        return self._turn.read_text() != self.turn

    @property
    def _turn(self) -> Path:
        return Path(self.folder) / ".courier.turn"


@dataclass(frozen=True)
class State:
    """What the courier tells the run, by the file `mlflow.json` of the run folder."""

    run_id: str | None = None
    problem: str | None = None

    @classmethod
    def read(cls, folder: Path) -> State:
        """Return what was told last."""
        path = folder / "mlflow.json"
        return cls(**json.loads(path.read_text())) if path.exists() else cls()

    def write(self, folder: Path) -> None:
        """Tell it, whole or not at all."""
        aside = folder / f"mlflow.json.{os.getpid()}"
        aside.write_text(json.dumps(asdict(self)))
        aside.replace(folder / "mlflow.json")


class Courier:
    """A connection to MLflow and the place in metrics.jsonl that it has reached."""

    def __init__(self, job: Job) -> None:
        from mlflow.entities import Param

        self._job = job
        self._folder = Path(job.folder)
        self._client, experiment_id = open_experiment(job.uri, job.experiment)
        run = self._find(experiment_id)
        self.run_id: str = run.info.run_id
        self._client.set_tag(self.run_id, TAG, job.run_key)
        self._client.update_run(self.run_id, status="RUNNING")
        # Every batch carries its step as a metric too, so that one look tells how far MLflow got.
        self._sent = int(run.data.metrics.get("step", -1))
        self._tail = Tail(self._folder / "metrics.jsonl")
        self._names = Names()
        # What is there already may not be changed: a resumed run can have a larger budget.
        recipe = parameters(self._folder / "recipe.yaml").items()
        fresh = [Param(key, value) for key, value in recipe if key not in run.data.params]
        for start in range(0, len(fresh), PARAMS_PER_CALL):
            some = fresh[start : start + PARAMS_PER_CALL]
            self._client.log_batch(self.run_id, params=some, synchronous=True)
        with suppress(Exception):  # artifacts may lie on a store of their own; `finish` tells of its faults
            self._attach("recipe.yaml")

    def _find(self, experiment_id: str) -> Any:
        """Return the run of $MLFLOW_RUN_ID, else the one with our key, else a new one."""
        if "MLFLOW_RUN_ID" in os.environ:
            return self._client.get_run(os.environ["MLFLOW_RUN_ID"])
        run = find_run(self._client, experiment_id, self._job.run_key, self._job.run_name)
        if self._job.parent:
            self._client.set_tag(run.info.run_id, PARENT, self._job.parent)
        return run

    def catch_up(self) -> None:
        """Send each whole line that is newer than what MLflow has, a step never split over two calls."""
        from mlflow.entities import Metric

        batch: list[Any] = []
        for record in self._tail.more():
            step, stamp = record["step"], int(1000 * record.pop("time/unix_s"))
            named = self._names.rename(record)  # old lines too, so that names never depend on a resume
            if step > self._sent:
                if len(batch) + len(named) > METRICS_PER_CALL:
                    self._client.log_batch(self.run_id, metrics=batch, synchronous=True)
                    batch = []
                batch += [Metric(name, float(value), stamp, step) for name, value in named.items()]
                self._sent = step
        if batch:
            self._client.log_batch(self.run_id, metrics=batch, synchronous=True)

    def finish(self, state: str) -> None:
        """Set the run's status, then add the files that are whole only now."""
        self._client.set_terminated(self.run_id, STATUS[state])
        for name in ("recipe.yaml", "evals.jsonl"):
            self._attach(name)
        sample = _thin(self._folder / "rollouts.jsonl", MAX_ROLLOUTS)
        self._client.log_text(self.run_id, sample, "rollouts.jsonl")
        self._client.log_dict(self.run_id, self._names.changed, "metric_names.json")

    def _attach(self, name: str) -> None:
        if (self._folder / name).exists():
            self._client.log_artifact(self.run_id, str(self._folder / name))


def find_run(client: Any, experiment_id: str, key: str, name: str) -> Any:
    """Return the run with our key, else a new one."""
    found = client.search_runs([experiment_id], f"tags.`{TAG}` = '{key}'", max_results=1)
    return found[0] if found else client.create_run(experiment_id, run_name=name, tags={TAG: key})


def open_experiment(uri: str, name: str) -> tuple[Any, str]:
    """Return MLflow's client and the id of the experiment; both are made if they are not there.

    A sqlite store is opened under a lock, because two processes that make its tables at once crash.
    Its artifacts lie beside it; those of a server where the server wants them.
    """
    from mlflow import MlflowClient

    lock: AbstractContextManager[None] = nullcontext()
    artifacts = None
    if uri.startswith("sqlite:///"):
        folder = Path(uri.removeprefix("sqlite:///")).resolve().parent
        folder.mkdir(parents=True, exist_ok=True)
        lock, artifacts = locked(folder / ".mlflow.lock"), (folder / "mlflow-artifacts").as_uri()
    with lock:
        client = MlflowClient(tracking_uri=uri)
        found = client.get_experiment_by_name(name)
        return client, found.experiment_id if found else client.create_experiment(name, artifacts)


@contextmanager
def locked(path: Path) -> Iterator[None]:
    """Hold the lock file, waiting for whoever holds it."""
    with path.open("w") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        yield


def carry(job: Job, orders: IO[bytes]) -> bool:
    """Send until the run ends, trying again after longer and longer waits; say if all has arrived."""
    folder, parent = Path(job.folder), os.getppid()
    courier: Courier | None = None
    wait = 0.0
    while True:
        end = _heard(orders, wait, parent)
        if job.over:
            return True
        try:
            courier = courier or Courier(job)
            courier.catch_up()
            if end:
                courier.finish(end)
            wait, state = POLL_S, State(courier.run_id)
        except Exception as error:  # whatever it is, it must not stop a run
            courier = None
            wait = min(max(2 * wait, POLL_S), PATIENCE_S)
            state = State(State.read(folder).run_id, in_short(error))
        if state != State.read(folder):
            state.write(folder)
        if end:
            return state.problem is None


def _heard(orders: IO[bytes], wait: float, parent: int) -> str | None:
    """Wait for the word that the run has ended. A run that is gone without a word was killed."""
    if select.select([orders], [], [], wait)[0]:
        return orders.readline().decode().strip() or "interrupted"
    return None if os.getppid() == parent else "interrupted"


def in_short(error: Exception) -> str:
    """Say in a line what went wrong, without passwords."""
    text = re.sub(r"//[^/\s]*@", "//", f"{type(error).__name__}: {error}")  # a URI may hold a password
    return text.splitlines()[0][:200]


def _thin(path: Path, rows: int) -> str:
    """Return at most `rows` whole lines of a file, spread evenly over it."""
    if not path.exists():
        return ""
    with path.open(encoding="utf-8") as file:
        every = -(-sum(1 for _ in file) // rows) or 1
        file.seek(0)
        return "".join(line for line in islice(file, 0, None, every) if line.endswith("\n"))


def main() -> int:
    """Carry the run that standard input names."""
    os.nice(5)  # training comes first
    for number in (signal.SIGINT, signal.SIGTERM):  # meant for the run, whose end is told
        signal.signal(number, signal.SIG_IGN)
    orders = open(0, "rb", buffering=0)  # noqa: SIM115 - unbuffered, so that select sees each line
    job = Job(**json.loads(orders.readline()))
    # A courier whose run was killed may still be at work, or wait here too, when the run is resumed.
    with locked(Path(job.folder) / ".courier.lock"):
        return 0 if carry(job, orders) else 1


if __name__ == "__main__":
    sys.exit(main())
