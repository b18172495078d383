"""What every controller is: hooks that do nothing unless a controller says otherwise."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from statistics import fmean
from typing import TYPE_CHECKING, Any, ClassVar

if TYPE_CHECKING:
    from torch import Tensor

    from rlctl.algorithm.control.probe import Probe
    from rlctl.batch import GroupStats
    from rlctl.types import Prompt, PromptSource


class Controller:
    """Hooks in time order. `STATE` names the attributes that survive a stop; they are plain JSON."""

    STATE: ClassVar[tuple[str, ...]] = ()

    def __init__(self) -> None:
        self.shown: dict[str, float] = {}  # since `metrics` was called, for people

    def prompts(self, source: PromptSource, n: int) -> list[Prompt] | None:
        """Choose `n` prompts, or leave the choice to the source."""
        return None

    def plan(self, temperature_PG: Tensor, probe: Probe | None) -> Tensor:
        """Change the temperatures of the coming samples."""
        return temperature_PG

    def tune(self, stats: GroupStats, probe: Probe | None) -> GroupStats:
        """Decide columns, before advantages are formed."""
        return stats

    def observe(self, stats: GroupStats) -> None:
        """Learn from a finished step."""

    def state(self) -> dict[str, Any]:
        """Return what survives a stop."""
        return {name: getattr(self, name) for name in self.STATE}

    def restore(self, state: Mapping[str, Any]) -> None:
        """Go on exactly from a `state`."""
        for name in self.STATE:
            setattr(self, name, state[name])

    def metrics(self) -> dict[str, float]:
        """Return the figures of what was decided since the last call, by short names."""
        shown, self.shown = self.shown, {}
        return shown


def spread(name: str, values: Sequence[float]) -> dict[str, float]:
    """Summarise numbers: their mean, least and most."""
    return {f"{name}_mean": fmean(values), f"{name}_min": min(values), f"{name}_max": max(values)}


def average(old: float, new: float, rate: float) -> float:
    """Move a running average toward `new`."""
    return rate * new + (1 - rate) * old
