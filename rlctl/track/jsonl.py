"""What every run writes, whatever else is switched off: one JSON object a line, each step once."""

from __future__ import annotations

import json
import math
import os
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from rlctl.errors import writing
from rlctl.track import RolloutsSpec

Record = dict[str, Any]
HINT = "make room, then run the same command again: it resumes from the last checkpoint"


def append(path: Path, *records: Mapping[str, Any]) -> None:
    """Add one line a record, all in a single write, so that a kill never interleaves lines.

    A number that is not finite becomes null, which keeps every line valid JSON.
    """
    if not records:
        return
    lines = [json.dumps(_plain(record), ensure_ascii=False, allow_nan=False) for record in records]
    data = "".join(f"{line}\n" for line in lines).encode("utf-8", "replace")
    with writing(f"{path} could not be written", HINT), path.open("ab", buffering=0) as file:
        if file.write(data) != len(data):
            raise OSError("no space left for a whole line")


def read(path: Path) -> list[Record]:
    """Return the whole lines of a file, none if it is not there; a torn last line is left out."""
    return Tail(path).more()


class Tail:
    """Reads a file while another process appends to it."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._offset = 0
        self._file = 0  # the inode, which changes when `truncate` puts another file in its place

    def more(self) -> list[Record]:
        """Return the whole lines that are new; all of them once the file was truncated."""
        if not self._path.exists():
            return []
        with self._path.open("rb") as file:
            inode = os.fstat(file.fileno()).st_ino
            if inode != self._file:
                self._file, self._offset = inode, 0
            file.seek(self._offset)
            data = file.read()
        whole = data[: data.rfind(b"\n") + 1]
        self._offset += len(whole)
        return [json.loads(line) for line in whole.split(b"\n") if line]


def truncate(path: Path, step: int) -> None:
    """Keep exactly the whole lines whose `step` is at most `step`; all of it or nothing happens."""
    if not path.exists():
        return
    before = path.read_bytes()
    after = b"".join(line for line in before.splitlines(keepends=True) if _stands(line, step))
    if after == before:
        return
    aside = path.with_name(f"{path.name}.tmp")
    with aside.open("wb") as file:
        file.write(after)
        file.flush()
        os.fsync(file.fileno())
    aside.replace(path)
    _fsync(path.parent)


class RunLog:
    """The three files of a run folder: metrics.jsonl, rollouts.jsonl, evals.jsonl."""

    def __init__(self, folder: Path, rollouts: RolloutsSpec | None = None) -> None:
        self._metrics = folder / "metrics.jsonl"
        self._rollouts = folder / "rollouts.jsonl"
        self._evals = folder / "evals.jsonl"
        self._bounds = rollouts or RolloutsSpec()

    def metrics(self, step: int, metrics: Mapping[str, Any]) -> None:
        """Write a step's numbers. A list becomes its mean, least and greatest.

        Values that are not finite become null and are counted in `train/nonfinite`.
        """
        flat, nonfinite = summarise(metrics)
        count = {"train/nonfinite": nonfinite} if nonfinite else {}
        append(self._metrics, {"step": step, "time/unix_s": round(time.time(), 3), **flat, **count})

    def rollouts(self, rows: Sequence[Mapping[str, Any]]) -> None:
        """Write down one step's responses, as many as `track.rollouts` allows."""
        if rows and rows[0]["step"] % self._bounds.every == 0:
            append(self._rollouts, *rows[: self._bounds.rows])

    def evals(self, record: Mapping[str, Any]) -> None:
        """Write an evaluation; `record` names its `step`."""
        append(self._evals, record)

    def sync(self) -> None:
        """Bring everything written so far to the disk."""
        for path in self._files():
            if path.exists():
                with writing(f"{path} could not be written", HINT):
                    _fsync(path)

    def rewind(self, step: int) -> None:
        """Forget whatever was written after `step`, so that a resumed run writes it once."""
        for path in self._files():
            truncate(path, step)

    def _files(self) -> tuple[Path, ...]:
        return self._metrics, self._rollouts, self._evals


def summarise(metrics: Mapping[str, Any]) -> tuple[dict[str, float | None], int]:
    """Return one number a name, and how many of the values were NaN or infinite.

    A list turns into `name/mean`, `name/min` and `name/max` of its finite values.
    """
    flat: dict[str, float | None] = {}
    nonfinite = 0
    for name, given in metrics.items():
        value = given.tolist() if hasattr(given, "tolist") else given
        values = value if isinstance(value, list | tuple) else [value]
        finite = [entry for entry in values if entry is not None and math.isfinite(entry)]
        nonfinite += sum(entry is not None for entry in values) - len(finite)
        if values is not value:
            flat[name] = finite[0] if finite else None
        elif finite:
            mean = math.fsum(finite) / len(finite)
            flat |= {f"{name}/mean": mean, f"{name}/min": min(finite), f"{name}/max": max(finite)}
    return flat, nonfinite


def _plain(value: Any) -> Any:
    """Return `value` as JSON knows it: no arrays, no tuples, no numbers that are not finite."""
    if hasattr(value, "tolist"):
        value = value.tolist()
    if isinstance(value, Mapping):
        return {str(key): _plain(entry) for key, entry in value.items()}
    if isinstance(value, list | tuple):
        return [_plain(entry) for entry in value]
    return None if isinstance(value, float) and not math.isfinite(value) else value


def _stands(line: bytes, step: int) -> bool:
    if not line.endswith(b"\n"):
        return False
    try:
        return bool(json.loads(line)["step"] <= step)
    except ValueError:  # a crash of the machine can leave a line of zeros
        return False


def _fsync(path: Path) -> None:
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
