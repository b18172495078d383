"""Collected steps on disk: what a stage sampled, until it is spent. One pair of files a step, no pickle."""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import asdict, dataclass, fields, replace
from itertools import islice
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError
from safetensors.torch import load_file, save_file

from rlctl.algorithm.control.probe import Probe
from rlctl.batch import Batch
from rlctl.errors import RunError, writing
from rlctl.rollout import COUNTS, Rollout
from rlctl.types import Completion, Group, Prompt, Sample, Verdict

SCORED = ("old_logp_BT", "ref_logp_BT", "entropy_BT", "entropy_t1_BT")


@dataclass(frozen=True)
class Harvest:
    """What a step trains on; `batch` is scored, and None where no group was admitted."""

    rollout: Rollout
    batch: Batch | None
    probe: Probe | None
    began: int  # the step whose sampling it is part of


class Stage:
    """The folder `stage/` of a run.

    Args:
        folder: made when the first step is written.
        prompt: finds a prompt by its uid.
        lay_out: makes the unscored batch of some groups again.
    """

    def __init__(
        self, folder: Path, prompt: Callable[[str], Prompt], lay_out: Callable[[list[Group]], Batch]
    ) -> None:
        self.folder = folder
        self.prompt = prompt
        self.lay_out = lay_out

    def write(self, step: int, harvest: Harvest) -> None:
        """Keep a step's harvest; it is on the disk when this returns.

        Raises:
            RunError: the disk is full or not writable.
        """
        trained = {id(group) for group in harvest.rollout.groups}
        record = {
            "began": harvest.began,
            "counts": {name: getattr(harvest.rollout, name) for name in COUNTS},
            "groups": [
                _plain(group) | {"trained": id(group) in trained} for group in harvest.rollout.sampled
            ],
        }
        with writing(f"{self.folder} could not be written", "make room, then run the same command again"):
            self.folder.mkdir(exist_ok=True)
            with self._file(step, "json").open("w", encoding="utf-8") as file:
                json.dump(record, file)
            save_file(dict(_columns(harvest)), self._file(step, "safetensors"))
            for suffix in ("json", "safetensors"):
                with self._file(step, suffix).open("rb") as file:
                    os.fsync(file.fileno())

    def read(self, step: int) -> Harvest:
        """Return the harvest of a step, equal in every bit.

        Raises:
            RunError: the files are gone or damaged, or the data changed since.
        """
        try:
            record = json.loads(self._file(step, "json").read_text(encoding="utf-8"))
            columns = load_file(self._file(step, "safetensors"))
            tokens = zip(columns["ids_N"].tolist(), columns["logps_N"].tolist(), strict=True)
            groups = [(self._group(plain, tokens), plain["trained"]) for plain in record["groups"]]
        except (OSError, ValueError, KeyError, SafetensorError) as error:
            raise RunError(
                f"{self._file(step, 'json')}: the rollouts of step {step} cannot be read: {error}",
                "delete the checkpoints that lie inside this stage; the run then goes on from an earlier one",
            ) from error
        trained = [group for group, wanted in groups if wanted]
        rollout = Rollout(groups=trained, sampled=[group for group, _ in groups], **record["counts"])
        scored = {name: columns[name] for name in SCORED if name in columns}
        probe = {field.name: columns[field.name] for field in fields(Probe) if field.name in columns}
        return Harvest(
            rollout,
            batch=self.lay_out(trained).with_(**scored) if trained else None,
            probe=Probe(**probe) if probe else None,
            began=record["began"],
        )

    def forget(self, through: int) -> None:
        """Delete the steps up to and with `through`, and the folder once it is empty."""
        for file in self.folder.glob("step-*"):
            if int(file.stem.removeprefix("step-")) <= through:
                file.unlink(missing_ok=True)
        with suppress(OSError):
            self.folder.rmdir()

    def _file(self, step: int, suffix: str) -> Path:
        return self.folder / f"step-{step:06d}.{suffix}"

    def _group(self, plain: dict[str, Any], tokens: Iterator[tuple[int, float]]) -> Group:
        samples = [_sample(sample, tokens) for sample in plain["samples"]]
        prompt = self.prompt(plain["uid"])
        if list(prompt.ids) != plain["ids"]:
            raise ValueError(f"{prompt.uid} is another question now")
        return Group(prompt, tuple(samples))


def _plain(group: Group) -> dict[str, Any]:
    """All of a group but its tokens, which are columns."""
    samples = [
        {
            "index": sample.completion.index,
            "length": len(sample.completion.ids),
            "finish": sample.completion.finish,
            "text": sample.text,
            "verdict": asdict(replace(sample.verdict, parts=dict(sample.verdict.parts))),
            "temperature": sample.temperature,
        }
        for sample in group.samples
    ]
    return {"uid": group.prompt.uid, "ids": group.prompt.ids, "samples": samples}


def _sample(plain: dict[str, Any], tokens: Iterator[tuple[int, float]]) -> Sample:
    own = list(islice(tokens, plain["length"]))
    ids, logps = tuple(token for token, _ in own), tuple(logp for _, logp in own)
    completion = Completion(plain["index"], ids, logps, plain["finish"])
    return Sample(completion, plain["text"], Verdict(**plain["verdict"]), plain["temperature"])


def _columns(harvest: Harvest) -> Iterator[tuple[str, torch.Tensor]]:
    completions = [sample.completion for group in harvest.rollout.sampled for sample in group.samples]
    yield "ids_N", torch.tensor([token for c in completions for token in c.ids], dtype=torch.int64)
    yield "logps_N", torch.tensor([logp for c in completions for logp in c.logps], dtype=torch.float64)
    for source, names in ((harvest.batch, SCORED), (harvest.probe, [f.name for f in fields(Probe)])):
        for name in names:
            if source is not None and (column := getattr(source, name)) is not None:
                yield name, column.contiguous()
