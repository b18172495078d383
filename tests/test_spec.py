import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import ValidationError

from rlctl.spec import Seq, Spec, overlay

TABLES = st.recursive(
    st.integers() | st.none() | st.lists(st.integers(), max_size=2),
    lambda inner: st.dictionaries(st.sampled_from("abc"), inner, max_size=3),
    max_leaves=8,
)


class Inner(Spec):
    values: Seq[float] = ()


class Outer(Spec):
    inner: Inner = Inner()
    count: int = 1
    share: float = 0.5


@pytest.mark.parametrize(
    ("base", "change", "result"),
    [
        ({"a": 1, "b": 2}, {"b": 3}, {"a": 1, "b": 3}),
        ({"a": {"x": 1, "y": 2}}, {"a": {"y": None}}, {"a": {"x": 1, "y": None}}),
        ({"a": {"kind": "p", "x": 1}}, {"a": {"kind": "q"}}, {"a": {"kind": "q"}}),
        ({"a": {"kind": "p", "x": 1}}, {"a": {"x": 2}}, {"a": {"kind": "p", "x": 2}}),
        ({"a": [1, 2]}, {"a": [3]}, {"a": [3]}),
        ({"a": {"x": 1}}, {"a": 0}, {"a": 0}),
        ({"a": 0}, {"a": {"x": 1}}, {"a": {"x": 1}}),
    ],
)
def test_overlay_by_hand(base, change, result):
    assert overlay(base, change) == result


@given(TABLES, TABLES)
def test_overlay_changes_neither_side_and_is_done_once(base, change):
    shown = repr((base, change))
    result = overlay(base, change)
    assert overlay(result, change) == result
    assert repr((base, change)) == shown


@given(TABLES.filter(lambda x: isinstance(x, dict)))
def test_an_empty_change_changes_nothing(base):
    assert overlay(base, {}) == base


@pytest.mark.parametrize(
    "given_",
    [
        {"cuont": 2},
        {"inner": {"value": []}},
        {"count": "2"},
        {"count": 2.0},
        {"count": True},
        {"share": float("nan")},
        {"share": float("inf")},
        {"inner": None},
        {"inner": {"values": ["1"]}},
    ],
)
def test_f02_what_is_unknown_or_of_another_type_is_refused(given_):
    """F-02, F-03, F-04: at every level, without guessing."""
    with pytest.raises(ValidationError):
        Outer.model_validate(given_)


def test_a_spec_is_frozen_all_the_way_down():
    spec = Outer.model_validate({"inner": {"values": [1, 2.5]}, "share": 1})
    assert spec.inner.values == (1.0, 2.5)
    assert hash(spec) == hash(Outer.model_validate(spec.model_dump()))
    with pytest.raises(ValidationError):
        spec.count = 2
