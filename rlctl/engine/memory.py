"""How much memory vLLM may take: planned from the model, the lengths and what the learner keeps.

Sizes are bytes.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Literal, Self

from rlctl.errors import UserError

GIB = 2**30
WORK = 4 * GIB  # of the engine beside weights and cache: activations, logits, graphs
CONTEXT = 2 * GIB  # of the driver and the allocators, on the card
UPDATE = 8 * GIB  # activations of the learner's update
BLOCK = 32  # tokens; a row's last one is only begun
MOST = 0.9  # share of a card that the engine may take


@dataclass(frozen=True)
class Size:
    """What the model takes in the engine."""

    weights: int
    per_token: int  # of the cache

    @classmethod
    def of(cls, config: Any, parameters: int, itemsize: int) -> Self:
        """Count from a configuration of transformers: keys and values of every layer, for each token."""
        kv_heads = getattr(config, "num_key_value_heads", None) or config.num_attention_heads
        values = 2 * config.num_hidden_layers * kv_heads * head_width(config)
        return cls(parameters * itemsize, values * itemsize)


@dataclass(frozen=True)
class Rows:
    """What is sampled at once: how many rows, and the tokens of the longest."""

    count: int
    longest: int

    def cache(self, size: Size, rows: int | None = None) -> int:
        """Return the cache of so many rows (None: of all), at their longest."""
        return (rows or self.count) * (self.longest + BLOCK) * size.per_token


def head_width(config: Any) -> int:
    """Return the width of an attention head."""
    return int(getattr(config, "head_dim", None) or config.hidden_size // config.num_attention_heads)


def learner_bytes(parameters: int, trained: int, reference: bool, resting: bool) -> int:
    """Return what the learner needs beside the engine: float32 weights, AdamW's two moments, a reference.

    Gradients and activations come on top where the engine does not rest during the update.
    """
    kept = 4 * parameters * (2 if reference else 1) + 8 * trained
    return kept if resting else kept + 4 * trained + UPDATE


def gpu_share(wanted: Literal["auto"] | float, size: Size, rows: Rows, learner: int) -> float:
    """Return `gpu_memory_utilization` for the card of this process."""
    import torch

    free, total = torch.cuda.mem_get_info()
    others = max(total - free - torch.cuda.memory_reserved(), 0)
    return plan_share(total, size, rows, learner + others) if wanted == "auto" else wanted


def plan_share(total: int, size: Size, rows: Rows, learner: int) -> float:
    """Return the share of a card that is useful to the engine, as far as the learner (and others) leave it.

    Raises:
        UserError: not even one row fits beside the learner.
    """
    room = min(MOST * total, total - learner - CONTEXT)
    useful = size.weights + WORK + rows.cache(size)
    least = size.weights + WORK + rows.cache(size, rows=1)
    if least > room:
        raise UserError(
            f"the card has {total / GIB:.1f} GiB: the learner keeps {learner / GIB:.1f}, "
            f"vLLM needs {least / GIB:.1f} at the least",
            "take a smaller model, model.lora, or shorter completions; or set engine.gpu_memory_utilization",
            exit_code=1,
        )
    return min(useful, room) / total


def cpu_cache(wanted: Literal["auto"] | float, size: Size, rows: Rows) -> int:
    """Return the bytes of the cache in main memory."""
    if wanted != "auto":
        return int(wanted * GIB)
    import psutil

    quarter = int(psutil.virtual_memory().available) // 4
    return max(min(rows.cache(size), quarter), rows.cache(size, rows=1))
