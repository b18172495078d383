"""The gradient of a step depends on its data alone: not on micro-batches, padding, order or reward offset."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
import torch
from learning import GRPO, LONGEST, gradients, learner_of, make_groups, packed
from torch import Tensor

from rlctl.algorithm import Algorithm
from rlctl.algorithm.presets import PRESETS
from rlctl.batch import Batch
from rlctl.types import Group

FOCAL: list[dict[str, Any]] = [{"kind": "focal", "gamma": 1.0}]
TOLERANCE = 1e-10


# Settings under which what a row adds takes part here.
LIVELY: dict[str, dict[str, Any]] = {
    "avspo+always": {"preset": "avspo", "control": [{"kind": "collapse", "threshold": 0.0, "rate": 0.0}]},
    "codapo+dual": {"preset": "codapo", "surrogate": {"dual": 1.1}, "staging": {"epochs": 2}},
    "mu_grpo+low": {"preset": "mu_grpo", "veto": {"threshold": 0.9}},
    "mu_grpo+recount": {
        "preset": "mu_grpo",
        "veto": {"trigger": "prefix", "threshold": 0.9, "recount": True},
    },
    "grpo+sequence": {"veto": {"kind": "sequence", "delta": 0.1}},
    "agpo+one": {"preset": "agpo", "ratio_temperature": "one", "correction": {"kind": "none"}},
}
PLAIN = {name: {"preset": name} for name in PRESETS}
FOCUSED = {f"{name}+focal": {"preset": name, "reweight": FOCAL} for name in PRESETS}


def rows(specs: dict[str, dict[str, Any]], **extra: Any) -> list[Any]:
    return [
        pytest.param(Algorithm.model_validate({**spec, **extra}), id=name) for name, spec in specs.items()
    ]


ALL = {**PLAIN, **FOCUSED, **LIVELY}
# A goal that stays where it is makes a constant reward mean something.
FREE = {name: spec for name, spec in ALL.items() if not name.startswith("mdp")}


def split_into(size: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Make every micro-batch exactly `size` rows."""
    monkeypatch.setattr(Batch, "micro", lambda self, _: map(self.rows, torch.arange(len(self)).split(size)))


def close(one: list[Tensor], other: list[Tensor]) -> bool:
    assert len(one) == len(other) > 0
    assert all(g.abs().max() > 1e-8 for g in one), "a gradient of zero shows nothing"
    return all(torch.allclose(a, b, rtol=0, atol=TOLERANCE) for a, b in zip(one, other, strict=True))


