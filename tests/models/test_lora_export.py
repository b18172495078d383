import json
import shutil
import subprocess
import sys
from dataclasses import replace
from types import SimpleNamespace

import pytest
import torch

from rlctl.engine import TransformersEngine as EngineSpec
from rlctl.engine.build import build
from rlctl.engine.policy import Setting
from rlctl.errors import UserError
from rlctl.models import LoraSpec, PretrainedModel, TinyModel, WarmStart
from rlctl.models.export import export
from rlctl.models.load import load, tokenizer
from rlctl.types import Request

IDS = [20, 21, 22, 23]
LORA = LoraSpec(rank=4)


@pytest.fixture(autouse=True)
def cache(tmp_path, monkeypatch):
    monkeypatch.setenv("RLCTL_CACHE", str(tmp_path / "cache"))
    return tmp_path / "cache"


def tiny(lora=LORA):
    spec = TinyModel(
        kind="tiny", layers=1, width=32, heads=2, context=64, warm_start=WarmStart(steps=0), lora=lora
    )
    return load(spec, tokenizer(spec), [], seed=0)


def trained(policy):
    """The policy after something like training: what may move has moved."""
    draw = torch.Generator().manual_seed(1)
    for p in policy.module.parameters():
        if p.requires_grad:
            p.data += 0.05 * torch.randn(p.shape, generator=draw)
    return policy


def logits(module):
    with torch.no_grad():
        return module.eval()(torch.tensor([IDS])).logits


