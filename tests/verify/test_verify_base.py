import numpy as np
import pytest

from rlctl.errors import Interrupted
from rlctl.types import Verdict
from rlctl.verify.base import guarded


@pytest.mark.parametrize("reward", [0.0, -1.0, 0.5, 1.0, 2])
def test_a10_every_number_survives(reward):
    """A-10."""
    verdict = guarded(lambda: reward)
    assert verdict == Verdict(reward=float(reward), correct=reward >= 1.0)
    assert isinstance(verdict.reward, float)


def test_a08_none_is_not_judged():
    """A-08."""
    assert guarded(lambda: None) == Verdict(reward=None, correct=False)


@pytest.mark.parametrize(
    "result",
    [float("nan"), float("inf"), np.float64("nan"), {"reward": float("-inf")}, Verdict(float("nan"), True)],
)
def test_a09_a_reward_that_is_no_number_is_a_counted_wrong_answer(result):
    """A-09, V-26."""
    verdict = guarded(lambda: result)
    assert (verdict.reward, verdict.correct) == (0.0, False)
    assert verdict.error is not None and "reward" in verdict.error


def test_a_part_that_is_no_number_is_an_error_too():
    assert guarded(lambda: {"reward": 1.0, "parts": {"style": float("nan")}}).error


class _Timeout(BaseException):
    pass


@pytest.mark.parametrize("error", [ValueError("broken"), _Timeout("broken")])
def test_v16_v26_whatever_a_judge_raises_is_a_counted_wrong_answer(error):
    """V-16, V-26."""

    def judge():
        raise error

    verdict = guarded(judge)
    assert (verdict.reward, verdict.correct) == (0.0, False)
    assert verdict.error == f"{type(error).__name__}: broken"


@pytest.mark.parametrize("error", [KeyboardInterrupt, SystemExit, Interrupted])
def test_v16_requests_to_end_pass_through(error):
    """V-16."""

    def judge():
        raise error

    with pytest.raises(error):
        guarded(judge)


def test_scalars_of_other_libraries():
    assert guarded(lambda: np.bool_(True)) == Verdict(1.0, True)
    assert guarded(lambda: np.float32(0.25)) == Verdict(0.25, False)


def test_fields_of_a_verdict():
    assert guarded(lambda: {"reward": 0.3, "correct": True, "answer": "7"}) == Verdict(0.3, True, "7")
    assert guarded(lambda: {"reward": 1.0}) == Verdict(1.0, True)
    assert guarded(lambda: {"reward": None}) == Verdict(None, False)
    assert "score" in (guarded(lambda: {"score": 1.0}).error or "")


@pytest.mark.parametrize("result", ["1.0", lambda: 1.0, [1.0]])
def test_f10_what_is_no_reward_is_named(result):
    """F-10: a reward factory used as a reward."""
    assert f"returned a {type(result).__name__}" in (guarded(lambda: result).error or "")
