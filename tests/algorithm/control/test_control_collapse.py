"""Virtual rewards of AVSPO: how many, which, for whom, and when."""

import json
import math

import pytest
from controlling import known
from hypothesis import given, settings
from hypothesis import strategies as st

from rlctl.algorithm.control.collapse import Collapse, collapse_rate

ALWAYS = {"threshold": 0.0, "rate": 0.0}
WRONG, RIGHT, MIXED = [0.0] * 4, [1.0] * 4, [0.0, 1.0, 1.0, 0.0]


def repairer(seed=0, **given):
    return Collapse(**(ALWAYS | given)).build(seed)


def virtual(controller, rewards):
    found = controller.tune(known(rewards), None).virtual_PV
    return None if found is None else found.tolist()


def absent(row):
    return all(math.isnan(v) for v in row)


@pytest.mark.parametrize(
    ("acr", "G", "power", "linear"),
    [
        (0.05, 8, 2, 1),
        (0.15, 8, 4, 1),
        (0.4, 8, 6, 2),
        (1.0, 8, 8, 4),
        (0.25, 4, 2, 1),  # exactly 2: rounding of the root must not make it 3
        (0.0, 8, 1, 1),
        (1.0, 1, 1, 1),
    ],
)
def test_how_many(acr, G, power, linear):
    assert Collapse().number(acr, G) == power
    assert Collapse(count="linear").number(acr, G) == linear


@given(st.floats(0, 1), st.integers(1, 64), st.floats(0.01, 10), st.sampled_from(["power", "linear"]))
@settings(max_examples=80, deadline=None)
def test_there_are_between_one_and_g(acr, G, alpha, count):
    K = Collapse(count=count, alpha=alpha).number(acr, G)
    wanted = math.ceil(G * acr**alpha if count == "power" else acr * G * alpha)
    assert 1 <= K <= G
    assert K in (max(1, min(G, wanted)), max(1, min(G, wanted - 1)))


@pytest.mark.parametrize(
    ("values", "wrong", "right"),
    [
        ("stratified", [0.025, 0.05, 0.075, 0.1], [0.8, 0.6, 0.4, 0.2]),
        ("decay", [0.1, 0.05, 0.025, 0.0125], [0.5, 0.75, 0.875, 0.9375]),
        ("partial", [0.5] * 4, [0.5] * 4),
    ],
)
def test_which_values_by_hand(values, wrong, right):
    """All groups collapsed: K = G = 4."""
    found = virtual(repairer(values=values), [WRONG, RIGHT])
    assert found == [pytest.approx(wrong), pytest.approx(right)]


def test_random_values_lie_inside_and_differ():
    low, high = virtual(repairer(values="random"), [WRONG, RIGHT])
    assert all(0 < v < 1 for v in low + high)
    assert len(set(low + high)) == 8


@given(
    st.sampled_from(["stratified", "random", "partial", "decay"]),
    st.floats(-5, 5),
    st.booleans(),
    st.integers(2, 8),
)
@settings(max_examples=60, deadline=None)
def test_every_value_is_on_the_side_that_gives_the_group_its_sign(values, reward, correct, G):
    """Above a wrong group's reward, so that its answers lose; below a right group's."""
    stats = known([[reward] * G])
    stats.correct_PG[:] = correct
    (row,) = repairer(values=values).tune(stats, None).virtual_PV.tolist()
    assert len(row) == G
    assert all((v < reward) if correct else (v > reward) for v in row)


@pytest.mark.parametrize(("repair", "who"), [("both", [1, 1]), ("wrong", [1, 0]), ("correct", [0, 1])])
def test_who_is_repaired(repair, who):
    wrong, right, mixed = virtual(repairer(repair=repair), [WRONG, RIGHT, MIXED])
    assert [not absent(wrong), not absent(right)] == [bool(x) for x in who]
    assert absent(mixed)


def test_rewards_themselves_stay():
    stats = known([WRONG, RIGHT, MIXED])
    tuned = repairer().tune(stats, None)
    assert tuned.reward_PG is stats.reward_PG and tuned.verifier_PG is stats.verifier_PG
    assert tuned.pool_PN.shape == (3, 4 + 4)  # two of three: ceil(4 * sqrt(2 / 3)) = 4


