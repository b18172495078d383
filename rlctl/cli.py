"""The command line: verbs, tables, and the line between a user's mistake and a bug."""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Iterable, Mapping, Sequence
from enum import StrEnum
from pathlib import Path
from typing import Annotated, Any

import typer

from rlctl.errors import UserError
from rlctl.interrupt import EXIT_CODE as INTERRUPTED
from rlctl.lab.cli import lab

app = typer.Typer(
    help="Train language models by reinforcement learning with verifiable rewards, from one YAML recipe.",
    add_completion=False,
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    rich_markup_mode=None,
)
model = typer.Typer(no_args_is_help=True, rich_markup_mode=None)
app.add_typer(model, name="model", help="Bring models into a form that recipes can name.")
app.add_typer(lab, name="lab", help="Experiments of seconds; `rank` warm-starts a tiny model.")

RecipeArg = Annotated[str, typer.Argument(metavar="RECIPE", help="A recipe file, or a shipped one by name.")]
Sets = Annotated[
    list[str] | None, typer.Option("--set", metavar="KEY=VALUE", help="Change a setting; may come often.")
]
AsJson = Annotated[bool, typer.Option("--json", help="Write JSON alone to standard output.")]


class Resume(StrEnum):
    """What to do with a run folder that is there already."""

    auto = "auto"
    never = "never"
    must = "must"


class What(StrEnum):
    """What can be listed."""

    algorithms = "algorithms"
    data = "data"
    verifiers = "verifiers"
    engines = "engines"
    recipes = "recipes"
    runs = "runs"


@app.command()
def train(
    recipe: RecipeArg,
    sets: Sets = None,
    resume: Annotated[
        Resume, typer.Option(help="auto: go on with an unfinished run; never: refuse one; must: need one.")
    ] = Resume.auto,
) -> None:
    """Run a recipe, or go on with it."""
    from rlctl.recipe import load
    from rlctl.recipe.checks import warnings

    loaded = load(recipe, sets or ())
    _warn(warnings(loaded))
    from rlctl.session import train as run

    _leave(run(loaded, resume=resume.value))


@app.command()
def check(recipe: RecipeArg, sets: Sets = None, as_json: AsJson = False) -> None:
    """Print a recipe in full and what it will cost."""
    from rlctl.plan import plan
    from rlctl.recipe import dump, load, run_folder
    from rlctl.recipe.checks import warnings

    loaded = load(recipe, sets or ())
    costs, notes, folder = plan(loaded), warnings(loaded), str(run_folder(loaded))
    if as_json:
        resolved = loaded.model_dump(mode="json")
        _json({"recipe": resolved, "plan": costs.model_dump(), "run_folder": folder, "warnings": notes})
        return
    print(dump(loaded))
    rows = {name.replace("_", " "): value for name, value in costs if value is not None}
    rows |= {"zero variance share": _shares(costs.zero_variance_share), "run folder": folder}
    _table(rows.items())
    _warn(notes)


@app.command("list")
def list_(what: What, as_json: AsJson = False) -> None:
    """List what a recipe can name, or the runs."""
    from rlctl import listing

    rows: list[dict[str, Any]] = getattr(listing, what.value)()
    if as_json:
        _json(rows)
    elif rows:
        _table(tuple(row.values()) for row in rows)
    else:
        print("none", file=sys.stderr)


@app.command()
def show(
    run: Annotated[str, typer.Argument(metavar="RUN", help="A run's folder, or the beginning of its name.")],
    as_json: AsJson = False,
) -> None:
    """Print a run's state, metrics and evaluations."""
    from rlctl.listing import describe, find_run

    facts = describe(find_run(run))
    if as_json:
        _json(facts)
        return
    for title, table in facts.items():
        for row in table if isinstance(table, list) else [table]:
            print(f"{title}:")
            _table(row.items() if isinstance(row, Mapping) else [(row,)], indent="  ")


@app.command()
def grade(
    file: Annotated[Path, typer.Argument(metavar="CASES.jsonl", help="Lines with gold, response, expected.")],
    verifier: Annotated[
        str, typer.Option(metavar="KIND", help="A kind of verifier, or a table: '{kind: regex, ...}'.")
    ] = "math",
    as_json: AsJson = False,
    workers: Annotated[
        int | None, typer.Option(min=1, max=256, help="Cases at once; the processors if left out.")
    ] = None,
) -> None:
    """Grade a file of responses; print the verdicts that disagree."""
    from rlctl.grade import run

    for line in run(file, verifier, workers or len(os.sched_getaffinity(0)), as_json=as_json, warn=_warn):
        print(line, flush=True)


