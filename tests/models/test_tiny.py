import os
import subprocess
import sys
from pathlib import Path

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from pydantic import ValidationError
from transformers import AutoTokenizer

from rlctl.errors import UserError
from rlctl.models import TinyModel, WarmStart
from rlctl.models import tiny as tiny_module
from rlctl.models.load import load, tokenizer
from rlctl.models.tiny import CHARACTERS, EOS, character_tokenizer
from rlctl.types import Prompt

SPEC = TinyModel(kind="tiny", layers=1, width=32, heads=2, context=32, warm_start=WarmStart(steps=4, batch=8))
TOKENIZER = character_tokenizer(SPEC)
PRINTABLE = st.text(st.sampled_from(CHARACTERS[3:]))


def prompts(n=20):
    return [
        Prompt(
            f"a:{i}", (("user", f"{i}="),), str(i), demo=str(i), ids=tuple(TOKENIZER(f"{i}=")["input_ids"])
        )
        for i in range(n)
    ]


@pytest.fixture(autouse=True)
def cache(tmp_path, monkeypatch):
    monkeypatch.setenv("RLCTL_CACHE", str(tmp_path / "cache"))
    return tmp_path / "cache"


def weights(policy):
    return {name: w.clone() for name, w in policy.module.state_dict().items()}


def same(one, other):
    return one.keys() == other.keys() and all(torch.equal(one[name], other[name]) for name in one)


@given(PRINTABLE)
def test_text_survives_the_tokenizer(text):
    ids = TOKENIZER(text)["input_ids"]
    assert TOKENIZER.decode(ids) == TOKENIZER.decode(ids, skip_special_tokens=True) == text
    assert len(ids) == len(text) and not set(ids) & set(TOKENIZER.all_special_ids)


def test_the_tokenizer_is_a_real_one(tmp_path):
    TOKENIZER.save_pretrained(tmp_path)
    again = AutoTokenizer.from_pretrained(tmp_path)
    assert again("12+3=\n é")["input_ids"] == TOKENIZER("12+3=\n é")["input_ids"]
    assert (again.eos_token_id, again.pad_token_id, again.bos_token_id) == (1, 0, None)
    assert again.model_max_length == SPEC.context
    messages = [{"role": "system", "content": "Add."}, {"role": "user", "content": "1+1="}]
    assert again.apply_chat_template(messages, tokenize=False, add_generation_prompt=True) == "Add.\n1+1="
    assert again.apply_chat_template(messages[1:], tokenize=False, add_generation_prompt=True) == "1+1="


def test_unknown_characters_are_one_token_each():
    assert TOKENIZER("é😀")["input_ids"] == [TOKENIZER.unk_token_id] * 2


def test_the_default_has_about_800_thousand_parameters():
    count = sum(p.numel() for p in tiny_module._scratch(TinyModel(kind="tiny"), 0).parameters())
    assert 0.7e6 < count < 0.9e6


def test_warm_start_teaches_the_demonstrations_and_where_to_stop():
    spec = SPEC.model_copy(update={"warm_start": WarmStart(steps=60, batch=16, learning_rate=1e-2)})
    data = prompts(10)
    policy = load(spec, TOKENIZER, data, seed=0)
    for prompt in data:
        ids = list(prompt.ids)
        for wanted in [*TOKENIZER(prompt.demo)["input_ids"], TOKENIZER.eos_token_id]:
            assert int(policy.module(torch.tensor([ids])).logits[0, -1].argmax()) == wanted
            ids.append(wanted)
    assert TOKENIZER.decode(ids[-1]) == EOS


def test_targets_are_the_demonstration_alone():
    examples = [((5, 6, 7), (8, 1)), ((5,), (9, 9, 1))]
    ((tokens, targets),) = tiny_module._batches(examples, WarmStart(steps=1, batch=2), seed=0)
    rows = sorted(zip(tokens.tolist(), targets.tolist(), strict=True))
    assert rows == [([5, 6, 7, 8], [-1, -1, 8, 1]), ([5, 9, 9, 0], [9, 9, 1, -1])]


def test_every_example_is_seen_once_an_epoch():
    examples = [((i,), (1,)) for i in range(2, 14)]
    batches = tiny_module._batches(examples, WarmStart(steps=6, batch=4), seed=3)
    seen = torch.cat([tokens[:, 0] for tokens, _ in batches]).tolist()
    assert sorted(seen[:12]) == sorted(seen[12:]) == list(range(2, 14)) and seen[:12] != seen[12:]


