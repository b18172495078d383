"""From a recipe's section `model` to the policy as it is before the first step."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

from rlctl.models import ModelSpec, TinyModel
from rlctl.models.policy import Policy
from rlctl.types import Prompt

if TYPE_CHECKING:
    from transformers import PreTrainedTokenizerBase


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
