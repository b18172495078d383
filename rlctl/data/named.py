"""The published sets: where they lie in a folder and on the hub, and which fields they have."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path

from rlctl.data import files, hub
from rlctl.data.fields import Fields
from rlctl.data.tasks import Split
from rlctl.errors import UserError
from rlctl.types import Prompt


@dataclass(frozen=True, slots=True)
class NamedSet:
    """One published set. Hub ids were chosen so that fields and rows equal the published files."""

    hub: str
    fields: Fields
    config: str | None = None
    splits: Mapping[Split, str] = field(default_factory=lambda: {"test": "test"})  # ours: the hub's


SETS = {
    "gsm8k": NamedSet(
        "openai/gsm8k",
        Fields(("question",), ("answer",), "after_hashes"),
        config="main",
        splits={"train": "train", "test": "test"},
    ),
    "math500": NamedSet("HuggingFaceH4/MATH-500", Fields(("problem",), ("answer",))),
    "aime24": NamedSet(
        "HuggingFaceH4/aime_2024", Fields(("problem",), ("answer",)), splits={"test": "train"}
    ),
    "aime25": NamedSet("yentinglin/aime_2025", Fields(("problem",), ("answer",)), splits={"test": "train"}),
    "amc23": NamedSet("math-ai/amc23", Fields(("question",), ("answer",))),
    "minerva_math": NamedSet("svc-huggingface/minerva-math", Fields(("problem",), ("solution",), "boxed")),
    "olympiadbench": NamedSet(
        "Hothan/OlympiadBench",
        Fields(("question",), ("final_answer",)),
        config="OE_TO_maths_en_COMP",
        splits={"test": "train"},
    ),
    "svamp": NamedSet(
        "ChilleD/SVAMP", Fields(("Body", "Question"), ("Answer",)), splits={"test": "train+test"}
    ),
    "cmath": NamedSet(
        "weitianwen/cmath", Fields(("question",), ("answer", "golden")), splits={"test": "validation"}
    ),
}


def problems(name: str, split: Split, root: str | None) -> Iterator[Prompt]:
    """Yield a set's prompts from `root`, else from the folder in RLCTL_DATA, else from the hub.

    Raises:
        UserError: the set has no such split, the folder has no such set, or the hub is unreachable.
    """
    known = SETS[name]
    if split not in known.splits:
        raise UserError(
            f"{name} has no split `{split}`, only: {', '.join(known.splits)}",
            "evaluate on it in `eval.sets`, or train on its problems with `split: test`",
        )
    folder = root or os.environ.get("RLCTL_DATA")
    if folder:
        return files.problems(_find(Path(folder), name, split), known.fields)
    hint = f"give a folder that holds {name}/{split}.jsonl or {name}.jsonl: set `data.root` or RLCTL_DATA"
    return hub.problems(known.hub, known.config, known.splits[split], known.fields, hint=hint)


def _find(folder: Path, name: str, split: Split) -> Path:
    places = [f"{name}/{split}.jsonl"]
    if split == "test":  # a file without a split's name is one to evaluate on
        places += [f"eval/{name}.jsonl", f"{name}.jsonl"]
    for place in places:
        if (folder / place).is_file():
            return folder / place
    raise UserError(
        f"{name}, split {split}: not in the data folder {folder}",
        f"looked for {', '.join(places)}; set `data.root` or RLCTL_DATA to a folder that has it",
    )
