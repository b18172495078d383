"""The price of leaving the old policy, steered to a wanted divergence."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, ClassVar, Literal

from pydantic import Field

from rlctl.algorithm.control.base import Controller
from rlctl.spec import Spec

if TYPE_CHECKING:
    from rlctl.algorithm.control.probe import Probe
    from rlctl.batch import GroupStats


LEAST, MOST = 1e-3, 1e6  # of lambda


class Price(Spec):
    """lambda of PPO-lambda's target: times 1.5 after a KL above 1.5 `kl`, divided by 1.5 below `kl` / 1.5.

    KL is the mean over prompts of a step's max(0, mean log-prob before - after); a step that changed
    no log-prob leaves lambda as it is. lambda is held in [1e-3, 1e6]. The paper (1804.06461) adapts it
    by a rule that is not published; this is ours.
    """

    kind: Literal["price"] = "price"
    needs: ClassVar[frozenset[str]] = frozenset({"old_logp", "logp_after"})
    start: float = Field(5.0, gt=0)
    kl: float = Field(0.01, gt=0)
    factor: float = Field(1.5, gt=1)

    def build(self, seed: int) -> Controller:
        """Make the controller."""
        return _Pricer(self)


class _Pricer(Controller):
    STATE = ("price",)

    def __init__(self, spec: Price) -> None:
        super().__init__()
        self.spec = spec
        self.price = spec.start

    def tune(self, stats: GroupStats, probe: Probe | None) -> GroupStats:
        self.shown = {"price": self.price}
        return replace(stats, price=self.price)

    def observe(self, stats: GroupStats) -> None:
        assert stats.drift_PG is not None
        if not stats.drift_PG.any():  # no update was made, so its KL says nothing of lambda
            return
        kl = stats.kl_step()
        if kl > self.spec.factor * self.spec.kl:
            self.price = min(self.price * self.spec.factor, MOST)
        elif kl < self.spec.kl / self.spec.factor:
            self.price = max(self.price / self.spec.factor, LEAST)
