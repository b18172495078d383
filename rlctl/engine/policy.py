"""What an engine needs to know of the policy and of the run around it."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    import torch
    from torch import Tensor
    from transformers import PreTrainedModel, PreTrainedTokenizerBase


class Sampled(Protocol):
    """The policy as an engine sees it."""

    @property
    def module(self) -> PreTrainedModel:
        """The causal language model."""

    @property
    def tokenizer(self) -> PreTrainedTokenizerBase:
        """Its tokenizer."""

    @property
    def eos_ids(self) -> frozenset[int]:
        """Every id that ends a completion."""

    @property
    def adapter(self) -> bool:
        """Whether the module wraps an adapter."""

    @property
    def parameters(self) -> int:
        """How many weights the model has."""

    def base(self) -> Iterator[tuple[str, Tensor]]:
        """Yield the weights that an adapter stands upon."""


@dataclass(frozen=True)
class Setting:
    """What an engine must know of the run around it."""

    longest: int  # tokens of a prompt and its completion
    dtype: torch.dtype  # of an engine's arithmetic, unless it is told
    autocast: torch.dtype | None = None  # arithmetic of the learner; None: float32
    learner_bytes: Callable[[bool], int] = lambda resting: 0  # that the learner needs on the card
