import json
import time

import pytest
import torch
from safetensors.torch import load_file, save_file
from transformers import BertConfig, BertForMaskedLM

from rlctl.errors import UserError
from rlctl.models import PretrainedModel, TinyModel, tiny
from rlctl.models.load import load, tokenizer

TINY = TinyModel(kind="tiny", layers=1, width=32, heads=2, context=64)
TOKENIZER = tiny.character_tokenizer(TINY)


def spec(path, **changes):
    return PretrainedModel(kind="pretrained", path=str(path), **changes)


@pytest.fixture
def folder(tmp_path):
    place = tmp_path / "model"
    tiny._scratch(TINY, 0).save_pretrained(place)
    TOKENIZER.save_pretrained(place)
    return place


def refusal(path, **changes):
    """The message with which a model is refused: three lines at most."""
    with pytest.raises(UserError) as caught:
        load(spec(path, **changes), tokenizer(spec(path, **changes)), [], seed=0)
    assert len(str(caught.value).splitlines()) <= 3 and "model.path=FOLDER" in str(caught.value)
    return caught.value.message


def test_a_folder_is_loaded_in_float32(folder):
    config = json.loads((folder / "config.json").read_text())
    (folder / "config.json").write_text(json.dumps({**config, "dtype": "bfloat16"}))
    policy = load(spec(folder), tokenizer(spec(folder)), [], seed=0)
    assert {p.dtype for p in policy.module.parameters()} == {torch.float32}
    assert policy.origin == str(folder) and policy.lasting and policy.context_length == 64
    assert not policy.module.training


def test_a_run_folder_means_its_final_model(folder):
    run = folder.parent / "run"
    run.mkdir()
    (run / "status.json").write_text("{}")
    assert "no final model yet" in refusal(run)
    folder.rename(run / "final")
    assert load(spec(run), tokenizer(spec(run)), [], seed=0).origin == str(run / "final")


@pytest.mark.parametrize(("eos", "wanted"), [(5, {1, 5}), ([5, 6], {1, 5, 6}), (None, {1})])
def test_b17_eos_ids_are_the_union_of_all_that_name_them(folder, eos, wanted):
    """B-17: generation_config, config and tokenizer may each name others."""
    (folder / "generation_config.json").write_text(json.dumps({"eos_token_id": eos}))
    policy = load(spec(folder), tokenizer(spec(folder)), [], seed=0)
    assert policy.eos_ids == wanted
    assert set(policy.module.generation_config.eos_token_id) == wanted


def test_a_hostile_generation_config_neither_leaks_nor_stops_the_export(folder, tmp_path):
    hostile = {"do_sample": False, "temperature": 0.6, "top_k": 20, "max_new_tokens": 7}
    (folder / "generation_config.json").write_text(json.dumps(hostile))
    policy = load(spec(folder), tokenizer(spec(folder)), [], seed=0)
    assert policy.module.generation_config.top_k is None
    policy.module.save_pretrained(tmp_path / "out")


def test_no_hub_says_which_model_is_missing_and_what_to_do(monkeypatch, tmp_path):
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_OFFLINE", True)
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_CACHE", str(tmp_path))
    start = time.monotonic()
    message = refusal("Qwen/Qwen2.5-Math-1.5B")
    assert "Qwen/Qwen2.5-Math-1.5B is not on this machine and the hub cannot be reached" in message
    assert time.monotonic() - start < 20  # a guard against retries that hang, no speed test


def test_refusals_name_the_fault(folder, tmp_path):
    assert "there is no folder /nowhere/at/all" in refusal("/nowhere/at/all")
    (tmp_path / "empty").mkdir()
    assert "a folder without config.json" in refusal(tmp_path / "empty")

    state = load_file(folder / "model.safetensors")
    save_file(
        {n: w for n, w in state.items() if "lm_head" not in n}, folder / "model.safetensors", {"format": "pt"}
    )
    assert "lacks the weights lm_head.weight" in refusal(folder)
    (folder / "model.safetensors").write_bytes(b"abc")
    assert "does not load" in refusal(folder)
    (folder / "model.safetensors").unlink()
    torch.save(state, folder / "pytorch_model.bin")  # a pickle is never loaded
    assert "no file named model.safetensors" in refusal(folder)
    (folder / "tokenizer.json").unlink()
    assert "no usable tokenizer" in refusal(folder)


def test_only_causal_language_models(tmp_path):
    shape = {"hidden_size": 32, "num_hidden_layers": 1, "num_attention_heads": 2, "intermediate_size": 32}
    BertForMaskedLM(BertConfig(vocab_size=99, **shape)).save_pretrained(tmp_path)
    TOKENIZER.save_pretrained(tmp_path)
    assert "BertForMaskedLM" in refusal(tmp_path)
