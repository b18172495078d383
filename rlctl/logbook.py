"""Everything a run writes down for people: the jsonl files, MLflow, the console, `status.json`."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from rlctl.budget import Budget
from rlctl.errors import writing
from rlctl.recipe import Recipe
from rlctl.runfolder import RunFolder
from rlctl.track.console import Console
from rlctl.track.jsonl import HINT, RunLog, truncate
from rlctl.track.mlflow import MlflowTracker, destination
from rlctl.types import Group


class Logbook:
    """Writes each step once, whatever was killed in between."""

    def __init__(self, recipe: Recipe, folder: RunFolder, console: Console) -> None:
        self.folder = folder
        self.console = console
        self.files = RunLog(folder.path, recipe.track.rollouts)
        uri = destination(recipe.track.mlflow, Path(recipe.output_dir))
        with writing(f"{folder.path} could not be written", HINT):
            self.mlflow = uri and MlflowTracker(
                uri, recipe.name, folder.path, console.say, recipe.track.parent
            )

    def rewind(self, step: int, logged: bool) -> None:
        """Forget what came after the checkpoint of `step`, whose own numbers may not be `logged` yet."""
        self.files.rewind(step)
        if not logged:
            for name in ("metrics.jsonl", "evals.jsonl"):
                truncate(self.folder.path / name, step - 1)

    def step(self, step: int, metrics: Mapping[str, float]) -> None:
        """Record a finished step."""
        self.files.metrics(step, metrics)
        if self.mlflow:
            self.mlflow.log(step, metrics)
        self.console.log(step, metrics)

    def rollouts(self, step: int, groups: Sequence[Group], advantages: Mapping[int, Sequence[float]]) -> None:
        """Record what was sampled; `advantages` by id of the group, none for one that was not trained."""
        self.files.rollouts(
            [
                {
                    "step": step,
                    "uid": group.prompt.uid,
                    "sample": index,
                    "prompt": group.prompt.text,
                    "response": sample.text,
                    "reward": sample.verdict.reward,
                    "correct": sample.verdict.correct,
                    "answer": sample.verdict.answer,
                    "gold": group.prompt.gold,
                    "finish": sample.completion.finish,
                    "tokens": len(sample.completion.ids),
                    "temperature": sample.temperature,
                    "advantage": advantages[id(group)][index] if id(group) in advantages else None,
                }
                for group in groups
                for index, sample in enumerate(group.samples)
            ]
        )

    def evaluation(self, record: Mapping[str, Any]) -> None:
        """Record an evaluation in full."""
        self.files.evals(record)

    def status(self, state: str, stop_reason: str | None, budget: Budget) -> None:
        """Replace `status.json`."""
        self.folder.write_status(
            state=state,
            stop_reason=stop_reason,
            step=budget.steps,
            tokens=budget.tokens,
            seconds=round(budget.seconds, 3),
            mlflow_run_id=self.mlflow.run_id if self.mlflow else None,
        )

    def close(self, state: str) -> None:
        """Bring the files to the disk and end the run everywhere."""
        self.files.sync()
        if self.mlflow:
            self.mlflow.close(state)
