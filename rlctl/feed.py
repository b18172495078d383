"""What each step trains on: fresh rollouts, or the next of a stage that was collected ahead."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import nullcontext
from pathlib import Path
from typing import Any

import torch

from rlctl.algorithm import Algorithm
from rlctl.algorithm.control import Controls
from rlctl.batch import Batch, GroupStats
from rlctl.clock import Clock
from rlctl.parts import Parts
from rlctl.rollout import Rollout, RolloutSpec, Sampling
from rlctl.stage import Harvest, Stage
from rlctl.types import Group, Prompt

ROWS_AT_ONCE = 4096  # completions of one call to the engine: bounds memory however long a stage is


class Choices:
    """The algorithm's part in sampling: which prompts, how hot, which groups."""

    def __init__(self, algorithm: Algorithm, controls: Controls, source: Any, spec: RolloutSpec) -> None:
        self.algorithm = algorithm
        self.controls = controls
        self.source = source
        self.spec = spec
        probe = algorithm.probe
        self.probe_samples = 0 if probe is None else probe.samples or spec.group_size

    def prompts(self, n: int) -> list[Prompt]:
        """Choose the next `n` prompts."""
        return self.controls.prompts(self.source, n)

    def temperatures(self, prompts: int, probes: Sequence[Group]) -> list[list[float]] | None:
        """Choose a temperature for every sample of every prompt."""
        probe = self.algorithm.probe.measure(probes) if self.algorithm.probe else None
        shape = prompts, self.spec.group_size
        base_PG = torch.full(shape, self.spec.temperature, dtype=torch.float64)
        planned: list[list[float]] = self.controls.plan(base_PG, probe).tolist()
        return planned

    def admit(self, groups: Sequence[Group]) -> list[bool]:
        """Say which groups are trained on."""
        if not groups:
            return []
        admitted: list[bool] = self.algorithm.admit(self.stats(groups)).tolist()
        return admitted

    def stats(self, groups: Sequence[Group]) -> GroupStats:
        """Return the statistics of groups."""
        return GroupStats.of(groups, self.spec.max_completion_length)


class Feed:
    """Supplies steps in order. With `staging.ahead` L it samples for L of them when it is empty.

    Args:
        parts: of the run.
        spec: the section `rollout`.
        last: `budget.steps`, so that nothing is sampled for steps that will not come.
        folder: `stage/` of the run.
    """

    def __init__(self, parts: Parts, spec: RolloutSpec, last: int | None, folder: Path) -> None:
        self.parts = parts
        self.spec = spec
        self.last = last
        self.choices = Choices(parts.algorithm, parts.controls, parts.source, spec)
        self.stage = Stage(folder, parts.source.get, self._lay_out)
        self.until = 0  # steps up to this one are collected

    def next(self, step: int, clock: Clock) -> Harvest:
        """Return what `step` trains on, sampled now if it was not collected before."""
        if self.parts.algorithm.staging.ahead == 1:
            [harvest] = self._sample(step, step, 1, clock)
            self.until = step
            return harvest
        if step > self.until:
            self._collect(step, clock)
        return self.stage.read(step)

    def _collect(self, began: int, clock: Clock) -> None:
        """Write down the steps of one stage; the first is written last and pays for all."""
        harvests = self._harvests(began, clock)
        step, first = began, next(harvests)
        for step, harvest in enumerate(harvests, began + 1):
            first.rollout.pay_for(harvest.rollout)
            self.stage.write(step, harvest)
        self.stage.write(began, first)
        self.until = step

    def _harvests(self, began: int, clock: Clock) -> Iterator[Harvest]:
        """Sample and score the steps of one stage, some at a time."""
        end = began + self.parts.algorithm.staging.ahead
        end = end if self.last is None else min(end, self.last + 1)
        at_once = max(ROWS_AT_ONCE // (self.spec.prompts_per_step * self.spec.group_size), 1)
        step = began
        while step < end:
            count = min(at_once, end - step)
            found = self._sample(began, step, count, clock)
            yield from found
            step += len(found)
            if len(found) < count or not found[-1].batch:  # nothing left to admit: the stage ends early
                break

    def _sample(self, began: int, step: int, steps: int, clock: Clock) -> list[Harvest]:
        P = self.spec.prompts_per_step
        rollout = self.parts.collector.fill(
            self.choices, Sampling.of(self.spec), step, P * steps, self.spec.max_refills
        )
        self.parts.guard.observe(s.verdict for group in rollout.sampled for s in group.samples)
        cut = rollout.steps(P)
        rest = self.parts.engine.resting() if self.parts.algorithm.needs else nullcontext()
        with clock("sync"), rest, clock("score"):
            return [self._score(each, began) for each in cut]

    def _score(self, rollout: Rollout, began: int) -> Harvest:
        if not rollout.groups:
            return Harvest(rollout, None, None, began)
        batch = self.parts.learner.score(self._lay_out(rollout.groups), self.parts.algorithm.needs)
        probe = self.parts.algorithm.probe
        return Harvest(rollout, batch, probe.measure(rollout.probes) if probe else None, began)

    def _lay_out(self, groups: Sequence[Group]) -> Batch:
        return self.parts.algorithm.pack(groups, self.choices.stats(groups))
