"""Log-probs of sampled tokens: only completion positions meet the head, in chunks."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor
from torch.utils.checkpoint import checkpoint

from rlctl.batch import Batch
from rlctl.errors import RunError

CHUNK_LOGITS = 2**24  # 64 MiB in float32: bounds memory whatever vocabulary and length are


def token_logps(module: Any, batch: Batch) -> tuple[Tensor, Tensor]:
    """Return logp_BT and entropy_BT (nats, full vocabulary) at each row's temperature; 0 where masked.

    Rows are padded on the right: a causal model never looks there, so no attention mask is needed.
    """
    prompt_B = [len(prompt) for prompt in batch.prompts_B]
    hidden_BSH = _decoder(module)(input_ids=_ids(batch), use_cache=False).last_hidden_state
    row_N, t_N = batch.mask_BT.nonzero(as_tuple=True)
    # The token at position t of the completion is predicted from the position before it.
    before_N = torch.tensor(prompt_B, device=row_N.device)[row_N] + t_N - 1
    logp_N, entropy_N = _head(
        module, hidden_BSH[row_N, before_N], batch.tokens_BT[row_N, t_N], batch.temperature_B[row_N]
    )
    blank_BT = torch.zeros(batch.mask_BT.shape, dtype=logp_N.dtype, device=logp_N.device)
    return (
        blank_BT.index_put((row_N, t_N), logp_N),
        blank_BT.index_put((row_N, t_N), entropy_N),
    )


def check_head(module: Any) -> None:
    """Stop a run whose model does more after its decoder than this file knows.

    Raises:
        RunError: the model's own logits differ from the head applied to the decoder's output.
    """
    device = next(module.parameters()).device
    ids = torch.arange(4, device=device)[None] % module.config.get_text_config().vocab_size
    with torch.no_grad():
        own = module(input_ids=ids, use_cache=False).logits[0].float()
        ours = _logits(module, _decoder(module)(input_ids=ids, use_cache=False).last_hidden_state[0])
    if not torch.allclose(own, ours.float(), rtol=1e-2, atol=1e-2):
        raise RunError(
            f"the logits of {type(module).__name__} are not its head applied to its decoder",
            "log-probs would be wrong for this architecture, so training stops before it begins",
        )


def _ids(batch: Batch) -> Tensor:
    length_B = [len(p) + int(n) for p, n in zip(batch.prompts_B, batch.length_B.tolist(), strict=True)]
    ids_BS = torch.zeros(len(batch), max(length_B), dtype=torch.int64)
    tokens_BT = batch.tokens_BT.cpu()
    for b, (prompt, length) in enumerate(zip(batch.prompts_B, length_B, strict=True)):
        ids_BS[b, : len(prompt)] = torch.tensor(prompt)
        ids_BS[b, len(prompt) : length] = tokens_BT[b, : length - len(prompt)]
    return ids_BS.to(batch.tokens_BT.device)


def _decoder(module: Any) -> Any:
    return _unwrapped(module).get_decoder()


def _unwrapped(module: Any) -> Any:
    """The transformers model inside a peft wrapper; its layers already hold the adapter."""
    return module.get_base_model() if hasattr(module, "get_base_model") else module


def _logits(module: Any, hidden_NH: Tensor) -> Tensor:
    model = _unwrapped(module)
    logits_NV: Tensor = model.get_output_embeddings()(hidden_NH)
    logits_NV = logits_NV.to(torch.promote_types(logits_NV.dtype, torch.float32))
    cap = getattr(model.config.get_text_config(), "final_logit_softcapping", None)
    return logits_NV if cap is None else cap * torch.tanh(logits_NV / cap)


def _head(module: Any, hidden_NH: Tensor, token_N: Tensor, temperature_N: Tensor) -> tuple[Tensor, Tensor]:
    def part(hidden: Tensor, token: Tensor, temperature: Tensor) -> tuple[Tensor, Tensor]:
        logits = _logits(module, hidden)
        logits = logits / temperature[:, None].to(logits.dtype)
        logp_V = logits.log_softmax(-1)
        entropy = -(logp_V.exp() * logp_V).sum(-1)
        return logp_V.gather(-1, token[:, None])[:, 0], entropy

    size = max(CHUNK_LOGITS // _unwrapped(module).config.get_text_config().vocab_size, 1)
    if len(token_N) <= size:
        return part(hidden_NH, token_N, temperature_N)
    # Logits of a chunk are computed again in the backward pass instead of being kept.
    parts = [
        checkpoint(part, *chunk, use_reentrant=False)
        for chunk in zip(*(torch.split(x, size) for x in (hidden_NH, token_N, temperature_N)), strict=True)
    ]
    return torch.cat([logp for logp, _ in parts]), torch.cat([entropy for _, entropy in parts])
