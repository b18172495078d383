"""The price of leaving the old policy follows the KL of a step."""

import pytest
from controlling import column, known

from rlctl.algorithm.control.price import Price

TARGET = 0.01


def pricer(**given):
    return Price(**given).build(0)


def moved(kl):
    return known([[1.0, 0.0]], drift_PG=column([[kl, kl]]))


@pytest.mark.parametrize(
    ("kl", "price"),
    [
        (TARGET * 1.5001, 7.5),
        (TARGET * 1.4999, 5.0),
        (TARGET, 5.0),
        (TARGET / 1.4999, 5.0),
        (TARGET / 1.5001, 5 / 1.5),
        (-1.0, 5 / 1.5),
    ],
)
def test_the_rule_by_hand(kl, price):
    controller = pricer()
    controller.observe(moved(kl))
    assert controller.price == pytest.approx(price)


def test_a_step_without_an_update_says_nothing():
    """No log-prob changed; one that rose did, though the KL is 0 then too."""
    controller = pricer()
    controller.observe(moved(0.0))
    assert controller.price == 5.0
    controller.observe(moved(-1e-12))
    assert controller.price == pytest.approx(5 / 1.5)


@pytest.mark.parametrize(("kl", "end"), [(9.0, 1e6), (1e-9, 1e-3)])
def test_it_is_held(kl, end):
    controller = pricer()
    for _ in range(100):
        controller.observe(moved(kl))
    assert controller.price == end


def test_the_step_is_priced_by_the_kl_before_it():
    controller = pricer()
    assert controller.tune(moved(9.0), None).price == 5.0
    controller.observe(moved(9.0))
    assert controller.tune(moved(0.0), None).price == 7.5
    assert controller.metrics() == {"price": 7.5}
