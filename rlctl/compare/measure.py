"""What a setting reached: the last evaluation of each finished seed."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from statistics import fmean
from typing import Any, Self

from rlctl.errors import UserError
from rlctl.evaluate.estimate import Interval, over_seeds
from rlctl.results import Result, Setting


@dataclass(frozen=True)
class Side:
    """The finished runs of a setting, by seed."""

    label: str
    results: Mapping[int, Result]
    left_out: tuple[str, ...]  # what is not finished, or was not evaluated

    @classmethod
    def of(cls, setting: Setting) -> Self:
        """Take what is finished and evaluated.

        Raises:
            UserError: nothing is.
        """
        usable = {result.seed: result for result in setting.results if result.finished and result.evals}
        missing = [result for result in setting.results if result not in usable.values()]
        if not usable:
            raise UserError(
                f"{setting.label}: no run of it is finished and evaluated",
                "let it finish, with something in eval.sets",
            )
        left_out = (
            f"{setting.label}, {r.folder.name}: {r.status.get('state', 'not begun')}" for r in missing
        )
        return cls(setting.label, usable, tuple(left_out))

    def common(self, other: Side) -> list[int]:
        """Return the seeds that both have.

        Raises:
            UserError: there is none.
        """
        seeds = sorted(self.results.keys() & other.results.keys())
        if not seeds:
            raise UserError(
                f"{self.label} and {other.label} have no seed in common",
                "run both with the same seeds: pairs are made seed by seed",
            )
        return seeds

    def value(self, seed: int, metric: str) -> float:
        """Return what the seed's run reached at its end."""
        return _value(self.results[seed].evals[-1], metric)

    def gain(self, seed: int, metric: str) -> float | None:
        """Return its gain since before training for a million generated tokens; None if that is not known."""
        first, last = self.results[seed].evals[0], self.results[seed].evals[-1]
        name = metric.rpartition("/")[0]
        if first["step"] or _of(first, name) != _of(last, name):
            return None
        tokens = float(self.results[seed].status["tokens"])
        return (_value(last, metric) - _value(first, metric)) / tokens * 1e6

    def tokens(self, seeds: Sequence[int]) -> float:
        """Return how many tokens a run generated, mean over seeds."""
        return fmean(self.results[seed].status["tokens"] for seed in seeds)


def measures(sides: Sequence[Side]) -> list[str]:
    """Return the `SET/pass@K` that all have at the end of all their runs, the smallest k of each set first.

    Raises:
        UserError: there is none.
    """
    ends = [result.evals[-1]["sets"] for side in sides for result in side.results.values()]
    names = [f"{name}/pass@{k}" for name, found in ends[0].items() for k in sorted(found["pass_at"], key=int)]
    shared = [name for name in names if all(_has(sets, name) for sets in ends)]
    if not shared:
        raise UserError(
            "they have no evaluation in common", "give all of them the same eval.sets and eval.pass_at"
        )
    return shared


def same_problems(first: Side, second: Side, metric: str) -> None:
    """Check that every seed's pair was asked the same in the same way.

    Raises:
        UserError: it was not.
    """
    name = metric.rpartition("/")[0]
    for seed in first.common(second):
        if len({_of(side.results[seed].evals[-1], name) for side in (first, second)}) > 1:
            raise UserError(
                f"{first.label} and {second.label}, seed {seed}: {name} was not asked in the same way",
                "give both the same eval.sets, template and eval settings",
            )


def per_million_tokens(first: Side, second: Side, metric: str) -> Interval | None:
    """Return how much more second gains for a million generated tokens, over seeds."""
    gains = [
        (a, b)
        for seed in first.common(second)
        if (a := first.gain(seed, metric)) is not None and (b := second.gain(seed, metric)) is not None
    ]
    return over_seeds([b - a for a, b in gains]) if gains else None


def _has(sets: Mapping[str, Any], metric: str) -> bool:
    name, _, k = metric.rpartition("/pass@")
    return k in sets.get(name, {}).get("pass_at", {})


def _value(record: Mapping[str, Any], metric: str) -> float:
    name, _, k = metric.rpartition("/pass@")
    return float(record["sets"][name]["pass_at"][k]["value"])


def _of(record: Mapping[str, Any], name: str) -> Any:
    return record["sets"].get(name, {}).get("of")
