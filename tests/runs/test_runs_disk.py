"""A disk that is full: three lines and exit code 1; whatever stood there before is whole."""

from __future__ import annotations

import resource
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from small_runs import DENSE, Ran, Runs, same_run

from rlctl.errors import RunError


@contextmanager
def files_of_at_most(size: int) -> Iterator[None]:
    """The system refuses to let any file grow over `size` bytes, as a full disk does."""
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (size, before[1]))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)


def refused(error: RunError) -> None:
    assert error.exit_code == 1
    assert 2 <= len(str(error).splitlines()) <= 3
    assert "File too large" in str(error)


# Folder, recipe.yaml, metrics.jsonl, weights of the model: each is what fails first once.
@pytest.mark.parametrize("size", [0, 100, 2000, 4000, 20_000])
def test_d09_no_disk_space(size: int, runs: Runs) -> None:
    """D-09: the run stands where its last whole checkpoint is and goes on from there."""
    sets = (DENSE, "checkpoint.every=1")
    before = runs(*sets, "budget.steps=2")
    weights = (before.folder / "checkpoints/step-000002/model.safetensors").read_bytes()
    with files_of_at_most(size), pytest.raises(RunError) as caught:
        runs(*sets, "budget.steps=4")
    refused(caught.value)
    assert (before.folder / "checkpoints/step-000002/model.safetensors").read_bytes() == weights
    same_run(runs(*sets, "budget.steps=4"), runs(*sets, "budget.steps=4", place="whole"))


def test_no_disk_space_for_the_cache(runs: Runs, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("RLCTL_CACHE", str(tmp_path / "cache"))
    sets = (DENSE, "model.warm_start.steps=1")
    with files_of_at_most(20_000), pytest.raises(RunError) as caught:
        runs(*sets)
    refused(caught.value)
    assert "RLCTL_CACHE" in str(caught.value)
    assert list((tmp_path / "cache").iterdir()) == []
    assert runs(*sets).code == 0


def test_no_disk_space_for_the_final_model(runs: Runs, monkeypatch: pytest.MonkeyPatch) -> None:
    """The run is over but for its final folder; the same command makes up for it."""
    from rlctl import session

    export = session._export

    def full(*arguments: Any) -> None:
        with files_of_at_most(20_000):
            export(*arguments)

    with monkeypatch.context() as patch, pytest.raises(RunError) as caught:
        patch.setattr(session, "_export", full)
        runs(DENSE)
    refused(caught.value)
    ran = runs.ran(DENSE)
    assert ran.said == ("failed", "error")
    assert runs(DENSE).said == ("finished", "steps")
    assert (ran.folder / "final/model.safetensors").exists()
    same_run(ran, runs(DENSE, place="whole"))


@pytest.mark.parametrize("name", ["rollouts", "metrics", "evals"])
def test_no_step_is_lost_that_could_not_be_written_down(
    name: str, runs: Runs, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A torn last line and a step in no file: both are made up for, although a checkpoint can be written."""
    from rlctl.track.jsonl import RunLog

    sets = (DENSE, "eval.every=2", "budget.steps=5", "checkpoint.every=1")
    real, calls = getattr(RunLog, name), []

    def full(self: RunLog, *arguments: Any) -> None:
        calls.append(1)
        if len(calls) < 3:
            real(self, *arguments)
            return
        with (runs.ran(*sets).folder / f"{name}.jsonl").open("a") as file:
            file.write('{"step": 2, "torn')
        raise RunError("no space", "make room")

    with monkeypatch.context() as patch, pytest.raises(RunError):
        patch.setattr(RunLog, name, full)
        runs(*sets)
    assert runs.ran(*sets).said == ("failed", "error")
    ran, whole = runs(*sets), runs(*sets, place="whole")
    same_run(ran, whole)
    assert ran.evals == whole.evals


def test_a_folder_that_vanished(runs: Runs) -> None:
    """Someone tidied up `checkpoints/`: the run says that it begins anew, and does."""
    ran = runs(DENSE)
    weights = ran.file("model.safetensors")
    shutil.rmtree(ran.folder / "checkpoints")
    again: Ran = runs(DENSE)
    assert again.file("model.safetensors") == weights
    assert [line["step"] for line in again.metrics] == [0, 1, 2, 3]


def test_no_disk_space_for_the_courier(runs: Runs, monkeypatch: pytest.MonkeyPatch) -> None:
    from rlctl.track.courier import Job

    def full(self: Job) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(Job, "take", full)
    with pytest.raises(RunError, match="No space left on device") as caught:
        runs(DENSE, "track.mlflow=auto")
    assert len(str(caught.value).splitlines()) == 2
    assert runs.ran(DENSE).said == ("failed", "error")
