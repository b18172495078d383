"""What the README shows can be done."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from rlctl.recipe import load_text

ROOT = Path(__file__).parents[1]
BLOCKS = re.findall(r"```yaml\n(version: 1\n.*?)```", (ROOT / "README.md").read_text(), re.S)


@pytest.mark.parametrize("text", BLOCKS)
def test_recipes_of_the_readme_are_whole(text: str) -> None:
    assert load_text(text, "README.md").name


def test_the_readme_shows_a_recipe() -> None:
    assert BLOCKS
