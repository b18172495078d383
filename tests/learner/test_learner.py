"""What one update does: its numbers, its guard, its rate and its size."""

from __future__ import annotations

import gc
import math
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import pytest
import torch
from learning import (
    GRPO,
    LONGEST,
    adapted,
    gradients,
    laid_out,
    learner_of,
    make_groups,
    moments_of,
    packed,
    same,
    twin,
    update,
    weights_of,
)
from torch import Tensor

from rlctl.algorithm import Algorithm
from rlctl.algorithm.presets import PRESETS
from rlctl.batch import Batch
from rlctl.errors import RunError
from rlctl.learner import OptimSpec
from rlctl.learner.learner import Learner
from rlctl.types import Group


def test_an_update_by_hand(module: Any) -> None:
    """Two AdamW steps with clipped gradients, each at its own rate, against torch's optimiser on a copy."""
    copy = twin(module)
    spec = {"max_grad_norm": 0.05, "betas": [0.8, 0.9], "weight_decay": 0.1}
    learner = learner_of(module, optim=spec)
    optimizer = torch.optim.AdamW(copy.parameters(), lr=1.0, betas=(0.8, 0.9), weight_decay=0.1)
    for step, rate in enumerate((1e-2, 3e-3)):
        groups = make_groups(seed=step)
        (gradient,) = gradients(copy, GRPO, groups)
        norm = float(gradient.norm())
        assert norm > 0.05
        at = 0
        for p in copy.parameters():
            p.grad = gradient[at : at + p.numel()].view_as(p) * (0.05 / (norm + 1e-6))
            at += p.numel()
        optimizer.param_groups[0]["lr"] = rate
        optimizer.step()
        optimizer.zero_grad()
        report = update(learner, groups, rate=rate)
        assert report.metrics()["train/grad_norm"] == pytest.approx(norm)
    for p, q in zip(module.parameters(), copy.parameters(), strict=True):
        assert torch.allclose(p, q, rtol=0, atol=1e-9)
        assert p.grad is None


def test_b02_masked_truncated_rows_leave_the_denominator(module: Any) -> None:
    """B-02: with half of each group truncated the gradient is that of the other half alone."""
    masking = Algorithm.model_validate({"preset": "grpo", "shaping": [{"kind": "mask_truncated"}]})
    groups = [truncated(group, [False, True, False, True]) for group in make_groups(G=4)]
    batch = packed(groups, masking)
    assert batch.mask_BT.any(1).tolist() == [True, False] * 8
    for aggregate in ("token", "sequence", "constant"):
        algorithm = masking.model_copy(update={"aggregate": aggregate})
        (masked,) = gradients(module, algorithm, groups)
        (alone,) = gradients(module, algorithm, groups, torch.arange(0, 16, 2))
        (counted,) = gradients(module, GRPO.model_copy(update={"aggregate": aggregate}), groups)
        assert torch.allclose(masked, alone, rtol=0, atol=1e-12)
        assert (masked - counted).norm() > 1e-3


def truncated(group: Group, flags: list[bool]) -> Group:
    finishes = ["length" if flag else "stop" for flag in flags]
    samples = zip(group.samples, finishes, strict=True)
    return replace(
        group, samples=tuple(replace(s, completion=replace(s.completion, finish=f)) for s, f in samples)
    )


def test_b05_a_clipped_token_of_cispo_keeps_a_gradient(module: Any) -> None:
    """B-05: every ratio is far beyond its bounds; the clipped surrogate is still, CISPO is not."""
    groups = make_groups(P=1, rewards=[[1.0, 0.0, 0.0, 0.0]])
    norms = {}
    for preset in ("grpo", "cispo"):
        algorithm = Algorithm.model_validate({"preset": preset, "staging": {"epochs": 2}})
        learner = learner_of(module)
        batch = learner.score(packed(groups, algorithm), algorithm.needs)
        far_B = torch.where(batch.advantage_B > 0, -3.0, 3.0)  # ratios e^3 where A > 0, e^-3 elsewhere
        batch = batch.with_(old_logp_BT=batch.old_logp_BT + far_B[:, None] * batch.mask_BT)
        batch = batch.with_(engine_logp_BT=batch.old_logp_BT)
        report = learner.update(
            algorithm.weigh(batch, LONGEST), algorithm.objective, rate=0.0, seed=0, skip_zero_rows=True
        )
        norms[preset] = report.metrics()["train/grad_norm"]
        assert report.metrics()["train/clip_share"] > 0.2
    assert norms["grpo"] == 0
    assert norms["cispo"] > 1e-3


