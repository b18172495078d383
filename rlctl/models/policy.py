"""The policy: module, tokenizer and what the rest of the run needs to know of them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from transformers import PreTrainedModel, PreTrainedTokenizerBase


@dataclass(frozen=True)
class Policy:
    """A causal language model that can be sampled and trained; its weights are float32."""

    module: PreTrainedModel  # with `adapter`, the peft wrapper
    tokenizer: PreTrainedTokenizerBase
    eos_ids: frozenset[int]  # every id that ends a completion, not the tokenizer's alone
    context_length: int  # tokens, prompt and completion together
    origin: str  # hub id or folder that the weights came from
    lasting: bool  # origin gives the same weights on another day; False: a cache, or merged here
    adapter: bool = False