def test_warm_start_is_deterministic_and_leaves_the_global_rng_alone(cache, monkeypatch):
    torch.manual_seed(11)
    state = torch.get_rng_state()
    first = load(SPEC, TOKENIZER, prompts(), seed=5)
    assert torch.equal(torch.get_rng_state(), state)
    torch.manual_seed(12)
    monkeypatch.setenv("RLCTL_CACHE", str(cache / "other"))
    again = load(SPEC, TOKENIZER, prompts(), seed=5)
    assert first.origin != again.origin and same(weights(first), weights(again))
    assert not same(weights(first), weights(load(SPEC, TOKENIZER, prompts(), seed=6)))


def test_the_cache_is_hit_only_by_what_determines_the_weights(cache):
    lines = []
    load(SPEC, TOKENIZER, prompts(), 0, lines.append)
    assert lines[-1].startswith("warm start: 4/4 steps, loss ")
    assert len(list(cache.iterdir())) == 1
    load(SPEC.model_copy(update={"dtype": "bfloat16"}), TOKENIZER, prompts(), 0, pytest.fail)
    changes = [
        (SPEC.model_copy(update={"heads": 4}), prompts(), 0),
        (SPEC, prompts(19), 0),
        (SPEC, prompts(), 1),
        (SPEC.model_copy(update={"warm_start": WarmStart(steps=5, batch=8)}), prompts(), 0),
    ]
    for n, (spec, data, seed) in enumerate(changes, start=2):
        load(spec, TOKENIZER, data, seed)
        assert len(list(cache.iterdir())) == n


def test_two_processes_may_make_it_at_once(cache):
    code = f"import sys; sys.path.insert(0, {str(Path(__file__).parent)!r}); import test_tiny as t; t.race()"
    racers = [
        subprocess.Popen([sys.executable, "-c", code], env={**os.environ}, stdout=subprocess.PIPE)
        for _ in "ab"
    ]
    out = [racer.communicate(timeout=200)[0].split() for racer in racers]
    assert [racer.returncode for racer in racers] == [0, 0]
    assert out[0] == out[1] and len(list(cache.iterdir())) == 1


def race():
    """What a racing process does: make the model, print where it lies and what it holds."""
    torch.set_num_threads(1)
    policy = load(SPEC, TOKENIZER, prompts(), seed=0)
    print(policy.origin, sum(w.double().sum().item() for w in weights(policy).values()))


def test_a_lost_race_takes_the_winners_folder(cache, monkeypatch):
    real, winner = tiny_module._scratch, []

    def slower(spec, seed):  # meanwhile another process makes the same model
        if not winner:
            winner.append(None)
            winner[0] = load(SPEC, TOKENIZER, prompts(), seed=0)
        return real(spec, seed)

    monkeypatch.setattr(tiny_module, "_scratch", slower)
    loser = load(SPEC, TOKENIZER, prompts(), seed=0)
    assert loser.origin == winner[0].origin and same(weights(loser), weights(winner[0]))
    assert len(list(cache.iterdir())) == 1


def test_policy_of_a_tiny_model():
    policy = load(SPEC, tokenizer(SPEC), prompts(), seed=0)
    assert policy.eos_ids == {TOKENIZER.eos_token_id} and policy.context_length == 32
    assert not policy.adapter and not policy.lasting and Path(policy.origin).is_dir()
    assert {p.dtype for p in policy.module.parameters()} == {torch.float32}


def test_without_warm_start_no_demonstrations_are_needed():
    bare = [Prompt("a:0", (), "1", ids=(4,))]
    load(SPEC.model_copy(update={"warm_start": WarmStart(steps=0)}), TOKENIZER, bare, seed=0)
    with pytest.raises(UserError, match="no demonstrations") as caught:
        load(SPEC, TOKENIZER, bare, seed=0)
    assert "model.warm_start.steps" in caught.value.hint


def test_a_demonstration_must_fit_the_context():
    long = Prompt("a:0", (), "1", demo="1" * 30, ids=(4, 5))
    with pytest.raises(UserError, match="33"):
        load(SPEC, TOKENIZER, [long], seed=0)


def test_heads_must_divide_the_width():
    with pytest.raises(ValidationError, match="multiple of twice the heads"):
        TinyModel(kind="tiny", width=48, heads=5)
