"""What the tests of the real vLLM share: a policy, its engine, and updates with a large learning rate."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from transformers import LlamaConfig, LlamaForCausalLM

from rlctl.engine import VllmEngine as Spec
from rlctl.engine.policy import Setting
from rlctl.learner import OptimSpec
from rlctl.learner.learner import Learner
from rlctl.models import LoraSpec, PretrainedModel, TinyModel
from rlctl.models.load import load, tokenizer
from rlctl.models.policy import Policy
from rlctl.models.tiny import CHARACTERS, EOS, PAD, character_tokenizer
from rlctl.sync import Sync
from rlctl.types import Completion, Prompt, Request

LONG = "What is the sum of seventeen and twenty-five? " * 2  # more than two blocks of vLLM's cache


def tiny_folder(place: Path, tied: bool = False, heads: int = 4) -> Path:
    """An untrained model whose laws are far from flat, as a folder."""
    torch.manual_seed(3)
    config = LlamaConfig(
        vocab_size=len(CHARACTERS),
        hidden_size=128,
        intermediate_size=96,
        num_hidden_layers=2,
        num_attention_heads=heads,  # 4: 32 wide: the CPU build has no kernel for less
        num_key_value_heads=2,
        max_position_embeddings=256,
        initializer_range=0.15,
        tie_word_embeddings=tied,
        bos_token_id=None,
        eos_token_id=CHARACTERS.index(EOS),
        pad_token_id=CHARACTERS.index(PAD),
    )
    LlamaForCausalLM(config).save_pretrained(place)
    character_tokenizer(TinyModel(kind="tiny", context=256)).save_pretrained(place)
    return place


@dataclass
class Pair:
    """A learner and the engine that samples for it, in float32."""

    policy: Policy
    engine: Any
    learner: Learner
    prompts: list[Prompt]
    version: int = 0

    def sync(self, temperature: float = 1.0) -> Sync:
        return Sync(
            self.engine,
            self.policy.lora if self.engine.swaps else self.policy.whole,
            self.learner.score,
            self.prompts,
            temperature=temperature,
            seed=5,
        )

    def update(self, rate: float) -> None:
        """One AdamW step along a random gradient: every trained weight moves by about `rate`."""
        self.version += 1
        torch.manual_seed(self.version)
        for p in self.learner.trained.values():
            p.grad = torch.randn_like(p)
        self.learner.optimizer.param_groups[0]["lr"] = rate
        self.learner.optimizer.step()
        self.learner.optimizer.zero_grad()

    def requests(self, n: int = 1, **changes: Any) -> list[Request]:
        rows = [prompt for prompt in self.prompts for _ in range(n)]
        return [
            Request(**{"index": i, "ids": p.ids, "seed": 100 + i, "max_tokens": 12, **changes})
            for i, p in enumerate(rows)
        ]

    def run(self, requests: list[Request]) -> list[Completion]:
        done = list(self.engine.generate(requests))
        assert sorted(c.index for c in done) == [r.index for r in requests]
        return sorted(done, key=lambda c: c.index)


def make(folder: Path, mode: str = "full", **spec: Any) -> Pair:
    """A folder's policy, the real vLLM for it, and a learner; `mode`: full, or how an adapter arrives."""
    from rlctl.engine.vllm import VllmEngine

    lora = None if mode == "full" else LoraSpec(rank=6)
    model = PretrainedModel(kind="pretrained", path=str(folder), lora=lora)
    made = tokenizer(model)
    policy = load(model, made, [], seed=0)
    how = {} if mode == "full" else {"lora": mode}
    asked = Spec(dtype="float32", max_rows=64, **how, **spec)
    engine = VllmEngine(policy, asked, Setting(160, torch.float32))
    prompts = [
        Prompt(f"t:{i}", (("user", text),), "", ids=tuple(made(text)["input_ids"]))
        for i, text in enumerate((LONG, "1+2=", "one", "77"))
    ]
    return Pair(policy, engine, Learner(policy.module, OptimSpec(learning_rate=1e-3)), prompts)
