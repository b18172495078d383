import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from rlctl.engine.sampling import Law, draw, uniforms
from rlctl.types import Request

CPU = torch.device("cpu")


def request(**changes):
    return Request(**{"index": 0, "ids": (3,), "seed": 1, "max_tokens": 4, **changes})


def probs(logits, **changes):
    return Law.of([request(**changes)], CPU).log_probs(torch.tensor([logits])).exp()[0]


def test_temperature_divides_the_logits():
    # exp(2 ln 2 * x): weights 1, 4, 16 at T = 1/2
    logits = [0.0, float(np.log(2)), float(np.log(4))]
    assert probs(logits, temperature=0.5).tolist() == pytest.approx([1 / 21, 4 / 21, 16 / 21])


def test_top_k_keeps_the_k_largest_and_renormalises():
    logits = np.log([0.1, 0.4, 0.2, 0.3]).tolist()
    assert probs(logits, top_k=2).tolist() == pytest.approx([0, 4 / 7, 0, 3 / 7])


def test_top_p_keeps_the_smallest_set_that_reaches_p():
    logits = np.log([0.1, 0.4, 0.2, 0.3]).tolist()
    assert probs(logits, top_p=0.65).tolist() == pytest.approx([0, 4 / 7, 0, 3 / 7])
    assert probs(logits, top_p=0.75).tolist() == pytest.approx([0, 4 / 9, 2 / 9, 3 / 9])
    assert probs(logits, top_p=1e-9).tolist() == pytest.approx([0, 1, 0, 0])


def test_top_p_acts_on_what_top_k_left():
    # top_k=3 leaves 4/9, 3/9, 2/9: the first two reach 0.75, of the whole law they reach 0.7 only
    logits = np.log([0.1, 0.4, 0.2, 0.3]).tolist()
    assert probs(logits, top_k=3, top_p=0.75).tolist() == pytest.approx([0, 4 / 7, 0, 3 / 7])


def test_ties_at_the_edge_of_top_k_keep_exactly_k():
    assert (probs([1.0, 1.0, 1.0, 1.0], top_k=2) > 0).sum() == 2


def test_greedy_is_certain_of_the_first_of_the_largest():
    assert probs([1.0, 3.0, 3.0, 2.0], temperature=0.0).tolist() == [0, 1, 0, 0]


def test_each_row_has_its_own_law_whatever_its_neighbours():
    rows = [request(temperature=0.7), request(top_k=2), request(top_p=0.5), request(temperature=0.0)]
    logits = torch.randn(1, 50, generator=torch.Generator().manual_seed(0)).expand(4, -1)
    together = Law.of(rows, CPU).log_probs(logits)
    for b, row in enumerate(rows):
        assert torch.equal(together[b], Law.of([row], CPU).log_probs(logits[:1])[0])


def test_law_of_remaining_rows():
    rows = [request(temperature=0.7), request(top_k=2), request(top_p=0.5)]
    logits = torch.randn(3, 20, generator=torch.Generator().manual_seed(0))
    left = torch.tensor([0, 2])
    law = Law.of(rows, CPU)
    assert torch.equal(law.at(left).log_probs(logits[left]), law.log_probs(logits)[left])


def test_uniforms_depend_on_seed_and_position_alone():
    alone = uniforms([request(seed=5, max_tokens=3)], CPU)
    beside = uniforms([request(seed=6, max_tokens=9), request(seed=5, max_tokens=5)], CPU)
    assert torch.equal(alone[0], beside[1, :3])
    assert not torch.equal(beside[0, :5], beside[1, :5])
    assert ((beside >= 0) & (beside < 1)).all()


@given(st.lists(st.floats(-30, 30, width=32), min_size=1, max_size=40), st.floats(0, 1, exclude_max=True))
def test_draw_is_the_inverse_of_the_cumulative_law(logits, uniform):
    logp = torch.tensor([logits], dtype=torch.float32).log_softmax(1)
    token = int(draw(logp, torch.tensor([uniform], dtype=torch.float64))[0])
    p = logp.double().exp()[0].numpy()
    assert p[token] > 0
    total = p.sum()
    assert p[:token].sum() / total <= uniform + 1e-6
    assert uniform <= p[: token + 1].sum() / total + 1e-6


@pytest.mark.parametrize("uniform", [0.0, 0.5, 1 - 2**-53, 1.0])
def test_draw_never_takes_a_token_of_probability_zero(uniform):
    logp = torch.tensor([[-torch.inf, 0.3, -torch.inf, 0.7, -torch.inf]]).log_softmax(1)
    assert draw(logp, torch.tensor([uniform], dtype=torch.float64)).item() in {1, 3}
