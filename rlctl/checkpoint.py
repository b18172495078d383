"""Atomic checkpoints: written aside, fsynced, renamed, then marked complete; old ones go only after.

A checkpoint is a folder `step-000040` with safetensors, `state.json` and, written last, `DONE`, which
holds the sha256 of every file. A folder without a true `DONE` is no checkpoint.
"""

from __future__ import annotations

import hashlib
import json
import os
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from pydantic import Field

from rlctl.errors import RunError
from rlctl.spec import Spec


class CheckpointSpec(Spec):
    """Section `checkpoint`."""

    every: int = Field(20, ge=1)  # steps
    keep: int = Field(2, ge=1)  # newest ones that stay
    best: str | None = None  # a metric of metrics.jsonl; the checkpoint with its highest value stays too
    accept_changed_data: bool = False  # go on although a data file changed since the run began


def save(root: Path, step: int, state: dict[str, Any], write: Callable[[Path], None]) -> Path:
    """Write checkpoint `step`: `write(folder)` adds the weights; return its folder.

    Raises:
        RunError: the disk is full or not writable; earlier checkpoints are as they were.
    """
    final = _folder(root, step)
    aside, old = root / f".{final.name}.tmp", root / f"{final.name}.old"
    try:
        for left in root.glob(".step-*.tmp"):  # by a session that was killed while it saved
            shutil.rmtree(left)
        aside.mkdir(parents=True)
        write(aside)
        (aside / "state.json").write_text(json.dumps(state), encoding="utf-8")
        sums = {file.name: _sha256(file) for file in sorted(aside.iterdir())}
        for file in aside.iterdir():
            _fsync(file)
        if (final / "DONE").exists():  # interrupted after this step, then resumed: the new one says more
            shutil.rmtree(old, ignore_errors=True)
            final.rename(old)  # a checkpoint like any other, until the new one is complete
        shutil.rmtree(final, ignore_errors=True)
        aside.rename(final)
        _fsync(root)
        (final / "DONE.tmp").write_text(json.dumps(sums), encoding="utf-8")
        _fsync(final / "DONE.tmp")
        (final / "DONE.tmp").rename(final / "DONE")
        _fsync(final)
        shutil.rmtree(old, ignore_errors=True)
    except OSError as error:
        shutil.rmtree(aside, ignore_errors=True)
        raise RunError(
            f"checkpoint of step {step} could not be written to {root}: {error.strerror}",
            "earlier checkpoints are intact; make room or rights there, then run the same command again",
        ) from error
    return final


def whole(folder: Path) -> bool:
    """Say whether a checkpoint is complete and every file is what was written."""
    try:
        sums = json.loads((folder / "DONE").read_text(encoding="utf-8"))
        return all(_sha256(folder / name) == digest for name, digest in sums.items())
    except (OSError, ValueError, AttributeError):
        return False


def newest_first(root: Path) -> Iterator[Path]:
    """Yield the folders of checkpoints, whole or not, the newest first."""
    yield from sorted(root.glob("step-*"), reverse=True)


def state_of(folder: Path) -> dict[str, Any]:
    """Return the `state.json` of a whole checkpoint."""
    state: dict[str, Any] = json.loads((folder / "state.json").read_text(encoding="utf-8"))
    return state


def oldest(root: Path, keep: int) -> int:
    """Return the step of the oldest of the newest `keep` complete checkpoints, 0 if there is none."""
    complete = [folder for folder in newest_first(root) if (folder / "DONE").exists()]
    return min((int(folder.name.removeprefix("step-")) for folder in complete[:keep]), default=0)


def prune(root: Path, keep: int, protect: int | None = None) -> None:
    """Delete all but the newest `keep` complete checkpoints and the protected step's."""
    kept = 0
    protected = None if protect is None else _folder(root, protect)
    for folder in list(newest_first(root)):
        if kept < keep:
            kept += (folder / "DONE").exists()
        elif folder != protected:
            shutil.rmtree(folder)


def _folder(root: Path, step: int) -> Path:
    return root / f"step-{step:06d}"


def _sha256(file: Path) -> str:
    with file.open("rb") as stream:
        return hashlib.file_digest(stream, "sha256").hexdigest()


def _fsync(path: Path) -> None:
    handle = os.open(path, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)
