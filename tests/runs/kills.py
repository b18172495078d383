"""Kill a run at random moments, resume it each time, and compare it with the run that was left alone.

`python tests/runs/kills.py --kills 10` does it with the quickstart recipe in full, `--set algorithm=NAME`
with another row.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import signal
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[2]
STEPS = ["budget.steps=12", "checkpoint.every=2"]
HANG_S = 600
START = "import sys; sys.argv[0] = 'rlctl'; from rlctl.cli import main; main()"


@dataclass
class Found:
    """What killing and resuming a run showed."""

    resumed_at: list[int] = field(default_factory=list)  # the step that each session after a kill began at
    faults: list[str] = field(default_factory=list)


class Session:
    """One `rlctl train` as a process."""

    def __init__(self, output_dir: Path, sets: Sequence[str]) -> None:
        settings = [*STEPS, *sets, f"output_dir={output_dir}"]
        arguments = [word for text in settings for word in ("--set", text)]
        env = {name: value for name, value in os.environ.items() if not name.startswith("MLFLOW_")}
        self.log = output_dir.parent / f"{output_dir.name}.log"
        self.output_dir = output_dir
        self.began = time.time()
        with self.log.open("ab") as log:
            self.process = subprocess.Popen(
                [sys.executable, "-c", START, "train", "quickstart", *arguments],
                cwd=ROOT, env=env, stdout=log, stderr=log,
            )  # fmt: skip

    @property
    def folder(self) -> Path | None:
        return next(self.output_dir.glob("quickstart-*"), None)

    def alive(self) -> bool:
        return self.process.poll() is None

    def checkpoint(self) -> int:
        """The step of the newest checkpoint, 0 if there is none."""
        marks = sorted(self.folder.glob("checkpoints/step-*/DONE")) if self.folder else []
        return int(marks[-1].parent.name[5:11]) if marks else 0

    def wait_for_a_line(self, at_most: float = HANG_S) -> float:
        """Wait until this session has written to metrics.jsonl, or is over; return its age in seconds."""
        while self.alive() and not self._wrote() and time.time() - self.began < at_most:
            time.sleep(0.01)
        return time.time() - self.began

    def _wrote(self) -> bool:
        file = self.folder and self.folder / "metrics.jsonl"
        return bool(file and file.exists() and file.stat().st_mtime > self.began and file.stat().st_size)

    def kill(self) -> None:
        os.kill(self.process.pid, signal.SIGKILL)
        self.process.wait()


def leave_alone(output_dir: Path, sets: Sequence[str] = ()) -> Path:
    """Run once in peace; return the run's folder."""
    session = Session(output_dir, sets)
    assert session.process.wait(HANG_S) == 0, session.log.read_text()
    assert session.folder
    return session.folder


def kill_and_resume(output_dir: Path, kills: int, seed: int, whole: Path, sets: Sequence[str] = ()) -> Found:
    """Run with `kills` SIGKILLs, each at a random moment, and once more to the end; compare with `whole`.

    Until there is a checkpoint the blows fall anywhere after the first line of metrics.jsonl. Later ones
    fall into the start or the first steps of a session, since twelve steps must do for all of them.
    """
    lines = _lines(whole / "metrics.jsonl")
    steps_s = lines[-1]["time/unix_s"] - lines[0]["time/unix_s"]
    rng, found, start_s = random.Random(seed), Found(), 0.0
    session = Session(output_dir, sets)
    for kill in range(kills):
        begins = session.checkpoint()
        if not begins or (begins < 10 and rng.random() < 0.5):
            start_s = session.wait_for_a_line()
            time.sleep(rng.uniform(0, (2.5 / 12 if begins else 0.6) * steps_s))
        else:
            session.wait_for_a_line(at_most=rng.uniform(0, start_s))
        if not session.alive():
            found.faults.append(f"the run was over before kill {kill + 1}: try another seed")
            break
        session.kill()
        found.resumed_at.append(session.checkpoint())
        session = Session(output_dir, sets)
    if session.process.wait(HANG_S) != 0:
        found.faults.append(f"the last session failed: {session.log.read_text()[-2000:]}")
    assert session.folder
    found.faults += differences(whole, session.folder)
    found.faults += mlflow_faults(output_dir, session.folder)
    return found


def differences(whole: Path, killed: Path) -> Iterator[str]:
    """Say what of the killed run is not bitwise what the other one left."""
    for file in sorted(whole.glob("checkpoints/step-000012/*.safetensors")):
        if file.read_bytes() != (killed / file.relative_to(whole)).read_bytes():
            yield f"{file.name} differs"
    for name, keys in {"metrics": ("reward/mean", "train/loss"), "rollouts": (), "evals": ("sets",)}.items():
        ours, theirs = _lines(killed / f"{name}.jsonl"), _lines(whole / f"{name}.jsonl")
        if [line["step"] for line in ours] != [line["step"] for line in theirs]:
            yield f"{name}.jsonl: steps {[line['step'] for line in ours]}"
        for mine, other in zip(ours, theirs, strict=False):
            for key in keys or other:
                if mine.get(key) != other.get(key):
                    yield f"{name}.jsonl: {key} of step {mine['step']} differs"


def _lines(file: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in file.read_text(encoding="utf-8").split("\n")[:-1]]


def mlflow_faults(output_dir: Path, folder: Path) -> Iterator[str]:
    """Say what of the one MLflow run is missing or stands twice."""
    from mlflow import MlflowClient

    client = MlflowClient(f"sqlite:///{output_dir / 'mlflow.db'}")
    experiment = client.get_experiment_by_name("quickstart")
    runs = client.search_runs([experiment.experiment_id])
    if [run.info.status for run in runs] != ["FINISHED"]:
        yield f"MLflow runs: {[run.info.status for run in runs]}"
    wanted = {(line["step"], line["reward/mean"]) for line in _lines(folder / "metrics.jsonl")[1:]}
    for name in runs[0].data.metrics:
        history = client.get_metric_history(runs[0].info.run_id, name)
        twice = [step for step, n in Counter(point.step for point in history).items() if n > 1]
        if twice:
            yield f"MLflow: {name} has the steps {twice} more than once"
        if name == "reward/mean" and {(point.step, point.value) for point in history} != wanted:
            yield f"MLflow: {name} is not that of metrics.jsonl"


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--kills", type=int, default=10)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--folder", type=Path, help="where the runs stay; else a temporary one")
    parser.add_argument("--set", action="append", default=[], metavar="KEY=VALUE", help="as of rlctl train")
    asked = parser.parse_args()
    with tempfile.TemporaryDirectory() as aside:
        root = (asked.folder or Path(aside)).resolve()
        whole = leave_alone(root / "whole", asked.set)
        found = kill_and_resume(root / "killed", asked.kills, asked.seed, whole, asked.set)
    above = sum(step > 0 for step in found.resumed_at)
    print(f"{len(found.resumed_at)} kills; the resumes began at the steps {found.resumed_at}")
    print(f"{above} of {len(found.resumed_at)} resumes started above step 0")
    print(
        "\n".join(found.faults) or "weights, rewards, rollouts and MLflow equal the run that was left alone"
    )
    return 1 if found.faults else 0


if __name__ == "__main__":
    sys.exit(main())
