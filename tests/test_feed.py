"""Steps collected ahead, with a real engine, learner and algorithm of a very small model."""

from collections import Counter
from pathlib import Path

import pytest
import torch

from rlctl import feed as module
from rlctl.clock import Clock
from rlctl.feed import Feed
from rlctl.parts import build
from rlctl.recipe import load_text

P, G = 2, 4
RECIPE = f"""\
version: 1
name: feed
model: {{kind: tiny, layers: 1, width: 32, heads: 2, context: 64, warm_start: {{steps: 0}}}}
data: {{train: {{kind: arithmetic, problems: 64, digits: 1}}, max_prompt_length: 16}}
rollout: {{prompts_per_step: {P}, group_size: {G}, max_completion_length: 4, max_refills: 3}}
eval: {{sets: []}}
engine: {{kind: transformers}}
budget: {{steps: 99}}
resources: {{cpus: 1}}
track: {{mlflow: "off"}}
"""
DENSE = f"verifier={{kind: python, path: '{Path(__file__).parent / 'runs/judges.py'}:dense'}}"
AHEAD = "algorithm={preset: grpo, staging: {ahead: 4}}"
HEATED = "preset: agpo, clip: {kind: fixed}, control: [{kind: temperature}]"
PROBED = f"algorithm={{{HEATED}, staging: {{ahead: 2, epochs: 2}}}}"

pytestmark = pytest.mark.usefixtures("surroundings")


class Fed:
    """A feed and what its engine was asked, call by call."""

    def __init__(self, folder, *sets, last=None):
        self.recipe = load_text(RECIPE, "feed.yaml", (DENSE, *sets))
        self.parts = build(self.recipe, lambda line: None)
        self.calls = []
        engine, generate = self.parts.engine, self.parts.engine.generate

        def watched(requests):
            self.calls.append(list(requests))
            return generate(requests)

        engine.generate = watched
        self.feed = Feed(self.parts, self.recipe.rollout, last, folder / "stage")

    def next(self, step):
        self.clock = Clock()
        return self.feed.next(step, self.clock)

    def steps(self, first, last):
        return [self.next(step) for step in range(first, last + 1)]

    @property
    def asked(self):
        return [request for call in self.calls for request in call]


def uids(harvest):
    return [group.prompt.uid for group in harvest.rollout.groups]


def tokens(harvests):
    return sum(len(s.completion.ids) for h in harvests for g in h.rollout.sampled for s in g.samples)


def texts(harvest):
    return [[s.text for s in group.samples] for group in harvest.rollout.groups]


def test_four_steps_are_sampled_at_once(tmp_path):
    fed = Fed(tmp_path, AHEAD)
    first = fed.next(1)
    assert len(fed.calls) == 1 and len(fed.asked) == 4 * P * G
    rest = fed.steps(2, 4)
    assert len(fed.calls) == 1 and fed.feed.until == 4
    for harvest in (first, *rest):
        assert len(harvest.rollout.groups) == P and harvest.began == 1
        assert len(harvest.batch) == P * G and harvest.batch.old_logp_BT is not None
    fed.next(5)
    assert len(fed.calls) == 2 and fed.feed.until == 8


def test_prompts_come_in_the_order_of_the_source_and_each_once(tmp_path):
    ahead, plain = Fed(tmp_path / "a", AHEAD), Fed(tmp_path / "b", "algorithm=grpo")
    (tmp_path / "a").mkdir()
    staged, fresh = ahead.steps(1, 6), plain.steps(1, 6)
    assert [uids(h) for h in staged] == [uids(h) for h in fresh]
    assert texts(staged[0]) == texts(fresh[0]), "the first step's requests have the same seeds"
    assert texts(staged[1]) != texts(fresh[1])
    assert [h.began for h in fresh] == [1, 2, 3, 4, 5, 6]
    assert not (tmp_path / "b").exists(), "a fresh step is not written down"


