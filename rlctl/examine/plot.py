"""pass@k over k, with its band, as a PNG."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from rlctl.errors import writing


def draw(record: Mapping[str, Any], path: Path) -> None:
    """Draw a curve for each set.

    Raises:
        RunError: the file cannot be written.
    """
    from matplotlib.figure import Figure  # not pyplot: no window system, no global state

    figure = Figure(figsize=(6, 4), layout="constrained")
    axes = figure.subplots()
    for name, found in record["sets"].items():
        k = [int(text) for text in found["pass_at"]]
        value, low, high = ([e[part] for e in found["pass_at"].values()] for part in ("value", "low", "high"))
        (line,) = axes.plot(k, value, "o-", markersize=4, label=name)
        axes.fill_between(k, low, high, color=line.get_color(), alpha=0.2, linewidth=0)
    axes.set_xscale("log", base=2)
    step = "" if record["step"] is None else f", step {record['step']}"
    axes.set(title=f"{record['target']}{step}", xlabel="k", ylabel="pass@k", ylim=(0, 1))
    axes.grid(alpha=0.3)
    axes.legend()
    with writing(f"the plot {path} could not be written", "make room there, then run the same command again"):
        figure.savefig(path, dpi=120)
