"""Batched sampling with the learner's own module.

Letters: U unique prompts, B rows, L positions so far, S completion positions.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from rlctl.engine import TransformersEngine as TransformersSpec
from rlctl.engine.sampling import Law, draw, uniforms
from rlctl.types import Completion, Finish, Request, Weights

if TYPE_CHECKING:
    from transformers import PreTrainedModel, PreTrainedTokenizerBase

STOP_SLACK = 8  # tokens before a stop string that may hold part of its first character, or no text


class TransformersEngine:
    """Samples from a module that it borrows; between two forward passes the module is as it was.

    What a row samples depends on its own seed alone (but for the rounding of the batch's matrix
    products). `autocast`: arithmetic of the forward pass, None for that of the weights.
    """

    same_program = True
    swaps = False
    tolerance: float | None = None

    def __init__(
        self,
        module: PreTrainedModel,
        tokenizer: PreTrainedTokenizerBase,
        eos_ids: frozenset[int],
        spec: TransformersSpec,
        autocast: torch.dtype | None = None,
    ) -> None:
        self.module = module
        self.tokenizer = tokenizer
        self.eos_ids = eos_ids
        self.max_rows = spec.max_rows
        self.autocast = autocast
        self.version = 0

    def generate(self, requests: Sequence[Request]) -> Iterator[Completion]:
        """Yield completions as they finish, `max_rows` requests at once, in their order."""
        for start in range(0, len(requests), self.max_rows):
            yield from self._sample(requests[start : start + self.max_rows])

    def refresh(self, weights: Weights, version: int) -> None:
        """Take note of the version: the weights are the learner's own."""
        self.version = version

    def resting(self) -> AbstractContextManager[None]:
        """Lend nothing: the engine holds no memory between calls."""
        return nullcontext()

    def close(self) -> None:
        """Leave the module to its owner."""

    def _sample(self, requests: Sequence[Request]) -> Iterator[Completion]:
        device = self.module.device
        eos_E = torch.tensor(sorted(self.eos_ids), dtype=torch.int64, device=device)
        limit_B = torch.tensor([r.max_tokens for r in requests], device=device)
        row_B = torch.arange(len(requests), device=device)  # whose rows are left
        law, uniform_BS = Law.of(requests, device), uniforms(requests, device)
        ids_BS = torch.zeros(uniform_BS.shape, dtype=torch.int64, device=device)
        logp_BS = torch.zeros(uniform_BS.shape, device=device)
        with_stop = any(r.stop for r in requests)
        logits_BV, cache, mask_BL = self._prefill(requests)
        for position in range(ids_BS.shape[1]):
            logp_BV = law.log_probs(logits_BV)
            token_B = draw(logp_BV, uniform_BS[row_B, position])
            ids_BS[row_B, position] = token_B
            logp_BS[row_B, position] = logp_BV.gather(1, token_B[:, None])[:, 0]
            stopped_B = torch.isin(token_B, eos_E)
            if with_stop:
                stopped_B |= self._hit_stop(requests, row_B, ids_BS[:, : position + 1])
            done_B = stopped_B | (limit_B[row_B] == position + 1)
            if done_B.any():
                over = row_B[done_B]
                columns = (
                    over,
                    stopped_B[done_B],
                    ids_BS[over, : position + 1],
                    logp_BS[over, : position + 1],
                )
                for b, stopped, ids, logps in zip(*(c.tolist() for c in columns), strict=True):
                    finish: Finish = "stop" if stopped else "length"
                    yield Completion(requests[b].index, tuple(ids), tuple(logps), finish)
                left = (~done_B).nonzero()[:, 0]
                if not len(left):
                    return
                row_B, token_B, law, mask_BL = row_B[left], token_B[left], law.at(left), mask_BL[left]
                cache.batch_select_indices(left)
            mask_BL = torch.cat([mask_BL, mask_BL.new_ones(len(row_B), 1)], dim=1)
            logits_BV, cache = self._forward(token_B[:, None], mask_BL, cache)

    def _prefill(self, requests: Sequence[Request]) -> tuple[Tensor, Any, Tensor]:
        """Run each distinct prompt once, padded on the left, and hand its state to all of its rows."""
        number = {ids: u for u, ids in enumerate(dict.fromkeys(r.ids for r in requests))}
        L = max(map(len, number))
        padded = [(0,) * (L - len(ids)) + ids for ids in number]
        tokens_UL = torch.tensor(padded, device=self.module.device)
        length_U = torch.tensor([len(ids) for ids in number])
        mask_UL = (torch.arange(L) >= L - length_U[:, None]).long().to(self.module.device)
        logits_UV, cache = self._forward(tokens_UL, mask_UL, None)
        prompt_B = torch.tensor([number[r.ids] for r in requests], device=self.module.device)
        cache.batch_select_indices(prompt_B)
        return logits_UV[prompt_B], cache, mask_UL[prompt_B]

    def _forward(self, tokens: Tensor, mask: Tensor, cache: Any) -> tuple[Tensor, Any]:
        """Return the logits after the last of `tokens`, and the cache with them in it."""
        place = (mask.cumsum(1) - 1).clamp(min=0)[:, -tokens.shape[1] :]
        autocast = torch.autocast(tokens.device.type, self.autocast, enabled=self.autocast is not None)
        # Not inference_mode: its tensors would stay in buffers that the learner's backward reads.
        with _eval_mode(self.module), torch.no_grad(), autocast:
            out = self.module(
                input_ids=tokens,
                attention_mask=mask,
                position_ids=place,
                past_key_values=cache,
                use_cache=True,
                logits_to_keep=1,
            )
        return out.logits[:, -1], out.past_key_values

    def _hit_stop(self, requests: Sequence[Request], row_B: Tensor, ids_BS: Tensor) -> Tensor:
        """Say for each row left whether its text now ends in, or has just passed, a stop string."""
        hit = []
        for b in row_B.tolist():
            stop = requests[b].stop
            reach = max((len(s.encode()) for s in stop), default=0) + STOP_SLACK
            text = self.tokenizer.decode(ids_BS[b, -reach:].tolist()) if stop else ""
            hit.append(any(s in text for s in stop))
        return torch.tensor(hit, device=row_B.device)


@contextmanager
def _eval_mode(module: torch.nn.Module) -> Iterator[None]:
    """Switch off what only training does, and put back the mode of every single submodule."""
    training = [part for part in module.modules() if part.training]
    for part in training:
        part.training = False
    try:
        yield
    finally:
        for part in training:
            part.training = True
