"""E-15: is a gain real? Problems that are trained and evaluated on, and the control with a coin."""

from __future__ import annotations

import json
from pathlib import Path
from statistics import fmean

import pytest
from small_runs import Runs

from rlctl.errors import UserError
from rlctl.types import Prompt
from rlctl.verify import RandomVerifier
from rlctl.verify.coin import RandomJudge

COLD = "model.warm_start.steps=0"
ANSWERS = "engine={kind: scripted, responses: ['a', 'b']}"


@pytest.fixture
def sets(tmp_path: Path) -> tuple[str, str, str, str]:
    """Eight training problems; the odd ones are to be evaluated on, beside a new one."""
    for name, numbers in (("mine", range(8)), ("held", (1, 3, 5, 7, 9))):
        rows = ({"prompt": f"which is number {n}?", "answer": "a"} for n in numbers)
        (tmp_path / f"{name}.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    train, held = (f"{{kind: jsonl, path: '{tmp_path / name}.jsonl'}}" for name in ("mine", "held"))
    return f"data.train={train}", f"eval.sets=[{held}]", "verifier={kind: exact}", ANSWERS


def test_e15_drop_changes_what_is_trained_and_never_the_evaluation(
    runs: Runs, sets: tuple[str, ...], capsys: pytest.CaptureFixture[str]
) -> None:
    """E-15: said before step 0, as one line."""
    warned = runs(*sets, COLD)
    said = " ".join(capsys.readouterr().err.split())
    assert "held: 4 of 5 problems to evaluate on stand in training problems: held:0, held:1" in said
    assert said.index("held: 4 of 5") < said.index("begins at step 0")
    dropped = runs(*sets, COLD, "data.overlap=drop")
    said = " ".join(capsys.readouterr().err.split())
    assert said.index("mine: 4 of 8 training problems dropped") < said.index("begins at step 0")
    assert {row["uid"] for row in warned.rollouts} == {f"mine:{n}" for n in range(8)}
    assert {row["uid"] for row in dropped.rollouts} == {f"mine:{n}" for n in range(0, 8, 2)}
    for ran in (warned, dropped):
        assert ran.evals[0]["sets"]["held"]["problems"] == 5
        assert ran.evals[0]["sets"]["held"]["of"] == warned.evals[0]["sets"]["held"]["of"]
    assert warned.folder.name != dropped.folder.name


def test_e15_error_ends_before_the_first_step(runs: Runs, sets: tuple[str, ...]) -> None:
    """E-15."""
    with pytest.raises(UserError, match="held: 4 of 5 problems to evaluate on"):
        runs(*sets, COLD, "data.overlap=error")
    assert runs.ran(*sets, COLD, "data.overlap=error").status["step"] == 0


def test_e15_a_coin_pays_and_true_correctness_is_measured(runs: Runs) -> None:
    """E-15: the reward is the coin's, `correct` and the evaluation are the judge's."""
    judged = runs("verifier={kind: exact}", place="judged")
    tossed = runs("verifier=[{kind: exact, weight: 0.0}, {kind: random}]")
    coin = RandomJudge(RandomVerifier())
    for row in tossed.rollouts:
        assert row["reward"] == coin.judge(Prompt(row["uid"], (), ""), row["response"]).reward
        assert row["correct"] == (row["response"].strip() == row["gold"])
    for line in tossed.metrics:
        rows = [row for row in tossed.rollouts if row["step"] == line["step"]]
        if rows:
            assert line["reward/mean"] == pytest.approx(fmean(row["reward"] for row in rows))
            assert line["reward/correct"] == pytest.approx(fmean(row["correct"] for row in rows))
    (begun, true) = tossed.evals[0], judged.evals[0]
    assert begun | {"verifier": ""} == true | {"verifier": ""}
    assert begun["verifier"].startswith("0 × exact + 1 × random; ")
    assert tossed.metrics[1]["reward/correct"] == judged.metrics[1]["reward/correct"] > 0
