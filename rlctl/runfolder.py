"""The folder of a run: its lock, its status, and which checkpoint it goes on from."""

from __future__ import annotations

import fcntl
import json
import os
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any, Literal

from rlctl import checkpoint
from rlctl.errors import RunError, UserError, writing

Resume = Literal["auto", "never", "must"]


class RunFolder:
    """`{output_dir}/{name}-{hash}`, held by one process at a time."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.checkpoints = path / "checkpoints"
        self.final = path / "final"

    def open(self, resume: Resume) -> None:
        """Create or enter the folder, and lock it.

        Raises:
            UserError: it exists and may not (`never`), does not and must (`must`), or is in use.
        """
        exists = (self.path / "recipe.yaml").exists()
        if resume == "never" and exists:
            raise UserError(
                f"{self.path} exists already, and `--resume never` was asked",
                "change `name`, `seed` or `output_dir`, delete that folder, or leave --resume out",
            )
        if resume == "must" and not any(checkpoint.newest_first(self.checkpoints)):
            raise UserError(
                f"{self.path} has no checkpoint to resume from", "leave `--resume must` out to begin the run"
            )
        with writing(f"the run folder {self.path} cannot be written", "name another one with `output_dir`"):
            self.checkpoints.mkdir(parents=True, exist_ok=True)
            self._handle = lock(self.path, "begin another run with a different `name` or `seed`")

    def status(self) -> dict[str, Any]:
        """Return `status.json`, empty before the first one is written and where a crash left none."""
        try:
            found: dict[str, Any] = json.loads((self.path / "status.json").read_text(encoding="utf-8"))
        except (FileNotFoundError, ValueError):
            return {}
        return found

    def write_status(self, **status: Any) -> None:
        """Replace `status.json`."""
        write(self.path / "status.json", json.dumps(status) + "\n")

    def newest(self, resume: Resume, say: Callable[[str], None]) -> Path | None:
        """Return the newest whole checkpoint; say which ones were passed over.

        Raises:
            RunError: the newest one is broken and `must` was asked.
        """
        for folder in checkpoint.newest_first(self.checkpoints):
            if checkpoint.whole(folder):
                return folder
            message = f"checkpoint {folder} is incomplete or damaged"
            if resume == "must":
                raise RunError(message, "use `--resume auto` to go on from the newest whole one")
            say(f"{message}: passed over")
        return None

    def close(self) -> None:
        """Let go of the lock; a crash lets go of it too."""
        os.close(self._handle)


def lock(folder: Path, otherwise: str) -> int:
    """Lock a folder for this process, until the handle that is returned is closed.

    Raises:
        RunError: another process has it; the user may wait, or do `otherwise`.
    """
    handle = os.open(folder / ".lock", os.O_RDWR | os.O_CREAT, 0o644)
    try:
        fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError as error:
        holder = os.read(handle, 32).decode() or "?"
        os.close(handle)
        raise RunError(f"{folder} is in use by process {holder}", f"wait for it, or {otherwise}") from error
    with suppress(OSError):  # the lock holds on a full disk too; the number is for people
        os.truncate(handle, 0)
        os.write(handle, str(os.getpid()).encode())
    return handle


def write(path: Path, text: str) -> None:
    """Replace a file in one move, so that no reader ever sees half of it.

    Raises:
        RunError: the disk is full or not writable; the file is as it was.
    """
    aside = path.with_name(f".{path.name}.tmp")
    with writing(f"{path} could not be written", "make room there, then run the same command again"):
        aside.write_text(text, encoding="utf-8")
        aside.replace(path)
