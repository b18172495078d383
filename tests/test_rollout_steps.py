"""A rollout for several steps: how it is cut, what it took, and the probe that goes with it."""

import pytest
from collecting import (
    SPEC,
    Plan,
    Supply,
    Watched,
    collector,
    everything,
    group,
    make_prompts,
    mixed,
)
from hypothesis import given
from hypothesis import strategies as st

from rlctl.rollout import Rollout, Sampling
from rlctl.types import Verdict


def cut(trained, P, probes=False, **counts):
    """Cut a rollout of groups 0, 1, ... of which those at True are trained; return their numbers."""
    sampled = [group(Verdict(float(i), False)) for i in range(len(trained))]
    groups = [g for g, good in zip(sampled, trained, strict=True) if good]
    asked = [group(Verdict(-g.samples[0].verdict.reward, False)) for g in groups]
    steps = Rollout(groups, sampled, asked if probes else [], **counts).steps(P)

    def numbers(groups):
        return [int(g.samples[0].verdict.reward) for g in groups]

    return steps, [(numbers(s.groups), numbers(s.sampled), numbers(s.probes)) for s in steps]


def test_a_rollout_is_cut_into_steps_by_hand():
    """A refused group stays with the step that was being filled, or had just been."""
    _, found = cut([0, 1, 1, 0, 1, 0, 1, 0], 2, probes=True)
    assert found == [([1, 2], [0, 1, 2, 3], [-1, -2]), ([4, 6], [4, 5, 6, 7], [-4, -6])]
    assert cut([1, 1, 1], 2)[1] == [([0, 1], [0, 1], []), ([2], [2], [])]
    assert cut([0, 0], 2)[1] == [([], [0, 1], [])]
    assert cut([], 2)[1] == [([], [], [])]


def test_what_a_rollout_took_stays_with_its_first_step():
    counts = {
        "tokens": 7,
        "requests": 5,
        "failed_groups": 2,
        "refills": 1,
        "generate_s": 0.5,
        "judge_s": 0.25,
    }
    first, second = cut([1, 1], 1, **counts)[0]
    assert {name: getattr(first, name) for name in counts} == counts
    assert {name: getattr(second, name) for name in counts} == dict.fromkeys(counts, 0)


@given(st.lists(st.booleans(), max_size=12), st.integers(1, 4), st.booleans())
def test_nothing_is_lost_and_nothing_moves_when_a_rollout_is_cut(trained, P, probes):
    _, found = cut(trained, P, probes)
    assert [i for _, sampled, _ in found for i in sampled] == list(range(len(trained)))
    assert [i for groups, _, _ in found for i in groups] == [i for i, good in enumerate(trained) if good]
    assert all(len(groups) == P for groups, _, _ in found[:-1])
    for groups, _, asked in found:
        assert asked == ([-i for i in groups] if probes else [])


def test_a_repaired_group_counts_as_collapsed_but_not_in_the_effective_rate():
    """ACR 2/3 raw; 1/3 once one of the two equal groups has advantages."""
    equal, other = (group(Verdict(0.0, False), Verdict(0.0, False)) for _ in range(2))
    mixed_ = group(Verdict(1.0, True), Verdict(0.0, False))
    rollout = Rollout(groups=[equal, other, mixed_], sampled=[equal, other, mixed_])
    found = rollout.metrics({id(equal): [-0.5, -0.5], id(other): [0.0, 0.0], id(mixed_): [1.0, -1.0]})
    assert (found["rollout/acr"], found["rollout/acr_effective"]) == (
        pytest.approx(2 / 3),
        pytest.approx(1 / 3),
    )


def test_a_probe_asks_before_and_for_the_same_prompts():
    """Purpose, number and base temperature are its own; group and probe lie at the same place."""

    class Heated(Plan):
        probe_samples = 3

        def temperatures(self, prompts, probes):
            assert [len(g.samples) for g in probes] == [3] * prompts
            return [[0.5 + p] * SPEC.group_size for p in range(prompts)]

    engine, supply = Watched(mixed), Supply(make_prompts(9))
    plan = Heated(supply.take, lambda groups: [g.prompt.uid != "toy:1" for g in groups])
    rollout = collector(engine).fill(plan, Sampling.of(SPEC), 1, 3, 3)
    assert [(r.ids, r.temperature) for r in engine.asked[:9]] == [
        (p.ids, 1.0) for p in supply.prompts[:3] for _ in range(3)
    ]
    assert [r.temperature for r in engine.asked[9 : 9 + 12]] == [0.5] * 4 + [1.5] * 4 + [2.5] * 4
    assert [g.prompt.uid for g in rollout.groups] == ["toy:0", "toy:2", "toy:3"]
    assert [g.prompt.uid for g in rollout.probes] == ["toy:0", "toy:2", "toy:3"]
    assert rollout.requests == len(engine.asked) == 4 * (3 + 4)
    assert len({r.seed for r in engine.asked}) == len(engine.asked)
    assert [[s.temperature for s in g.samples] for g in rollout.groups] == [[0.5] * 4, [2.5] * 4, [0.5] * 4]


def test_a_probe_whose_group_failed_goes_with_it():
    """A-16 with a probe: what is left is still one probe a group."""

    class Probing(Plan):
        probe_samples = 2

    lost = []

    def script(request):
        if request.index == 5 and len(engine.asked) > 6 and not lost:
            lost.append(request)
            return RuntimeError("lost")
        return "yes"

    engine = Watched(script)
    plan = Probing(Supply(make_prompts(9)).take, everything)
    rollout = collector(engine).fill(plan, Sampling.of(SPEC), 1, 3, 3)
    uids = ["toy:0", "toy:2", "toy:3"]
    assert lost and rollout.failed_groups == 1
    assert [g.prompt.uid for g in rollout.groups] == [g.prompt.uid for g in rollout.probes] == uids
