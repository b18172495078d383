from __future__ import annotations

import json
import os
import shutil
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from mlflow import MlflowClient

from rlctl.track.courier import open_experiment
from rlctl.track.jsonl import RunLog
from rlctl.track.mlflow import ENVIRONMENT, MlflowTracker, destination, run_key

HANG_S = 90
RECIPE = f"name: a\nbudget: {{steps: 3}}\ndata: {{system_prompt: '{'x' * 20000}', template: ''}}\n"


OPEN = """
from pathlib import Path
from rlctl.track.courier import open_experiment
from rlctl.track.mlflow import destination
print(open_experiment(destination("auto", Path("runs")), "together")[1])
"""


@pytest.fixture(scope="session")
def fresh(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, list[tuple[int, bytes, bytes]]]:
    """The folder where three processes opened the default store at once, and how they fared."""
    root = tmp_path_factory.mktemp("fresh")
    env = {name: value for name, value in os.environ.items() if not name.startswith("MLFLOW_")}
    pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE}
    processes = [subprocess.Popen([sys.executable, "-c", OPEN], cwd=root, env=env, **pipes) for _ in range(3)]
    outputs = [process.communicate(timeout=HANG_S) for process in processes]
    return root, [(process.returncode, *output) for process, output in zip(processes, outputs, strict=True)]


@pytest.fixture(autouse=True)
def plain_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in [name for name in os.environ if name.startswith("MLFLOW_")]:
        monkeypatch.delenv(name)


class Place:
    """An output_dir with one run folder."""

    def __init__(self, root: Path) -> None:
        self.uri = f"sqlite:///{root / 'mlflow.db'}"
        self.folder = root / "a-12345678"
        self.folder.mkdir()
        (self.folder / "recipe.yaml").write_text(RECIPE)
        self.log = RunLog(self.folder)
        self.said: list[str] = []

    def tracker(self, uri: str | None = None) -> MlflowTracker:
        return MlflowTracker(uri or self.uri, "a", self.folder, self.said.append)

    def step(self, tracker: MlflowTracker, *steps: int) -> None:
        for step in steps:
            metrics = (
                {"reward/mean": step / 10, "eval/math/pass@1": 0.5} if step else {"eval/math/pass@1": 0.25}
            )
            self.log.metrics(step, metrics)
            tracker.log(step, metrics)

    def run(self, uri: str | None = None) -> Any:
        client = MlflowClient(tracking_uri=uri or self.uri)
        (run,) = client.search_runs([client.get_experiment_by_name("a").experiment_id])
        return run

    def history(self, name: str, uri: str | None = None) -> list[tuple[int, float]]:
        client, run_id = MlflowClient(tracking_uri=uri or self.uri), self.run(uri).info.run_id
        return [(metric.step, metric.value) for metric in client.get_metric_history(run_id, name)]

    def artifact(self, name: str) -> str:
        return Path(
            MlflowClient(tracking_uri=self.uri).download_artifacts(self.run().info.run_id, name)
        ).read_text()


@pytest.fixture
def place(tmp_path: Path, fresh: tuple[Path, Any]) -> Place:
    """A run folder beside a store whose tables are made already, which takes seconds."""
    shutil.copy(fresh[0] / "runs" / "mlflow.db", tmp_path)
    return Place(tmp_path)


def until(what: Callable[[], Any]) -> Any:
    deadline = time.monotonic() + HANG_S
    while not (found := what()):
        assert time.monotonic() < deadline, "waited in vain"
        time.sleep(0.05)
    return found


def sent(place: Place, step: int, uri: str | None = None) -> Callable[[], bool]:
    return lambda: place.run(uri).data.metrics.get("step") == step


def test_a_run_with_all_that_belongs_to_it(place: Place) -> None:
    """G-01, G-02, G-03, G-09: params, names, status and artifacts of a run that ends well."""
    tracker = place.tracker()
    place.step(tracker, 0, 1, 2)
    place.log.metrics(3, {"math//x": 1.0, "数学": 2.0, "reward/mean": float("nan")})
    place.log.rollouts([{"step": 3, "response": "\x1b[31mfour"}])
    place.log.evals({"step": 3, "sets": {}})
    until(lambda: tracker.run_id)
    assert place.run().info.status == "RUNNING"
    tracker.close("finished")

    run = place.run()
    assert place.said == []
    assert tracker.run_id == run.info.run_id
    assert run.info.status == "FINISHED"
    assert run.data.params["budget.steps"] == "3"
    assert len(run.data.params["data.system_prompt"]) == 250
    assert place.history("eval/math/pass_at_1") == [(0, 0.25), (1, 0.5), (2, 0.5)]
    assert place.history("reward/mean") == [(1, 0.1), (2, 0.2)]
    assert place.history("math/x") == [(3, 1.0)]
    assert place.history("train/nonfinite") == [(3, 1.0)]
    assert place.history("数学") == [(3, 2.0)]
    assert "time/unix_s" not in run.data.metrics
    assert place.artifact("recipe.yaml") == RECIPE
    assert json.loads(place.artifact("rollouts.jsonl"))["response"] == "\x1b[31mfour"
    assert json.loads(place.artifact("evals.jsonl")) == {"step": 3, "sets": {}}
    assert json.loads(place.artifact("metric_names.json"))["math//x"] == "math/x"
    assert (place.folder.parent / "mlflow-artifacts" / run.info.run_id).is_dir()


