"""The policy: module, tokenizer and what the rest of the run needs to know of them."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from torch import Tensor
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

    @property
    def parameters(self) -> int:
        """How many weights the module has, tied ones once."""
        return sum(p.numel() for p in self.module.parameters())

    @property
    def trained(self) -> int:
        """How many of them are trained."""
        return sum(p.numel() for p in self.module.parameters() if p.requires_grad)

    def whole(self) -> Iterator[tuple[str, Tensor]]:
        """Yield all weights as one plain model has them, an adapter added in; tied ones once."""
        from rlctl.models import lora

        yield from lora.merged_weights(self.module) if self.adapter else _detached(self.module)

    def base(self) -> Iterator[tuple[str, Tensor]]:
        """Yield the weights that an adapter stands upon, under the names they had without it."""
        from rlctl.models import lora

        yield from lora.base_weights(self.module) if self.adapter else _detached(self.module)

    def lora(self) -> Iterator[tuple[str, Tensor]]:
        """Yield the adapter under the names of its own file."""
        from rlctl.models import lora

        yield from lora.adapter_weights(self.module)


def _detached(module: PreTrainedModel) -> Iterator[tuple[str, Tensor]]:
    yield from ((name, p.detach()) for name, p in module.named_parameters())