@pytest.mark.parametrize("preset", list(PRESETS))
def test_a22_completions_of_one_token(module: Any, preset: str) -> None:
    """A-22: nothing is divided by a variance of one number."""
    algorithm = Algorithm.model_validate({"preset": preset, "kl": 0.1, "staging": {"minibatches": 2}})
    groups = [one_token(group) for group in make_groups(P=2, rewards=[[1.0, 0.0, 0.0, 1.0], [0.0] * 4])]
    learner = learner_of(module, reference=True)
    report = update(learner, groups, algorithm)
    assert report.metrics()["train/updates"] == 1
    assert all(math.isfinite(x) for x in report.metrics().values())
    assert all(p.isfinite().all() for p in module.parameters())
    assert report.sums["tokens"] == 8


def one_token(group: Group) -> Group:
    def cut(s: Any) -> Any:
        return replace(s, completion=replace(s.completion, ids=s.completion.ids[:1], logps=(-2.0,)))

    return replace(group, samples=tuple(map(cut, group.samples)))


@pytest.mark.parametrize("preset", list(PRESETS))
def test_b09_rows_of_no_token_and_groups_all_masked(module: Any, preset: str) -> None:
    """B-09, A-08: an empty completion and a group that no one judged give finite numbers."""
    algorithm = Algorithm.model_validate(preset)
    groups = make_groups(P=2, rewards=[[1.0, 0.0, 0.0, 1.0]] * 2)
    empty = groups[0].samples[1]
    empty = replace(empty, completion=replace(empty.completion, ids=(), logps=()))
    unjudged = [replace(s, verdict=replace(s.verdict, reward=None)) for s in groups[1].samples]
    groups = [
        replace(groups[0], samples=(groups[0].samples[0], empty, *groups[0].samples[2:])),
        replace(groups[1], samples=tuple(unjudged)),
    ]
    report = update(learner_of(module), groups, algorithm)
    assert all(math.isfinite(x) for x in report.metrics().values())
    assert report.grad_norms[0] > 0


