"""Who is sampled how hot: AGPO's controller by loops, and the list of MDP-GRPO."""

import pytest
from controlling import column, probe
from hypothesis import given, settings
from hypothesis import strategies as st

from rlctl.algorithm.control.temperature import Slots, Temperature

BASE = 1.0
AMOUNTS = st.lists(st.floats(0, 5), min_size=1, max_size=6)
STEPS = st.lists(AMOUNTS, min_size=1, max_size=4)


def heater(usual=0.0, **given):
    made = Temperature(**given).build(0)
    made.usual = usual
    return made


def planned(controller, votes, base=BASE, G=3, dispersion=None):
    plan = controller.plan(
        column([[base] * G] * len(votes)), probe(dispersion or [0.0] * len(votes), list(votes))
    )
    rows = plan.tolist()
    assert all(len(row) == G and len(set(row)) == 1 for row in rows), "one temperature a prompt"
    return [row[0] for row in rows]


def loops(spec, steps, base=BASE):
    """The formula prompt by prompt: centre first, then update."""
    usual, found = 0.0, []
    for step in steps:
        row = []
        for U in step:
            if usual <= 1e-8:
                u, usual = 0.0, U
            else:
                u = (U - usual) / (usual + 1e-8)
                usual = spec.rate * U + (1 - spec.rate) * usual
            row.append(min(max(base * (1 + spec.strength * u), spec.low), spec.high))
        found.append(row)
    return found, usual


@given(STEPS, st.floats(0.01, 1), st.floats(0, 3))
@settings(max_examples=60, deadline=None)
def test_temperatures_are_the_formula_prompt_by_prompt(steps, rate, strength):
    spec = Temperature(rate=rate, strength=strength)
    controller = spec.build(0)
    wanted, usual = loops(spec, steps)
    assert [planned(controller, step) for step in steps] == [pytest.approx(row) for row in wanted]
    assert controller.usual == pytest.approx(usual)


def test_the_papers_vector():
    """U 2 against a usual 1 at rate 0.25: u = 1, usual 1.25; strength 0.2 gives 1.2."""
    controller = heater(usual=1.0, rate=0.25, strength=0.2)
    assert planned(controller, [2.0]) == [pytest.approx(1.2)]
    assert controller.usual == 1.25
    assert heater(usual=1.0, rate=0.25).center(2.0) == pytest.approx(1.0)


@given(STEPS, st.floats(0, 50), st.floats(0.1, 2))
@settings(max_examples=60, deadline=None)
def test_every_temperature_is_in_bounds(steps, strength, base):
    controller = heater(strength=strength)
    for step in steps:
        assert all(0.5 <= t <= 1.5 for t in planned(controller, step, base))


@given(st.floats(1e-3, 10), st.integers(1, 20))
@settings(max_examples=30, deadline=None)
def test_a_constant_uncertainty_changes_nothing(U, steps):
    controller = heater(strength=5.0)
    for _ in range(steps):
        assert planned(controller, [U, U]) == [pytest.approx(BASE, abs=1e-6)] * 2


def test_the_order_of_prompts_matters():
    """Each prompt is compared with the mean before it, which it then moves."""
    there, back = heater(rate=0.5), heater(rate=0.5)
    assert planned(there, [1.0, 3.0, 2.0]) == [
        BASE,
        pytest.approx(1 + 0.15 * 2),  # (3 - 1) / 1; the mean is 2 now
        pytest.approx(1.0),
    ]
    assert planned(back, [2.0, 3.0, 1.0]) != planned(heater(rate=0.5), [1.0, 3.0, 2.0])[::-1]
    assert there.usual == pytest.approx(2.0)


def test_prompts_without_any_doubt_leave_the_mean_to_the_first_that_has_some():
    controller = heater()
    assert planned(controller, [0.0, 0.0, 1.5, 3.0]) == [BASE, BASE, BASE, pytest.approx(1.15)]


def test_cold_is_bounded_too():
    """u is never below -1, so nothing is cooler than base * (1 - strength)."""
    controller = heater(usual=7.0, strength=0.4)
    assert planned(controller, [0.0]) == [pytest.approx(0.6)]


def test_what_uncertainty_is_made_of():
    weights = {"dispersion_weight": 2.0, "vote_weight": 3.0, "skew_weight": 5.0}
    controller = heater(**weights)
    controller.plan(column([[1.0]]), probe([0.5], [0.25], [-0.125]))
    assert controller.usual == 2 * 0.5 + 3 * 0.25 + 5 * 0.125
    plain = heater()
    plain.plan(column([[1.0]]), probe([0.5], [0.25], [-9.0]))
    assert plain.usual == 0.75  # the authors' code leaves skewness out


def test_what_is_shown():
    controller = heater(usual=1.0)
    planned(controller, [2.0, 0.5])
    shown = controller.metrics()
    assert set(shown) == {"planned_mean", "planned_min", "planned_max", "uncertainty"}
    assert shown["planned_min"] <= shown["planned_mean"] <= shown["planned_max"]
    assert shown["uncertainty"] == 1.25


def test_every_plan_since_the_last_showing_is_shown():
    """Refills and portions of a stage plan several times a step."""
    controller = heater(usual=1.0, rate=1.0)
    plans = planned(controller, [2.0, 0.5]) + planned(controller, [1.0])
    shown = controller.metrics()
    assert (shown["planned_min"], shown["planned_max"]) == (min(plans), max(plans))
    assert shown["planned_mean"] == pytest.approx(sum(plans) / 3)
    assert shown["uncertainty"] == pytest.approx(3.5 / 3)
    assert controller.metrics() == {}
    assert planned(controller, [1.0]) == [controller.metrics()["planned_max"]]


@pytest.mark.parametrize(
    ("G", "row"),
    [
        (4, [0.1, 0.4, 0.7, 1.0]),
        (8, [0.1, 0.1, 0.4, 0.4, 0.7, 0.7, 1.0, 1.0]),
        (6, [0.1, 0.1, 0.4, 0.7, 0.7, 1.0]),
        (2, [0.1, 0.7]),
    ],
)
def test_slots_share_the_list_out(G, row):
    plan = Slots().build(0).plan(column([[1.0] * G] * 2), None)
    assert plan.tolist() == [row, row]


@given(st.integers(1, 20), st.lists(st.floats(0.1, 2), min_size=1, max_size=5))
@settings(max_examples=40, deadline=None)
def test_slots_come_in_order_and_equal_shares(G, values):
    (row,) = Slots(temperatures=tuple(values)).build(0).plan(column([[1.0] * G]), None).tolist()
    places = [g * len(values) // G for g in range(G)]
    assert row == [values[i] for i in places]
    if len(values) <= G:
        counts = [places.count(i) for i in range(len(values))]
        assert max(counts) - min(counts) <= 1
