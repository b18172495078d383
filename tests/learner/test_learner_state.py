"""What a learner keeps: its files, its adapter, its reference."""

from __future__ import annotations

import json
import resource
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
import torch
from learning import adapted, learner_of, make_groups, moments_of, packed, same, twin, update, weights_of
from safetensors.torch import load_file
from transformers import LlamaForCausalLM

from rlctl.checkpoint import newest_first, save, whole
from rlctl.errors import RunError
from rlctl.learner.learner import Learner


@pytest.mark.parametrize("lora", [False, True])
def test_d08_a_restored_learner_goes_on_bit_for_bit(module: Any, lora: bool, tmp_path: Path) -> None:
    """D-08: weights, Adam moments and learning rate are equal, and so is the next update."""

    def made() -> Learner:
        fresh = adapted(twin(module)) if lora else twin(module)
        spec = {"schedule": "cosine", "warmup_steps": 2, "weight_decay": 0.1}
        return learner_of(fresh, total_steps=10, optim=spec)

    first, second = made(), made()
    for step in (1, 2, 3):
        update(first, make_groups(seed=step), rate=first.rate(step))
    first.save(tmp_path)
    second.restore(tmp_path)
    assert same(weights_of(first), weights_of(second))
    assert same(moments_of(first), moments_of(second))
    assert len(moments_of(first)) == 3 * len(first.trained)
    assert first.rate(4) == second.rate(4)
    assert first.fingerprint() == second.fingerprint()
    for step in (4, 5):
        for learner in (first, second):
            update(learner, make_groups(seed=step), rate=learner.rate(step))
        assert same(weights_of(first), weights_of(second))


def test_d08_restore_replaces_what_was_there(module: Any, tmp_path: Path) -> None:
    """D-08: a learner that has stepped on falls back whole, to one that never took a step too."""
    learner = learner_of(module)
    before = weights_of(learner)
    learner.save(tmp_path)
    update(learner, make_groups())
    learner.restore(tmp_path)
    assert same(weights_of(learner), before)
    assert moments_of(learner) == {}


def test_d16_a_checkpoint_is_safetensors_and_json(module: Any, tmp_path: Path) -> None:
    """D-16: nothing in it is a pickle."""
    learner = learner_of(module)
    update(learner, make_groups())
    folder = save(tmp_path, 1, {"step": 1}, learner.save)
    assert {file.name for file in folder.iterdir()} == {
        "model.safetensors",
        "optimizer.safetensors",
        "state.json",
        "DONE",
    }
    for file in folder.iterdir():
        if file.suffix == ".safetensors":
            assert load_file(file)
        else:
            assert json.loads(file.read_text())


def test_a_checkpoint_of_another_model_is_noticed(module: Any, tmp_path: Path) -> None:
    learner_of(module).save(tmp_path)
    config = module.config.__class__(**{**module.config.to_dict(), "num_hidden_layers": 1})
    with pytest.raises(AssertionError, match="another model"):
        learner_of(LlamaForCausalLM(config).double()).restore(tmp_path)


@contextmanager
def disk_of(size: int) -> Iterator[None]:
    """No file may grow beyond `size` bytes."""
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (size, hard))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))


@pytest.mark.parametrize("size", [1000, 60_000])
def test_d09_a_full_disk_is_said_and_leaves_the_earlier_checkpoint(
    module: Any, size: int, tmp_path: Path
) -> None:
    """D-09: the weights do not fit; or they do, and the optimiser's state does not."""
    learner = learner_of(module)
    update(learner, make_groups())
    save(tmp_path, 1, {"step": 1}, learner.save)
    saved = weights_of(learner)
    update(learner, make_groups())
    sizes = [(tmp_path / "step-000001" / name).stat().st_size for name in FILES]
    assert 1000 < sizes[0] < 60_000 < sizes[1]
    with disk_of(size), pytest.raises(RunError) as caught:
        save(tmp_path, 2, {"step": 2}, learner.save)
    assert "step 2 could not be written" in str(caught.value)
    assert "None" not in str(caught.value)
    assert len(str(caught.value).splitlines()) <= 3
    (left,) = newest_first(tmp_path)
    assert whole(left)
    learner.restore(left)
    assert same(weights_of(learner), saved)


FILES = ("model.safetensors", "optimizer.safetensors")


def test_lora_trains_and_saves_the_adapter_alone(module: Any, tmp_path: Path) -> None:
    base = {name: p.detach().clone() for name, p in module.named_parameters()}
    learner = learner_of(adapted(module))
    assert learner.trained
    assert all("lora_" in name for name in learner.trained)
    update(learner, make_groups())
    update(learner, make_groups())
    assert all(p.abs().max() > 0 for p in learner.trained.values())
    for name, p in module.named_parameters():
        if "lora_" not in name:
            assert torch.equal(p, base[name.replace(".base_layer", "")]), name
    learner.save(tmp_path)
    assert sorted(file.name for file in tmp_path.iterdir()) == [
        "adapter.safetensors",
        "optimizer.safetensors",
    ]
    assert load_file(tmp_path / "adapter.safetensors").keys() == learner.trained.keys()


def test_the_reference_of_an_adapter_is_the_model_without_it(module: Any) -> None:
    """No frozen copy is kept, and the adapter is on again afterwards."""
    needs = frozenset({"old_logp", "ref_logp"})
    batch = packed(make_groups())
    plain = learner_of(twin(module)).score(batch, frozenset({"old_logp"})).old_logp_BT
    learner = learner_of(adapted(module), reference=True)
    assert learner.frozen is None
    for step in range(3):
        scored = learner.score(batch, needs)
        assert torch.allclose(scored.ref_logp_BT, plain, rtol=0, atol=1e-12)
        gap = (scored.old_logp_BT - scored.ref_logp_BT).abs().max()
        assert gap < 1e-12 if step == 0 else gap > 1e-6
        update(learner, make_groups(seed=step), rate=1e-2)


def test_the_reference_of_a_whole_model_is_a_frozen_copy(module: Any) -> None:
    batch = packed(make_groups())
    learner = learner_of(module, reference=True)
    plain = learner.score(batch, frozenset({"old_logp"})).old_logp_BT
    update(learner, make_groups(), rate=1e-2)
    scored = learner.score(batch, frozenset({"old_logp", "ref_logp"}))
    assert torch.equal(scored.ref_logp_BT, plain)
    assert (scored.old_logp_BT - plain).abs().max() > 1e-3
    assert not any(p.requires_grad for p in learner.frozen.parameters())
    assert learner_of(module).frozen is None


def test_the_fingerprint_follows_every_weight(module: Any) -> None:
    learner = learner_of(module)
    first = learner.fingerprint()
    assert learner_of(twin(module)).fingerprint() == first
    with torch.no_grad():
        module.model.norm.weight[3] += 1e-12
    assert learner.fingerprint() != first
