"""What a user may name to be evaluated: a run, a step of it, or any model beside a recipe."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from rlctl import checkpoint
from rlctl.errors import UserError
from rlctl.listing import find_run, runs
from rlctl.models import PretrainedModel
from rlctl.recipe import Recipe, load
from rlctl.runfolder import RunFolder


@dataclass(frozen=True)
class Asked:
    """What stands on the command line."""

    names: Sequence[str] = ()
    pass_at: int | None = None
    samples: int | None = None
    step: int | None = None
    recipe: str | None = None  # of targets that are no run
    sets: Sequence[str] = ()

    @property
    def overrides(self) -> list[str]:
        """The flags as settings of the recipe: pass@k for all powers of two up to k, and k itself."""
        found = list(self.sets)
        if self.pass_at:
            powers = {2**power for power in range(self.pass_at.bit_length())}
            found = ["eval.samples=null", *found, f"eval.pass_at={sorted(powers | {self.pass_at})}"]
        return [*found, f"eval.samples={self.samples}"] if self.samples else found


@dataclass(frozen=True)
class Target:
    """A model to evaluate, and how."""

    name: str
    recipe: Recipe  # with all that was asked
    own: Recipe  # whose model this is
    root: Path  # `evals/` goes there
    step: int | None = None
    checkpoint: Path | None = None  # weights to put into `own`'s model
    run: bool = False


def find(asked: Asked) -> list[Target]:
    """Find every target; none named is the newest run.

    Raises:
        UserError: no such run or step, a model without a recipe, nothing to evaluate on.
    """
    targets = [_target(name, asked) for name in asked.names or [_newest()]]
    for target in targets:
        if not target.recipe.eval.sets:
            raise UserError(
                f"{target.name}: eval.sets is empty, there is nothing to evaluate on",
                "name some, such as --set 'eval.sets=[{kind: gsm8k}]'",
            )
    if len({target.recipe.eval.samples for target in targets}) > 1:
        raise UserError(
            "the targets' recipes ask for different numbers of samples, which do not compare",
            "give --samples N or --pass-at K",
        )
    return targets


def _newest() -> str:
    rows = runs()
    if not rows:
        raise UserError("there is no run in runs/", "name one, or a model and --recipe RECIPE")
    return str(rows[-1]["name"])


def _target(name: str, asked: Asked) -> Target:
    place = Path(name).expanduser()
    is_model = any((place / file).is_file() for file in ("config.json", "adapter_config.json"))
    is_path = "/" in name and not (place / "status.json").is_file()  # or a hub id
    return _model(name, asked) if is_model or is_path else _run(find_run(name), asked)


def _model(name: str, asked: Asked) -> Target:
    if asked.recipe is None:
        raise UserError(
            f"{name}: is no run, and a model alone does not say what to evaluate it on",
            "add --recipe RECIPE for its data, verifier and template",
        )
    if asked.step is not None:
        raise UserError(f"--step {asked.step}: {name} is a model, which has no steps", "leave --step out")
    model = f"model={{kind: pretrained, path: {json.dumps(name)}}}"
    recipe = load(asked.recipe, [model, *asked.overrides])
    return Target(name, recipe, recipe, Path(recipe.output_dir))


def _run(folder: Path, asked: Asked) -> Target:
    own, recipe = (load(folder / "recipe.yaml", sets) for sets in ((), asked.overrides))
    arithmetic = {"dtype", "gradient_checkpointing"}
    if recipe.model.model_dump(exclude=arithmetic) != own.model.model_dump(exclude=arithmetic):
        raise UserError(
            f"{folder.name}: --set model would make it another model than the run's",
            "name that model as the target, with --recipe RECIPE",
        )
    run = RunFolder(folder)
    finished = run.status().get("state") == "finished" and run.final.is_dir()
    if finished and asked.step is None:
        final = PretrainedModel(
            kind="pretrained",
            path=str(run.final),
            dtype=recipe.model.dtype,
            trust_remote_code=getattr(own.model, "trust_remote_code", False),
        )
        recipe = recipe.model_copy(update={"model": final})
        return Target(folder.name, recipe, recipe, folder, run.status()["step"], run=True)
    found = _checkpoint(run, asked.step)
    step = checkpoint.state_of(found)["step"] if found else 0
    return Target(folder.name, recipe, own, folder, step, found, run=True)


def _checkpoint(run: RunFolder, step: int | None) -> Path | None:
    """Return the checkpoint of a step, or the newest; None is the model before the first step."""
    if step == 0:
        return None
    done = [folder for folder in checkpoint.newest_first(run.checkpoints) if (folder / "DONE").exists()]
    steps = [checkpoint.state_of(folder)["step"] for folder in done]
    for folder, found in zip(done, steps, strict=True):
        if step in (None, found) and checkpoint.whole(folder):
            return folder
    what = "checkpoint" if step is None else f"whole checkpoint of step {step}"
    kept = f"it has those of the steps {', '.join(map(str, sorted(set(steps))))}; " if steps else ""
    raise UserError(f"{run.path.name} has no {what}", f"{kept}--step 0 is the model before training")
