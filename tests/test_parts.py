import os
import threading

import pytest
import torch
from transformers import LlamaConfig, LlamaForCausalLM

from rlctl.algorithm.correction import NoCorrection
from rlctl.budget import ResourcesSpec
from rlctl.errors import UserError
from rlctl.models import TinyModel
from rlctl.models.tiny import character_tokenizer
from rlctl.parts import build, fix_threads
from rlctl.recipe import load_text
from rlctl.rollout import Rollout

RECIPE = """\
version: 1
name: parts
model: {kind: tiny, layers: 1, width: 32, heads: 2, context: 128, warm_start: {steps: 0}}
data: {train: {kind: arithmetic, problems: 64}, max_prompt_length: 32}
rollout: {prompts_per_step: 2, group_size: 2, max_completion_length: 8, stop: ["!"], temperature: 0.7}
eval: {sets: [{kind: arithmetic, problems: 5}], pass_at: [1, 2], max_completion_length: 6}
engine: {kind: transformers}
budget: {steps: 2}
resources: {cpus: 1}
track: {mlflow: "off"}
"""

pytestmark = pytest.mark.usefixtures("surroundings")


def built(*overrides):
    said = []
    parts = build(load_text(RECIPE, "parts.yaml", overrides), said.append)
    parts.close()
    return parts, said


def weights(parts):
    return {name: p.detach().clone() for name, p in parts.policy.module.named_parameters()}


def test_parts_fit_together():
    parts, said = built()
    assert said == ["engine: transformers; 1 training set(s), 64 problems"]
    assert parts.engine.module is parts.learner.module is parts.policy.module
    assert parts.source.take(1)[0].ids
    assert [len(prompts) for prompts in parts.eval_sets.values()] == [5]
    assert parts.reference is None
    assert parts.learner.frozen is None
    assert parts.learner.total_steps == 2


def test_train_and_held_out_problems_never_meet():
    parts, _ = built()
    trained = {p.text for p in parts.source.take(64)}
    held_out = {p.text for prompts in parts.eval_sets.values() for p in prompts}
    assert len(trained) == 64
    assert not trained & held_out


def test_e10_an_evaluation_uses_its_own_settings():
    """E-10: length, number and temperature are the evaluation's; a null length is the rollout's."""
    sampling = built()[0].eval_sampling
    assert (sampling.purpose, sampling.samples, sampling.temperature) == ("eval", 2, 1.0)
    assert (sampling.max_tokens, sampling.top_p, sampling.top_k, sampling.stop) == (6, 1.0, None, ("!",))
    other = built("eval.samples=4", "eval.max_completion_length=null", "eval.temperature=0.6")[0]
    assert (other.eval_sampling.samples, other.eval_sampling.max_tokens) == (4, 8)
    assert other.eval_sampling.temperature == 0.6


def test_the_correction_is_off_where_the_learner_samples_itself():
    parts, _ = built()
    assert parts.engine.same_program
    assert isinstance(parts.algorithm.correction, NoCorrection)
    scripted, said = built("engine={kind: scripted, responses: ['1']}")
    assert not isinstance(scripted.algorithm.correction, NoCorrection)
    assert said[-1].startswith("engine: scripted")


def test_a_run_begins_the_same_each_time():
    """The same recipe gives the same weights, prompts and seeds; another seed gives others."""
    one, other, third = built()[0], built()[0], built("seed=18")[0]
    assert all(torch.equal(p, weights(other)[name]) for name, p in weights(one).items())
    assert not all(torch.equal(p, weights(third)[name]) for name, p in weights(one).items())
    prompts = one.source.take(9)
    assert prompts == other.source.take(9)
    assert prompts != third.source.take(9)


def test_a_reference_is_kept_and_recognised_only_where_it_is_needed():
    full, again = built("algorithm.kl=0.1")[0], built("algorithm.kl=0.1")[0]
    assert full.learner.frozen is not None
    assert full.reference == again.reference
    lora = built("algorithm.kl=0.1", "model.lora.rank=2")[0]
    assert lora.learner.frozen is None
    assert lora.reference not in (None, full.reference)
    assert all("lora_" in name for name in lora.learner.trained)


def test_b21_prompts_that_are_too_long_are_dropped_with_a_count(tmp_path):
    """B-21: said before the first step; none is cut."""
    file = tmp_path / "toy.jsonl"
    lines = (f'{{"prompt": "{"x" * n}", "answer": "1"}}\n' for n in (3, 33, 32, 40))
    file.write_text("".join(lines))
    parts, said = built(f"data.train={{kind: jsonl, path: {file}}}", "verifier={kind: exact}")
    assert said[0] == "toy: 2 prompts over data.max_prompt_length dropped"
    assert {len(p.ids) for p in parts.source.take(4)} == {3, 32}


