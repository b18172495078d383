"""The recipes that come with `rlctl`, and the file that a name or path means."""

from __future__ import annotations

from difflib import get_close_matches
from pathlib import Path

from rlctl.errors import UserError


def shipped() -> dict[str, Path]:
    """Map the names of the shipped recipes to their files: inside the wheel, or beside it in a checkout."""
    here = Path(__file__).parent.parent
    folder = next((f for f in (here / "recipes", here.parent / "recipes") if f.is_dir()), here / "recipes")
    return {file.stem: file for file in sorted(folder.glob("*.yaml"))}


def starter(name: str) -> str:
    """Return the text of a commented recipe called `name` to begin with."""
    return Path(__file__).with_name("starter.yaml").read_text(encoding="utf-8").replace("NAME", name)


def find(path_or_name: str) -> Path:
    """Find a recipe by path, or a shipped one by name.

    Raises:
        UserError: there is none.
    """
    path, names = Path(path_or_name).expanduser(), shipped()
    if path.is_file():
        return path
    if path_or_name in names:
        return names[path_or_name]
    if path.is_dir():
        inside = path / "recipe.yaml"
        raise UserError(f"{path_or_name}: is a folder", f"did you mean {inside}?" if inside.exists() else "")
    close = get_close_matches(path.stem, names, n=1)
    raise UserError(
        f"{path_or_name}: no such recipe file",
        f"did you mean `{close[0]}`?" if close else f"give a path, or one of: {', '.join(names)}",
    )