@app.command("eval")
def eval_(  # noqa: PLR0913 - each is an option
    targets: Annotated[
        list[str] | None,
        typer.Argument(metavar="TARGET", help="Runs or models; the newest run if left out."),
    ] = None,
    pass_at: Annotated[
        int | None, typer.Option(metavar="K", min=1, help="Estimate pass@k for powers of two up to K.")
    ] = None,
    samples: Annotated[
        int | None, typer.Option(metavar="N", min=1, help="Samples a problem; the largest k if left out.")
    ] = None,
    step: Annotated[
        int | None, typer.Option(metavar="N", min=0, help="The checkpoint of a step; 0: before training.")
    ] = None,
    recipe: Annotated[
        str | None, typer.Option(metavar="RECIPE", help="Data and verifier for targets that are no run.")
    ] = None,
    sets: Sets = None,
    as_json: AsJson = False,
) -> None:
    """Evaluate runs or models by pass@k, and compare them."""
    from rlctl.examine import run
    from rlctl.examine.target import Asked

    _leave(run(Asked(targets or (), pass_at, samples, step, recipe, sets or ()), as_json=as_json))


@app.command()
def compare(
    targets: Annotated[
        list[str], typer.Argument(metavar="TARGET", help="A sweep, several sweeps, or several runs.")
    ],
    metric: Annotated[
        str | None,
        typer.Option(metavar="SET/pass@K", help="What decides; the first set's smallest k if left out."),
    ] = None,
    baseline: Annotated[
        str | None, typer.Option(metavar="LABEL", help="The setting to compare with; the first if left out.")
    ] = None,
    as_json: AsJson = False,
) -> None:
    """Say whether settings are better or worse than another, over the same seeds and problems."""
    from rlctl.compare import compare as run
    from rlctl.compare import sentences

    found = run(targets, metric, baseline)
    if as_json:
        _json(found)
    else:
        print("\n".join(sentences(found)))


@app.command()
def schema() -> None:
    """Print the JSON schema of a recipe, for editors."""
    from rlctl.listing import recipe_schema

    _json(recipe_schema())


@app.command()
def new(name: Annotated[str, typer.Argument(metavar="NAME", help="Name of the recipe.")]) -> None:
    """Write a commented recipe NAME.yaml to begin with."""
    from rlctl.recipe import load_text
    from rlctl.recipe.shelf import starter

    target = Path(f"{name.removesuffix('.yaml')}.yaml")
    text = starter(target.stem)
    load_text(text, str(target))  # refuses a bad name before anything is written
    try:
        with target.open("x", encoding="utf-8") as file:
            file.write(text)
    except FileExistsError:
        raise UserError(f"{target}: is there already", "choose another name, or remove it") from None
    except OSError as error:
        raise UserError(f"{target}: cannot be written: {error.strerror}") from None
    print(f"{target} written; next: rlctl check {target}, then rlctl train {target}")


@model.command("import")
def import_(
    source: Annotated[Path, typer.Argument(metavar="FILE", help="A model in one GGUF file.")],
    out: Annotated[Path, typer.Argument(metavar="OUT", help="The folder to write; must be new or empty.")],
) -> None:
    """Turn a GGUF file into a folder that transformers and vLLM load."""
    from rlctl.models.gguf import import_gguf

    made, new = import_gguf(source, out)
    done = "written" if new else f"is there already, from {made.source}"
    size = f"{made.parameters:,} parameters in float32"
    print(f"{out} {done}: {made.architecture}, {size}, a turn ends at {' or '.join(made.ends)}")
    print(f"next: rlctl train RECIPE --set model.path={out}")


def _leave(code: int) -> None:
    """Exit; once interrupted at once: all is saved, and a verdict that never comes must not hold it."""
    if code == INTERRUPTED:
        sys.stdout.flush()
        os._exit(code)
    raise typer.Exit(code)


def _json(value: Any) -> None:
    value = json.loads(json.dumps(value), parse_constant=lambda _: None)  # JSON knows no NaN
    print(json.dumps(value, indent=2, ensure_ascii=False))


def _shares(shares: Mapping[str, float]) -> str:
    return ", ".join(f"{share:.1%} at success {rate}" for rate, share in shares.items())


def _table(rows: Iterable[Sequence[Any]], indent: str = "") -> None:
    cells = [[f"{cell:,}" if isinstance(cell, int) else str(cell) for cell in row] for row in rows]
    widths = [max(len(row[column]) for row in cells) for column in range(len(cells[0]) - 1)] if cells else []
    for row in cells:
        padded = [cell.ljust(width) for cell, width in zip(row, widths, strict=False)]
        print(indent + "  ".join([*padded, row[-1]]).rstrip())


def _warn(notes: Iterable[str]) -> None:
    for note in notes:
        print(f"warning: {note}", file=sys.stderr)


def main() -> None:
    """Run a verb: a user's mistake ends with at most three lines, a bug keeps its traceback."""
    try:
        app()
    except UserError as error:
        from rlctl.track.console import printable  # a failed verifier may quote what a model wrote

        print(f"error: {printable(error.message)}", file=sys.stderr)
        if error.hint:
            print(f"hint: {printable(error.hint)}", file=sys.stderr)
        sys.exit(error.exit_code)
    except KeyboardInterrupt:
        sys.exit(130)
