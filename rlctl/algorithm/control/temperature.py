"""Who is sampled at which temperature."""

from __future__ import annotations

from statistics import fmean
from typing import TYPE_CHECKING, Annotated, ClassVar, Literal

from pydantic import Field

from rlctl.algorithm.control.base import Controller, average, spread
from rlctl.spec import Seq, Spec, ordered

if TYPE_CHECKING:
    from torch import Tensor

    from rlctl.algorithm.control.probe import Probe


class Temperature(Spec):
    """Heats prompts that are more uncertain than usual, cools the others (AGPO, 2605.20722).

    U = dispersion_weight * spread + vote_weight * vote entropy + skew_weight * |skewness| of the
    probe; u = (U - mean U) / mean U against a running mean (0 at the first informative prompt);
    temperature = base * (1 + strength * u), in [low, high]. Prompts are taken in order. The abstract
    names skewness, the authors' code weighs it 0.
    """

    kind: Literal["temperature"] = "temperature"
    needs: ClassVar[frozenset[str]] = frozenset({"probe"})
    low: float = Field(0.5, gt=0)
    high: float = Field(1.5, gt=0)
    strength: float = Field(0.15, ge=0)
    dispersion_weight: float = Field(1.0, ge=0)
    vote_weight: float = Field(1.0, ge=0)
    skew_weight: float = Field(0.0, ge=0)
    rate: float = Field(0.1, gt=0, le=1)  # of the running mean
    _ordered = ordered("low", "high")

    def build(self, seed: int) -> Controller:
        """Make the controller."""
        return _Heater(self)


class _Heater(Controller):
    STATE = ("usual",)

    def __init__(self, spec: Temperature) -> None:
        super().__init__()
        self.spec = spec
        self.usual = 0.0  # running mean of the uncertainty
        self.planned: list[float] = []  # since `metrics` was called: a step may plan several times
        self.uncertainty: list[float] = []

    def plan(self, temperature_PG: Tensor, probe: Probe | None) -> Tensor:
        assert probe is not None, "the controller `temperature` needs a probe"
        spec = self.spec
        uncertainty_P = (
            spec.dispersion_weight * probe.dispersion_P
            + spec.vote_weight * probe.votes_P
            + spec.skew_weight * probe.skewness_P.abs()
        )
        factors = [1 + spec.strength * self.center(value) for value in uncertainty_P.tolist()]
        planned_PG = temperature_PG * temperature_PG.new_tensor(factors)[:, None]
        planned_PG = planned_PG.clamp(spec.low, spec.high)
        self.planned += planned_PG.flatten().tolist()
        self.uncertainty += uncertainty_P.tolist()
        return planned_PG

    def metrics(self) -> dict[str, float]:
        planned, uncertainty, self.planned, self.uncertainty = self.planned, self.uncertainty, [], []
        return {**spread("planned", planned), "uncertainty": fmean(uncertainty)} if planned else {}

    def center(self, uncertainty: float) -> float:
        """Return u of one prompt, then let it into the running mean."""
        if self.usual <= 1e-8:
            self.usual = uncertainty
            return 0.0
        centred = (uncertainty - self.usual) / (self.usual + 1e-8)
        self.usual = average(self.usual, uncertainty, self.spec.rate)
        return centred


class Slots(Spec):
    """Gives the members of each group temperatures of a list, in equal shares (MDP-GRPO, 2606.06058)."""

    kind: Literal["slots"] = "slots"
    needs: ClassVar[frozenset[str]] = frozenset()
    temperatures: Seq[Annotated[float, Field(gt=0)]] = Field((0.1, 0.4, 0.7, 1.0), min_length=1)

    def build(self, seed: int) -> Controller:
        """Make the controller."""
        return _Slots(self)


class _Slots(Controller):
    def __init__(self, spec: Slots) -> None:
        super().__init__()
        self.spec = spec

    def plan(self, temperature_PG: Tensor, probe: Probe | None) -> Tensor:
        G, values = temperature_PG.shape[1], self.spec.temperatures
        row_G = temperature_PG.new_tensor([values[g * len(values) // G] for g in range(G)])
        return row_G.expand_as(temperature_PG)
