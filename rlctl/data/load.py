"""From a source's spec to a data set, whatever its kind."""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import count, islice
from pathlib import Path
from typing import Any, Protocol

from rlctl.data import (
    AnySource,
    HubSource,
    JsonlSource,
    NamedSource,
    arithmetic,
    countdown,
    files,
    hub,
    maze,
    named,
)
from rlctl.data.fields import Fields
from rlctl.data.tasks import Split
from rlctl.errors import UserError
from rlctl.types import Prompt, Verdict

Judge = Callable[[Prompt, str], Verdict]


class Task(Protocol):
    """A module that generates problems and judges responses exactly."""

    def problems(self, spec: Any, split: Split, seed: int) -> Iterator[Prompt]:
        """Yield different problems of a split."""

    def judge(self, prompt: Prompt, text: str) -> Verdict:
        """Judge one response."""


TASKS: dict[str, Task] = {"arithmetic": arithmetic, "countdown": countdown, "maze": maze}


@dataclass(frozen=True)
class Dataset:
    """The problems of one source, in their order."""

    name: str
    prompts: tuple[Prompt, ...]
    judge: Judge | None = None  # a task's own; None: the math verifier's business
    weight: float = 1.0

    @cached_property
    def fingerprint(self) -> str:
        """SHA-256 of uids, questions and golds: changes when a problem or their order changes."""
        digest = hashlib.sha256()
        for prompt in self.prompts:
            digest.update(json.dumps([prompt.uid, prompt.messages, prompt.gold]).encode() + b"\n")
        return digest.hexdigest()

    def renamed(self, name: str) -> Dataset:
        """Return the same problems as another set."""
        return replace(self, name=name, prompts=_numbered(name, self.prompts))


def load(spec: AnySource, *, root: str | None = None, split: Split, seed: int) -> Dataset:
    """Load a source; uids are `name:index`.

    `split` is what the set is for: a task's training or held-out problems, and a named set's split
    unless its spec says another. `seed` draws a task's problems.

    Raises:
        UserError: nothing there, or not in the form that the spec says.
    """
    name: str
    judge: Judge | None = None
    if isinstance(spec, NamedSource):
        name = spec.kind
        prompts = named.problems(name, split if spec.split == "auto" else spec.split, root)
    elif isinstance(spec, JsonlSource):
        name = spec.name or Path(spec.path).stem
        prompts = files.problems(Path(spec.path), _fields(spec))
    elif isinstance(spec, HubSource):
        name = spec.name or spec.path.rpartition("/")[2]
        hint = "check the name and the connection, or use a local file with `kind: jsonl`"
        prompts = hub.problems(
            spec.path, spec.config, spec.split, _fields(spec), revision=spec.revision, hint=hint
        )
    else:
        name, judge = spec.kind, TASKS[spec.kind].judge
        prompts = TASKS[spec.kind].problems(spec, split, seed)
    name = re.sub(r"[:/\s]+", "-", name)  # the name stands before the colon of a uid and in metrics
    numbered = _numbered(name, islice(prompts, spec.limit))
    if not numbered:
        what = spec.path if isinstance(spec, JsonlSource | HubSource) else f"{name}, split {split}"
        raise UserError(f"{what}: no problem in it", "choose another source, or make the task larger")
    return Dataset(name, numbered, judge, spec.weight)


def load_all(
    specs: AnySource | Sequence[AnySource], *, root: str | None = None, split: Split, seed: int
) -> list[Dataset]:
    """Load several sources; of those with equal names the second becomes `name-2`, and so on."""
    loaded: dict[str, Dataset] = {}
    for spec in specs if isinstance(specs, Sequence) else [specs]:
        dataset = load(spec, root=root, split=split, seed=seed)
        if dataset.name in loaded:
            free = (name for k in count(2) if (name := f"{dataset.name}-{k}") not in loaded)
            dataset = dataset.renamed(next(free))
        loaded[dataset.name] = dataset
    return list(loaded.values())


def _fields(spec: JsonlSource | HubSource) -> Fields:
    return Fields((spec.prompt,), (spec.answer,), spec.answer_transform)


def _numbered(name: str, prompts: Iterable[Prompt]) -> tuple[Prompt, ...]:
    return tuple(replace(prompt, uid=f"{name}:{index}") for index, prompt in enumerate(prompts))
