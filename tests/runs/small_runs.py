"""Whole runs of a very small model, in this process: what the tests of `tests/runs` share."""

from __future__ import annotations

import json
from collections import Counter
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from rlctl.recipe import load, run_folder
from rlctl.session import train

QUICKSTART = "quickstart"
JUDGES = Path(__file__).with_name("judges.py")

# One layer, one digit, a warm start that leaves a third of the answers right: a step takes 0.05 s.
SMALL = [
    "model.layers=1",
    "model.width=32",
    "model.heads=2",
    "model.warm_start.steps=75",
    "model.warm_start.batch=64",
    "model.warm_start.learning_rate=3e-3",
    "data.train.digits=1",
    "eval.sets.0.digits=1",
    "eval.sets.0.problems=16",
    "eval.pass_at=[1,2]",
    "rollout.prompts_per_step=4",
    "rollout.group_size=4",
    "rollout.max_completion_length=4",
    "track.mlflow=off",
    "resources.cpus=1",
    "budget.steps=3",
]
DENSE = f"verifier={{kind: python, path: '{JUDGES}:dense'}}"  # no group of it has equal rewards
AHEAD = "algorithm={preset: mu_grpo, staging: {ahead: 3}}"
SIX = ("budget.steps=6", "checkpoint.every=1")
QUIET = "eval={sets: []}"
FAST = "optim.learning_rate=0.003"


@dataclass(frozen=True)
class Ran:
    """A run's folder and the exit code of its last session."""

    folder: Path
    code: int

    def lines(self, name: str) -> list[dict[str, Any]]:
        """Every line of a jsonl file; a torn or broken one fails."""
        file = self.folder / f"{name}.jsonl"
        text = file.read_text(encoding="utf-8") if file.exists() else ""
        assert text == "" or text.endswith("\n"), f"{name}.jsonl ends in a torn line"
        return [json.loads(line) for line in text.split("\n")[:-1]]

    @property
    def metrics(self) -> list[dict[str, Any]]:
        return self.lines("metrics")

    @property
    def rollouts(self) -> list[dict[str, Any]]:
        return self.lines("rollouts")

    @property
    def evals(self) -> list[dict[str, Any]]:
        return self.lines("evals")

    @property
    def status(self) -> dict[str, Any]:
        return json.loads((self.folder / "status.json").read_text(encoding="utf-8"))

    @property
    def checkpoints(self) -> list[str]:
        return sorted(path.name for path in (self.folder / "checkpoints").iterdir())

    def file(self, name: str) -> bytes:
        """A file of the newest checkpoint."""
        return (self.folder / "checkpoints" / self.checkpoints[-1] / name).read_bytes()

    def series(self, key: str) -> list[Any]:
        return [line[key] for line in self.metrics if key in line]

    @property
    def said(self) -> tuple[str, str | None]:
        return self.status["state"], self.status["stop_reason"]


class Runs:
    """Runs recipes, each call with `output_dir` under `root`."""

    def __init__(self, root: Path) -> None:
        self.root = root

    def recipe(self, *sets: str, base: str = QUICKSTART, place: str = "runs") -> Any:
        """Load `base`, made small if it is ours; what of SMALL stands below a key of `sets` gives way."""
        keys = tuple(text.partition("=")[0] + "." for text in sets)
        small = [text for text in SMALL if base == QUICKSTART and not text.startswith(keys or "=")]
        return load(base, [*small, f"output_dir={self.root / place}", *sets])

    def __call__(self, *sets: str, base: str = QUICKSTART, place: str = "runs", resume: Any = "auto") -> Ran:
        """Run `base` with the small settings and `sets`; `place` keeps runs of equal recipes apart."""
        recipe = self.recipe(*sets, base=base, place=place)
        code = train(recipe, resume=resume)
        return Ran(run_folder(recipe), code)

    def ran(self, *sets: str, base: str = QUICKSTART, place: str = "runs") -> Ran:
        """The run as it lies there, whatever ended it."""
        return Ran(run_folder(self.recipe(*sets, base=base, place=place)), -1)


def once(lines: list[dict[str, Any]]) -> list[int]:
    """The steps of metrics.jsonl, of which each may stand once."""
    counts = Counter(line["step"] for line in lines)
    assert set(counts.values()) <= {1}, counts
    assert list(counts) == sorted(counts), "steps are out of order"
    return list(counts)


def cut_short(runs: Runs, step: int, *sets: str, place: str = "runs") -> Ran:
    """Run into a bug right after `step`, which ends the run as a kill would: nothing is saved."""
    from rlctl.feed import Feed

    following = Feed.next

    def bug(self: Feed, at: int, clock: Any) -> Any:
        if at > step:
            raise ZeroDivisionError
        return following(self, at, clock)

    with pytest.MonkeyPatch.context() as patch, pytest.raises(ZeroDivisionError):
        patch.setattr(Feed, "next", bug)
        runs(*sets, place=place)
    ran = runs.ran(*sets, place=place)
    assert (ran.said, ran.status["step"]) == (("failed", "error"), step)
    return ran


def broken_off(runs: Runs, step: int, *sets: str) -> Ran:
    """Run into a bug right after `step`, then resume."""
    cut_short(runs, step, *sets, place="broken off")
    return runs(*sets, place="broken off")


def same_run(one: Ran, other: Ran) -> None:
    """Weights and optimiser bitwise equal, rewards and rollouts equal, each step once."""
    assert one.checkpoints[-1] == other.checkpoints[-1]
    names = {path.name for path in (one.folder / "checkpoints" / one.checkpoints[-1]).iterdir()}
    for name in names - {"state.json", "DONE"}:
        assert one.file(name) == other.file(name), f"{name} differs"
    for key in ("reward/mean", "train/loss", "train/grad_norm", "budget/tokens", "rollout/length_tokens"):
        assert one.series(key) == other.series(key), key
    assert one.rollouts == other.rollouts
    assert once(one.metrics) == once(other.metrics)
    states = [json.loads(ran.file("state.json")) for ran in (one, other)]
    for key in ("step", "tokens", "source", "control", "stage"):
        assert states[0][key] == states[1][key], key
    for mine, theirs in zip(one.metrics, other.metrics, strict=True):
        keys = {key for key in mine.keys() | theirs.keys() if key.startswith(("control/", "train/"))}
        assert {key: mine.get(key) for key in keys} == {key: theirs.get(key) for key in keys}
