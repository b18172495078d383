"""Seconds by part, with a clock that is set by hand."""

import pytest

from rlctl.clock import Clock


class Hand:
    now = 100.0

    def __call__(self):
        return self.now


def parts(clock):
    return {name: value for name, value in clock.metrics().items() if value}


def test_parts_and_the_whole():
    hand = Hand()
    clock = Clock(hand)
    hand.now += 1  # of no part
    with clock("update"):
        hand.now += 2
    with clock("sync"):
        hand.now += 4
    with clock("update"):
        hand.now += 8
    assert parts(clock) == {"time/update_s": 10, "time/sync_s": 4, "time/step_s": 15}
    assert clock.metrics()["time/score_s"] == 0


def test_what_runs_inside_another_part_is_counted_once():
    hand = Hand()
    clock = Clock(hand)
    with clock("sync"):
        hand.now += 1
        with clock("update"):
            hand.now += 2
            with clock("score"):
                hand.now += 4
            hand.now += 8
        hand.now += 16
        with clock("sync"):
            hand.now += 32
    assert parts(clock) == {
        "time/sync_s": 1 + 16 + 32,
        "time/update_s": 2 + 8,
        "time/score_s": 4,
        "time/step_s": 63,
    }


def test_a_part_that_is_broken_off_is_closed():
    hand = Hand()
    clock = Clock(hand)
    with pytest.raises(ZeroDivisionError), clock("sync"), clock("update"):
        hand.now += 2
        raise ZeroDivisionError
    hand.now += 5
    with clock("score"):
        hand.now += 1
    assert parts(clock) == {"time/update_s": 2, "time/score_s": 1, "time/step_s": 8}


def test_the_hand_moves_by_itself():
    clock = Clock()
    with clock("update"):
        sum(range(1000))
    found = clock.metrics()
    assert 0 < found["time/update_s"] <= found["time/step_s"] < 60
