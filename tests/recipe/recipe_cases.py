"""Legal settings of every key of the recipe, found from the schema."""

import json
from functools import cache
from typing import get_args, get_origin

from rlctl.errors import UserError
from rlctl.recipe import Recipe, load_text
from rlctl.recipe.schema import kinds, tables

BASE = """\
version: 1
name: base
model: {kind: tiny, context: 4096}
data: {train: {kind: arithmetic}}
budget: {steps: 10}
eval: {samples: 64}
"""
REQUIRED = {"path": "some.module:name", "pattern": "x", "responses": ["a"], "metric": "m", "threshold": 0.5}
SINGLE = {"version"}  # one legal value
MINIMAL = {"regex": {"shaping": False}, "tiny": {"context": 4096}}  # else a cross check objects
ALONGSIDE = {
    "rollout.top_p": ("algorithm.correction={kind: none}",),
    "rollout.top_k": ("algorithm.correction={kind: none}",),
    "algorithm.ratio_temperature": ("algorithm.correction={kind: none}",),
}
BESIDE = {"random": {"kind": "exact"}}  # in a list: a part that judges
# What a stage of this kind must stand beside.
PROBED = "algorithm.probe={}"
COMPANIONS = {
    ("control", "clip"): ("algorithm.clip={kind: controlled}", PROBED),
    ("control", "temperature"): (PROBED,),
    ("control", "price"): ("algorithm.clip={kind: target}",),
    ("clip", "controlled"): ("algorithm.control=[{kind: clip}]", PROBED),
    ("clip", "target"): ("algorithm.control=[{kind: price}]",),
    ("clip", "dual"): ("algorithm.surrogate={kind: priced}",),
    ("surrogate", "priced"): ("algorithm.clip={kind: dual}",),
    ("surrogate", "soft_gate"): ("algorithm.clip={kind: none}",),
    ("surrogate", "reinforce"): ("algorithm.clip={kind: none}",),
}
VALUES = [
    *(2, 3, 5, 0, 0.5, 0.25, None, True, False, 64, 128, 9, 2048, 4096),
    *([1, 2], [1], ["-"], ["+"], [0.5, 0.25], [0.5, 0.5], []),
    *("rloo", "grpo", "text", "/data/a", "/data/b", "a.b:c", "http://localhost:1", "off"),
]


def read(*overrides, text=BASE):
    return load_text(text, "base.yaml", overrides)


def minimal(table):
    """The shortest legal table of its kind."""
    needed = [name for name, field in table.model_fields.items() if field.is_required() and name in REQUIRED]
    data = {name: REQUIRED[name] for name in needed}
    if kinds(table):
        data["kind"] = kinds(table)[0]
    return data | MINIMAL.get(data.get("kind"), {})


def leaves(table=Recipe, path=(), setup=()):
    """Yield (dotted key, field, overrides that bring its table into being)."""
    for name, field in table.model_fields.items():
        here = (*path, name)
        dotted = ".".join(map(str, here))
        inner = list(dict.fromkeys(tables(field.annotation)))
        if not inner and name != "kind":
            yield dotted, field, (*setup, *ALONGSIDE.get(dotted, ()))
        for choice in inner:
            value = minimal(choice)
            others = [BESIDE[value["kind"]]] if value.get("kind") in BESIDE else []
            listed = get_origin(field.annotation) is tuple or bool(others)
            text = json.dumps([value, *others] if listed else value)
            given = here == ("data",)  # the base has one
            beside = COMPANIONS.get((name, value.get("kind")), ())
            made = setup if given else (*setup, f"{dotted}={text}", *beside)
            yield from leaves(choice, (*here, 0) if listed else here, made)


def at(recipe, dotted):
    value = recipe.model_dump(mode="json")
    for key in dotted.split("."):
        value = value[int(key) if key.isdigit() else key]
    return value


def literals(annotation):
    if get_origin(annotation) is not None and "Literal" in str(get_origin(annotation)):
        return list(get_args(annotation))
    return [value for part in get_args(annotation) for value in literals(part)]


@cache
def settable(dotted, setup):
    """Up to three values, as overrides, that this key takes."""
    field = next(field for key, field, made in leaves() if (key, made) == (dotted, setup))
    fitting = []
    for value in dict.fromkeys(map(json.dumps, [*literals(field.annotation), *VALUES])):
        try:
            recipe = read(*setup, f"{dotted}={value}")
        except UserError:
            continue
        if at(recipe, dotted) == json.loads(value):
            fitting.append(f"{dotted}={value}")
        if len(fitting) == 3:
            break
    return fitting
