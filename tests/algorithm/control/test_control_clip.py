"""AGPO's bounds: the formula by loops, and what must move them which way."""

import pytest
from controlling import column, known, probe
from hypothesis import given, settings
from hypothesis import strategies as st

from rlctl.algorithm.control.clip import Clip

PART = st.floats(0, 3)
SIGNS = {"votes": 0.4, "dispersion": 0.3, "kl": 0.2, "skewness": 0.1}


def bound(spec=None, heat=1.0, **signs):
    return (spec or Clip()).bound(heat, **(SIGNS | signs))


def clipper(**given):
    return Clip(**given).build(0)


def tuned(controller, entropies, votes, dispersion, skewness=None):
    stats = known([[1.0, 0.0]] * len(votes), entropy_t1_PG=column([[e, e] for e in entropies]))
    return controller.tune(stats, probe(dispersion, votes, skewness)).clip_P.tolist()


def loops(spec, steps):
    """Section 1.4 of the authors' code, in plain numbers."""
    usual_entropy = usual_kl = 0.0
    found = []
    for prompts, drift in steps:
        row = []
        for H, E, sigma, kappa in prompts:
            reference = H if usual_entropy <= 1e-8 else usual_entropy
            h = min(max(H / (reference + 1e-8), spec.entropy_range[0]), spec.entropy_range[1])
            above = spec.base * h * (1 + spec.vote_weight * E)
            below = (
                1 + spec.dispersion_weight * sigma + spec.kl_weight * usual_kl + spec.skew_weight * abs(kappa)
            )
            row.append(min(max(above / below, spec.low), spec.high))
            first = usual_entropy <= 1e-8
            usual_entropy = H if first else spec.entropy_rate * H + (1 - spec.entropy_rate) * usual_entropy
        found.append(row)
        kl = sum(max(d, 0.0) for d in drift) / len(drift)
        usual_kl = spec.kl_rate * kl + (1 - spec.kl_rate) * usual_kl
    return found, usual_kl


PROMPT = st.tuples(PART, PART, PART, st.floats(-3, 3))


@given(
    st.lists(st.lists(st.tuples(PROMPT, st.floats(-1, 1)), min_size=1, max_size=4), min_size=1, max_size=4),
    st.floats(0, 1),
)
@settings(max_examples=50, deadline=None)
def test_bounds_are_the_formula_prompt_by_prompt(drawn, skew_weight):
    spec = Clip(skew_weight=skew_weight, low=0.0, high=9.0)
    steps = [([prompt for prompt, _ in step], [drift for _, drift in step]) for step in drawn]
    controller = spec.build(0)
    wanted, usual_kl = loops(spec, steps)
    for (prompts, drift), row in zip(steps, wanted, strict=True):
        entropies, votes, dispersion, skewness = map(list, zip(*prompts, strict=True))
        assert tuned(controller, entropies, votes, dispersion, skewness) == pytest.approx(row)
        controller.observe(known([[1.0, 0.0]] * len(drift), drift_PG=column([[d, d] for d in drift])))
    assert controller.usual_kl == pytest.approx(usual_kl)


def test_the_papers_vector():
    """0.2 * 1.5 * 1.07 / 1.56."""
    spec = Clip(
        base=0.2, dispersion_weight=1, kl_weight=0.5, vote_weight=0.1, skew_weight=0.2, entropy_range=(0.5, 2)
    )
    found = spec.bound(1.5, votes=0.7, dispersion=0.4, kl=0.2, skewness=-0.3)
    assert found == pytest.approx(0.205769, abs=1e-6)
    controller = spec.build(0)
    controller.usual_entropy, controller.usual_kl = 1.0, 0.2
    assert tuned(controller, [1.5], [0.7], [0.4], [0.3]) == [pytest.approx(0.205769, abs=1e-6)]


