"""What a run may use: steps, generated tokens, minutes (the first one reached ends it), and processors."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Annotated, Literal

from pydantic import Field

from rlctl.spec import Spec


class BudgetSpec(Spec):
    """Section `budget`; at least one is set."""

    steps: int | None = Field(None, ge=1)
    tokens: int | None = Field(None, ge=1)  # generated for training, probes and dropped groups included
    minutes: float | None = Field(None, gt=0)  # of running, stops not counted


class EarlyStopSpec(Spec):
    """Section `early_stop`: end the run once a metric of `metrics.jsonl` reaches a threshold."""

    metric: str
    threshold: float

    def reached(self, metrics: Mapping[str, float]) -> bool:
        """Say whether this step's metrics end the run; a step without the metric does not."""
        return self.metric in metrics and metrics[self.metric] >= self.threshold


class ResourcesSpec(Spec):
    """Section `resources`: fixed thread counts are part of what makes a run repeatable."""

    cpus: Literal["auto"] | Annotated[int, Field(ge=1)] = (
        "auto"  # threads of the arithmetic; auto: all that are allowed
    )
    gpus: Literal["auto"] | Annotated[int, Field(ge=0, le=1)] = "auto"  # auto: one if there is one


@dataclass
class Budget:
    """What a run has used. Seconds add up over resumes."""

    spec: BudgetSpec
    steps: int = 0
    tokens: int = 0
    seconds_before: float = 0.0
    clock: Callable[[], float] = time.monotonic
    started: float = field(init=False)

    def __post_init__(self) -> None:
        self.started = self.clock()

    @property
    def seconds(self) -> float:
        """Seconds of running, all sessions of the run together."""
        return self.seconds_before + self.clock() - self.started

    def resume(self, steps: int, tokens: int, seconds: float) -> None:
        """Go on from what earlier sessions of the run used; the clock starts now."""
        self.steps, self.tokens, self.seconds_before = steps, tokens, seconds
        self.started = self.clock()

    def charge(self, tokens: int) -> None:
        """Count one finished step and the tokens generated for it."""
        self.steps += 1
        self.tokens += tokens

    def spent(self, inside_stage: bool = False) -> str | None:
        """Return the stop reason once a limit is reached: steps, tokens or minutes.

        Inside a stage its tokens are paid already, so they end the run only once they are used.
        """
        limits = {
            "steps": (self.steps, self.spec.steps),
            "tokens": (self.tokens, self.spec.tokens),
            "minutes": (self.seconds / 60, self.spec.minutes),
        }
        return next(
            (
                name
                for name, (used, limit) in limits.items()
                if limit is not None and used >= limit and not (inside_stage and name == "tokens")
            ),
            None,
        )
