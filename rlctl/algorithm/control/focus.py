"""A second step on the most valuable questions of the first."""

from __future__ import annotations

from contextlib import suppress
from itertools import cycle, islice
from typing import TYPE_CHECKING, ClassVar, Literal

from pydantic import Field

from rlctl.algorithm.control.base import Controller
from rlctl.algorithm.reweight import codapo_value
from rlctl.spec import Spec

if TYPE_CHECKING:
    from rlctl.batch import GroupStats
    from rlctl.types import Prompt, PromptSource


class Focus(Spec):
    """Every second step samples anew for the questions of highest value in the step before (CoDaPO).

    `select: quantile` (the authors' code) keeps values of at least the `quantile` and takes each
    kept question `repeat` times, until the step is full, then from the beginning; `top` (the paper
    and the authors' pull request) takes the `top` best in turn. Both steps count as steps and are
    charged to the budget. Source: 2606.07950.
    """

    kind: Literal["focus"] = "focus"
    needs: ClassVar[frozenset[str]] = frozenset({"old_logp"})
    select: Literal["quantile", "top"] = "quantile"
    quantile: float = Field(0.75, ge=0, lt=1)
    repeat: int = Field(4, ge=1)
    top: int = Field(4, ge=1)

    def build(self, seed: int) -> Controller:
        """Make the controller."""
        return _Focus(self)

    def order(self, uids: tuple[str, ...], values: list[float]) -> list[str]:
        """Return the questions of a focused step as they are taken, once through."""
        if self.select == "top":
            best = sorted(range(len(uids)), key=lambda p: -values[p])[: self.top]
            return [uids[p] for p in best]
        import torch

        limit = float(torch.tensor(values, dtype=torch.float64).quantile(self.quantile))
        return [
            uid for uid, value in zip(uids, values, strict=True) if value >= limit for _ in range(self.repeat)
        ]


class _Focus(Controller):
    STATE = ("chosen",)

    def __init__(self, spec: Focus) -> None:
        super().__init__()
        self.spec = spec
        self.chosen: list[str] = []  # questions of the coming step; none: the source's

    def prompts(self, source: PromptSource, n: int) -> list[Prompt] | None:
        found = []
        for uid in self.chosen:
            with suppress(KeyError):  # the data may have changed since, where that was accepted
                found.append(source.get(uid))
        self.chosen = [prompt.uid for prompt in found]
        return list(islice(cycle(found), n)) if found else None

    def observe(self, stats: GroupStats) -> None:
        value_P = codapo_value(stats)[:, 0]
        self.shown = {
            "focused": float(bool(self.chosen)),
            "questions": len(set(self.chosen) or set(stats.uid_P)),
            "value": float(value_P.mean()),
        }
        self.chosen = [] if self.chosen else self.spec.order(stats.uid_P, value_P.tolist())