def test_d17_a_resumed_run_goes_on_as_the_same_one(place: Place) -> None:
    """D-17, G-03: a larger budget on resume: the same MLflow run, no exception, each step once."""
    tracker = place.tracker()
    place.step(tracker, 0, 1, 2, 3)
    tracker.close("failed")
    first = place.run()
    assert first.info.status == "FAILED"

    recipe = place.folder / "recipe.yaml"
    recipe.write_text(RECIPE.replace("steps: 3", "steps: 5") + "seed: 3\n")
    tracker = place.tracker()
    assert tracker.run_id == first.info.run_id
    until(lambda: place.run().info.status == "RUNNING")
    place.log.rewind(1)  # the checkpoint was older than what MLflow has
    place.step(tracker, 2, 3, 4, 5)
    tracker.close("finished")
    run = place.run()
    assert (run.info.run_id, run.info.status) == (first.info.run_id, "FINISHED")
    assert run.data.params["budget.steps"] == "3"
    assert run.data.params["seed"] == "3"
    assert place.history("reward/mean") == [(step, step / 10) for step in range(1, 6)]
    assert [step for step, _ in place.history("eval/math/pass_at_1")] == list(range(6))
    assert place.said == []


RUN = """
import sys, time
from pathlib import Path
from rlctl.track.jsonl import RunLog
from rlctl.track.mlflow import MlflowTracker
folder = Path(sys.argv[2])
log = RunLog(folder)
tracker = MlflowTracker(sys.argv[1], "a", folder)
log.metrics(0, {"eval/x/pass@1": 0.0})
while not tracker.run_id:
    time.sleep(0.05)
print("known", flush=True)
for step in range(1, 100000):
    log.metrics(step, {"reward/mean": step / 10})
    time.sleep(0.02)
"""


def start_run(place: Place) -> subprocess.Popen[bytes]:
    command = [sys.executable, "-c", RUN, place.uri, str(place.folder)]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL)
    assert process.stdout and process.stdout.readline() == b"known\n"
    return process


def test_g03_a_run_killed_outright_is_killed_in_mlflow_and_resumes(place: Place) -> None:
    """G-03: nobody says a word and the status is right; each step stands once after the resume."""
    process = start_run(place)
    until(lambda: place.run().data.metrics.get("step", 0) >= 3)
    process.send_signal(signal.SIGKILL)
    process.wait()
    until(lambda: place.run().info.status == "KILLED")
    place.log.rewind(2)
    tracker = place.tracker()
    place.step(tracker, *range(3, 60))
    tracker.close("finished")
    assert place.history("reward/mean") == [(step, step / 10) for step in range(1, 60)]
    assert place.run().info.status == "FINISHED"
    assert place.said == []


def test_g06_a_dead_server_stops_nothing_and_is_caught_up_on_resume(place: Place) -> None:
    """G-06: nobody listens at the port; a resume with a store that answers sends everything."""
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))  # bound and not listening: connections are refused
        tracker = place.tracker(f"http://127.0.0.1:{taken.getsockname()[1]}")
        place.step(tracker, 0)
        until(lambda: place.step(tracker, 1) or place.said)
        place.log.rewind(0)
        place.step(tracker, *range(1, 500))  # more numbers than one call takes
        tracker.close("interrupted", timeout_s=HANG_S)
    assert len(place.said) == 2
    assert place.said[0].startswith("MLflow does not take the run (")
    assert place.said[1].startswith("MLflow has not got the whole run (")
    assert tracker.run_id is None
    tracker = place.tracker()
    place.step(tracker, 500)
    tracker.close("finished")
    assert place.history("reward/mean") == [(step, step / 10) for step in range(1, 501)]


def test_the_end_of_a_run_waits_for_nobody(place: Place) -> None:
    with socket.socket() as silent:
        silent.bind(("127.0.0.1", 0))
        silent.listen()  # connections are accepted by the system, and nobody answers
        tracker = place.tracker(f"http://127.0.0.1:{silent.getsockname()[1]}")
        place.step(tracker, 0, 1)
        tracker.close("finished", timeout_s=1.0)
    assert place.said == ["MLflow has not got the whole run (exit code -9); metrics.jsonl has."]


