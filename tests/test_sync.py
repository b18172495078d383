"""Weights handed over and compared, with engines that go wrong in the ways that were seen elsewhere."""

import copy
import math
from dataclasses import replace

import pytest
import torch
from transformers import LlamaConfig, LlamaForCausalLM

from rlctl.engine import TransformersEngine as Spec
from rlctl.engine.transformers import TransformersEngine
from rlctl.errors import RunError
from rlctl.learner import OptimSpec
from rlctl.learner.learner import Learner
from rlctl.models import TinyModel
from rlctl.models.tiny import character_tokenizer
from rlctl.sync import ROWS, Sync
from rlctl.types import Prompt

TOKENIZER = character_tokenizer(TinyModel(kind="tiny"))


class Apart(TransformersEngine):
    """An engine with a copy of the weights; `lost`: parameters that never arrive."""

    same_program = False
    tolerance = 1e-3

    def __init__(self, module, lost=""):
        super().__init__(copy.deepcopy(module), TOKENIZER, frozenset([1]), Spec())
        self.lost = lost
        self.asked = []

    def refresh(self, weights, version):
        super().refresh(weights, version)
        with torch.no_grad():
            for name, weight in weights():
                if not (self.lost and self.lost in name):
                    self.module.get_parameter(name).copy_(weight)

    def generate(self, requests):
        self.asked = list(requests)
        return super().generate(requests)


class Raw(Apart):
    """Gives back log-probs of the law at temperature 1, whatever was sampled."""

    def generate(self, requests):
        yield from super().generate([replace(r, temperature=1.0) for r in requests])


class Broken(Apart):
    """One of its log-probs is no number."""

    def generate(self, requests):
        for c in super().generate(requests):
            yield replace(c, logps=(math.nan, *c.logps[1:])) if c.index == 2 else c


@pytest.fixture
def module():
    torch.manual_seed(0)
    shape = {"hidden_size": 32, "intermediate_size": 48, "num_hidden_layers": 2, "num_attention_heads": 2}
    return LlamaForCausalLM(
        LlamaConfig(vocab_size=len(TOKENIZER), max_position_embeddings=64, initializer_range=0.2, **shape)
    ).eval()


def synced(module, engine, temperature=1.0):
    learner = Learner(module, OptimSpec(learning_rate=1e-3))
    prompts = [
        Prompt(f"t:{i}", (("user", "q"),), "", ids=tuple(TOKENIZER(f"{i}+{i}=")["input_ids"]))
        for i in range(6)
    ]
    return Sync(engine, module.named_parameters, learner.score, prompts, temperature=temperature, seed=1)


def change(module):
    with torch.no_grad():
        for p in module.parameters():
            p.add_(torch.randn_like(p), alpha=0.1)


@pytest.mark.parametrize("temperature", [1.0, 0.7])
def test_weights_that_arrived_agree(module, temperature):
    """B-10: at the sampling temperature, where both sides divide by it."""
    sync = synced(module, Apart(module), temperature)
    for version in range(3):
        assert sync(version)["mismatch/probe"] < 1e-5
        change(module)
    assert {r.temperature for r in sync.engine.asked} == {temperature}
    assert len(sync.engine.asked) == ROWS and all(r.top_p == 1 and r.top_k is None for r in sync.engine.asked)


@pytest.mark.parametrize("lost", ["lm_head", "layers.1.self_attn.v_proj", "norm"])
def test_one_layer_that_stays_behind_stops_the_run(module, lost):
    sync = synced(module, Apart(module, lost))
    sync(0)
    change(module)
    with pytest.raises(RunError, match=r"step 1 .* differ from the learner's") as caught:
        sync(1)
    assert caught.value.reason == "mismatch" and len(str(caught.value).splitlines()) <= 3


def test_b11_raw_log_probs_stop_the_run(module):
    """B-11: an engine that answers with log-probs of another law than it was asked to sample."""
    with pytest.raises(RunError):
        synced(module, Raw(module), temperature=0.7)(0)


def test_b13_a_nan_stops_the_run(module):
    """B-13: NaN is past every tolerance."""
    with pytest.raises(RunError, match="by nan on average"):
        synced(module, Broken(module))(0)


def test_every_version_is_asked_with_new_seeds(module):
    sync = synced(module, Apart(module))
    sync(0)
    first = {r.seed for r in sync.engine.asked}
    sync(1)
    assert not first & {r.seed for r in sync.engine.asked}


def test_the_learners_own_program_is_not_compared(module):
    sync = synced(module, TransformersEngine(module, TOKENIZER, frozenset([1]), Spec()))
    assert sync(4) == {} and sync.engine.version == 4
