"""All controllers together: what survives a stop, the order of hooks, and names of figures."""

import json

import pytest
from controlling import Shelf, column, known, probe
from hypothesis import given, settings
from hypothesis import strategies as st

from rlctl.algorithm import Algorithm
from rlctl.algorithm.control import Controls

LISTS = {
    "agpo": [{"kind": "temperature"}, {"kind": "clip", "skew_weight": 0.3}],
    "collapse": [{"kind": "collapse", "values": "random", "threshold": 0.3, "fast": 0.3}],
    "focus": [{"kind": "focus"}],
    "focus top": [{"kind": "focus", "select": "top", "top": 2}],
    "price": [{"kind": "price"}],
    "slots": [{"kind": "slots"}],
    "all": [
        {"kind": "slots"},
        {"kind": "temperature"},
        {"kind": "clip"},
        {"kind": "collapse", "threshold": 0.0, "rate": 0.0},
        {"kind": "focus"},
        {"kind": "price"},
    ],
}
PART = st.floats(0, 2)
PROMPT = st.tuples(st.lists(st.sampled_from([0.0, 1.0]), min_size=2, max_size=2), PART, PART, PART)
STEPS = st.lists(st.lists(PROMPT, min_size=3, max_size=3), min_size=1, max_size=5)


def controls(name, seed=3):
    return Controls(Algorithm.model_validate({"control": LISTS[name]}).control, seed)


def take_step(each, step, shelf):
    """One step of a run; return what was decided and is shown."""
    rewards, dispersion, votes, drift = map(list, zip(*step, strict=True))
    probed = probe(dispersion, votes, drift)
    prompts = [prompt.uid for prompt in each.prompts(shelf, 4)]
    plan = each.plan(column([[1.0, 1.0]] * 3), probed)
    stats = known(
        rewards,
        entropy_t1_PG=column([[v, v] for v in votes]),
        logp_PG=column([[-v, -v] for v in votes]),
        drift_PG=column([[d, d] for d in drift]),
    )
    tuned = each.tune(stats, probed)
    each.observe(stats)
    virtual = None if tuned.virtual_PV is None else tuned.virtual_PV.nan_to_num(-9.0).tolist()
    bounds = None if tuned.clip_P is None else tuned.clip_P.tolist()
    return prompts, plan.tolist(), virtual, bounds, tuned.price, each.metrics()


@pytest.mark.parametrize("name", list(LISTS))
@given(steps=STEPS)
@settings(max_examples=15, deadline=None)
def test_d05_a_state_comes_back_from_json_and_decides_the_same(name, steps):
    """D-05: after every step, through text, equal in every bit."""
    whole, split, shelves = controls(name), controls(name), (Shelf(), Shelf())
    for step in steps:
        fresh = controls(name)
        state = split.state()
        fresh.restore(json.loads(json.dumps(state)))
        assert fresh.state() == state
        split = fresh
        assert take_step(split, step, shelves[0]) == take_step(whole, step, shelves[1])
    assert json.dumps(split.state()) == json.dumps(whole.state())


@pytest.mark.parametrize("name", ["agpo", "collapse", "focus", "price"])
def test_a_state_that_is_not_restored_decides_otherwise(name):
    """The test above can fail: each of these controllers remembers something that matters."""
    step = [([1.0, 1.0], 0.5, 1.0, 0.3), ([0.0, 0.0], 0.1, 0.2, 0.1), ([0.0, 1.0], 0.9, 1.9, 0.5)]
    told, shelf = controls(name), Shelf()
    for _ in range(3):
        take_step(told, step, shelf)
    shelf.taken = 0
    assert take_step(told, step, shelf) != take_step(controls(name), step, Shelf())


def test_a_state_is_a_copy_in_time():
    """What a broken-off step changes does not reach the state that was taken before it."""
    each, shelf = controls("all"), Shelf()
    step = [([0.0, 1.0], 0.5, 1.0, 0.3)] * 3
    take_step(each, step, shelf)
    state = each.state()
    before = json.dumps(state)
    take_step(each, step, shelf)
    assert json.dumps(state) == before != json.dumps(each.state())


def test_without_controllers_the_source_chooses_and_nothing_changes():
    each, shelf = Controls((), 0), Shelf()
    stats, plan = known([[0.0, 1.0]]), column([[0.7, 0.7]])
    assert [p.uid for p in each.prompts(shelf, 2)] == ["s:0", "s:1"]
    assert each.plan(plan, None) is plan and each.tune(stats, None) is stats
    each.observe(stats)
    assert each.state() == each.metrics() == {}


def test_a_focused_step_takes_nothing_from_the_source():
    each, shelf = controls("focus"), Shelf()
    step = [([0.0, 1.0], 0.5, 1.0, 0.3)] * 3
    taken = []
    for _ in range(4):
        take_step(each, step, shelf)
        taken.append(shelf.taken)
    assert taken == [4, 4, 8, 8]


def test_plans_follow_the_order_of_the_list():
    """Slots after temperature lays its own over it; before, it is heated."""
    entries = [{"kind": "slots", "temperatures": [0.6, 1.0]}, {"kind": "temperature", "strength": 1.0}]
    found = []
    for order in (entries, entries[::-1]):
        each = Controls(Algorithm.model_validate({"control": order}).control, 0)
        each.restore({"slots": {}, "temperature": {"usual": 1.0}})
        found.append(each.plan(column([[1.0, 1.0]]), probe([0.0], [1.2])).tolist())
    assert found == [[[pytest.approx(0.72), pytest.approx(1.2)]], [[0.6, 1.0]]]


def test_names_of_figures():
    each, shelf = controls("all"), Shelf()
    *_, shown = take_step(each, [([0.0, 1.0], 0.5, 1.0, 0.3)] * 3, shelf)
    kinds = {name.split("/")[1] for name in shown}
    assert kinds == {"temperature", "clip", "collapse", "focus", "price"}
    assert all(name.startswith("control/") and name.count("/") == 2 for name in shown)
    json.dumps(shown, allow_nan=False)
    assert each.metrics() == {}, "a figure stands in one step: that of its decision"
