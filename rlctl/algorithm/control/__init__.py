"""Controllers: the only stages with a state. Four hooks in the order of a step; state is plain JSON."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Annotated, Any

from pydantic import Field

from rlctl.algorithm.control.clip import Clip
from rlctl.algorithm.control.collapse import Collapse
from rlctl.algorithm.control.focus import Focus
from rlctl.algorithm.control.price import Price
from rlctl.algorithm.control.temperature import Slots, Temperature

if TYPE_CHECKING:
    from torch import Tensor

    from rlctl.algorithm.control.probe import Probe
    from rlctl.batch import GroupStats
    from rlctl.types import Prompt, PromptSource

AnyControl = Annotated[Temperature | Slots | Clip | Collapse | Focus | Price, Field(discriminator="kind")]


class Controls:
    """All controllers of a run, each hook in the order of the list."""

    def __init__(self, specs: Iterable[AnyControl], seed: int) -> None:
        self._each = {str(spec.kind): spec.build(seed) for spec in specs}

    def prompts(self, source: PromptSource, n: int) -> list[Prompt]:
        """Return this step's next `n` prompts, a controller's choice or the source's."""
        for each in self._each.values():
            if (chosen := each.prompts(source, n)) is not None:
                return chosen
        return source.take(n)

    def plan(self, temperature_PG: Tensor, probe: Probe | None) -> Tensor:
        """Return the temperature of every completion that will be sampled."""
        for each in self._each.values():
            temperature_PG = each.plan(temperature_PG, probe)
        return temperature_PG

    def tune(self, stats: GroupStats, probe: Probe | None) -> GroupStats:
        """Return the statistics with what controllers decide: bounds, virtual rewards, prices."""
        for each in self._each.values():
            stats = each.tune(stats, probe)
        return stats

    def observe(self, stats: GroupStats) -> None:
        """Learn from a finished step."""
        for each in self._each.values():
            each.observe(stats)

    def state(self) -> dict[str, Any]:
        """Return every controller's state by kind."""
        return {kind: each.state() for kind, each in self._each.items()}

    def restore(self, state: Mapping[str, Mapping[str, Any]]) -> None:
        """Go on exactly from a `state`."""
        for kind, each in self._each.items():
            each.restore(state[kind])

    def metrics(self) -> dict[str, float]:
        """Return `control/<kind>/<name>` of what was decided since the last call.

        So a step that was sampled ahead shows no temperatures, resumed or not.
        """
        return {
            f"control/{kind}/{name}": value
            for kind, each in self._each.items()
            for name, value in each.metrics().items()
        }