class Server:
    """A real tracking server that can go away and come back."""

    def __init__(self, root: Path) -> None:
        with socket.socket() as free:
            free.bind(("127.0.0.1", 0))
            self.port = free.getsockname()[1]
        self.uri = f"http://127.0.0.1:{self.port}"
        self._command = [
            *(sys.executable, "-m", "mlflow", "server", "--host", "127.0.0.1", "--port", str(self.port)),
            *("--workers", "1", "--backend-store-uri", f"sqlite:///{root / 'mlflow.db'}"),
            *("--artifacts-destination", str(root / "served")),
        ]
        self.start()

    def start(self) -> None:
        self._process = subprocess.Popen(
            self._command,
            env={**os.environ, **ENVIRONMENT},
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            start_new_session=True,
        )
        until(self._listens)

    def _listens(self) -> bool:
        with socket.socket() as probe:
            return probe.connect_ex(("127.0.0.1", self.port)) == 0

    def stop(self) -> None:
        os.killpg(self._process.pid, signal.SIGKILL)
        self._process.wait()


@pytest.mark.heavy
def test_g06_a_server_that_goes_away_at_step_3_is_caught_up(place: Place, tmp_path: Path) -> None:
    """G-06: the run goes on, and every step arrives once when the server is back."""
    server = Server(tmp_path)
    try:
        tracker = place.tracker(server.uri)
        place.step(tracker, 0, 1, 2)
        until(lambda: tracker.run_id)
        until(sent(place, 2))
        server.stop()
        place.step(tracker, 3)
        until(lambda: tracker.log(3, {}) or place.said)
        place.step(tracker, 4, 5)
        server.start()
        until(sent(place, 5))
        until(lambda: tracker.log(5, {}) or len(place.said) == 2)
        place.step(tracker, 6)
        tracker.close("finished")
    finally:
        server.stop()
    assert place.said[1] == "MLflow takes the run again."
    assert place.history("reward/mean") == [(step, step / 10) for step in range(1, 7)]
    assert place.run().info.status == "FINISHED"
    assert any((tmp_path / "served").rglob("rollouts.jsonl"))


def test_three_processes_may_open_a_fresh_store_at_once(fresh: tuple[Path, Any]) -> None:
    _, outcomes = fresh
    assert [code for code, _, _ in outcomes] == [0, 0, 0], outcomes
    assert len({experiment for _, experiment, _ in outcomes}) == 1


def test_g05_the_default_store_lies_in_output_dir(fresh: tuple[Path, Any]) -> None:
    """G-05: never a temporary folder; artifacts lie beside it, and nothing appears elsewhere."""
    root, _ = fresh
    assert [path.name for path in root.iterdir()] == ["runs"]
    assert {path.name for path in (root / "runs").iterdir()} == {"mlflow.db", ".mlflow.lock"}
    client = MlflowClient(tracking_uri=f"sqlite:///{root}/runs/mlflow.db")
    artifacts = client.get_experiment_by_name("together").artifact_location
    assert artifacts == (root / "runs" / "mlflow-artifacts").as_uri()


def test_g10_the_environment_is_honoured(place: Place, monkeypatch: pytest.MonkeyPatch) -> None:
    """G-10, G-03: MLFLOW_TRACKING_URI, MLFLOW_EXPERIMENT_NAME, MLFLOW_RUN_ID; Ctrl-C ends as KILLED."""
    client, experiment = open_experiment(place.uri, "mine")
    run_id = client.create_run(experiment).info.run_id
    monkeypatch.setenv("MLFLOW_TRACKING_URI", place.uri)
    monkeypatch.setenv("MLFLOW_EXPERIMENT_NAME", "mine")
    monkeypatch.setenv("MLFLOW_RUN_ID", run_id)
    assert destination("auto", Path("elsewhere")) == place.uri
    assert destination("http://other:1", Path("elsewhere")) == "http://other:1"
    assert destination("off", Path("elsewhere")) is None
    tracker = place.tracker()
    place.step(tracker, 0, 1)
    tracker.close("interrupted")
    assert tracker.run_id == run_id
    assert client.get_run(run_id).info.status == "KILLED"
    assert client.get_run(run_id).data.metrics["reward/mean"] == 0.1
    assert client.get_experiment_by_name("a") is None


def test_f11_mlflow_reports_nothing_to_its_makers() -> None:
    """F-11: telemetry is off, and not only because this is a test."""
    code = "from mlflow.telemetry.utils import is_telemetry_disabled as f; print(f())"
    bare = {name: os.environ[name] for name in ("PATH", "HOME") if name in os.environ}
    out = subprocess.check_output([sys.executable, "-c", code], env={**ENVIRONMENT, **bare})
    assert out == b"True\n"


def test_the_door_does_not_import_mlflow() -> None:
    code = "import sys, rlctl.track.mlflow; print('mlflow' in sys.modules or 'numpy' in sys.modules)"
    assert subprocess.check_output([sys.executable, "-c", code]) == b"False\n"


def test_a_run_key_is_made_once(tmp_path: Path) -> None:
    first = run_key(tmp_path)
    assert len(first) == 32
    assert run_key(tmp_path) == first