@pytest.mark.parametrize(("minibatches", "sizes"), [(1, (1, 3, 8)), (3, (2,))])
@pytest.mark.parametrize("algorithm", rows(ALL))
def test_b01_gradient_does_not_depend_on_micro_batches(
    module: Any,
    algorithm: Algorithm,
    minibatches: int,
    sizes: tuple[int, ...],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """B-01, B-03, A-15: micro-batches of 1, 2, 3 and 8 rows, lengths uneven, sizes that divide nothing."""
    algorithm = algorithm.model_copy(
        update={"staging": algorithm.staging.model_copy(update={"minibatches": minibatches})}
    )
    groups = make_groups(P=4, G=5)
    whole = gradients(module, algorithm, groups)
    for size in sizes:
        split_into(size, monkeypatch)
        assert close(gradients(module, algorithm, groups), whole)


@pytest.mark.parametrize("algorithm", rows(ALL, kl=0.1, entropy_coef=0.01))
def test_b01_with_reference_and_entropy(
    module: Any, algorithm: Algorithm, monkeypatch: pytest.MonkeyPatch
) -> None:
    """B-01: rows without advantage have a gradient then, and count too."""
    groups = make_groups(P=3, G=4)
    whole = gradients(module, algorithm, groups)
    split_into(3, monkeypatch)
    assert close(gradients(module, algorithm, groups), whole)


@pytest.mark.parametrize("algorithm", rows(ALL))
def test_padding_changes_nothing(module: Any, algorithm: Algorithm) -> None:
    """B-08, B-18, B-24, B-34: what stands behind a completion is never trained, whatever it is."""
    groups, pad = make_groups(), (0, 5)

    def longer(batch: Batch) -> Batch:
        return batch.with_(
            tokens_BT=torch.nn.functional.pad(batch.tokens_BT, pad, value=3),
            mask_BT=torch.nn.functional.pad(batch.mask_BT, pad),
            engine_logp_BT=torch.nn.functional.pad(batch.engine_logp_BT, pad, value=float("nan")),
        )

    padded = gradients(module, algorithm, groups, laying=longer)
    assert close(padded, gradients(module, algorithm, groups))


@pytest.mark.parametrize("algorithm", rows(ALL))
def test_order_inside_a_group_changes_nothing(module: Any, algorithm: Algorithm) -> None:
    groups = make_groups()
    turned = [replace(group, samples=group.samples[::-1]) for group in groups]
    assert close(gradients(module, algorithm, turned), gradients(module, algorithm, groups))


@pytest.mark.parametrize("algorithm", rows(FREE))
def test_a_constant_added_to_rewards_changes_nothing(module: Any, algorithm: Algorithm) -> None:
    groups = make_groups()

    def raised(group: Group) -> Group:
        return replace(
            group,
            samples=tuple(
                replace(s, verdict=replace(s.verdict, reward=s.verdict.reward + 3.0)) for s in group.samples
            ),
        )

    higher = gradients(module, algorithm, [raised(g) for g in groups])
    assert close(higher, gradients(module, algorithm, groups))


@pytest.mark.parametrize("name", list(PRESETS))
def test_focal_with_gamma_zero_is_bitwise_the_host(module: Any, name: str) -> None:
    groups = make_groups()
    own = PRESETS[name].stages.get("reweight", [])
    neutral = Algorithm.model_validate({"preset": name, "reweight": [*own, {"kind": "focal", "gamma": 0.0}]})
    for a, b in zip(
        gradients(module, neutral, groups),
        gradients(module, Algorithm.model_validate(name), groups),
        strict=True,
    ):
        assert torch.equal(a, b)


def test_rows_left_out_stay_in_the_denominator(module: Any) -> None:
    """A group that teaches nothing halves the step of the other one; it is not trained, but counted."""
    algorithm = Algorithm.model_validate("grpo")
    mixed = [[1.0, 0.0, 0.0, 1.0]]
    alone = gradients(module, algorithm, make_groups(P=1, rewards=mixed))
    beside = gradients(module, algorithm, make_groups(P=2, rewards=[*mixed, [1.0] * 4]))
    assert torch.allclose(alone[0] / 2, beside[0], rtol=0, atol=TOLERANCE)


@pytest.mark.parametrize("algorithm", rows(ALL))
def test_rows_left_out_have_no_gradient(
    module: Any, algorithm: Algorithm, monkeypatch: pytest.MonkeyPatch
) -> None:
    """B-06: also where a reward of 1/2 among 0 and 1 has the advantage 0."""
    groups = make_groups(P=2, G=3, rewards=[[0.0, 0.5, 1.0], [1.0, 0.0, 0.5]])
    found = gradients(module, algorithm, groups)
    monkeypatch.setattr(Algorithm, "skips_zero_rows", False)
    assert close(found, gradients(module, algorithm, groups))


def test_a21_nothing_to_learn_takes_no_step(module: Any) -> None:
    """A-21: an all-solved batch ends in no optimiser step, no crash, and is counted."""
    learner = learner_of(module)
    groups = make_groups(P=2, rewards=[[1.0] * 4, [0.0] * 4])
    before = {n: p.clone() for n, p in learner.trained.items()}
    report = learner.update(
        GRPO.weigh(packed(groups), LONGEST),
        GRPO.objective,
        rate=1.0,
        seed=0,
        skip_zero_rows=True,
    )
    assert report.metrics() == {"train/updates": 0, "train/skipped_updates": 1}
    assert all(torch.equal(before[n], p) for n, p in learner.trained.items())


def test_b06_reference_alone_has_a_gradient(module: Any) -> None:
    """B-06: kl > 0 with advantages of zero moves the weights."""
    algorithm = Algorithm.model_validate({"preset": "grpo", "kl": 0.1})
    (gradient,) = gradients(module, algorithm, make_groups(P=2, rewards=[[1.0] * 4, [0.0] * 4]))
    assert gradient.norm() > 1e-6
