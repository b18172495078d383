"""The policy: module, tokenizer and what the rest of the run needs to know of them."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from rlctl.models import ModelSpec, TinyModel
from rlctl.types import Prompt

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


def tokenizer(spec: ModelSpec) -> PreTrainedTokenizerBase:
    """Return the tokenizer alone: prompts are rendered with it before the model is there.

    Raises:
        UserError: no such model.
    """
    if isinstance(spec, TinyModel):
        from rlctl.models.tiny import character_tokenizer

        return character_tokenizer(spec)
    from rlctl.models import pretrained

    return pretrained.load_tokenizer(spec)


def load(
    spec: ModelSpec,
    tokenizer: PreTrainedTokenizerBase,
    prompts: Sequence[Prompt],
    seed: int,
    say: Callable[[str], None] = lambda line: None,
) -> Policy:
    """Return the policy as it is before the first step, in eval mode, on the GPU if there is one.

    `prompts` are the rendered training prompts; the tiny model starts from their demonstrations.

    Raises:
        UserError: no such model, not a causal language model, nothing to warm-start from.
    """
    from rlctl.models import lora, pretrained

    if isinstance(spec, TinyModel):
        from rlctl.models import tiny

        origin = tiny.folder(spec, tokenizer, prompts, seed, say)
        policy = pretrained.of_folder(origin, tokenizer, lasting=False)
    else:
        policy = pretrained.load(spec, tokenizer)
    if spec.lora is None:
        return policy
    revision = None if isinstance(spec, TinyModel) else spec.revision
    return replace(policy, module=lora.add_lora(policy.module, spec.lora, seed, revision), adapter=True)