def golds(tmp_path, good, bad):
    file = tmp_path / "toy.jsonl"
    rows = ['{"prompt": "1+1=", "answer": "2"}'] * good + ['{"prompt": "2+2=", "answer": "\\\\frac{"}'] * bad
    file.write_text("\n".join(rows))
    return built(f"data.train={{kind: jsonl, path: {file}}}", "verifier={kind: math}")


def test_v07_gold_answers_that_no_one_can_parse_are_named(tmp_path):
    """V-07: one in ten is told."""
    _, said = golds(tmp_path, good=9, bad=1)
    assert [line for line in said if "cannot parse" in line] == [
        "1 gold answers that the verifier cannot parse: toy:9 ('\\\\frac{')"
    ]


def test_v07_above_a_tenth_loading_stops(tmp_path):
    """V-07: also where another set is fine."""
    with pytest.raises(UserError) as error:
        golds(tmp_path, good=50, bad=6)
    message = str(error.value)
    assert message.startswith(
        "toy: the verifier cannot parse 6 of 56 gold answers: toy:50 ('\\\\frac{'), toy:51"
    )
    assert "toy:55" not in message
    assert len(message.splitlines()) == 2


@pytest.mark.parametrize(
    ("override", "wanted"),
    [
        ("model.dtype=auto", None),
        ("model.dtype=float32", None),
        ("model.dtype=bfloat16", torch.bfloat16),
    ],
)
@pytest.mark.skipif(torch.cuda.is_available(), reason="auto is bfloat16 on a GPU")
def test_arithmetic_is_as_the_recipe_says_and_weights_stay_float32(override, wanted):
    parts, _ = built(override)
    assert parts.learner.autocast == parts.engine.autocast == wanted
    assert {p.dtype for p in parts.policy.module.parameters()} == {torch.float32}


@pytest.mark.skipif(torch.cuda.is_available(), reason="auto is on with a GPU")
def test_gradient_checkpointing_gives_the_same_gradient():
    """On only where it is asked for; then activations are computed again, to the same numbers."""
    plain, saving = built()[0], built("model.gradient_checkpointing=true")[0]
    assert not plain.policy.module.is_gradient_checkpointing
    assert saving.policy.module.is_gradient_checkpointing
    ids = torch.tensor([[20, 21, 22, 23]])
    gradients = []
    for parts in (plain, saving):
        parts.policy.module.train()
        parts.policy.module(ids, labels=ids, use_cache=False).loss.backward()
        gradients.append([p.grad for p in parts.policy.module.parameters()])
    assert all(torch.equal(a, b) for a, b in zip(*gradients, strict=True))


def test_threads_are_fixed():
    fix_threads(ResourcesSpec(cpus=1, gpus=0))
    assert torch.get_num_threads() == 1
    assert os.environ["OMP_NUM_THREADS"] == "1"
    assert os.environ["CUDA_VISIBLE_DEVICES"] == ""
    fix_threads(ResourcesSpec())
    assert torch.get_num_threads() == len(os.sched_getaffinity(0))


def test_close_leaves_no_judging_thread():
    before = set(threading.enumerate())
    parts = build(load_text(RECIPE, "parts.yaml"), lambda line: None)
    parts.collector.collect(parts.source.take(2), parts.eval_sampling, (1, 0), Rollout())
    parts.close()
    for thread in parts.collector.threads._threads:
        thread.join(timeout=30)
        assert not thread.is_alive()
    left = set(threading.enumerate()) - before
    assert not any(t.name.startswith("judge") and t.is_alive() for t in left)


def test_sets_of_one_name_are_judged_in_one_way(tmp_path):
    file = tmp_path / "arithmetic.jsonl"
    file.write_text('{"prompt": "1+1=", "answer": "2", "demo": "2"}\n')
    source = f"data.train={{kind: jsonl, path: {file}}}"
    with pytest.raises(UserError, match="judged in two ways"):
        built(source)
    built(source, "eval.sets=[]")


def test_prompt_and_completion_fit_the_model_that_was_loaded(tmp_path):
    model = LlamaForCausalLM(
        LlamaConfig(
            vocab_size=99,
            hidden_size=16,
            intermediate_size=16,
            num_hidden_layers=1,
            num_attention_heads=2,
            max_position_embeddings=20,
        )
    )
    model.save_pretrained(tmp_path / "short")
    character_tokenizer(TinyModel(kind="tiny")).save_pretrained(tmp_path / "short")
    with pytest.raises(UserError, match="context has 20"):
        built(f"model={{kind: pretrained, path: {tmp_path / 'short'}}}")
