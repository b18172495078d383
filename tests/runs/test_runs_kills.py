"""A run that is killed at random moments and resumed is the run that was left alone."""

from __future__ import annotations

import os
import signal
from pathlib import Path

from kills import kill_and_resume
from mlflow import MlflowClient
from small_runs import SMALL, Runs

from rlctl.track.jsonl import RunLog
from rlctl.track.mlflow import MlflowTracker


def test_three_kills(runs: Runs) -> None:
    """D-01 for real processes, each session ended by SIGKILL, with the MLflow store that is the default."""
    whole = runs("budget.steps=12", "checkpoint.every=2", "eval.every=5", place="whole")
    small = [text for text in SMALL if not text.startswith(("track.", "budget."))]
    found = kill_and_resume(runs.root / "killed", 3, 5, whole.folder, [*small, "eval.every=5"])
    assert found.faults == []
    assert len(found.resumed_at) == 3


def test_a_courier_that_comes_late_leaves_the_run_alone(tmp_path: Path) -> None:
    """The courier of a killed session may get its turn when a later session has finished the run."""
    folder = tmp_path / "a-12345678"
    folder.mkdir()
    uri, log = f"sqlite:///{tmp_path / 'mlflow.db'}", RunLog(folder)
    log.metrics(1, {"reward/mean": 0.5})
    killed = MlflowTracker(uri, "a", folder)
    os.kill(killed._process.pid, signal.SIGSTOP)
    resumed = MlflowTracker(uri, "a", folder)
    log.metrics(2, {"reward/mean": 0.75})
    resumed.close("finished")
    killed._orders.close()  # as the system does for a killed process
    os.kill(killed._process.pid, signal.SIGCONT)
    assert killed._process.wait(60) == 0
    client = MlflowClient(uri)
    assert resumed.run_id
    assert client.get_run(resumed.run_id).info.status == "FINISHED"
    history = client.get_metric_history(resumed.run_id, "reward/mean")
    assert [(point.step, point.value) for point in history] == [(1, 0.5), (2, 0.75)]
