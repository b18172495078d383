import json
import random
from collections import Counter

import numpy as np
import pytest
import torch
from collecting import LETTERS, Forgetful, Watched, collector, llama_engine, make_prompts, mixed

from rlctl import __version__
from rlctl.data import JsonlSource
from rlctl.data.load import Dataset, load_all
from rlctl.data.source import Mixture
from rlctl.evaluate import EvalSpec, evaluate, metrics
from rlctl.rollout import Sampling
from rlctl.types import Verdict
from rlctl.verify import ExactVerifier, RegexVerifier

SET = {"kind": "arithmetic"}


def run(engine, sets, n=4, pass_at=(1, 4), step=0, **options):
    sampling = Sampling("eval", samples=n, temperature=1.0, max_tokens=8)
    return evaluate(sets, EvalSpec(pass_at=pass_at), collector(engine, **options), sampling, step)


def value(record, name, k):
    return record["sets"][name]["pass_at"][str(k)]["value"]


def test_e02_one_sample_gives_pass_at_1_only():
    """E-02: nothing above k = n comes out of an evaluation."""
    sets = {"toy": make_prompts(2)}
    assert list(run(Watched("yes"), sets, n=1, pass_at=(1,))["sets"]["toy"]["pass_at"]) == ["1"]
    with pytest.raises(ValueError, match="pass@4"):
        run(Watched("yes"), sets, n=1)


def test_record_by_hand():
    """Two problems, 4 samples: 2 right of the first, none of the second; the others are cut off."""
    sets = {"toy": make_prompts(2)}
    record = run(Watched(lambda r: "yes" if r.index in (0, 3) else "truly no"), sets, pass_at=(1, 2), step=7)
    assert len(record["sets"]["toy"].pop("of")) == 16
    low_to_high = {"low": 0.0, "high": 0.5}
    assert record == {
        "step": 7,
        "sampling": {
            "samples": 4,
            "temperature": 1.0,
            "top_p": 1.0,
            "top_k": None,
            "max_completion_length": 8,
            "stop": [],
            "seed": 17,
        },
        "verifier": f"exact; rlctl {__version__}",
        "sets": {
            "toy": {
                "problems": 2,
                "samples": 4,
                "pass_at": {
                    "1": {"value": 0.25, **low_to_high},
                    "2": {"value": pytest.approx(5 / 12), "low": 0.0, "high": pytest.approx(5 / 6)},
                },
                # Two samples of the first: both right 1/6, both wrong 1/6, a tie 4/6.
                "majority": {"1": {"value": 0.25, **low_to_high}, "2": {"value": 0.25, **low_to_high}},
                "strict": {"value": 0.25, **low_to_high},
                "lenient": {"value": 0.25, **low_to_high},
                "errors": 0,
                "truncated_share": 0.75,
                "unparseable_share": 0.0,
                "length_tokens": (2 * 4 + 6 * 8) / 8,
            }
        },
    }
    assert json.loads(json.dumps(record)) == record
    assert metrics(record) == {
        "eval/toy/pass@1": 0.25,
        "eval/toy/pass@2": pytest.approx(5 / 12),
        "eval/toy/strict": 0.25,
        "eval/toy/truncated_share": 0.75,
        "eval/toy/unparseable_share": 0.0,
        "eval/toy/length_tokens": 7.0,
    }


def test_one_problem_has_an_interval_of_no_width():
    interval = run(Watched("yes"), {"toy": make_prompts(1)})["sets"]["toy"]["pass_at"]["1"]
    assert interval == {"value": 1.0, "low": 1.0, "high": 1.0}


def test_e05_a_reward_for_the_format_is_no_pass():
    """E-05: every answer is paid for its form, none is right."""
    parts = (ExactVerifier(), RegexVerifier(pattern="n", weight=5.0))
    record = run(Watched("no"), {"toy": make_prompts(3)}, verifier=parts)
    assert value(record, "toy", 1) == value(record, "toy", 4) == 0.0


@pytest.mark.parametrize("scale", [0.25, 1.0, 100.0])
def test_e08_the_scale_of_rewards_does_not_matter(scale):
    """E-08."""
    record = run(Watched(mixed), {"toy": make_prompts(3)}, verifier=(ExactVerifier(weight=scale),))
    assert value(record, "toy", 1) == 0.5


@pytest.mark.parametrize("engine", [Watched, Forgetful])
def test_e12_only_a_failed_sample_counts_as_wrong(engine):
    """E-12: its siblings count as they are, the number of samples stays, the error is reported."""
    losing = engine(lambda r: RuntimeError("lost") if r.index in (1, 4, 5, 6, 7) else "yes")
    found = run(losing, {"toy": make_prompts(2)})["sets"]["toy"]
    assert found["pass_at"]["1"]["value"] == pytest.approx((3 / 4 + 0) / 2)
    assert found["pass_at"]["4"]["value"] == pytest.approx((1 + 0) / 2)
    assert (found["samples"], found["problems"], found["errors"]) == (4, 2, 5)
    assert found["unparseable_share"] == 5 / 8


