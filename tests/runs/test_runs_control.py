"""Rows with controllers, factors or a veto: what they show, what they do to a run, and that it survives."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterator
from itertools import groupby
from typing import Any

import pytest
from small_runs import DENSE, Ran, Runs, broken_off, same_run

SPREAD = ("mean", "min", "max")
FACTORS = [f"train/reweight/{name}" for name in SPREAD]
SHOWN = {
    "agpo": [
        *(f"control/temperature/planned_{name}" for name in SPREAD),
        *(f"control/clip/bound_{name}" for name in SPREAD),
        "control/temperature/uncertainty",
        "control/clip/usual_entropy",
        "control/clip/usual_kl",
        "train/kl_step",
        "train/kl_ref",
    ],
    "avspo": [f"control/collapse/{name}" for name in ("acr", "threshold", "fired", "virtual_rewards")],
    "f_grpo": FACTORS,
    "f_dapo": FACTORS,
    "f_cispo": FACTORS,
    "codapo": [*FACTORS, *(f"control/focus/{name}" for name in ("focused", "questions", "value"))],
    "mu_grpo": ["train/vetoed_share", "train/staleness"],
    "edge": FACTORS,
    "ppo_lambda": ["control/price/price", "train/kl_step"],
}
WIDE = "rollout.prompts_per_step=8"
NOTHING = "verifier={kind: exact, weight: 0.0}"
HEATED = "preset: agpo, clip: {kind: fixed}, control: [{kind: temperature}]"
ALWAYS = "{kind: collapse, threshold: 0.0, rate: 0.0}"
NEVER = "{kind: collapse, threshold: 1.0}"
SOMETIMES = "{kind: collapse, threshold: 0.4, rate: 0.05, watch: 0.0}"


@pytest.mark.parametrize("preset", list(SHOWN))
def test_what_a_row_shows(preset: str, runs: Runs) -> None:
    """Its own figures stand in every line of metrics.jsonl, and only there."""
    ran = runs(f"algorithm={preset}", "eval={sets: []}")
    steps = [line for line in ran.metrics if line["step"]]
    assert len(steps) == 3
    for line in steps:
        assert set(SHOWN[preset]) | {"rollout/acr", "rollout/acr_effective"} <= line.keys()
    others = {key for keys in SHOWN.values() for key in keys} - set(SHOWN[preset])
    everywhere = {"train/vetoed_share", "train/staleness"}
    assert not (others - everywhere) & {key for line in steps for key in line}


@pytest.mark.parametrize("preset", ["gapo", "gapo_seq"])
def test_gapo_shows_its_clip_by_the_number_of_correct_answers(preset: str, runs: Runs) -> None:
    ran = runs(f"algorithm={preset}", WIDE)
    seen = {key for line in ran.metrics for key in line if key.startswith("train/clip_share/c")}
    assert len(seen) > 1
    for line in ran.metrics[1:]:
        groups = groupby((r for r in ran.rollouts if r["step"] == line["step"]), key=lambda r: r["uid"])
        correct = {sum(row["correct"] for row in rows) for _, rows in groups}
        moved = {c for c in correct if 0 < c < 4}  # rows without advantage are not computed
        assert {key for key in line if key in seen} == {f"train/clip_share/c{c}" for c in moved}


def test_a_row_without_controllers_repairs_nothing(runs: Runs) -> None:
    ran = runs("algorithm=grpo", WIDE)
    assert max(ran.series("rollout/acr")) > 0
    assert ran.series("rollout/acr") == ran.series("rollout/acr_effective")


@pytest.mark.parametrize("control", [ALWAYS, NEVER, SOMETIMES])
def test_acr_is_0_where_injection_fired_and_the_raw_one_where_it_did_not(control: str, runs: Runs) -> None:
    """AVSPO: always, never, and by its threshold."""
    ran = runs(f"algorithm={{preset: avspo, control: [{control}]}}", WIDE, "budget.steps=6")
    steps = [line for line in ran.metrics if line["step"]]
    fired = {line["step"] for line in steps if line["control/collapse/fired"]}
    for line in steps:
        assert line["control/collapse/acr"] == line["rollout/acr"]
        assert (line["step"] in fired) == (line["rollout/acr"] > line["control/collapse/threshold"])
        effective = 0.0 if line["step"] in fired else line["rollout/acr"]
        assert line["rollout/acr_effective"] == effective
    assert any(line["rollout/acr"] for line in steps)
    if control == ALWAYS:
        assert fired == {line["step"] for line in steps if line["rollout/acr"]}
    if control == NEVER:
        assert not fired
    check_advantages(ran, fired)


def check_advantages(ran: Ran, fired: set[int]) -> None:
    """One sign for all answers of a repaired group, at most sqrt(K / G); 0 in the others."""
    for (step, _), rows in groupby(ran.rollouts, key=lambda row: (row["step"], row["uid"])):
        group = list(rows)
        advantages = {row["advantage"] for row in group}
        correct = {row["correct"] for row in group}
        if len(correct) == 2:
            assert len(advantages) == 2
        elif step in fired:
            (A,) = advantages
            K = ran.metrics[step]["control/collapse/virtual_rewards"]
            assert 0 < abs(A) <= (K / 4) ** 0.5 + 1e-9
            assert (A > 0) == correct.pop()
        else:
            assert advantages == {0.0}


def test_virtual_rewards_move_the_weights_of_a_step_that_is_all_wrong(runs: Runs) -> None:
    """Where plain GRPO takes no step at all."""
    ran = runs(f"algorithm={{preset: avspo, control: [{ALWAYS}]}}", NOTHING)
    assert ran.series("train/updates") == [1, 1, 1]
    assert ran.series("rollout/acr") == [1.0] * 3
    assert ran.series("rollout/acr_effective") == [0.0] * 3
    assert all(norm > 0 for norm in ran.series("train/grad_norm"))


def test_a_probe_is_paid_for_and_in_no_group(runs: Runs) -> None:
    """Twice the requests; its tokens are in the budget, and its rows neither trained nor written down."""
    ran = runs("algorithm=agpo", DENSE)
    assert ran.series("rollout/requests") == [32] * 3
    assert Counter(row["step"] for row in ran.rollouts) == {1: 16, 2: 16, 3: 16}
    spent = ran.series("budget/tokens")
    for step, tokens in enumerate(spent, 1):
        trained = sum(row["tokens"] for row in ran.rollouts if row["step"] <= step)
        assert trained + 16 * step <= tokens <= trained + 4 * 16 * step
    assert ran.status["tokens"] == spent[-1]
    planned = [ran.series(f"control/temperature/planned_{name}") for name in ("min", "max")]
    for step, (low, high) in enumerate(zip(*planned, strict=True), 1):
        used = {row["temperature"] for row in ran.rollouts if row["step"] == step}
        assert (min(used), max(used)) == (low, high)


def test_temperatures_are_shown_where_they_were_chosen(runs: Runs) -> None:
    """With steps collected ahead: in the first of each stage."""
    ran = runs(f"algorithm={{{HEATED}, staging: {{ahead: 2, epochs: 2}}}}", DENSE, "budget.steps=4")
    shown = [line["step"] for line in ran.metrics if "control/temperature/planned_mean" in line]
    assert shown == [1, 3]


def test_temperatures_of_refills_are_shown_too(runs: Runs) -> None:
    ran = runs(f"algorithm={{{HEATED}, admit: {{kind: mixed}}}}", WIDE)
    assert max(ran.series("rollout/refills")) > 0
    for line in ran.metrics[1:]:
        used = [row["temperature"] for row in ran.rollouts if row["step"] == line["step"]]
        assert line["control/temperature/planned_min"] == min(used)
        assert line["control/temperature/planned_max"] == max(used)
        assert line["control/temperature/planned_mean"] == pytest.approx(sum(used) / len(used))


def test_a_step_without_an_update_says_nothing_of_the_price(runs: Runs) -> None:
    """Scored again, its log-probs are the same in every bit: no divergence is no small one."""
    ran = runs("algorithm=ppo_lambda", NOTHING)
    assert ran.series("train/updates") == [0] * 3
    assert ran.series("train/kl_step") == [0.0] * 3
    assert ran.series("control/price/price") == [5.0] * 3


def test_a_smaller_probe(runs: Runs) -> None:
    ran = runs("algorithm={preset: agpo, probe: {samples: 2}}", DENSE)
    assert ran.series("rollout/requests") == [16 + 8] * 3


def test_slots_give_each_place_of_a_group_its_temperature(runs: Runs) -> None:
    ran = runs("algorithm=mdp", DENSE)
    assert {(row["sample"], row["temperature"]) for row in ran.rollouts} == {
        (0, 0.1), (1, 0.4), (2, 0.7), (3, 1.0)
    }  # fmt: skip


@pytest.mark.parametrize(
    ("control", "most"),
    [("{kind: focus}", 4), ("{kind: focus, select: top, top: 2}", 2)],
)
def test_every_second_step_asks_again(control: str, most: int, runs: Runs) -> None:
    """CoDaPO: of the step before, fresh samples, at the price of a step; the source waits meanwhile."""
    sets = (DENSE, "budget.steps=6", "algorithm.reweight=[{kind: codapo}]")
    ran = runs(*sets, f"algorithm.control=[{control}]", place="focus")
    assert ran.series("control/focus/focused") == [0, 1] * 3
    asked = {
        step: {row["uid"] for row in rows}
        for step, rows in groupby(ran.rollouts, key=lambda row: row["step"])
    }
    for step in (2, 4, 6):
        assert asked[step] <= asked[step - 1]
        assert len(asked[step]) <= most
    assert ran.series("rollout/requests") == [16] * 6
    plain = runs(*sets, place="plain")
    drawn = [row["uid"] for row in plain.rollouts if row["sample"] == 0 and row["step"] <= 3]
    fresh = [row["uid"] for row in ran.rollouts if row["sample"] == 0 and row["step"] % 2]
    assert fresh == drawn


def test_a_focused_step_leaves_out_a_question_that_is_gone(runs: Runs) -> None:
    """The data may have changed since the step that chose it, where that is accepted."""
    file = runs.root / "sums.jsonl"
    lines = [f'{{"prompt": "{n}+1=", "answer": {n + 1}}}\n' for n in range(6)]
    file.write_text("".join(lines))
    focus = "algorithm={preset: codapo, control: [{kind: focus, select: top, top: 4}]}"
    data = f"data={{train: {{kind: jsonl, path: {file}}}, max_prompt_length: 16}}"
    sets = (focus, data, DENSE, "model.warm_start.steps=0", "eval={sets: []}")
    ran = runs(*sets, "budget.steps=1")
    chosen = json.loads(ran.file("state.json"))["control"]["focus"]["chosen"]
    last = max(chosen)
    file.write_text("".join(lines[: int(last.partition(":")[2])]))
    ran = runs(*sets, "budget.steps=2", "checkpoint.accept_changed_data=true")
    asked = {row["uid"] for row in ran.rollouts if row["step"] == 2}
    assert asked == set(chosen) - {last} != set()


@pytest.fixture
def seeds(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """The seeds of all requests of a run, evaluations included."""
    from rlctl.engine.transformers import TransformersEngine

    found: list[int] = []
    generate = TransformersEngine.generate

    def watched(self: Any, requests: Any) -> Iterator[Any]:
        found.extend(request.seed for request in requests)
        return generate(self, requests)

    monkeypatch.setattr(TransformersEngine, "generate", watched)
    return found


ALL_SEEDS = {
    "probe, focus": "{preset: agpo, control: [{kind: temperature}, {kind: clip}, {kind: focus}]}",
    "probe, refill": "{preset: agpo, admit: {kind: mixed}}",
    "probe, refill, stage": f"{{{HEATED}, admit: {{kind: mixed}}, staging: {{ahead: 3}}}}",
}


@pytest.mark.parametrize("case", list(ALL_SEEDS))
def test_a13_every_seed_is_its_own(case: str, runs: Runs, seeds: list[int]) -> None:
    """A-13: a question that focus repeats four times in a step, probes, refills, stages, evaluations."""
    ran = runs(f"algorithm={ALL_SEEDS[case]}", "eval.every=2", "budget.steps=5")
    sampled = sum(ran.series("rollout/requests"))
    assert len(seeds) == sampled + 16 * 2 * len(ran.evals)
    assert len(set(seeds)) == len(seeds)
    if "refill" in case:
        assert max(ran.series("rollout/refills")) > 0
    else:
        rows = [row["uid"] for row in ran.rollouts if row["step"] == 2 and row["sample"] == 0]
        assert max(Counter(rows).values()) > 1


CONTROLLED = {
    "agpo": ("algorithm=agpo",),
    "agpo's temperatures, ahead": (f"algorithm={{{HEATED}, staging: {{ahead: 4, epochs: 2}}}}",),
    "avspo": (
        "algorithm={preset: avspo, control: [{kind: collapse, values: random, threshold: 0.2, watch: 0.0}]}",
    ),
    "codapo": ("algorithm=codapo",),
    "ppo_lambda": ("algorithm=ppo_lambda",),
}


@pytest.mark.parametrize("step", [3, 4])
@pytest.mark.parametrize("case", list(CONTROLLED))
def test_d05_controllers_survive_a_kill(case: str, step: int, runs: Runs) -> None:
    """D-05: bitwise, on both parities of a focused step; 3 is one step after its checkpoint."""
    judge = () if case == "avspo" else (DENSE,)
    sets = (*CONTROLLED[case], *judge, "budget.steps=6", "checkpoint.every=2", "eval={sets: []}")
    whole = runs(*sets, place="whole")
    same_run(broken_off(runs, step, *sets), whole)
