"""Who samples: engines by `kind`, and the section `engine` of a recipe."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field

from rlctl.spec import Seq, Spec


class AutoEngine(Spec):
    """The fastest engine that is installed; the run says which."""

    kind: Literal["auto"] = "auto"


class TransformersEngine(Spec):
    """Batched sampling with the learner's own module."""

    kind: Literal["transformers"] = "transformers"
    max_rows: int = Field(256, ge=1)  # rows sampled at once


class ScriptedEngine(Spec):
    """Fixed responses, for tests: the request's seed chooses among them."""

    kind: Literal["scripted"] = "scripted"
    responses: Seq[str] = Field(min_length=1)


EngineSpec = Annotated[AutoEngine | TransformersEngine | ScriptedEngine, Field(discriminator="kind")]