def elsewhere(loads):
    """Logits of models that a fresh process loads, without rlctl and without the cache."""
    code = f"""
import json, torch
from transformers import AutoModelForCausalLM as Auto
from peft import AutoPeftModelForCausalLM as AutoPeft
loads = {loads}
models = {{name: globals()[how].from_pretrained(folder) for name, (how, folder) in loads.items()}}
print("RESULT", json.dumps({{name: m(torch.tensor([{IDS}])).logits.tolist() for name, m in models.items()}}))
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=250)
    assert done.returncode == 0, done.stderr
    return {name: torch.tensor(x) for name, x in json.loads(done.stdout.split("RESULT")[1]).items()}


@pytest.fixture(scope="module")
def world(tmp_path_factory):
    """A full run, an adapter run, and a run that started from the adapter; here and in a fresh process."""
    root = tmp_path_factory.mktemp("world")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("RLCTL_CACHE", str(root / "cache"))
        full, adapter = trained(tiny(lora=None)), trained(tiny())
    export(full, root / "full" / "final")
    before = logits(adapter.module)
    export(adapter, root / "adapter" / "final", merge=True)
    assert torch.equal(logits(adapter.module), before), "exporting changed the policy"
    shutil.rmtree(root / "cache")

    shutil.copytree(root / "adapter", root / "moved")  # the base is found beside the adapter
    (root / "adapter").rename(root / "hidden")
    spec = PretrainedModel(kind="pretrained", path=str(root / "moved"), lora=LORA)
    second = load(spec, tokenizer(spec), [], seed=1)
    begun = logits(second.module)
    export(trained(second), root / "second")
    shutil.rmtree(root / "moved")
    (root / "hidden").rename(root / "adapter")

    final = root / "adapter" / "final"
    there = elsewhere(
        {
            "full": ("Auto", str(root / "full" / "final")),
            "auto": ("Auto", str(final)),
            "peft": ("AutoPeft", str(final)),
            "merged": ("Auto", str(final / "merged")),
            "base": ("Auto", str(final / "base")),
            "second": ("Auto", str(root / "second")),
        }
    )
    return SimpleNamespace(root=root, full=full, adapter=adapter, second=second, begun=begun, there=there)


def close(one, other):
    return torch.allclose(one, other, atol=1e-5)


def test_a_full_export_loads_in_a_fresh_process(world):
    assert close(world.there["full"], logits(world.full.module))
    spec = PretrainedModel(kind="pretrained", path=str(world.root / "full"))
    again = load(spec, tokenizer(spec), [], 0)
    assert torch.equal(logits(again.module), logits(world.full.module))
    assert again.eos_ids == world.full.eos_ids and again.context_length == 64
    assert again.tokenizer("1+1=\n")["input_ids"] == world.full.tokenizer("1+1=\n")["input_ids"]


def test_c09_an_exported_adapter_changes_the_base_in_a_fresh_process(world):
    """C-09: adapter and merged model give the logits of training, the base alone does not."""
    wanted = logits(world.adapter.module)
    assert all(close(world.there[name], wanted) for name in ("auto", "peft", "merged"))
    with world.adapter.module.disable_adapter():
        assert close(world.there["base"], logits(world.adapter.module))
    assert not close(world.there["base"], wanted)


def test_a_run_that_starts_from_an_adapter_merges_it_first(world):
    first = logits(world.adapter.module)
    assert close(world.begun, first) and not close(logits(world.second.module), first)
    with world.second.module.disable_adapter():  # the reference policy is where this run began
        assert close(logits(world.second.module), first)
    assert close(world.there["second"], logits(world.second.module))


def test_an_adapter_names_a_base_that_lasts(tmp_path):
    export(tiny(lora=None), tmp_path / "own")
    spec = PretrainedModel(kind="pretrained", path=str(tmp_path / "own"), revision="v2", lora=LORA)
    policy = load(spec, tokenizer(spec), [], seed=0)
    export(policy, tmp_path / "out")
    config = json.loads((tmp_path / "out" / "adapter_config.json").read_text())
    assert (
        config["base_model_name_or_path"] == str(tmp_path / "own")
        and not (tmp_path / "out" / "base").exists()
    )
    export(replace(policy, origin="some/hub-model"), tmp_path / "out")
    config = json.loads((tmp_path / "out" / "adapter_config.json").read_text())
    assert (config["base_model_name_or_path"], config["revision"]) == ("some/hub-model", "v2")


def test_an_export_replaces_what_lay_there(tmp_path):
    final = tmp_path / "final"
    export(tiny(), final, merge=True)
    export(tiny(lora=None), final)
    assert not (final / "adapter_config.json").exists() and [p.name for p in tmp_path.glob("final*")] == [
        "final"
    ]


def test_an_adapter_begins_at_zero_by_its_seed_and_leaves_the_rng_alone():
    state = torch.get_rng_state()
    full, one, same = tiny(lora=None), tiny(), tiny()
    assert torch.equal(torch.get_rng_state(), state)
    assert torch.equal(logits(one.module), logits(full.module))
    ours, theirs = one.module.state_dict(), same.module.state_dict()
    assert all(torch.equal(ours[name], theirs[name]) for name in ours)
    assert {n.split(".")[-3] for n, p in one.module.named_parameters() if p.requires_grad} == {
        "lora_A",
        "lora_B",
    }


def test_targets_that_fit_nothing_are_refused():
    with pytest.raises(UserError, match="target_modules") as caught:
        tiny(LoraSpec(target_modules=("nonsense",)))
    assert "all-linear" in caught.value.hint


def test_an_adapter_is_sampled_as_it_is_trained():
    policy = trained(tiny())
    policy.module.train()
    engine, _ = build(EngineSpec(), policy, Setting(64, torch.float32), print)
    request = Request(0, tuple(IDS), seed=3, max_tokens=6, temperature=0.7)
    (c,) = engine.generate([request])
    assert policy.module.training
    with torch.no_grad():
        rows = policy.module.eval()(torch.tensor([IDS + list(c.ids)])).logits[0, len(IDS) - 1 : -1] / 0.7
    assert c.logps == pytest.approx(rows.log_softmax(-1)[range(len(c.ids)), list(c.ids)].tolist(), abs=1e-5)


def test_merged_weights_are_what_peft_merges_and_leave_the_module_alone():
    policy = trained(tiny())
    before = {name: p.clone() for name, p in policy.module.named_parameters()}
    merged, base = dict(policy.whole()), dict(policy.base())
    assert merged.keys() == base.keys()
    assert {n for n in merged if not torch.equal(merged[n], base[n])} == {n for n in base if "_proj" in n}
    assert all(torch.equal(p, before[name]) for name, p in policy.module.named_parameters())
    peft_merged = policy.module.merge_and_unload()
    for name, p in peft_merged.named_parameters():
        torch.testing.assert_close(merged[name], p, rtol=0, atol=1e-6)


def test_an_adapter_goes_to_an_engine_as_it_goes_to_a_file(tmp_path):
    """C-07: the same names, so that a loader of adapter folders finds each of them."""
    from safetensors.torch import load_file

    policy = trained(tiny())
    export(policy, tmp_path / "final")
    written, sent = load_file(tmp_path / "final/adapter_model.safetensors"), dict(policy.lora())
    assert written.keys() == sent.keys() and all(torch.equal(written[n], sent[n]) for n in sent)


def test_a_plain_model_is_sent_whole_and_tied_weights_once():
    policy = tiny(lora=None)
    names = [name for name, _ in policy.whole()]
    assert len(names) == len(set(names)) and "lm_head.weight" in names
    assert sum(w.numel() for _, w in policy.whole()) == policy.parameters == policy.trained
    assert dict(policy.base()).keys() == set(names)
    policy.module.config.tie_word_embeddings = True
    policy.module.tie_weights()
    assert "lm_head.weight" not in dict(policy.whole())
