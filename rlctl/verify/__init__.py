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
    shaping: bool = True


class MathVerifier(PartSpec):
    """math-verify on the last complete answer, in a worker process that can be killed."""

    kind: Literal["math"] = "math"
    deadline_s: float = Field(2.0, gt=0)
    workers: int = Field(1, ge=1)


class PythonVerifier(PartSpec):
    """Your own function: `package.module:name` or `file.py:name`."""

    kind: Literal["python"] = "python"
    path: str


AnyVerifier = Annotated[
    ExactVerifier | RegexVerifier | MathVerifier | PythonVerifier, Field(discriminator="kind")
]


def _some_part_counts(spec: Any) -> Any:
    parts = spec if isinstance(spec, tuple) else (spec,)
    if all(part != "auto" and part.shaping for part in parts):
        raise ValueError("all parts are shaping, so nothing could be correct; set `shaping: false` on one")
    return spec


VerifierSpec = Annotated[Literal["auto"] | AnyVerifier | Seq[AnyVerifier], AfterValidator(_some_part_counts)]
