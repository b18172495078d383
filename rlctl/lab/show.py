"""A finding on a terminal, as JSON and as a PNG."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Any

from rlctl.errors import UserError, writing

if TYPE_CHECKING:
    from matplotlib.axes import Axes

    from rlctl.lab.finding import Finding, Panel

PIPE_WIDTH = 160  # characters; a table in a file is not cut to 80


def target(plot: Path | None, experiment: str) -> Path:
    """Return where the plot goes, its folder made: a bad path is refused before any work is done.

    Raises:
        UserError: not a PNG, or the folder cannot be made.
    """
    path = plot or Path("runs/lab") / f"{experiment}.png"
    if path.suffix != ".png":
        raise UserError(f"--plot {path}: plots are PNG files", "give a name that ends in .png")
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise UserError(f"--plot {path}: its folder cannot be made: {error.strerror}") from None
    return path


def present(facts: dict[str, Any], finding: Finding, path: Path, as_json: bool) -> None:
    """Draw the plot, then print JSON (`facts` and the tables) or the tables."""
    draw(finding, path)
    tables = {name: [dict(row) for row in rows] for name, rows in finding.tables.items()}
    if as_json:
        print(json.dumps({**facts, "plot": str(path), "tables": tables}, indent=2, allow_nan=False))
        return
    from rich.console import Console
    from rich.table import Table

    terminal = Console(highlight=False)
    if not terminal.is_terminal:
        terminal = Console(highlight=False, width=PIPE_WIDTH)
    for name, rows in tables.items():
        table = Table(title=name.replace("_", " "), title_justify="left")
        for column in rows[0]:
            table.add_column(column.replace("_", " "), justify="right")
        for row in rows:
            table.add_row(*map(_cell, row.values()))
        terminal.print(table)
    print(f"plot: {path}")


def _cell(value: float | int | str) -> str:
    if isinstance(value, float):
        return f"{value:.4g}"
    return f"{value:,}" if isinstance(value, int) else value


def draw(finding: Finding, path: Path) -> None:
    """Write the panels side by side.

    Raises:
        RunError: the file cannot be written.
    """
    from matplotlib.figure import Figure  # not pyplot: no window system, no global state

    figure = Figure(figsize=(6 * len(finding.panels), 4), layout="constrained")
    for axes, panel in zip(
        figure.subplots(1, len(finding.panels), squeeze=False)[0], finding.panels, strict=True
    ):
        _axes(axes, panel)
    with writing(f"the plot {path} could not be written", "give another place with --plot"):
        figure.savefig(path, dpi=120)


def _axes(axes: Axes, panel: Panel) -> None:
    colour: Any = None
    for curve in panel.curves:
        if curve.label:
            (line,) = axes.plot(curve.x, curve.y, "-" if curve.joined else "o", label=curve.label)
            colour = line.get_color()
        else:  # belongs to the curve before it
            axes.plot(curve.x, curve.y, "o", color=colour, markersize=4)
    if panel.log_x:
        axes.set_xscale("log", base=2)
    axes.set(title=panel.title, xlabel=panel.x, ylabel=panel.y)
    axes.grid(alpha=0.3)
    axes.legend()
