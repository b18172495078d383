"""The verbs of `rlctl lab`."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable
from enum import StrEnum
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, TypeVar

import typer

from rlctl.errors import UserError
from rlctl.lab import show

if TYPE_CHECKING:
    from rlctl.lab.finding import Finding

lab = typer.Typer(no_args_is_help=True, rich_markup_mode=None)

Seed = Annotated[int, typer.Option(min=0, help="Seed of all that is drawn.")]
Trials = Annotated[int, typer.Option(min=1, max=200_000, help="Groups drawn for each figure.")]
Plot = Annotated[Path | None, typer.Option(metavar="FILE", help="Where the plot goes; a PNG.")]
AsJson = Annotated[bool, typer.Option("--json", help="Write JSON alone to standard output.")]
Number = TypeVar("Number", int, float)
MOST = 2**24  # of a list's numbers


class Form(StrEnum):
    """How the probability of an action enters the loss of `categorical`."""

    ratio = "ratio"
    literal = "literal"


@lab.command("tail-miss")
def tail_miss(trials: Trials = 20_000, seed: Seed = 0, plot: Plot = None, as_json: AsJson = False) -> None:
    """Groups that learn and yet miss the rare correct answers."""
    from rlctl.lab.tail_miss import run

    _report("tail-miss", run, plot, as_json, trials=trials, seed=seed)


@lab.command()
def collapse(trials: Trials = 20_000, seed: Seed = 0, plot: Plot = None, as_json: AsJson = False) -> None:
    """Groups whose rewards are all equal, and virtual rewards."""
    from rlctl.lab.collapse import run

    _report("collapse", run, plot, as_json, trials=trials, seed=seed)


@lab.command()
def clip(
    group_size: Annotated[int, typer.Option(min=2, max=1024, help="Answers a prompt.")] = 8,
    plot: Plot = None,
    as_json: AsJson = False,
) -> None:
    """Bounds of the ratio that GAPO and AGPO choose."""
    from rlctl.lab.clip import run

    _report("clip", run, plot, as_json, group_size=group_size)


@lab.command()
def rank(
    prompts: Annotated[int, typer.Option(min=1, max=10_000, help="Groups of 16 to sample.")] = 24,
    seed: Seed = 0,
    plot: Plot = None,
    as_json: AsJson = False,
) -> None:
    """How many directions the gradients of a group's answers span."""
    from rlctl.lab.rank import run

    _report("rank", partial(run, say=_say), plot, as_json, prompts=prompts, seed=seed)


@lab.command()
def categorical(  # noqa: PLR0913 - a verb's options are its arguments
    actions: Annotated[int, typer.Option(min=128, max=1_280_000, help="10 of 128 are correct.")] = 12_800,
    form: Annotated[Form, typer.Option(help="ratio: p / sg(p) in the loss; literal: p.")] = Form.ratio,
    sizes: Annotated[str, typer.Option(metavar="N,N", help="Group sizes; else some of each regime.")] = "",
    gammas: Annotated[str, typer.Option(metavar="G,G", help="Focal exponents.")] = "0,1",
    seeds: Annotated[int, typer.Option(min=1, max=100, help="Runs of each, from --seed on.")] = 1,
    seed: Seed = 0,
    plot: Plot = None,
    as_json: AsJson = False,
) -> None:
    """Which correct actions survive training with groups of a size."""
    from rlctl.lab.categorical import regimes, run

    parameters = {
        "actions": actions,
        "form": form.value,
        "sizes": _numbers("--sizes", sizes, int, least=1) if sizes else list(regimes(actions)),
        "gammas": _numbers("--gammas", gammas, float, least=0),
        "seeds": list(range(seed, seed + seeds)),
    }
    _report("categorical", partial(run, say=_say), plot, as_json, **parameters)


def _report(
    name: str, run: Callable[..., Finding], plot: Path | None, as_json: bool, **parameters: Any
) -> None:
    """Run an experiment by its parameters and show what it found."""
    path = show.target(plot, name)
    started = time.monotonic()
    finding = run(**parameters)
    facts = {"experiment": name, "parameters": parameters, "seconds": round(time.monotonic() - started, 2)}
    show.present(facts, finding, path, as_json)


def _numbers(option: str, text: str, kind: type[Number], least: int) -> list[Number]:
    try:
        numbers = [kind(part) for part in text.split(",")]
    except ValueError:
        numbers = []
    if not numbers or not all(least <= number < MOST for number in numbers):
        what = "whole numbers" if kind is int else "numbers"
        raise UserError(
            f"{option} {text}: not a list of {what} from {least} to {MOST:,}",
            f"separate them by commas: {option} {least},{2 * least or 1}",
        )
    return numbers


def _say(text: str) -> None:
    print(text, file=sys.stderr, flush=True)
