"""The recipes and sweeps that come with `rlctl`, and the file that a name or path means."""

from __future__ import annotations

from collections.abc import Mapping
from difflib import get_close_matches
from pathlib import Path

from rlctl.errors import UserError


def shipped() -> dict[str, Path]:
    """Map the names of the shipped recipes to their files: inside the wheel, or beside it in a checkout."""
    return {file.stem: file for file in sorted(_shelf().glob("*.yaml"))}


def sweeps() -> dict[str, Path]:
    """Map the names of the shipped sweeps to their files."""
    return {file.stem: file for file in sorted((_shelf() / "sweeps").glob("*.yaml"))}


def _shelf() -> Path:
    here = Path(__file__).parent.parent
    return next((f for f in (here / "recipes", here.parent / "recipes") if f.is_dir()), here / "recipes")


def starter(name: str) -> str:
    """Return the text of a commented recipe called `name` to begin with."""
    return Path(__file__).with_name("starter.yaml").read_text(encoding="utf-8").replace("NAME", name)


def find(path_or_name: str) -> Path:
    """Find a recipe by path, or a shipped one by name.

    Raises:
        UserError: there is none.
    """
    path = Path(path_or_name).expanduser()
    if path.is_dir() and path_or_name not in shipped():
        inside = path / "recipe.yaml"
        raise UserError(f"{path_or_name}: is a folder", f"did you mean {inside}?" if inside.exists() else "")
    return _find(path_or_name, shipped(), "recipe")


def find_sweep(path_or_name: str) -> Path:
    """Find a sweep's file by path, or a shipped one by name.

    Raises:
        UserError: there is none.
    """
    return _find(path_or_name, sweeps(), "sweep")


def _find(path_or_name: str, names: Mapping[str, Path], what: str) -> Path:
    path = Path(path_or_name).expanduser()
    if path.is_file():
        return path
    if path_or_name in names:
        return names[path_or_name]
    close = get_close_matches(path.stem, names, n=1)
    raise UserError(
        f"{path_or_name}: no such {what} file",
        f"did you mean `{close[0]}`?" if close else f"give a path, or one of: {', '.join(names)}",
    )
