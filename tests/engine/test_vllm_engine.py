"""The real vLLM in this process, against the learner."""

from dataclasses import replace

import pytest
import torch
from vllm_cases import make, tiny_folder

from rlctl.errors import RunError
from rlctl.types import Request

pytestmark = pytest.mark.vllm
PLAIN = ("model.embed_tokens.weight", "model.norm.weight", "model.layers.1.input_layernorm.weight")


@pytest.fixture(scope="module")
def pair(tmp_path_factory):
    made = make(tiny_folder(tmp_path_factory.mktemp("pair")))
    made.sync()(0)
    yield made
    made.engine.close()


def test_c07_every_weight_arrives_under_its_name(pair):
    """C-07: three tensors of the engine are the learner's, bit for bit."""
    weights = dict(pair.policy.whole())
    (found,) = pair.engine._engine.apply_model(
        lambda model: {name: model.get_parameter(name).detach().clone() for name in PLAIN}
    )
    assert all(torch.equal(found[name][: len(weights[name])], weights[name]) for name in PLAIN)


def test_c07_names_that_do_not_fit_stop_the_run(pair):
    """C-07: a weight that is missing, and one that the engine does not know."""
    weights = dict(pair.policy.whole())
    unknown = {**weights, "model.layers.9.mlp.up_proj.weight": weights["model.layers.1.mlp.up_proj.weight"]}
    part = {n: w for n, w in weights.items() if "layers.1.self_attn.k_proj" not in n}  # of a fused one
    for wrong in ({n: w for n, w in weights.items() if "layers.1.mlp" not in n}, part, unknown):
        with pytest.raises(RunError, match="weights are not the learner's") as caught:
            pair.engine.refresh(lambda rows=wrong: iter(rows.items()), 1)
        assert caught.value.reason == "mismatch"
    pair.sync()(0)


def test_c16_the_engine_keeps_its_own_copy(pair):
    """C-16: the learner's next update does not reach the engine before the next sync."""
    before = pair.run(pair.requests())
    kept = {name: w.clone() for name, w in pair.policy.whole()}
    with torch.no_grad():
        for _, weight in pair.policy.whole():
            weight.mul_(1.5)
    assert pair.run(pair.requests()) == before
    with torch.no_grad():
        for name, weight in pair.policy.whole():
            weight.copy_(kept[name])


def test_a_row_is_its_seeds_alone_and_siblings_differ(pair):
    rows = pair.requests(n=8)
    one, again = pair.run(rows), pair.run(rows)
    assert one == again
    assert len({c.ids for c in one[:8]}) > 4
    mirrored = [replace(r, index=len(rows) - 1 - r.index) for r in reversed(rows)]
    assert [c.ids for c in reversed(pair.run(mirrored))] == [c.ids for c in one]


def test_b14_b15_the_law_is_the_requests_alone(pair):
    """B-14, B-15: every field is sent; null is vLLM's "off"."""
    law = pair.engine._law(Request(0, (1,), 7, 5, temperature=0.5))
    assert (law["temperature"], law["top_p"], law["top_k"], law["min_p"]) == (0.5, 1.0, 0, 0.0)
    assert (law["seed"], law["max_tokens"], law["min_tokens"]) == (7, 5, 0)
    assert law["repetition_penalty"] == 1.0 and law["presence_penalty"] == law["frequency_penalty"] == 0.0
    assert pair.engine._law(Request(0, (1,), 7, 5, top_k=3))["top_k"] == 3
    config = pair.engine._engine.model_config
    assert (config.generation_config, config.logprobs_mode) == ("vllm", "processed_logprobs")


