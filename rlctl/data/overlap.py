"""Contamination: problems to evaluate on whose words stand in the training problems (2506.10947).

A word is what stands between white space, in lower case, without punctuation at its ends; a Chinese
character is one too.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Sequence
from dataclasses import replace
from typing import NamedTuple

from rlctl.data import DataSpec
from rlctl.data.load import Dataset
from rlctl.errors import UserError
from rlctl.types import Prompt

SHARE = 0.5  # of its n-grams: from there on a question counts as contaminated
SHOWN = 5

_WORD = re.compile(r"[\u4e00-\u9fff]|[^\s\u4e00-\u9fff]+")
_PUNCTUATION = ".,:;?\"'()$。，：；？“”（）"


class Overlap(NamedTuple):
    """Uids of contaminated problems by held-out set, and of the training problems that they stand in."""

    held_out: dict[str, list[str]]
    train: set[str]


def separate(
    train: Sequence[Dataset], held_out: Sequence[Dataset], spec: DataSpec
) -> tuple[list[Dataset], list[str]]:
    """Return the training sets, of which `overlap: drop` takes what overlaps, and lines to tell of it.

    Raises:
        UserError: an overlap with `overlap: error`, or a training set that is all overlap.
    """
    found = find(train, held_out, spec.overlap_words)
    told = [
        f"{d.name}: {len(uids)} of {len(d.prompts)} problems to evaluate on stand in training problems: "
        + ", ".join(uids[:SHOWN])
        for d in held_out
        if (uids := found.held_out[d.name])
    ]
    if told and spec.overlap == "error":
        raise UserError(told[0], "take other problems, or set `data.overlap` to `drop` or `warn`")
    if spec.overlap != "drop":
        return list(train), told
    kept = [replace(d, prompts=tuple(p for p in d.prompts if p.uid not in found.train)) for d in train]
    for before, after in zip(train, kept, strict=True):
        if not after.prompts:
            raise UserError(f"{before.name}: every training problem is evaluated on", "train on others")
        if lost := len(before.prompts) - len(after.prompts):
            told.append(f"{before.name}: {lost} of {len(before.prompts)} training problems dropped")
    return kept, told


def find(train: Sequence[Dataset], held_out: Sequence[Dataset], n: int) -> Overlap:
    """Find held-out questions of which `SHARE` of the n-grams stand in training questions, one or several.

    A question of fewer than n words, or of a generated task, must be equal to one, word for word. Memory
    grows with the held-out sets and with what is found, not with the training sets.
    """
    asked = {d.name: _asked(d, n) for d in held_out}
    wanted = {gram for each in asked.values() for grams in each.values() for gram in grams}
    shared = {p.uid: hits for d in train for p in d.prompts if (hits := _offered(p, n) & wanted)}
    seen = set().union(*shared.values())
    held = {
        name: [uid for uid, grams in each.items() if len(grams & seen) >= SHARE * len(grams)]
        for name, each in asked.items()
    }
    theirs = {gram for name, uids in held.items() for uid in uids for gram in asked[name][uid]}
    return Overlap(held, {uid for uid, grams in shared.items() if grams & theirs})


def _asked(dataset: Dataset, n: int) -> dict[str, set[str]]:
    """Map uids to what tells their questions: n-grams, but not those that most questions of the set have."""
    words = {p.uid: _words(p) for p in dataset.prompts}
    grams = {uid: set() if dataset.judge else _grams(each, n) for uid, each in words.items()}
    counts = Counter(gram for each in grams.values() for gram in each)
    common = {gram for gram, count in counts.items() if count > max(1, len(words) / 2)}
    return {uid: each - common or {" ".join(words[uid])} for uid, each in grams.items()}


def _offered(prompt: Prompt, n: int) -> set[str]:
    words = _words(prompt)
    return _grams(words, n) | {" ".join(words)}


def _grams(words: Sequence[str], n: int) -> set[str]:
    return {" ".join(words[start : start + n]) for start in range(len(words) - n + 1)}


def _words(prompt: Prompt) -> list[str]:
    return [word.strip(_PUNCTUATION) or word for word in _WORD.findall(prompt.text.casefold())]
