"""Generations on disk: one JSON object a sample, drawn in fixed blocks.

The samples stand in one endless order: the first of every problem, then the second of every problem.
A block is the next `BLOCK` of them, and one call of the engine. So whole blocks stay good when more
samples are asked later, and the batches in which a resumed evaluation computes are those of one left alone.
"""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

from rlctl.rollout import Sampling, given_up
from rlctl.seeds import derive_seed
from rlctl.track.jsonl import append
from rlctl.types import Completion, Engine, Prompt, Request

BLOCK = 1024  # samples
LOST = Completion(-1, (), (), "error")

Row = dict[str, Any]  # set, uid, sample, seed, response, tokens, finish
Decode = Callable[[Sequence[int]], str]


class Generations:
    """The file of what one model answered to `prompts` under one law.

    Args:
        path: of the file.
        prompts: of all sets; their order is part of the file's meaning.
        sampling: the law; `samples` of each problem are wanted.
        seed: of the run; a sample's own seed depends on it, on the problem and on the sample's number.
    """

    def __init__(self, path: Path, prompts: Sequence[Prompt], sampling: Sampling, seed: int) -> None:
        self.path = path
        self.prompts = prompts
        self.sampling = sampling
        self.seed = seed
        self.wanted = len(prompts) * sampling.samples

    def fill(self, engine: Engine, decode: Decode, tell: Callable[[int], None]) -> None:
        """Draw the samples that are not there; `tell` how many are, after every block."""
        for start in range(self._keep(), self.wanted, BLOCK):
            end = min(start + BLOCK, self.wanted)
            append(self.path, *self._block(start, end, engine, decode))
            tell(end)

    def rows(self) -> Iterator[Row]:
        """Yield the wanted samples; there may be more in the file."""
        return (row for row, _ in self._whole() if row["sample"] < self.sampling.samples)

    def _keep(self) -> int:
        """Return how many samples are there, after cutting off a block that is not whole and must be."""
        if sum(1 for _ in self.rows()) == self.wanted:
            return self.wanted
        ends = [end for _, end in self._whole()][BLOCK - 1 :: BLOCK]
        if self.path.exists():
            os.truncate(self.path, ends[-1] if ends else 0)
        return len(ends) * BLOCK

    def _whole(self) -> Iterator[tuple[Row, int]]:
        """Yield each row and where it ends, up to a line torn by a kill or lost in a crash of the machine."""
        if not self.path.exists():
            return
        with self.path.open("rb") as file:
            for line in file:
                try:
                    row = json.loads(line)
                except ValueError:
                    return
                if not line.endswith(b"\n"):
                    return
                yield row, file.tell()

    def _block(self, start: int, end: int, engine: Engine, decode: Decode) -> Iterator[Row]:
        # By problem, so that an engine computes a prompt once for its samples.
        places = sorted(divmod(index, len(self.prompts))[::-1] for index in range(start, end))
        requests = [self._request(index, *place) for index, place in enumerate(places)]
        done = {completion.index: completion for completion in engine.generate(requests)}
        for request, (place, sample) in zip(requests, places, strict=True):
            prompt, completion = self.prompts[place], done.get(request.index, LOST)
            if given_up(completion):
                completion = LOST
            yield {
                "set": prompt.set,
                "uid": prompt.uid,
                "sample": sample,
                "seed": request.seed,
                "response": decode(completion.ids),
                "tokens": len(completion.ids),
                "finish": completion.finish,
            }

    def _request(self, index: int, place: int, sample: int) -> Request:
        prompt, law = self.prompts[place], self.sampling
        seed = derive_seed(self.seed, law.purpose, prompt.uid, sample)
        return law.request(index, prompt, seed, law.temperature)
