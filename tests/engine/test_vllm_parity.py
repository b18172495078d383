"""Engine against learner after large updates, and other tests that need an engine of their own.

A process holds one vLLM at a time.
"""

import json

import pytest
import torch
from smollm2 import need_smollm2
from vllm_cases import make, tiny_folder

from rlctl.batch import lay_out
from rlctl.engine import vllm as module
from rlctl.errors import RunError, UserError

pytestmark = pytest.mark.vllm


def largest_gap(pair, temperature):
    """Largest |engine - learner| log-prob over at least 200 sampled tokens."""
    rows = pair.requests(n=8, max_tokens=30, temperature=temperature)
    done = pair.run(rows)
    assert sum(len(c.ids) for c in done) >= 200
    temperature_B = torch.full((len(rows),), temperature, dtype=torch.float64)
    batch = lay_out([r.ids for r in rows], done, temperature_B)
    batch = pair.learner.score(batch, frozenset(["old_logp"]))
    return float((batch.engine_logp_BT - batch.old_logp_BT).abs().where(batch.mask_BT, 0.0).max())


def three_updates(pair, rate):
    """The same prompts each time, so that a cache of old weights would show."""
    sync = pair.sync()
    sync(0)
    for _ in range(3):
        pair.update(rate)
        assert sync.gap(pair.version) > 0.02, "an update too small to show anything"
        sync(pair.version)
        assert max(largest_gap(pair, 1.0), largest_gap(pair, 0.7)) < 1e-4
    pair.engine.close()


@pytest.mark.parametrize("tied", [False, True], ids=["untied", "tied"])
@pytest.mark.parametrize("mode", ["full", "swap", "merge"])
def test_c02_log_probs_are_the_learners_after_every_update(tmp_path, tied, mode):
    """C-02 to C-05, B-10, B-11: full or adapter, tied or not, T = 1 and 0.7, to 1e-4."""
    three_updates(make(tiny_folder(tmp_path, tied), mode), rate=0.02)


@pytest.mark.parametrize(("mode", "rate"), [("full", 1e-3), ("swap", 2e-2)])
def test_c02_the_same_with_a_real_pretrained_model(mode, rate):
    """C-02: SmolLM2-135M, tied embeddings, float32."""
    three_updates(make(need_smollm2(), mode), rate)


def test_c02_a_head_that_is_not_packed_again_stops_the_run(tmp_path, monkeypatch):
    """C-02: the comparison after a sync sees a stale tied head, and nothing else would."""
    pair = make(tiny_folder(tmp_path, tied=True))
    pair.sync()(0)
    monkeypatch.setattr(module, "_repack", lambda model: None)
    pair.update(0.02)
    with pytest.raises(RunError, match="differ from the learner's by") as caught:
        pair.sync()(1)
    assert caught.value.reason == "mismatch" and len(str(caught.value).splitlines()) <= 3
    pair.engine.close()


def test_b14_a_hostile_generation_config_changes_nothing(tmp_path):
    """B-14: top_p, top_k, temperature, penalties and a length that a model's folder would like."""
    hostile = {"top_p": 0.1, "top_k": 1, "max_new_tokens": 3, "temperature": 0.1, "repetition_penalty": 2.0}
    sampled = []
    for wish in ({}, {"do_sample": True, **hostile}):
        folder = tiny_folder(tmp_path)
        (folder / "generation_config.json").write_text(json.dumps(wish))
        pair = make(folder)
        pair.sync()(0)
        sampled.append(pair.run(pair.requests(n=8)))
        pair.engine.close()
    assert sampled[0] == sampled[1]
    assert any(len(c.ids) > 3 for c in sampled[1])


def test_a_head_too_narrow_for_the_cpu_build_is_refused(tmp_path):
    """The engine would raise from deep inside its first step."""
    with pytest.raises(UserError, match="heads are 16 wide") as caught:
        make(tiny_folder(tmp_path, heads=8))
    assert caught.value.exit_code == 2 and "engine.kind=transformers" in caught.value.hint
