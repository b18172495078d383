from pathlib import Path

import pytest

from rlctl.algorithm import Algorithm, docs
from rlctl.algorithm.presets import PRESETS


def test_the_page_is_fresh():
    path = Path(__file__).parents[2] / "docs" / "algorithms.md"
    assert path.read_text(encoding="utf-8") == docs.render(), "stale: run `python -m rlctl.algorithm.docs`"


def test_the_page_holds_every_row_and_every_field():
    page = docs.render()
    for name, row in PRESETS.items():
        assert f"| `{name}` | {row.title} | [{row.source}](https://arxiv.org/abs/{row.source}) |" in page
    for field in Algorithm.model_fields:
        assert f"### `{field}`: " in page


@pytest.mark.parametrize(
    "line",
    [
        "* `threshold`: number, above 0, below 1; default 0.2",
        "* `quantile`: number, at least 0, below 1; default 0.75",
        "* `entropy_range`: array of number, above 0; default [0.5, 1.5]",
        "* `dual`: number, above 1 or null; default null",
        "* `epochs`: integer, at least 1; default 1",
    ],
)
def test_ranges_are_shown(line):
    assert line in docs.render().splitlines()
