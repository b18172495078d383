"""Log-probs of sampled tokens: the same as the model's own, and never a whole sequence of logits."""

from __future__ import annotations

import math
from typing import Any

import pytest
import torch
from learning import VOCAB, make_groups, packed
from torch import Tensor
from transformers import (
    CohereConfig,
    CohereForCausalLM,
    Gemma2Config,
    Gemma2ForCausalLM,
    GraniteConfig,
    GraniteForCausalLM,
    LlamaForCausalLM,
    Qwen2Config,
    Qwen2ForCausalLM,
)

from rlctl.batch import Batch
from rlctl.errors import RunError
from rlctl.learner import logprobs
from rlctl.learner.logprobs import check_head, token_logps
from rlctl.models import LoraSpec
from rlctl.models.lora import add_lora

SHAPE: dict[str, Any] = {
    "vocab_size": VOCAB,
    "hidden_size": 16,
    "intermediate_size": 24,
    "num_hidden_layers": 2,
    "num_attention_heads": 2,
    "num_key_value_heads": 2,
    "max_position_embeddings": 64,
    "initializer_range": 0.5,  # laws far from flat
}


def seeded(make: Any) -> Any:
    torch.manual_seed(0)
    return make().double().eval()


def gemma(cap: float | None = 2.0) -> Any:
    config = Gemma2Config(**SHAPE, head_dim=8, final_logit_softcapping=cap, query_pre_attn_scalar=8)
    return seeded(lambda: Gemma2ForCausalLM(config))


def qwen() -> Any:
    return seeded(lambda: Qwen2ForCausalLM(Qwen2Config(**SHAPE, tie_word_embeddings=True)))


def batch_of(groups: Any = None) -> Batch:
    return packed(groups or make_groups()).to("cpu", torch.float64)


def dense(module: Any, batch: Batch) -> tuple[Tensor, Tensor]:
    """One row at a time, nothing padded, the model's own logits of the whole sequence."""
    logp_BT, entropy_BT = torch.zeros(2, *batch.mask_BT.shape, dtype=torch.float64).unbind(0)
    for b, prompt in enumerate(batch.prompts_B):
        n = int(batch.length_B[b])
        ids = torch.cat([torch.tensor(prompt), batch.tokens_BT[b, :n]])
        logits_SV = module(ids[None], use_cache=False).logits[0] / batch.temperature_B[b]
        law_SV = torch.distributions.Categorical(logits=logits_SV[len(prompt) - 1 : -1])
        logp_BT = logp_BT.index_put(
            (torch.tensor(b), torch.arange(n)), law_SV.log_prob(batch.tokens_BT[b, :n])
        )
        entropy_BT = entropy_BT.index_put((torch.tensor(b), torch.arange(n)), law_SV.entropy())
    return logp_BT, entropy_BT


def gradient_of(module: Any, values: tuple[Tensor, Tensor]) -> Tensor:
    """The gradient of a sum in which every log-prob and entropy has a weight of its own."""
    weight_BT = torch.linspace(0.5, 1.5, values[0].numel(), dtype=torch.float64).view_as(values[0])
    loss = (weight_BT * values[0]).sum() - (weight_BT.flip(0) * values[1]).sum()
    parameters = [p for p in module.parameters() if p.requires_grad]
    return torch.cat([g.flatten() for g in torch.autograd.grad(loss, parameters)])


def small_chunks(monkeypatch: pytest.MonkeyPatch, rows: int) -> None:
    monkeypatch.setattr(logprobs, "CHUNK_LOGITS", rows * VOCAB + VOCAB - 1)