def test_a_group_of_one_judged_answer_counts_but_cannot_be_repaired():
    one, wrong = virtual(repairer(), [[1.0, None, None, None], [0.0, 0.0, None, None]])
    assert absent(one) and not absent(wrong)
    assert collapse_rate(known([[1.0, None], [None, None], [0.0, 1.0]])) == pytest.approx(2 / 3)


@pytest.mark.parametrize(("threshold", "fired"), [(0.0, 1), (0.5, 1), (2 / 3, 0), (1.0, 0)])
def test_when_it_acts(threshold, fired):
    """Strictly above the threshold: ACR is 2/3."""
    controller = repairer(threshold=threshold)
    found = virtual(controller, [WRONG, RIGHT, MIXED])
    assert (found is not None) == bool(fired)
    assert controller.metrics() == {
        "acr": pytest.approx(2 / 3),
        "threshold": threshold,
        "fired": float(fired),
        "virtual_rewards": 4 * fired,
    }


def test_nothing_to_repair():
    assert virtual(repairer(), [MIXED, MIXED]) is None


STEP = st.lists(st.sampled_from([WRONG, RIGHT, MIXED]), min_size=1, max_size=5)


@given(st.lists(STEP, min_size=1, max_size=12), st.floats(0, 1), st.floats(0, 0.3), st.floats(0, 0.5))
@settings(max_examples=80, deadline=None)
def test_the_threshold_never_rises_and_falls_only_under_stagnation(steps, start, rate, floor):
    """A second way: running means by hand."""
    floor = floor if rate == 0 else min(floor, start)
    spec = Collapse(threshold=start, rate=rate, floor=floor, fast=0.5, slow=0.1)
    controller = spec.build(0)
    fast = slow = None
    for step in steps:
        before, stats = controller.threshold, known(step)
        controller.tune(stats, None)
        assert controller.threshold == before
        controller.observe(stats)
        reward = sum(map(sum, step)) / (4 * len(step))
        fast = reward if fast is None else 0.5 * reward + 0.5 * fast
        slow = reward if slow is None else 0.1 * reward + 0.9 * slow
        acr = sum(group is not MIXED for group in step) / len(step)
        assert controller.threshold <= before
        if fast > slow + 1e-9 or acr <= spec.watch:
            assert controller.threshold == before
        else:
            assert controller.threshold == min(before, max(before - rate, floor))
        assert controller.threshold >= min(start, floor)


def test_it_falls_to_its_floor_while_nothing_is_learnt():
    controller = Collapse().build(0)
    for _ in range(100):
        controller.observe(known([WRONG, MIXED]))
    assert controller.threshold == pytest.approx(0.05)
    rising = Collapse().build(0)
    rising.observe(known([MIXED]))
    for _ in range(5):
        rising.observe(known([RIGHT, MIXED]))
    assert rising.threshold == 0.5


@pytest.mark.parametrize("reward", [0.1, 0.3, 1 / 3, 0.7, 0.1 + 0.2, -2.3, 1e3 / 7])
def test_it_falls_at_a_constant_reward(reward):
    """Running means of 0.3 are 0.3 but for rounding, which may stand above for ever."""
    controller = Collapse().build(0)
    for _ in range(100):
        controller.observe(known([[reward] * 4] * 3))
    assert controller.threshold == pytest.approx(0.05)


def test_a_step_without_any_verdict_teaches_nothing():
    controller = Collapse().build(0)
    controller.observe(known([[None, None]]))
    assert (controller.fast, controller.slow, controller.threshold) == (None, None, 0.5)
    controller.observe(known([WRONG]))
    assert controller.fast == 0.0


def test_random_values_are_the_same_after_a_resume_and_new_in_every_step():
    whole, drawn = repairer(seed=5, values="random"), []
    for _ in range(4):
        drawn.append(virtual(whole, [WRONG, RIGHT]))
        whole.observe(known([WRONG, RIGHT]))
    assert len({json.dumps(row) for row in drawn}) == 4
    again = repairer(seed=5, values="random")
    for step in range(4):
        session = repairer(seed=5, values="random")
        session.restore(json.loads(json.dumps(again.state())))
        virtual(session, [RIGHT, RIGHT])  # a step that was broken off
        assert virtual(session, [WRONG, RIGHT]) == drawn[step]
        session.observe(known([WRONG, RIGHT]))
        again = session
    other = repairer(seed=6, values="random")
    assert virtual(other, [WRONG, RIGHT]) != drawn[0]
