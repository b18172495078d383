"""Virtual rewards for groups whose answers are all right or all wrong."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import replace
from random import Random
from typing import TYPE_CHECKING, ClassVar, Literal, Self

from pydantic import Field, model_validator

from rlctl.algorithm import moments
from rlctl.algorithm.control.base import Controller, average
from rlctl.seeds import derive_seed
from rlctl.spec import Spec

if TYPE_CHECKING:
    from torch import Tensor

    from rlctl.algorithm.control.probe import Probe
    from rlctl.batch import GroupStats

Values = Literal["stratified", "random", "partial", "decay"]
ROUNDING = 1e-9  # running means of a constant reward differ by less


class Collapse(Spec):
    """K virtual rewards join the statistics of each collapsed group while ACR > threshold (AVSPO).

    ACR is the share of groups whose verifier rewards have std < 1e-6. Of G answers:

    * `count: power`: K = ceil(G ACR^alpha), in 1..G; `linear`: K = ceil(ACR G alpha), the other digest
    * `values` of an all-wrong group, above its reward: `stratified` anchor k / K; `decay` anchor
      2^(1 - k); `partial` 0.5 each; `random` uniform in (0, 1)
    * of an all-correct group, below its reward: k / (K + 1); 2^-k; 0.5; uniform
    * `repair`: which groups

    The threshold falls by `rate`, to no less than `floor`, after a step with ACR > `watch` and a
    reward whose fast mean is not above its slow mean; it never rises. `threshold: 0, rate: 0`
    repairs always. Spacing, decay, partial credit and the rule of the threshold are derived: the
    paper (2605.21125) is known in words only.
    """

    kind: Literal["collapse"] = "collapse"
    needs: ClassVar[frozenset[str]] = frozenset()
    values: Values = "stratified"
    repair: Literal["both", "wrong", "correct"] = "both"
    count: Literal["power", "linear"] = "power"
    alpha: float = Field(0.5, gt=0)
    anchor: float = Field(0.1, gt=0)
    threshold: float = Field(0.5, ge=0, le=1)
    rate: float = Field(0.01, ge=0)
    floor: float = Field(0.05, ge=0)
    watch: float = Field(0.2, ge=0)
    fast: float = Field(0.1, gt=0, le=1)
    slow: float = Field(0.02, gt=0, le=1)

    @model_validator(mode="after")
    def _can_fall(self) -> Self:
        if self.rate > 0 and self.floor > self.threshold:
            raise ValueError(
                f"floor is {self.floor:g}, above threshold, which is {self.threshold:g}: it could never fall"
                "\nset rate: 0 to keep the threshold, or floor <= threshold"
            )
        return self

    def build(self, seed: int) -> Controller:
        """Make the controller."""
        return _Repairer(self, seed)

    def number(self, acr: float, size: int) -> int:
        """Return K."""
        wanted = size * acr**self.alpha if self.count == "power" else acr * size * self.alpha
        return max(1, min(size, math.ceil(wanted - 1e-12)))

    def offsets(self, correct: bool, K: int, draw: Callable[[], float]) -> list[float]:
        """Return the distances of the virtual rewards from the group's own."""
        layers = range(1, K + 1)
        if self.values == "partial":
            sizes = [0.5] * K
        elif self.values == "random":
            sizes = [draw() for _ in layers]
        elif self.values == "decay":
            sizes = [2.0**-k if correct else self.anchor * 2.0 ** (1 - k) for k in layers]
        else:
            sizes = [k / (K + 1) if correct else self.anchor * k / K for k in layers]
        return [-size if correct else size for size in sizes]


class _Repairer(Controller):
    STATE = ("threshold", "fast", "slow", "steps")

    def __init__(self, spec: Collapse, seed: int) -> None:
        super().__init__()
        self.spec = spec
        self.seed = seed
        self.threshold = spec.threshold
        self.fast: float | None = None  # running means of the reward
        self.slow: float | None = None
        self.steps = 0

    def tune(self, stats: GroupStats, probe: Probe | None) -> GroupStats:
        acr, size = collapse_rate(stats), stats.verifier_PG.shape[1]
        fired = acr > self.threshold
        K = self.spec.number(acr, size) if fired else 0
        self.shown = {"acr": acr, "threshold": self.threshold, "fired": float(fired), "virtual_rewards": K}
        return replace(stats, virtual_PV=self._virtual(stats, K)) if fired else stats

    def observe(self, stats: GroupStats) -> None:
        spec, acr = self.spec, collapse_rate(stats)
        reward = float(stats.verifier_PG.nanmean())
        if math.isfinite(reward):
            self.fast = reward if self.fast is None else average(self.fast, reward, spec.fast)
            self.slow = reward if self.slow is None else average(self.slow, reward, spec.slow)
            if self.fast <= self.slow + ROUNDING and acr > spec.watch:
                self.threshold = min(self.threshold, max(self.threshold - spec.rate, spec.floor))
        self.steps += 1

    def _virtual(self, stats: GroupStats, K: int) -> Tensor:
        draw = Random(derive_seed(self.seed, "virtual", self.steps)).random
        mean_P = stats.verifier_PG.nanmean(1).tolist()
        rows = []
        for p, collapsed in enumerate(_collapsed(stats).tolist()):
            correct = bool(stats.correct_PG[p].any())
            wanted = collapsed and self.spec.repair in ("both", "correct" if correct else "wrong")
            offsets = self.spec.offsets(correct, K, draw) if wanted else [math.nan] * K
            rows.append([mean_P[p] + offset for offset in offsets])
        return stats.verifier_PG.new_tensor(rows)


def collapse_rate(stats: GroupStats) -> float:
    """Return ACR: the share of groups whose verifier rewards do not differ."""
    return float((~moments.varies(stats.verifier_PG)).double().mean())


def _collapsed(stats: GroupStats) -> Tensor:
    """Tell which groups have equal rewards of at least two judged answers, P bool."""
    return (~moments.varies(stats.verifier_PG) & (moments.judged(stats.verifier_PG) > 1))[:, 0]