def test_finish_says_how_a_completion_ended(pair):
    """The engine's own end token is the last id; length means truncated; a stop string ends a row."""
    eos = set(pair.policy.eos_ids)
    done = pair.run(pair.requests(n=16, max_tokens=30))
    assert {c.finish for c in done} == {"stop", "length"}
    for c in done:
        assert (c.ids[-1] in eos) == (c.finish == "stop") and not eos & set(c.ids[:-1])
        assert len(c.ids) == len(c.logps) and all(logp <= 0 for logp in c.logps)
    text = pair.policy.tokenizer.decode(next(c.ids[0] for c in done if len(c.ids) > 3))
    stopped = pair.run(pair.requests(n=16, max_tokens=30, stop=(text,)))
    with_text = [c for c in stopped if text in pair.policy.tokenizer.decode(c.ids)]
    assert with_text and all(pair.policy.tokenizer.decode(c.ids).endswith(text) for c in with_text)


def test_completions_come_as_they_finish(pair):
    """A short row does not wait for a long one."""
    rows = [replace(r, max_tokens=60 if r.index == 0 else 2) for r in pair.requests()]
    seen = [c.index for c in pair.engine.generate(rows)]
    assert sorted(seen) == [0, 1, 2, 3]
    assert seen[-1] == 0 or len(pair.run(rows)[0].ids) <= 2


def test_a_generation_that_is_broken_off_leaves_nothing_behind(pair):
    whole = pair.run(pair.requests(n=8))
    begun = pair.engine.generate(pair.requests(n=8, max_tokens=50))
    next(begun)
    begun.close()
    assert not pair.engine._engine.has_unfinished_requests()
    assert pair.run(pair.requests(n=8)) == whole


@pytest.mark.parametrize("error", [RuntimeError("Executor failed."), TimeoutError("RPC call timed out.")])
def test_c10_a_dead_engine_ends_the_run_with_a_word(pair, monkeypatch, error):
    """C-10: what vLLM raises in this process when a worker is gone, hangs, or has no memory left."""

    def die():
        raise error

    with monkeypatch.context() as patch:
        patch.setattr(pair.engine._engine, "step", die)
        with pytest.raises(RunError, match=r"vLLM died while it sampled: (Executor|RPC)"):
            list(pair.engine.generate(pair.requests()))
    assert pair.run(pair.requests())  # what it had begun was taken back


def test_c05_nothing_of_an_earlier_call_is_served(pair):
    """C-05: a prompt of two whole blocks is cached within a call, and forgotten for the next."""
    scheduler = pair.engine._engine.engine_core.engine_core.scheduler
    pool = scheduler.kv_cache_manager.block_pool
    pair.run(pair.requests(n=4))
    assert len(pool.cached_block_hash_to_block) > 0, "no prompt is long enough to be cached"
    reset, calls = pair.engine._engine.reset_prefix_cache, []

    def counted():
        calls.append(len(pool.cached_block_hash_to_block))
        done = reset()
        calls.append(len(pool.cached_block_hash_to_block))
        return done

    pair.engine._engine.reset_prefix_cache = counted
    try:
        pair.run(pair.requests(n=4))
    finally:
        del pair.engine._engine.reset_prefix_cache
    assert calls[0] > 0 and calls[1:] == [0]


def test_b20_ids_go_in_as_they_are(pair):
    """B-20: no text, so no second BOS."""
    seen = []
    add = pair.engine._engine.add_request

    def noted(name, prompt, *args, **settings):
        seen.append(tuple(prompt["prompt_token_ids"]))
        return add(name, prompt, *args, **settings)

    pair.engine._engine.add_request = noted
    try:
        pair.run(pair.requests())
    finally:
        del pair.engine._engine.add_request
    assert seen == [prompt.ids for prompt in pair.prompts]


def test_threads_and_environment_stay_as_they_were(pair):
    """vLLM replaces torch.set_num_threads and sets LD_PRELOAD for its own workers."""
    import os

    threads = torch.get_num_threads()
    torch.set_num_threads(threads + 1)
    assert torch.get_num_threads() == threads + 1
    torch.set_num_threads(threads)
    assert "LD_PRELOAD" not in os.environ
    assert os.sched_getaffinity(0) == os.sched_getaffinity(1)