@given(PART, PART)
@settings(max_examples=40, deadline=None)
def test_which_sign_moves_the_bound_which_way(one, other):
    """Falls with dispersion, KL and skewness; rises with vote entropy and the policy's entropy."""
    less, more = sorted((one, other))
    spec = Clip(skew_weight=1.0)
    for name in ("dispersion", "kl", "skewness"):
        assert bound(spec, **{name: more}) <= bound(spec, **{name: less})
    assert bound(spec, votes=less) <= bound(spec, votes=more)
    assert bound(spec, heat=less) <= bound(spec, heat=more)


def test_the_signs_move_it_strictly_inside_its_bounds():
    spec = Clip(skew_weight=1.0)
    assert 0.05 < bound(spec) < 0.4
    for name in ("dispersion", "kl", "skewness"):
        assert bound(spec, **{name: SIGNS[name] + 0.1}) < bound(spec)
    assert bound(spec, votes=0.5) > bound(spec)
    assert bound(spec, heat=1.1) > bound(spec)
    assert bound(skewness=5.0) == bound(), "the authors' code leaves skewness out"


@given(st.floats(0, 1e6), PART, PART, PART)
@settings(max_examples=40, deadline=None)
def test_a_bound_is_held(heat, votes, dispersion, kl):
    assert 0.05 <= bound(heat=heat, votes=votes, dispersion=dispersion, kl=kl) <= 0.4


@pytest.mark.parametrize(("entropy", "heat"), [(9.0, 1.5), (0.0, 0.5), (1.2, 1.2), (1.0, 1.0)])
def test_the_ratio_of_entropies_is_held(entropy, heat):
    controller = clipper()
    controller.usual_entropy = 1.0
    assert controller.heat(entropy) == pytest.approx(heat)
    assert controller.usual_entropy == pytest.approx(0.01 * entropy + 0.99)


def test_the_first_entropy_is_the_usual_one():
    controller = clipper()
    assert controller.heat(2.0) == pytest.approx(1.0)
    assert controller.usual_entropy == 2.0


def test_entropy_is_the_mean_over_tokens_not_rows():
    """Rows of 1 and 9 tokens with entropies 1 and 0: 0.1, not 0.5."""
    stats = known([[1.0, 0.0]], entropy_t1_PG=column([[1.0, 0.0]]), length_PG=column([[1, 9]]).long())
    controller = clipper()
    controller.tune(stats, probe([0.0], [0.0]))
    assert controller.usual_entropy == pytest.approx(0.1)


def test_the_steps_kl_is_of_each_prompt_and_never_negative():
    """Prompts that drift by +0.4 and -0.4 do not cancel: 0.2."""
    controller = clipper()
    stats = known([[1.0, 0.0]] * 2, drift_PG=column([[0.6, 0.2], [-0.2, -0.6]]))
    controller.observe(stats)
    assert controller.usual_kl == pytest.approx(0.1 * 0.2)
    controller.observe(stats)
    assert controller.usual_kl == pytest.approx(0.1 * 0.2 + 0.9 * 0.02)


def test_a_step_is_bounded_by_the_kl_before_it():
    """The KL of a step is known after it, so it acts on the next."""
    drifting = known([[1.0, 0.0]], drift_PG=column([[2.0, 2.0]]))
    controller = clipper(kl_rate=1.0)
    first = tuned(controller, [1.0], [0.0], [0.0])
    controller.observe(drifting)
    second = tuned(controller, [1.0], [0.0], [0.0])
    assert first == [pytest.approx(0.2)] and second == [pytest.approx(0.2 / (1 + 0.5 * 2))]


def test_what_is_shown():
    controller = clipper()
    bounds = tuned(controller, [1.0, 1.1], [0.2, 0.1], [0.1, 0.5])
    shown = controller.metrics()
    assert set(shown) == {"bound_mean", "bound_min", "bound_max", "usual_entropy", "usual_kl"}
    assert (shown["bound_min"], shown["bound_max"]) == (min(bounds), max(bounds))