def test_b30_no_graph_outlives_an_update(module: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """B-30: as many tensors live after 32 micro-batches as after one, and none with a graph."""
    groups = make_groups(P=8, G=4, rewards=[[1.0, 0.0, 0.0, 1.0]] * 8)
    learner = learner_of(module)
    kept = [update(learner, groups)]  # moments exist from here on

    def alive() -> int:
        gc.collect()
        tensors = [x for x in gc.get_objects() if type(x) is Tensor]
        assert not any(x.grad_fn is not None for x in tensors)
        return len(tensors)

    kept.append(update(learner, groups))
    whole = alive()
    micro: list[int] = []

    def one_by_one(self: Batch, _: int) -> Iterator[Batch]:
        for i in range(len(self)):
            micro.append(i)
            yield self.rows(torch.tensor([i]))

    monkeypatch.setattr(Batch, "micro", one_by_one)
    kept.append(update(learner, groups))
    assert len(micro) == 32
    assert alive() == whole
    assert all(isinstance(value, float) for report in kept for value in report.sums.values())


@pytest.mark.parametrize("harm", ["loss", "gradient"])
def test_what_is_not_finite_changes_nothing(module: Any, harm: str) -> None:
    """The step is refused with its reason; weights and moments are as before, and the next one goes on."""
    learner = learner_of(module, optim={"max_grad_norm": 1.0})
    groups = make_groups()
    update(learner, groups)
    weights, moments = weights_of(learner), moments_of(learner)
    handle = None
    if harm == "gradient":
        handle = module.lm_head.weight.register_hook(lambda gradient: gradient * math.inf)
    algorithm = GRPO if harm == "gradient" else Exploding()
    with pytest.raises(RunError, match="not finite") as caught:
        learner.update(
            GRPO.weigh(packed(groups), LONGEST), algorithm.objective, rate=1.0, seed=0, skip_zero_rows=True
        )
    assert caught.value.reason == "nonfinite"
    assert caught.value.exit_code == 1
    assert same(weights_of(learner), weights)
    assert same(moments_of(learner), moments)
    assert all(p.grad is None for p in module.parameters())
    assert not module.training
    if handle is not None:
        handle.remove()
    assert update(learner, groups).finite()
    assert not same(weights_of(learner), weights)


class Exploding:
    """An objective whose first gain is NaN."""

    def objective(self, logp_BT: Tensor, entropy_BT: Tensor, batch: Batch) -> Any:
        found = GRPO.objective(logp_BT, entropy_BT, batch)
        return replace(found, gain_BT=found.gain_BT * math.nan)


def test_dropout_draws_from_its_seed_alone(module: Any) -> None:
    """The same seed gives the same update, another seed another; the global generator is left alone."""
    groups = make_groups()
    results = []
    for seed, noise in ((1, 0), (1, 5), (2, 0)):
        learner = learner_of(adapted(twin(module), dropout=0.5))
        update(learner, groups)  # the adapter's second half begins at zero and hides its dropout
        torch.manual_seed(99)
        torch.rand(noise)
        before = torch.get_rng_state()
        update(learner, groups, seed=seed)
        assert torch.equal(torch.get_rng_state(), before)
        results.append(weights_of(learner))
    assert same(results[0], results[1])
    assert not same(results[0], results[2])


def test_scoring_changes_nothing_and_is_exact(module: Any) -> None:
    """Old log-probs are those of the weights as they are, whatever the micro-batches; masked rows get 0."""
    algorithm = Algorithm.model_validate({"preset": "grpo", "staging": {"epochs": 2}})
    groups = [truncated(group, [False, True, False, False]) for group in make_groups()]
    masking = Algorithm.model_validate({"preset": "grpo", "shaping": [{"kind": "mask_truncated"}]})
    batch = packed(groups, masking)
    learner = learner_of(module)
    before = weights_of(learner)
    scored = learner.score(batch, algorithm.needs).old_logp_BT
    learner.micro_tokens = 1
    assert torch.allclose(learner.score(batch, algorithm.needs).old_logp_BT, scored, rtol=0, atol=1e-12)
    assert torch.equal(scored != 0, batch.mask_BT)
    logits_V = module(torch.tensor([batch.prompts_B[4]])).logits[0, -1].detach()
    law_V = (logits_V / batch.temperature_B[4]).log_softmax(-1)
    assert batch.temperature_B[4] == 0.7
    assert float(scored[4, 0]) == pytest.approx(float(law_V[batch.tokens_BT[4, 0]]))
    assert same(weights_of(learner), before)
    unscored = learner.score(batch, frozenset())
    assert unscored.tokens_BT is batch.tokens_BT
    assert unscored.old_logp_BT is unscored.ref_logp_BT is unscored.entropy_BT is None


@pytest.mark.parametrize("needs", [{"entropy"}, {"entropy_t1"}, {"entropy", "entropy_t1", "old_logp"}])
def test_entropies_are_scored_at_the_row_s_temperature_and_at_one(module: Any, needs: set[str]) -> None:
    """Dense, one token at a time; only what is needed is filled."""
    learner = learner_of(module)
    batch = packed(make_groups())
    scored = learner.score(batch, frozenset(needs))
    for b in (0, 4, 15):
        ids = torch.tensor([[*batch.prompts_B[b], *batch.tokens_BT[b, : batch.length_B[b]].tolist()]])
        logits_TV = module(ids).logits[0, len(batch.prompts_B[b]) - 1 : -1].detach()
        for column_BT, temperature in (
            (scored.entropy_BT, batch.temperature_B[b]),
            (scored.entropy_t1_BT, torch.tensor(1.0)),
        ):
            if column_BT is not None:
                law = torch.distributions.Categorical(logits=logits_TV / temperature)
                found_T = column_BT[b][batch.mask_BT[b]]
                assert torch.allclose(found_T, law.entropy(), rtol=0, atol=1e-6)
    filled = {
        n.removesuffix("_BT") for n in ("entropy_BT", "entropy_t1_BT") if getattr(scored, n) is not None
    }
    assert filled == needs - {"old_logp"}
    if filled == {"entropy", "entropy_t1"}:
        cold_B = batch.temperature_B != 1
        gap_BT = (scored.entropy_t1_BT - scored.entropy_BT).abs()
        assert gap_BT[cold_B][batch.mask_BT[cold_B]].min() > 0
        assert gap_BT[~cold_B].max() == 0


def test_ratios_at_temperature_one_or_as_sampled(module: Any) -> None:
    """The log-probs of the ratio are those of `ratio_temperature`; every second group was sampled at 0.7."""
    learner, groups = learner_of(module), make_groups()
    spec = {"staging": {"epochs": 2}, "correction": {"kind": "none"}}
    sampled, one = (
        learner.score(laid_out(groups, row), row.needs).old_logp_BT
        for row in (
            Algorithm.model_validate({**spec, "ratio_temperature": temperature})
            for temperature in ("sampling", "one")
        )
    )
    cool = [samples.samples[0].temperature == 0.7 for samples in groups for _ in samples.samples]
    assert torch.equal((sampled != one).any(1), torch.tensor(cool))


@pytest.mark.parametrize(
    ("spec", "total", "factors"),
    [
        ({}, 4, [1, 1, 1, 1]),
        ({"warmup_steps": 2}, None, [0.5, 1, 1, 1]),
        ({"schedule": "linear"}, 4, [1, 0.75, 0.5, 0.25]),
        ({"schedule": "linear", "warmup_steps": 2}, 6, [0.5, 1, 1, 0.75, 0.5, 0.25]),
        ({"schedule": "cosine"}, 4, [1, (1 + math.sqrt(0.5)) / 2, 0.5, (1 - math.sqrt(0.5)) / 2]),
        ({"schedule": "cosine", "warmup_steps": 1}, 3, [1, 1, 0.5]),
        ({"schedule": "linear", "warmup_steps": 9}, 3, [1 / 9, 2 / 9, 3 / 9]),
        ({"schedule": "linear"}, 2, [1, 0.5, 0, 0]),  # a budget that was made smaller
    ],
)
def test_the_schedule_by_hand(module: Any, spec: dict[str, Any], total: int | None, factors: list) -> None:
    learner = learner_of(module, total_steps=total, optim={"learning_rate": 0.2, **spec})
    assert [learner.rate(step) for step in range(1, len(factors) + 1)] == pytest.approx(
        [0.2 * factor for factor in factors]
    )


def test_a_micro_batch_of_a_large_model_is_small(module: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """`auto` on a processor bounds the work, so that Ctrl-C is heard soon: 135M weights take 2,043 tokens."""
    weights = sum(p.numel() for p in module.parameters())
    monkeypatch.setattr("rlctl.learner.learner.CPU_WORK", 100 * weights + weights // 2)
    assert learner_of(module).micro_tokens == 100
    assert 2**38 // 134_515_008 == 2043


def test_micro_batches_are_bounded_by_padded_tokens(module: Any) -> None:
    assert learner_of(module).micro_tokens == 8192  # `auto` on a processor
    learner = learner_of(module, optim={"micro_batch_tokens": 30})
    assert learner.micro_tokens == 30
    shapes: list[torch.Size] = []
    module.model.embed_tokens.register_forward_hook(lambda _m, given, _o: shapes.append(given[0].shape))
    update(learner, make_groups(rewards=[[1.0, 0.0, 1.0, 0.0]] * 4))
    assert len(shapes) > 3
    assert all(rows * length <= 30 for rows, length in shapes)
    assert sum(rows for rows, _ in shapes) == 16


def test_autocast_keeps_weights_and_moments_as_they_are(module: Any) -> None:
    module = module.float()
    learner = Learner(module, OptimSpec(learning_rate=1e-3), autocast=torch.bfloat16)
    plain = Learner(twin(module).float(), OptimSpec(learning_rate=1e-3))
    norm, other = (update(each, make_groups()).grad_norms[0] for each in (learner, plain))
    assert norm == pytest.approx(other, rel=0.05)
    assert norm != other
    assert {p.dtype for p in module.parameters()} == {torch.float32}
    assert {m.dtype for m in moments_of(learner).values()} == {torch.float32}
