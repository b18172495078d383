import pytest

from rlctl.errors import RunError
from rlctl.types import Verdict
from rlctl.verify.guard import FailureGuard

GOOD, BAD = Verdict(1.0, True), Verdict(0.0, False, error="ValueError: oh\n  dear")


def test_v26_stops_above_the_share():
    """V-26: 2 of 20 is at the share, 3 of 20 above it."""
    guard = FailureGuard()
    assert guard.observe([GOOD] * 18 + [BAD] * 2) == 2
    with pytest.raises(RunError, match=r"3 of 20 answers.*ValueError: oh dear") as caught:
        guard.observe([BAD] * 3 + [GOOD] * 17)
    assert (caught.value.reason, caught.value.exit_code) == ("verifier", 1)
    assert len(str(caught.value).splitlines()) == 2


def test_v26_small_steps_are_put_together():
    """V-26: all fail, but twelve verdicts are too few to tell."""
    guard = FailureGuard()
    assert guard.observe([BAD] * 6) == guard.observe([BAD] * 6) == 6
    with pytest.raises(RunError, match="20 of 20"):
        guard.observe([BAD] * 8)


def test_each_window_starts_anew():
    guard = FailureGuard()
    for _ in range(50):
        assert guard.observe([BAD] * 2 + [GOOD] * 18) == 2
    assert guard.observe([]) == 0


def test_unjudged_and_wrong_answers_are_no_failures():
    assert FailureGuard().observe([Verdict(None, False), Verdict(0.0, False)] * 50) == 0
