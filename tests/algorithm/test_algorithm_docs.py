from pathlib import Path

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