@pytest.mark.parametrize("rows", [1, 3, 10**6])
@pytest.mark.parametrize("make", [None, gemma, qwen], ids=["llama", "gemma2", "qwen2"])
def test_b28_values_and_gradients_are_the_dense_ones(
    module: Any, make: Any, rows: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """B-28, B-27: in chunks and whole, at two temperatures, with soft-capped logits and tied embeddings."""
    module = make() if make else module
    check_head(module)
    small_chunks(monkeypatch, rows)
    batch = batch_of()
    found, expected = token_logps(module, batch), dense(module, batch)
    for one, other in zip(found, expected, strict=True):
        assert other[batch.mask_BT].abs().min() > 0
        assert torch.allclose(one, other, rtol=0, atol=1e-12)
    gradient = gradient_of(module, expected)
    # Gemma's norm layers compute in float32 whatever the weights are.
    tolerance = 1e-6 if make is gemma else 1e-10
    assert (gradient_of(module, found) - gradient).norm() < tolerance * gradient.norm()


def test_b28_the_temperatures_and_the_cap_make_a_difference() -> None:
    """B-27, B-28: what the test above compares does depend on them."""
    batch = batch_of()
    (capped, _), (free, _) = (token_logps(gemma(cap), batch) for cap in (2.0, None))
    assert (capped - free).abs().max() > 0.1
    cold = batch.with_(temperature_B=torch.full_like(batch.temperature_B, 0.5))
    assert (token_logps(gemma(), cold)[0] - capped).abs().max() > 0.1


def test_b28_chunks_are_not_kept_for_the_backward_pass(module: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """B-28: what autograd saves holds no tensor of the vocabulary's width but the head's own weight."""
    small_chunks(monkeypatch, 3)
    saved: list[torch.Size] = []

    def pack_hook(tensor: Tensor) -> Tensor:
        saved.append(tensor.shape)
        return tensor

    with torch.autograd.graph.saved_tensors_hooks(pack_hook, lambda tensor: tensor):
        token_logps(module, batch_of())
    assert saved
    assert [s for s in saved if VOCAB in s and s != module.lm_head.weight.shape] == []


@pytest.mark.parametrize("rows", [2, 10**6])
def test_b29_the_head_meets_completion_positions_only(
    module: Any, rows: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """B-29: never T x V of a whole sequence, never more than a chunk at once, prompts not at all."""
    small_chunks(monkeypatch, rows)
    shapes: list[torch.Size] = []
    module.lm_head.register_forward_hook(lambda _module, _input, output: shapes.append(output.shape))
    batch = batch_of()
    token_logps(module, batch)
    assert all(len(shape) == 2 and shape[1] == VOCAB for shape in shapes)
    assert sum(shape[0] for shape in shapes) == int(batch.mask_BT.sum())
    assert max(shape[0] for shape in shapes) <= rows


def test_b29_rows_that_are_not_trained_do_not_meet_the_head(module: Any) -> None:
    """B-29, B-09."""
    shapes: list[torch.Size] = []
    module.lm_head.register_forward_hook(lambda _module, _input, output: shapes.append(output.shape))
    batch = batch_of()
    masked = batch.with_(mask_BT=batch.mask_BT & (torch.arange(len(batch)) % 2 == 0)[:, None])
    logp_BT, entropy_BT = token_logps(module, masked)
    assert shapes == [(int(masked.mask_BT.sum()), VOCAB)]
    assert torch.equal(logp_BT != 0, masked.mask_BT)
    assert torch.equal(entropy_BT != 0, masked.mask_BT)
    assert torch.allclose(logp_BT[0], token_logps(module, batch)[0][0], rtol=0, atol=1e-12)


def test_a_flat_law_by_hand(module: Any) -> None:
    """With a head of zeros every token has 1/V, and the entropy is ln V."""
    torch.nn.init.zeros_(module.lm_head.weight)
    batch = batch_of()
    logp_BT, entropy_BT = token_logps(module, batch)
    assert logp_BT[batch.mask_BT].tolist() == pytest.approx([-math.log(VOCAB)] * int(batch.mask_BT.sum()))
    assert entropy_BT[batch.mask_BT].tolist() == pytest.approx([math.log(VOCAB)] * int(batch.mask_BT.sum()))


def test_arithmetic_of_the_law_is_float32_under_autocast(module: Any) -> None:
    module = module.float()
    batch = batch_of().to("cpu", torch.float32)
    plain, _ = token_logps(module, batch)
    with torch.autocast("cpu", torch.bfloat16):
        logp_BT, entropy_BT = token_logps(module, batch)
    assert logp_BT.dtype == entropy_BT.dtype == torch.float32
    assert 0 < (logp_BT - plain).abs().max() < 0.1


class Scaled(LlamaForCausalLM):
    """More than head(decoder): what a patched or unknown architecture may do."""

    def forward(self, *args: Any, **kwargs: Any) -> Any:
        out = super().forward(*args, **kwargs)
        out.logits = out.logits / 4
        return out


def scaled(module: Any) -> Any:
    twin = Scaled(module.config).double().eval()
    twin.load_state_dict(module.state_dict())
    return twin


def cohere(module: Any) -> Any:
    return seeded(lambda: CohereForCausalLM(CohereConfig(**SHAPE, logit_scale=0.0625)))


def granite(module: Any) -> Any:
    return seeded(lambda: GraniteForCausalLM(GraniteConfig(**SHAPE, logits_scaling=8.0)))


@pytest.mark.parametrize("make", [scaled, cohere, granite])
def test_b27_a_model_that_does_more_than_its_head_is_refused(module: Any, make: Any) -> None:
    """B-27: stopped before the first step, with a message that names the class."""
    odd = make(module)
    with pytest.raises(RunError, match=type(odd).__name__) as caught:
        check_head(odd)
    assert len(str(caught.value).splitlines()) <= 3


def test_b27_a_cap_that_is_not_applied_is_noticed(monkeypatch: pytest.MonkeyPatch) -> None:
    """B-27: a wrapped model that lost its soft-capping."""
    module = gemma()
    module.config.final_logit_softcapping = 1.0
    own = Gemma2ForCausalLM.forward

    def uncapped(self: Any, *args: Any, **kwargs: Any) -> Any:
        self.config.final_logit_softcapping = None
        out = own(self, *args, **kwargs)
        self.config.final_logit_softcapping = 1.0
        return out

    monkeypatch.setattr(Gemma2ForCausalLM, "forward", uncapped)
    with pytest.raises(RunError, match="Gemma2"):
        check_head(module)


def test_a_model_in_an_adapter_gives_the_adapter_s_log_probs(module: Any) -> None:
    adapted: Any = add_lora(module, LoraSpec(rank=2), seed=0)
    batch = batch_of()
    before, _ = token_logps(adapted, batch)
    with torch.no_grad():
        for p in adapted.parameters():
            if p.requires_grad:
                p.add_(0.3)
    check_head(adapted)
    after, _ = token_logps(adapted, batch)
    assert (after - before).abs().max() > 1e-3
    assert torch.allclose(after, dense(adapted, batch)[0], rtol=0, atol=1e-12)
