import pytest
from pydantic import ValidationError

from rlctl.budget import Budget, BudgetSpec, EarlyStopSpec, ResourcesSpec


class Clock:
    def __init__(self):
        self.now = 1000.0

    def __call__(self):
        return self.now


def test_the_first_limit_reached_ends_the_run():
    clock = Clock()
    budget = Budget(BudgetSpec(steps=3, tokens=100, minutes=2.0), clock=clock)
    assert budget.spent() is None
    budget.charge(99)
    assert budget.spent() is None
    budget.charge(1)
    assert budget.spent() == "tokens"
    clock.now += 119.9
    assert Budget(BudgetSpec(minutes=2.0), clock=clock).spent() is None
    clock.now += 0.1
    assert budget.seconds == pytest.approx(120)
    assert (budget.steps, budget.tokens) == (2, 100)


def test_minutes_end_a_run():
    clock = Clock()
    budget = Budget(BudgetSpec(minutes=0.5), clock=clock)
    clock.now += 29
    assert budget.spent() is None
    clock.now += 1
    assert budget.spent() == "minutes"


def test_steps_are_named_first_when_all_limits_are_reached():
    budget = Budget(BudgetSpec(steps=1, tokens=1, minutes=1e-9))
    budget.charge(1)
    assert budget.spent() == "steps"


def test_tokens_of_a_stage_are_paid_before_it_and_used_up_first():
    """Inside a stage they end nothing; steps and minutes do."""
    clock = Clock()
    budget = Budget(BudgetSpec(tokens=10), clock=clock)
    budget.charge(10)
    assert (budget.spent(inside_stage=True), budget.spent(inside_stage=False)) == (None, "tokens")
    both = Budget(BudgetSpec(steps=1, tokens=10, minutes=1.0), clock=clock)
    clock.now += 60
    assert both.spent(inside_stage=True) == "minutes"
    both.charge(10)
    assert both.spent(inside_stage=True) == "steps"


def test_limits_that_are_not_set_never_end_a_run():
    budget = Budget(BudgetSpec(steps=2))
    budget.charge(10**12)
    assert budget.spent() is None


def test_g08_counters_go_on_after_a_resume():
    """G-08: steps, tokens and seconds add up over sessions; the time between them is not counted."""
    clock = Clock()
    spec = BudgetSpec(steps=10, tokens=1000, minutes=10.0)
    first = Budget(spec, clock=clock)
    for _ in range(4):
        clock.now += 5
        first.charge(100)
    clock.now += 3600
    second = Budget(spec, clock=clock)
    clock.now += 7  # of building the parts again
    second.resume(first.steps, first.tokens, 20.0)
    assert (second.steps, second.tokens, second.seconds) == (4, 400, 20.0)
    clock.now += 5
    second.charge(100)
    assert (second.steps, second.tokens, second.seconds) == (5, 500, 25.0)
    assert second.spent() is None
    second.charge(500)
    assert second.spent() == "tokens"


def test_a_larger_budget_goes_on():
    budget = Budget(BudgetSpec(steps=4))
    budget.resume(4, 0, 0.0)
    assert budget.spent() == "steps"
    larger = Budget(BudgetSpec(steps=5))
    larger.resume(4, 0, 0.0)
    assert larger.spent() is None


@pytest.mark.parametrize(
    ("metrics", "reached"), [({"m": 0.9}, True), ({"m": 0.8}, True), ({"m": 0.79}, False), ({}, False)]
)
def test_early_stop(metrics, reached):
    assert EarlyStopSpec(metric="m", threshold=0.8).reached(metrics) is reached


@pytest.mark.parametrize("given", [{"steps": 0}, {"tokens": 0}, {"minutes": 0.0}, {"minutes": float("inf")}])
def test_empty_budgets_are_refused(given):
    with pytest.raises(ValidationError):
        BudgetSpec.model_validate(given)


@pytest.mark.parametrize("given", [{"cpus": 0}, {"gpus": 2}, {"cpus": "all"}])
def test_impossible_resources_are_refused(given):
    with pytest.raises(ValidationError):
        ResourcesSpec.model_validate(given)