def test_e12_a_verifier_error_counts_as_wrong():
    """E-12."""

    class Broken:
        name = "fake"

        def judge(self, prompt, text):
            return Verdict(0.0, False, error="no memory")

    found = run(Watched("yes"), {"toy": make_prompts(2)}, verifier=Broken())["sets"]["toy"]
    assert (found["pass_at"]["4"]["value"], found["errors"]) == (0.0, 8)


def test_a12_sets_with_equal_ids_stay_apart(tmp_path):
    """A-12: two files of one name whose ids both start at 0, and with equal questions."""
    sources = []
    for folder, answer in (("a", "yes"), ("b", "no")):
        (tmp_path / folder).mkdir()
        file = tmp_path / folder / "toy.jsonl"
        file.write_text("".join(json.dumps({"prompt": f"q{i}", "answer": answer}) + "\n" for i in range(2)))
        sources.append(JsonlSource(kind="jsonl", path=str(file)))
    loaded = load_all(sources, split="test", seed=0)
    sets = {d.name: [prompt_with_ids(p) for p in d.prompts] for d in loaded}
    assert len({p.uid for prompts in sets.values() for p in prompts}) == 4
    assert metrics(run(Watched("yes"), sets))["eval/toy/pass@1"] == 1.0
    assert metrics(run(Watched("yes"), sets))["eval/toy-2/pass@1"] == 0.0


def prompt_with_ids(prompt):
    ids = tuple(LETTERS(prompt.text)["input_ids"])
    return type(prompt)(prompt.uid, prompt.messages, prompt.gold, ids=ids)


@pytest.mark.parametrize("max_rows", [1, 3, 256])
def test_e09_every_problem_is_sampled_n_times(max_rows):
    """E-09: whatever the engine's batch, no problem is dropped or repeated."""
    seen = Counter()

    class Counting:
        name = "fake"

        def judge(self, prompt, text):
            seen[prompt.uid] += 1
            return Verdict(0.0, False)

    prompts = make_prompts(7)
    found = run(llama_engine(max_rows), {"toy": prompts}, n=5, pass_at=(1, 5), verifier=Counting())
    assert seen == {p.uid: 5 for p in prompts}
    assert (found["sets"]["toy"]["problems"], found["sets"]["toy"]["samples"]) == (7, 5)


def test_b32_e04_evaluation_leaves_no_trace():
    """B-32, E-04: global generators, weights, modes and the training supply are bit-equal afterwards."""
    engine = llama_engine(3)
    engine.module.train()
    engine.module.model.layers[0].eval()
    source = Mixture([Dataset("toy", tuple(make_prompts(9)))], seed=0)
    source.take(4)

    def state():
        kind, keys, *rest = np.random.get_state()
        return {
            "python": random.getstate(),
            "numpy": (kind, keys.tolist(), *rest),
            "torch": torch.get_rng_state().tolist(),
            "weights": {n: p.tolist() for n, p in engine.module.state_dict().items()},
            "gradients": [p.grad for p in engine.module.parameters()],
            "modes": [m.training for m in engine.module.modules()],
            "supply": source.state(),
            "threads": torch.get_num_threads(),
        }

    before = state()
    run(engine, {"toy": make_prompts(5), "other": make_prompts(2, "other")})
    assert state() == before
    assert source.take(5) == Mixture([Dataset("toy", tuple(make_prompts(9)))], seed=0).take(9)[4:]


def test_e13_an_evaluation_repeats_exactly():
    """E-13: one that is run again after a resume says the same, whatever was sampled in between."""
    sets = {"toy": make_prompts(6)}
    engine = llama_engine(256)
    texts = []

    class Recording:
        name = "fake"

        def judge(self, prompt, text):
            texts.append((prompt.uid, text))
            return Verdict(0.0, False)

    first = run(engine, sets, step=3, verifier=Recording())
    once, texts[:] = sorted(texts), []
    run(engine, sets, step=4, verifier=Recording())
    assert sorted(texts) != once
    texts.clear()
    assert run(engine, sets, step=3, verifier=Recording()) == first
    assert sorted(texts) == once


@pytest.mark.parametrize(
    ("given", "steps"),
    [
        ({"every": 4}, [0, 4, 8, 10]),
        ({"every": 5}, [0, 5, 10]),
        ({"every": 4, "at_start": False}, [4, 8, 10]),
        ({"every": 4, "at_end": False}, [0, 4, 8]),
        ({"every": 5, "at_end": False}, [0, 5, 10]),
        ({"every": 99}, [0, 10]),
        ({"every": 99, "at_start": False, "at_end": False}, []),
        ({"every": 1, "at_start": False, "at_end": False}, list(range(1, 11))),
        ({"every": 1, "sets": []}, []),
    ],
)
def test_e11_when_an_evaluation_runs(given, steps):
    """E-11: a run of ten steps."""
    spec = EvalSpec.model_validate({"sets": [SET], **given})
    assert [step for step in range(11) if spec.due(step, last=step == 10)] == steps


def test_what_was_asked_can_be_told_apart():
    asked = {"toy": make_prompts(2)}
    same = run(Watched("yes"), asked)["sets"]["toy"]["of"]
    assert run(Watched("no"), asked, step=9)["sets"]["toy"]["of"] == same
    assert run(Watched("yes"), {"toy": make_prompts(3)})["sets"]["toy"]["of"] != same
    assert run(Watched("yes"), asked, n=9)["sets"]["toy"]["of"] != same
