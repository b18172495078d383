"""Bounds of the ratio that follow the policy's uncertainty."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Annotated, ClassVar, Literal

from pydantic import AfterValidator, Field

from rlctl.algorithm.control.base import Controller, average, spread
from rlctl.spec import Spec, ordered

if TYPE_CHECKING:
    from rlctl.algorithm.control.probe import Probe
    from rlctl.batch import GroupStats

Positive = Annotated[float, Field(gt=0)]


def _rising(pair: tuple[float, float]) -> tuple[float, float]:
    if pair[0] > pair[1]:
        raise ValueError(f"begins at {pair[0]:g}, above its end {pair[1]:g}\nwrite [least, most]")
    return pair


Range = Annotated[tuple[Positive, Positive], Field(strict=False), AfterValidator(_rising)]


class Clip(Spec):
    """e = base * h * (1 + vote_weight E) / (1 + dispersion_weight s + kl_weight K + skew_weight |k|) (AGPO).

    E vote entropy, s spread and k skewness of a prompt's probe; h = the policy's entropy at
    temperature 1 on the prompt's samples against its running mean, held in `entropy_range`; K the
    running mean of a step's KL, max(0, mean log-prob before - after). e is held in [low, high]. The
    abstract names skewness, the authors' code weighs it 0. Source: 2605.20722.
    """

    kind: Literal["clip"] = "clip"
    needs: ClassVar[frozenset[str]] = frozenset({"probe", "old_logp", "entropy_t1", "logp_after"})
    base: float = Field(0.2, gt=0)
    low: float = Field(0.05, ge=0)
    high: float = Field(0.4, gt=0)
    dispersion_weight: float = Field(1.0, ge=0)
    kl_weight: float = Field(0.5, ge=0)
    vote_weight: float = Field(0.1, ge=0)
    skew_weight: float = Field(0.0, ge=0)
    entropy_range: Range = (0.5, 1.5)
    kl_rate: float = Field(0.1, gt=0, le=1)
    entropy_rate: float = Field(0.01, gt=0, le=1)
    _ordered = ordered("low", "high")

    def build(self, seed: int) -> Controller:
        """Make the controller."""
        return _Clipper(self)

    def bound(self, heat: float, *, votes: float, dispersion: float, kl: float, skewness: float) -> float:
        """Return e, for a ratio of entropies `heat` that is already held in its range."""
        wider = self.base * heat * (1 + self.vote_weight * votes)
        tighter = (
            1 + self.dispersion_weight * dispersion + self.kl_weight * kl + self.skew_weight * abs(skewness)
        )
        return min(max(wider / tighter, self.low), self.high)


class _Clipper(Controller):
    STATE = ("usual_entropy", "usual_kl")

    def __init__(self, spec: Clip) -> None:
        super().__init__()
        self.spec = spec
        self.usual_entropy = 0.0
        self.usual_kl = 0.0

    def tune(self, stats: GroupStats, probe: Probe | None) -> GroupStats:
        assert probe is not None and stats.entropy_t1_PG is not None, "the controller `clip` needs a probe"
        entropies = stats.token_mean(stats.entropy_t1_PG).tolist()
        signs = zip(
            probe.votes_P.tolist(), probe.dispersion_P.tolist(), probe.skewness_P.tolist(), strict=True
        )
        bounds = [
            self.spec.bound(
                self.heat(entropy), votes=votes, dispersion=dispersion, kl=self.usual_kl, skewness=skewness
            )
            for entropy, (votes, dispersion, skewness) in zip(entropies, signs, strict=True)
        ]
        self.shown = {
            **spread("bound", bounds),
            "usual_entropy": self.usual_entropy,
            "usual_kl": self.usual_kl,
        }
        return replace(stats, clip_P=stats.reward_PG.new_tensor(bounds))

    def heat(self, entropy: float) -> float:
        """Return h of one prompt, then let its entropy into the running mean."""
        low, high = self.spec.entropy_range
        first = self.usual_entropy <= 1e-8
        usual = entropy if first else self.usual_entropy
        self.usual_entropy = entropy if first else average(usual, entropy, self.spec.entropy_rate)
        return min(max(entropy / (usual + 1e-8), low), high)

    def observe(self, stats: GroupStats) -> None:
        kl = stats.kl_step()
        self.usual_kl = average(self.usual_kl, kl, self.spec.kl_rate)
