"""docs/algorithms.md, written from the table and from the docstrings and fields of the stages.

`python -m rlctl.algorithm.docs` writes the file; a test fails while it is stale.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from inspect import getdoc
from pathlib import Path
from typing import Any, get_args

from rlctl.algorithm import Algorithm
from rlctl.algorithm.aggregate import token_weights
from rlctl.algorithm.kl import divergence
from rlctl.algorithm.notes import NOT_BUILT, NOTES, Note
from rlctl.algorithm.presets import PRESETS
from rlctl.spec import Spec

PAGE = Path(__file__).parents[2] / "docs" / "algorithms.md"

ARXIV = "https://arxiv.org/abs"

HEAD = """\
# Algorithms

Written by `python -m rlctl.algorithm.docs` from `rlctl/algorithm`; edit that, not this.

An algorithm is a row of stages. `algorithm: NAME` in a recipe takes a row as it is; keys beside `preset`
replace single stages, where a table that names a `kind` replaces and any other table merges:

```yaml
algorithm:
  preset: NAME
  clip: {high: 0.3}
  reweight: [{kind: focal, gamma: 0.5}]
```

## The table
"""

# The choices of these two fields are words, so they are explained by the function that reads them.
EXPLAINED = {"aggregate": token_weights, "kl_estimator": divergence}
RANGES = {
    "minimum": "at least",
    "exclusiveMinimum": "above",
    "maximum": "at most",
    "exclusiveMaximum": "below",
}


def render() -> str:
    """Return the page."""
    rows = ["| preset | algorithm | arXiv | apart from the defaults |", "|---|---|---|---|"]
    rows += [
        f"| `{name}` | {row.title} | [{row.source}]({ARXIV}/{row.source}) | {_cell(row.stages)} |"
        for name, row in PRESETS.items()
    ]
    defaults = [f"  {name}: {_flow(value)}" for name, value in Algorithm().model_dump().items()]
    spelled = [
        "",
        "The defaults, spelled out:",
        "",
        "```yaml",
        "algorithm:",
        *defaults,
        "```",
        "",
        "## The rows",
    ]
    return "\n".join([HEAD, *rows, *spelled, *_rows(), "", "## The stages", *_stages()]) + "\n"


def _rows() -> Iterator[str]:
    for name, row in PRESETS.items():
        yield from ("", f"### `{name}`: {row.title}", "", *_note(NOTES[name]))
    yield from ("", "### Not built", "")
    yield from (f"* {name}: {why}." for name, why in NOT_BUILT.items())


def _note(note: Note) -> Iterator[str]:
    yield note.formula
    yield ""
    labels = {"Known": note.sure, "Ours": note.ours, "Mind": note.caution}
    yield from (f"* {label}: {text}" for label, text in labels.items() if text)


def _stages() -> Iterator[str]:
    for name, field in Algorithm.model_fields.items():
        yield from ("", f"### `{name}`: {field.description}", "")
        yield f"Default: `{_flow(Algorithm().model_dump()[name])}`"
        if name in EXPLAINED:
            yield from ("", getdoc(EXPLAINED[name]) or "")
        for stage in _specs(field.annotation):
            yield from ("", f"{_kinds(stage)}{getdoc(stage)}", *_parameters(stage))


def _specs(annotation: Any) -> Iterator[type[Spec]]:
    """Find the stages that a field takes."""
    if isinstance(annotation, type) and issubclass(annotation, Spec):
        yield annotation
    for part in get_args(annotation):
        yield from _specs(part)


def _kinds(stage: type[Spec]) -> str:
    kind = stage.model_fields.get("kind")
    return "**" + " ".join(f"`{choice}`" for choice in get_args(kind.annotation)) + "** " if kind else ""


def _parameters(stage: type[Spec]) -> Iterator[str]:
    schema = stage.model_json_schema()["properties"]
    if lines := [f"* `{name}`: {_bounds(value)}" for name, value in schema.items() if name != "kind"]:
        yield from ("", *lines)


def _bounds(schema: dict[str, Any]) -> str:
    """Say type, range and default of one parameter, from its JSON schema."""
    words = [_range(option) for option in schema.get("anyOf", [schema])]
    return f"{' or '.join(words)}; default {_flow(schema['default'])}"


def _range(option: dict[str, Any]) -> str:
    choices = option.get("enum", [option["const"]] if "const" in option else [])
    word = " or ".join(map(str, choices)) or option["type"]
    for item in option.get("prefixItems", [option.get("items")])[:1]:
        word += f" of {_range(item)}" if item else ""
    return word + "".join(f", {say} {option[key]:g}" for key, say in RANGES.items() if key in option)


def _cell(stages: dict[str, Any]) -> str:
    return "<br>".join(f"`{name}: {_flow(value)}`" for name, value in stages.items()) or "none"


def _flow(value: Any) -> str:
    """Write plain data as YAML on one line."""
    return json.dumps(value).replace('"', "")


if __name__ == "__main__":
    PAGE.write_text(render(), encoding="utf-8")