@pytest.mark.parametrize("rows", [1, P * G, 2 * P * G + 3, 4096])
def test_however_few_rows_at_once(tmp_path, monkeypatch, rows):
    """Memory is bounded by calls of at most ROWS_AT_ONCE rows, or of one step if that is more.

    Steps, prompts and their order stay; samples differ, since a seed names the step that its call began
    with, but for the first step's.
    """
    whole = Fed(tmp_path, AHEAD).steps(1, 4)
    monkeypatch.setattr(module, "ROWS_AT_ONCE", rows)
    fed = Fed(tmp_path, AHEAD)
    found = fed.steps(1, 4)
    at_once = max(rows // (P * G), 1)
    assert [len(call) for call in fed.calls] == [
        P * G * min(at_once, 4 - first) for first in range(0, 4, at_once)
    ]
    assert [uids(h) for h in found] == [uids(h) for h in whole]
    assert [h.began for h in found] == [1] * 4 and fed.feed.until == 4
    assert texts(found[0]) == texts(whole[0])
    assert len({request.seed for request in fed.asked}) == len(fed.asked)
    assert [h.rollout.tokens for h in found] == [tokens(found), 0, 0, 0]
    assert [h.rollout.requests for h in found] == [len(fed.asked), 0, 0, 0]
    assert found[0].rollout.generate_s > 0
    assert {h.rollout.generate_s for h in found[1:]} == {h.rollout.judge_s for h in found[1:]} == {0}


def test_tokens_are_charged_once_with_the_first_step(tmp_path):
    fed = Fed(tmp_path, AHEAD)
    found = fed.steps(1, 4)
    assert [h.rollout.tokens for h in found] == [tokens(found), 0, 0, 0]
    assert [h.rollout.requests for h in found] == [4 * P * G, 0, 0, 0]
    assert found[0].rollout.generate_s > 0 == found[1].rollout.generate_s
    assert fed.clock.metrics()["time/score_s"] == 0, "scored when collected, not when read"


def test_a_probe_is_charged_and_never_trained(tmp_path):
    """Its rows are in no group; its figures travel with the step that it was drawn for."""
    fed = Fed(tmp_path, PROBED)
    probes, train = [], []
    found = fed.steps(1, 2)
    probes, train = fed.calls
    assert len(probes) == len(train) == 2 * P * G
    assert {r.temperature for r in probes} == {1.0}
    assert found[0].rollout.requests == 4 * P * G
    assert found[0].rollout.tokens > tokens(found)
    for harvest in found:
        assert harvest.probe.votes_P.shape == (P,) and harvest.rollout.probes == []
        assert len(harvest.batch) == P * G
        sampled = {s.temperature for g in harvest.rollout.groups for s in g.samples}
        assert set(harvest.batch.temperature_B.tolist()) == sampled
        assert harvest.batch.ref_logp_BT is not None


def test_the_probe_of_a_group_is_its_own(tmp_path):
    """Measured again from what the engine sampled for that very prompt: refused groups shift nothing."""
    fed = Fed(tmp_path, f"algorithm={{{HEATED}, admit: {{kind: mixed}}, staging: {{ahead: 2}}}}")
    fed.parts.collector.verifier = Alternating()
    rollout = fed.parts.collector.fill(fed.feed.choices, module.Sampling.of(fed.recipe.rollout), 1, 2 * P, 3)
    assert len(rollout.groups) == 2 * P < len(rollout.sampled)
    assert [g.prompt.uid for g in rollout.probes] == [g.prompt.uid for g in rollout.groups]
    cut = rollout.steps(P)
    assert [[g.prompt.uid for g in r.probes] for r in cut] == [[g.prompt.uid for g in r.groups] for r in cut]


class Alternating:
    """Every other prompt gets equal rewards, so that it is not mixed."""

    def __init__(self):
        self.seen = {}

    def judge(self, prompt, text):
        from rlctl.types import Verdict

        number = self.seen.setdefault(prompt.uid, len(self.seen))
        reward = sum(map(ord, text)) % 97 / 97 if number % 2 else 0.0
        return Verdict(reward, correct=reward > 0.5)


@pytest.mark.parametrize(("began", "last", "until"), [(1, 3, 3), (1, 4, 4), (5, 6, 6), (1, 1, 1), (5, 99, 8)])
def test_nothing_is_sampled_for_steps_that_will_not_come(tmp_path, began, last, until):
    fed = Fed(tmp_path, AHEAD, last=last)
    fed.next(began)
    assert fed.feed.until == until
    assert len(fed.asked) == (until - began + 1) * P * G
    files = {p.stem for p in (tmp_path / "stage").iterdir()}
    assert files == {f"step-{step:06d}" for step in range(began, until + 1)}


def test_refused_groups_are_paid_for_logged_and_not_trained(tmp_path):
    fed = Fed(tmp_path, "algorithm={preset: grpo, admit: {kind: mixed}, staging: {ahead: 3}}")
    fed.parts.collector.verifier = Alternating()
    found = fed.steps(1, 3)
    assert [len(h.rollout.groups) for h in found] == [P] * 3
    sampled = [g.prompt.uid for h in found for g in h.rollout.sampled]
    assert len(sampled) > 3 * P and max(Counter(sampled).values()) == 1
    assert found[0].rollout.tokens == tokens(found) == sum(h.rollout.tokens for h in found)
    assert all(len(h.batch) == P * G for h in found)
    assert len({request.seed for request in fed.asked}) == len(fed.asked)


@pytest.mark.parametrize("rows", [P * G, 4096])
def test_a_stage_ends_early_where_nothing_more_is_admitted(tmp_path, monkeypatch, rows):
    """After five good groups: two whole steps and a half one, then at most one with nothing to train on."""
    monkeypatch.setattr(module, "ROWS_AT_ONCE", rows)
    fed = Fed(tmp_path, "algorithm={preset: grpo, admit: {kind: mixed}, staging: {ahead: 6}}")
    good = []

    def admit(groups):
        return [len(good) < 5 and not good.append(g) for g in groups]

    fed.feed.choices.admit = admit
    found = [fed.next(1)]
    while fed.feed.until > len(found):
        found.append(fed.next(len(found) + 1))
    sizes = [len(h.rollout.groups) for h in found]
    assert sizes in ([2, 2, 1], [2, 2, 1, 0])
    assert fed.feed.until == len(found)
    assert tokens(found) == sum(h.rollout.tokens for h in found)
    assert [h.batch is None for h in found] == [n == 0 for n in sizes]


def test_engine_and_learner_agree_on_what_was_collected(tmp_path):
    """B-10 in a stage: the log-probs of the ratio are those of the law that sampled, at its temperature."""
    fed = Fed(tmp_path, AHEAD, "rollout.temperature=0.6")
    for harvest in fed.steps(1, 4):
        batch = harvest.batch
        gap = (batch.engine_logp_BT - batch.old_logp_BT)[batch.mask_BT].abs()
        assert float(gap.max()) < 1e-4


def test_a_session_reads_what_an_earlier_one_collected(tmp_path):
    """D-05: by `until` alone, and without asking the engine."""
    whole = Fed(tmp_path, AHEAD).steps(1, 4)
    later = Fed(tmp_path, AHEAD)
    later.feed.until = 4
    for step in (3, 4):
        found = later.next(step)
        assert found.rollout.groups == whole[step - 1].rollout.groups
        assert torch.equal(found.batch.old_logp_BT, whole[step - 1].batch.old_logp_BT)
    assert later.calls == []


def test_b26_two_columns_that_are_equal_do_not_share_memory(tmp_path):
    """B-26: the policy's entropy is wanted twice at temperature 1."""
    entropies = "{preset: grpo, reweight: [{kind: entropy}], probe: {}, control: [{kind: clip}], "
    batch = Fed(tmp_path, f"algorithm={entropies} clip: {{kind: controlled}}}}").next(1).batch
    assert torch.equal(batch.entropy_BT, batch.entropy_t1_BT)
    assert batch.entropy_BT.data_ptr() != batch.entropy_t1_BT.data_ptr()
