"""What is trained: the section `model` of a recipe."""

from __future__ import annotations

from typing import Annotated, Literal, Self

from pydantic import Field, model_validator

from rlctl.spec import Seq, Spec


class LoraSpec(Spec):
    """Low-rank adapters (2106.09685) instead of all weights."""

    rank: int = Field(16, ge=1)
    alpha: float = Field(32.0, gt=0)
    dropout: float = Field(0.0, ge=0, lt=1)
    target_modules: str | Seq[str] = "all-linear"
    merge_final: bool = False  # write the merged model beside the adapter at the end


class ModelBase(Spec):
    """What every model has."""

    dtype: Literal["auto", "bfloat16", "float32"] = "auto"  # of the arithmetic; weights stay float32
    lora: LoraSpec | None = None
    gradient_checkpointing: Literal["auto", True, False] = "auto"


class PretrainedModel(ModelBase):
    """A hub id, a folder, or an earlier run."""

    kind: Literal["pretrained"]
    path: str
    revision: str | None = None
    trust_remote_code: bool = False


class WarmStart(Spec):
    """Supervised steps on the task's own demonstrations, before any reinforcement."""

    steps: int = Field(200, ge=0)
    batch: int = Field(128, ge=1)
    learning_rate: float = Field(1e-3, gt=0)


class TinyModel(ModelBase):
    """A small Llama made here, with a character vocabulary; needs no hub."""

    kind: Literal["tiny"]
    layers: int = Field(4, ge=1)
    width: int = Field(128, ge=16)
    heads: int = Field(4, ge=1)
    context: int = Field(1024, ge=16)  # tokens
    warm_start: WarmStart = WarmStart()

    @model_validator(mode="after")
    def _heads_are_even(self) -> Self:
        if self.width % (2 * self.heads):
            raise ValueError(f"width must be a multiple of twice the heads, so of {2 * self.heads}")
        return self


ModelSpec = Annotated[PretrainedModel | TinyModel, Field(discriminator="kind")]
