"""What is reported of an update equals a calculation by hand, however the batch is split."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import pytest
import torch
from learning import LONGEST, decided, laid_out, learner_of, make_groups
from torch import Tensor

from rlctl.algorithm import Algorithm
from rlctl.batch import Batch
from rlctl.learner.report import Report


@dataclass
class Found:
    gain_BT: Tensor
    clipped_BT: Tensor
    vetoed_BT: Tensor
    kl_BT: Tensor | None


def column(*values: float) -> Tensor:
    return torch.tensor(values, dtype=torch.float64)


def small_batch(**columns: Any) -> Batch:
    """Two rows of two and one trained tokens; NaN stands where nothing is trained."""
    nan = math.nan
    made = Batch(
        prompts_B=((1,), (1, 2)),
        tokens_BT=torch.tensor([[3, 4], [5, 0]]),
        mask_BT=torch.tensor([[True, True], [True, False]]),
        engine_logp_BT=torch.tensor([[-1.0, -2.0], [-3.0, nan]], dtype=torch.float64),
        temperature_B=column(1, 1),
        group_B=torch.tensor([0, 1]),
        correct_B=torch.tensor([1, 3]),
        advantage_B=column(1, -1),
        clip_low_B=column(0.2, 0.2),
        clip_high_B=column(0.2, 0.2),
        price_B=column(0, 0),
        weight_BT=torch.tensor([[0.25, 0.25], [0.5, 0.0]], dtype=torch.float64),
    )
    return made.with_(**columns)


LOGP = torch.tensor([[-1.5, -2.0], [-2.0, math.nan]], dtype=torch.float64)
ENTROPY = torch.tensor([[1.0, 2.0], [3.0, math.nan]], dtype=torch.float64)
CLIPPED = torch.tensor([[True, False], [True, True]])
VETOED = torch.tensor([[False, True], [False, False]])


def report_of(batch: Batch, kl_BT: Tensor | None = None) -> Report:
    objective = Found(torch.zeros_like(LOGP), CLIPPED, VETOED, kl_BT)
    return Report.of(torch.tensor(0.75), LOGP, ENTROPY, batch, objective)


def test_b31_metrics_by_hand() -> None:
    """B-31, B-08: gaps of engine and learner are 0.5, 0 and -1; NaN behind a row reaches no metric."""
    report = report_of(small_batch(), kl_BT=torch.tensor([[0.1, 0.2], [0.6, math.nan]]))
    report.grad_norms.append(2.0)
    assert report.metrics() == pytest.approx(
        {
            "train/updates": 1,
            "train/skipped_updates": 0,
            "train/loss": 0.75,
            "train/grad_norm": 2.0,
            "train/clip_share": 2 / 3,
            "train/vetoed_share": 1 / 3,
            "train/clip_share/c1": 1 / 2,
            "train/clip_share/c3": 1.0,
            "train/entropy": 2.0,
            "train/kl_ref": 0.3,
            "mismatch/mean": 1.5 / 3,
            "mismatch/max": 1.0,
            "mismatch/kl": ((math.exp(-0.5) - 1 + 0.5) + 0 + (math.e - 1 - 1)) / 3,
        }
    )


def test_b31_the_mismatch_is_against_the_weights_that_were_scored() -> None:
    """B-31: later updates of a step do not drift into it."""
    old_BT = torch.tensor([[-1.0, -2.5], [-3.0, 0.0]], dtype=torch.float64)
    report = report_of(small_batch(old_logp_BT=old_BT))
    assert (report.sums["mismatch"], report.mismatch_max) == (0.5, 0.5)


def test_b31_updates_of_a_step_are_averaged() -> None:
    """B-31: losses and norms over updates, the rest over all tokens; an idle update is counted apart."""
    total = Report()
    for norm in (1.0, 3.0):
        report = report_of(small_batch())
        report.grad_norms.append(norm)
        total.add(report)
    total.add(Report.idle())
    found = total.metrics()
    assert (found["train/updates"], found["train/skipped_updates"]) == (2, 1)
    assert (found["train/loss"], found["train/grad_norm"]) == (0.75, 2.0)
    assert found["train/entropy"] == pytest.approx(2.0)
    assert found["train/clip_share"] == pytest.approx(2 / 3)
    assert "train/kl_ref" not in found


@pytest.mark.parametrize("preset", ["grpo", "dapo", "gspo", "agpo", "gapo", "mu_grpo"])
def test_b31_metrics_do_not_depend_on_micro_batches(
    module: Any, preset: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """B-31: micro-batches of 1, 2, 3 and all 16 rows, two minibatches, a reference."""
    staging = {"minibatches": 2}
    algorithm = Algorithm.model_validate({"preset": preset, "kl": 0.1, "staging": staging, "shaping": []})
    groups = make_groups()
    learner = learner_of(module, reference=True)
    with torch.no_grad():
        for p in learner.frozen.parameters():
            p.mul_(0.9)

    def metrics() -> dict[str, float]:
        total = Report()
        scored = learner.score(laid_out(groups, algorithm), algorithm.needs)
        _, batch = decided(scored, groups, algorithm)
        for minibatch in batch.minibatches(2):
            weighed = algorithm.weigh(minibatch, LONGEST)
            total.add(learner.update(weighed, algorithm.objective, rate=0.0, seed=0, skip_zero_rows=False))
        return total.metrics()

    whole = metrics()
    assert whole["train/updates"] == 2
    assert min(abs(whole["train/kl_ref"]), whole["train/grad_norm"], whole["mismatch/kl"]) > 1e-4
    for size in (1, 2, 3):
        monkeypatch.setattr(
            Batch, "micro", lambda self, _, size=size: map(self.rows, torch.arange(len(self)).split(size))
        )
        assert metrics() == pytest.approx(whole, rel=1e-9, abs=1e-12)


def test_a21_an_idle_step_reports_no_shares() -> None:
    """A-21: nothing is divided by no tokens."""
    total = Report()
    total.add(Report.idle())
    total.add(Report.idle())
    assert total.metrics() == {"train/updates": 0, "train/skipped_updates": 2}


@pytest.mark.parametrize(("loss", "norm"), [(math.nan, 1.0), (math.inf, 1.0), (0.0, math.nan)])
def test_what_is_not_finite_is_noticed(loss: float, norm: float) -> None:
    assert not Report(loss=loss, grad_norms=[norm]).finite()
    assert Report(loss=0.0, grad_norms=[1.0]).finite()
