"""CoDaPO's second step: which questions, in which order, and every second step only."""

import pytest
from controlling import Shelf, column, known
from hypothesis import given, settings
from hypothesis import strategies as st

from rlctl.algorithm.control.focus import Focus

UIDS = tuple(f"t:{p}" for p in range(8))
VALUES = [0.1, 0.9, 0.3, 0.8, 0.2, 0.0, 0.5, 0.4]


def uids(prompts):
    return None if prompts is None else [prompt.uid for prompt in prompts]


def seen(rewards, logp=-0.5):
    """A finished step whose rows all have the mean log-prob `logp`."""
    return known(rewards, logp_PG=column([[logp] * len(row) for row in rewards]))


def test_quantile_and_repeat_by_hand():
    """The upper quarter of eight: the values of at least 0.575, in the step's order, four times each."""
    assert Focus().order(UIDS, VALUES) == ["t:1"] * 4 + ["t:3"] * 4


def test_top_in_turn_by_hand():
    assert Focus(select="top", top=3).order(UIDS, VALUES) == ["t:1", "t:3", "t:6"]
    assert Focus(select="top", top=99).order(UIDS, VALUES)[0] == "t:1"
    assert Focus(select="top", top=2).order(UIDS, [0.5] * 8) == ["t:0", "t:1"]


@given(st.lists(st.floats(0, 1), min_size=1, max_size=12), st.floats(0, 0.99), st.integers(1, 5))
@settings(max_examples=60, deadline=None)
def test_the_quantile_a_second_way(values, quantile, repeat):
    """Linear between the ranked values, as numpy has it."""
    ranked, place = sorted(values), quantile * (len(values) - 1)
    low = int(place)
    limit = ranked[low] + (place - low) * (ranked[min(low + 1, len(values) - 1)] - ranked[low])
    names = tuple(f"t:{p}" for p in range(len(values)))
    found = Focus(quantile=quantile, repeat=repeat).order(names, values)
    sure = [name for name, v in zip(names, values, strict=True) if v > limit + 1e-9 for _ in range(repeat)]
    near = [name for name, v in zip(names, values, strict=True) if v >= limit - 1e-9 for _ in range(repeat)]
    assert found and set(sure) <= set(found) <= set(near)
    assert found == [name for name in near if name in set(found)]


@pytest.mark.parametrize(
    ("spec", "chosen"),
    [
        (Focus(quantile=0.0, repeat=2), ["t:0", "t:0", "t:1", "t:1", "t:2", "t:2", "t:0"]),
        (Focus(select="top", top=2), ["t:1", "t:0", "t:1", "t:0", "t:1", "t:0", "t:1"]),
    ],
)
def test_a_focused_step_is_filled_and_begins_again_where_it_runs_out(spec, chosen):
    """t:1 is half solved, t:0 a quarter, t:2 not at all."""
    controller, shelf = spec.build(0), Shelf()
    controller.observe(seen([[1, 0, 0, 0], [1, 1, 0, 0], [0, 0, 0, 0]]))
    assert uids(controller.prompts(shelf, 7)) == chosen
    assert shelf.taken == 0


@pytest.mark.parametrize("select", ["quantile", "top"])
def test_every_second_step(select):
    controller, shelf = Focus(select=select).build(0), Shelf()
    for step in range(6):
        found = controller.prompts(shelf, 4)
        assert (found is not None) == bool(step % 2)
        assert set(uids(found) or ["t:1"]) <= {"t:0", "t:1"}
        controller.observe(seen([[1, 0, 0, 0], [1, 1, 0, 0]]))
        assert controller.metrics()["focused"] == step % 2


class Changed(Shelf):
    """A source that lost the question t:0."""

    def get(self, uid):
        return {"t:1": super().get("t:1")}[uid]


@pytest.mark.parametrize("select", ["quantile", "top"])
def test_a_question_that_is_gone_is_not_asked_again(select):
    """After `checkpoint.accept_changed_data`: the others fill the step."""
    controller = Focus(select=select, quantile=0.0).build(0)
    controller.observe(seen([[1, 1, 0, 0], [1, 0, 0, 0]]))
    assert set(controller.chosen) == {"t:0", "t:1"}
    assert uids(controller.prompts(Changed(), 5)) == ["t:1"] * 5
    controller.observe(seen([[1, 0, 0, 0]]))
    assert controller.metrics()["questions"] == 1


def test_where_no_question_is_left_the_source_is_asked():
    """Such a step is a first one, and the step after it the focused one."""
    controller, shelf = Focus(select="top", top=1).build(0), Changed()
    controller.observe(seen([[1, 1, 0, 0], [1, 0, 0, 0]]))
    assert controller.chosen == ["t:0"] and controller.prompts(shelf, 3) is None
    controller.observe(seen([[0, 0, 0, 0], [1, 0, 0, 0]]))
    assert controller.metrics()["focused"] == 0
    assert uids(controller.prompts(shelf, 3)) == ["t:1"] * 3


def test_value_is_confidence_times_middling_difficulty():
    """c = exp(-0.5) everywhere; V_d of 1/4 and 2/4 solved: 0.75 and 1."""
    controller = Focus(select="top", top=1).build(0)
    controller.observe(seen([[1, 0, 0, 0], [1, 1, 0, 0]]))
    assert controller.chosen == ["t:1"]
    shown = controller.metrics()
    assert shown["value"] == pytest.approx(2.718281828459045**-0.5 * (0.75 + 1) / 2)
    assert shown["questions"] == 2
    controller.observe(seen([[1, 1, 0, 0]] * 3))
    assert controller.metrics()["questions"] == 1
