"""From a recipe's section `engine` to the engine."""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

from rlctl import engine
from rlctl.types import Engine

if TYPE_CHECKING:
    import torch
    from transformers import PreTrainedModel, PreTrainedTokenizerBase


class Sampled(Protocol):
    """What an engine needs of the policy."""

    @property
    def module(self) -> PreTrainedModel:
        """The causal language model."""

    @property
    def tokenizer(self) -> PreTrainedTokenizerBase:
        """Its tokenizer."""

    @property
    def eos_ids(self) -> frozenset[int]:
        """Every id that ends a completion."""


def build(
    spec: engine.EngineSpec, policy: Sampled, autocast: torch.dtype | None = None
) -> tuple[Engine, str]:
    """Return the engine and its kind, which with `auto` is news."""
    if isinstance(spec, engine.AutoEngine):
        spec = engine.TransformersEngine()
    if isinstance(spec, engine.ScriptedEngine):
        from rlctl.engine.scripted import ScriptedEngine

        return ScriptedEngine(policy.tokenizer, spec.responses, min(policy.eos_ids)), spec.kind
    from rlctl.engine.transformers import TransformersEngine

    return TransformersEngine(policy.module, policy.tokenizer, policy.eos_ids, spec, autocast), spec.kind
