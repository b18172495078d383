"""One target's evaluation: build, generate what is missing, judge, write down."""

from __future__ import annotations

import hashlib
import json
import os
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import closing, contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from rlctl import parts
from rlctl.data.load import Dataset
from rlctl.errors import writing
from rlctl.evaluate import described, fingerprint, metrics
from rlctl.evaluate.judge import judge
from rlctl.evaluate.pairs import Judged
from rlctl.evaluate.store import Generations
from rlctl.evaluate.summary import summarise
from rlctl.examine import plot, show
from rlctl.examine.target import Target
from rlctl.models import TinyModel
from rlctl.rollout import Sampling
from rlctl.runfolder import lock, write
from rlctl.track.mlflow import add, destination
from rlctl.types import Prompt
from rlctl.verify.base import BuiltVerifier

Say = Callable[[str], None]
EVERY_S = 5.0  # between two lines of progress
AGAIN = "make room or rights there, then run the same command again: it goes on"


@dataclass(frozen=True)
class Examined:
    """A target's record, and what its comparison with others needs."""

    record: dict[str, Any]
    judged: Judged
    ks: tuple[int, ...]


def examine(target: Target, say: Say) -> Examined:
    """Evaluate one target, from what is stored of it as far as possible.

    Raises:
        UserError: data, model or verifier cannot be had, or another process evaluates the same.
    """
    recipe = target.recipe
    parts.fix_threads(recipe.resources)
    from rlctl.models import load as models
    from rlctl.verify.build import build as build_verifier

    tokenizer = models.tokenizer(target.own.model)
    sets = parts.load_held_out(recipe, tokenizer, say)
    with closing(build_verifier(recipe.verifier, parts.judges([], sets))) as verifier:
        parts.check_golds(verifier, {s.name: s.prompts for s in sets}, say)
        made = _sampler(target, tokenizer, sets[0].prompts, say)
        with closing(made.engine):
            say(f"engine: {made.engine_kind}; {target.name}")
            return _examine(target, made, sets, verifier, say)


def _sampler(target: Target, tokenizer: Any, prompts: Sequence[Prompt], say: Say) -> parts.Sampler:
    """Build what samples from the target's weights."""
    from rlctl.models import load as models

    own, shown = target.own, list[Prompt]()
    if isinstance(own.model, TinyModel):  # its weights come from its training data
        train, _ = parts.load_data(own, tokenizer, lambda _: None)
        shown = [prompt for dataset in train for prompt in dataset.prompts]
    policy = models.load(own.model, tokenizer, shown, own.seed, say)
    made = parts.sampler(target.recipe, policy, prompts, say)
    if target.checkpoint:
        made.learner.restore_weights(target.checkpoint)
    made.sync(target.step or 0)
    return made


def _examine(
    target: Target, made: parts.Sampler, sets: Sequence[Dataset], verifier: BuiltVerifier, say: Say
) -> Examined:
    recipe = target.recipe
    law = parts.eval_sampling(recipe.eval, Sampling.of(recipe.rollout))
    prompts = [prompt for dataset in sets for prompt in dataset.prompts]
    with _held(target.root / "evals" / _key(target, made, prompts, law)) as folder:
        stored = Generations(folder / "generations.jsonl", prompts, law, recipe.seed)
        stored.fill(made.engine, parts.decoder(made.policy.tokenizer), _progress(stored.wanted, say))
        outcomes = judge(stored.rows(), {prompt.uid: prompt for prompt in prompts}, verifier)
        judged = {s.name: [(prompt, outcomes[prompt.uid]) for prompt in s.prompts] for s in sets}
        found = {
            s.name: summarise([found for _, found in judged[s.name]], recipe.eval.pass_at)
            | {"of": fingerprint(s.prompts, law)}
            for s in sets
        }
        record = {"target": target.name, "step": target.step} | described(found, law, recipe.seed, verifier)
        record["sampling"]["engine"] = made.engine_kind
        write(folder / "result.json", json.dumps(record, indent=2, ensure_ascii=False) + "\n")
        plot.draw(record, folder / "pass_at_k.png")
    for note in show.notes(record):
        say(note)
    say(f"{folder}: generations.jsonl, result.json, pass_at_k.png")
    _track(target, record, say)
    return Examined(record, judged, recipe.eval.pass_at)


def _key(target: Target, made: parts.Sampler, prompts: Sequence[Prompt], law: Sampling) -> str:
    """Hash all that the generations depend on; how many there are is not among it, nor who judges them."""
    recipe = target.recipe
    sampled = [made.learner.fingerprint(), made.engine_kind, recipe.engine, recipe.model.dtype, recipe.seed]
    asked = [(prompt.uid, prompt.ids) for prompt in prompts]
    return hashlib.sha256(repr([*sampled, replace(law, samples=0), asked]).encode()).hexdigest()[:16]


@contextmanager
def _held(folder: Path) -> Iterator[Path]:
    """Keep other processes out of the folder of an evaluation."""
    with writing(f"{folder} cannot be written", AGAIN):
        folder.mkdir(parents=True, exist_ok=True)
        handle = lock(folder, "evaluate something else")
    try:
        yield folder
    finally:
        os.close(handle)


def _progress(wanted: int, say: Say) -> Callable[[int], None]:
    last = time.monotonic()

    def tell(done: int) -> None:
        nonlocal last
        if done < wanted and time.monotonic() - last >= EVERY_S:
            say(f"{done:,} of {wanted:,} answers")
            last = time.monotonic()

    return tell


def _track(target: Target, record: dict[str, Any], say: Say) -> None:
    """Add the figures to the run's MLflow run, at the step that was evaluated."""
    track, recipe = target.recipe.track, target.recipe
    uri = destination(track.mlflow, Path(recipe.output_dir)) if target.run else None
    if uri and target.step is not None and (problem := add(uri, target.root, target.step, metrics(record))):
        say(f"MLflow has not got these figures ({problem})")
