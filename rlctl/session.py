"""From `rlctl train` to an exit code: open the folder, build, resume, run, export, whatever happens."""

from __future__ import annotations

from pathlib import Path

from rlctl import checkpoint
from rlctl.budget import Budget
from rlctl.errors import Interrupted, RunError, writing
from rlctl.interrupt import EXIT_CODE, Stopper
from rlctl.logbook import Logbook
from rlctl.parts import Parts, build
from rlctl.recipe import Recipe, dump, run_folder
from rlctl.runfolder import Resume, RunFolder, write
from rlctl.track.console import Console
from rlctl.track.jsonl import read
from rlctl.train import Run, check_unchanged


def train(recipe: Recipe, *, resume: Resume = "auto") -> int:
    """Run a recipe to the end of its budget and return the exit code.

    Raises:
        UserError: what a user can mend; the run's earlier checkpoints are intact.
    """
    folder = RunFolder(run_folder(recipe))
    folder.open(resume)
    console = Console(recipe.budget.steps, recipe.budget.tokens, recipe.budget.minutes)
    try:
        newest = folder.newest(resume, console.say)
        if newest and _over(recipe, folder, newest):
            console.say(f"{folder.path} is finished; a larger `budget` would go on with it")
            return 0
        write(folder.path / "recipe.yaml", dump(recipe))
        with Stopper() as stop:
            return _session(recipe, folder, newest, stop, console)
    finally:
        console.close("")
        folder.close()


def _session(recipe: Recipe, folder: RunFolder, newest: Path | None, stop: Stopper, console: Console) -> int:
    """Run once; whatever ends it, the status tells and the parts are let go."""
    parts: Parts | None = None
    run: Run | None = None
    state, reason, code = "failed", "error", 1
    _tell(folder, "running", None)
    try:
        with stop.abandonable():
            parts = build(recipe, console.say)
        if newest:
            check_unchanged(newest, parts, recipe.checkpoint)
        run = Run(recipe, folder, parts, stop, Logbook(recipe, folder, console))
        _begin(run, newest, console)
        reason = run.go()
        _export(recipe, parts, folder)
        state, code = "finished", 0
    except Interrupted:
        if run:
            run.save()
        state, reason, code = "interrupted", "interrupt", EXIT_CODE
    except RunError as error:
        reason = error.reason
        if run and run.between_steps and run.budget.steps:
            run.save()
        raise
    finally:
        if parts:
            parts.close()
        if run:
            run.log.close(state)
            run.log.status(state, reason, run.budget)  # last: a short run learns MLflow's id by closing
        else:
            _tell(folder, state, reason)
    for line in _summary(folder, state, reason):
        print(line)
    return code


def _tell(folder: RunFolder, state: str, reason: str | None) -> None:
    """Change what the status says of the run; its figures stay those of the last finished step."""
    before = {
        "state": state,
        "stop_reason": reason,
        "step": 0,
        "tokens": 0,
        "seconds": 0.0,
        "mlflow_run_id": None,
    }
    folder.write_status(**before | folder.status() | {"state": state, "stop_reason": reason})


def _over(recipe: Recipe, folder: RunFolder, newest: Path) -> bool:
    """Say whether a finished run has nothing left to do under the recipe's budget."""
    if folder.status().get("state") != "finished":
        return False
    state, budget = checkpoint.state_of(newest), Budget(recipe.budget)
    budget.resume(state["step"], state["tokens"], state["seconds"])
    return bool(budget.spent(state["step"] < state["stage"]) or state["ended"])


def _begin(run: Run, newest: Path | None, console: Console) -> None:
    if newest:
        run.restore(newest)
        console.say(f"{run.folder.path}: resumed at step {run.budget.steps}")
    else:
        run.parts.sync(0)
        run.log.rewind(-1, logged=True)
        console.say(f"{run.folder.path}: begins at step 0")


def _export(recipe: Recipe, parts: Parts, folder: RunFolder) -> None:
    from rlctl.models.export import export

    lora = recipe.model.lora
    hint = "the checkpoints are intact; make room or rights there, then run the same command again"
    with writing(f"{folder.final} could not be written", hint):
        export(parts.policy, folder.final, merge=lora is not None and lora.merge_final)


def _summary(folder: RunFolder, state: str, reason: str) -> list[str]:
    """What a person wants to know at the end: scores before and after, and where everything lies."""
    lines = []
    evals = read(folder.path / "evals.jsonl")
    for name in evals[-1]["sets"] if evals else ():
        first, last = evals[0]["sets"].get(name), evals[-1]["sets"][name]
        if first and first["of"] != last["of"]:  # `eval` changed on the way: no before and after
            first = None
        for k, after in last["pass_at"].items():
            before = first["pass_at"].get(k) if first else None
            shown = f"{before['value']:.3f} -> " if before and len(evals) > 1 else ""
            interval = f"[{after['low']:.3f}, {after['high']:.3f}]"
            lines.append(f"{name} pass@{k}: {shown}{after['value']:.3f} {interval}")
    return [*lines, f"{state} ({reason}): {folder.path}"]
