"""Who judges: verifiers by `kind`, and the section `verifier` of a recipe."""

from __future__ import annotations

import re
from typing import Annotated, Any, Literal

from pydantic import AfterValidator, Field

from rlctl.spec import Seq, Spec


def _compiles(pattern: str) -> str:
    try:
        re.compile(pattern)
    except re.error as error:
        raise ValueError(f"the pattern is no regular expression: {error}") from error
    return pattern


class PartSpec(Spec):
    """What every verifier has in a weighted list; a shaping part never counts as correct."""

    weight: float = 1.0
    shaping: bool = False


class ExactVerifier(PartSpec):
    """The response, white space at its ends removed, is the gold answer."""

    kind: Literal["exact"] = "exact"
    ignore_case: bool = False


class RegexVerifier(PartSpec):
    """The response matches a pattern somewhere; shaping of the format, unless `shaping: false`."""

    kind: Literal["regex"] = "regex"
    pattern: Annotated[str, AfterValidator(_compiles)]
    prefix: str = ""  # what the chat template begins the answer with, such as `<think>`
    shaping: bool = True


class MathVerifier(PartSpec):
    """The last complete answer equals the gold: exactly, else by math-verify in a process of its own."""

    kind: Literal["math"] = "math"
    deadline_s: float = Field(1.8, gt=0)
    workers: int = Field(1, ge=1)


class RandomVerifier(PartSpec):
    """A coin, whether the answer is right or wrong, beside a part of weight 0 that judges: a control run."""

    kind: Literal["random"] = "random"
    share: float = Field(0.5, ge=0, le=1)  # of the answers, that get reward 1
    shaping: Literal[True] = True


class PythonVerifier(PartSpec):
    """Your own function: `package.module:name` or `file.py:name`."""

    kind: Literal["python"] = "python"
    path: str


AnyVerifier = Annotated[
    ExactVerifier | RegexVerifier | MathVerifier | RandomVerifier | PythonVerifier,
    Field(discriminator="kind"),
]


def _some_part_counts(spec: Any) -> Any:
    parts = spec if isinstance(spec, tuple) else (spec,)
    if all(part != "auto" and part.shaping for part in parts):
        remedy = "add a part that judges, or set `shaping: false`"
        raise ValueError(f"all parts are shaping, so nothing could be correct; {remedy}")
    return spec


VerifierSpec = Annotated[Literal["auto"] | AnyVerifier | Seq[AnyVerifier], AfterValidator(_some_part_counts)]
