"""Data and judges of one's own, through a whole run, down to the uid of every answer."""

from __future__ import annotations

import json
from collections import Counter
from pathlib import Path
from typing import Any

import pytest
from published import need_data
from small_runs import JUDGES, Runs

ANSWERS = r"engine={kind: scripted, responses: ['\boxed{4}', 'so \boxed{\frac{8}{2}}', '5', 'no idea']}"
COLD = "model.warm_start.steps=0"
WIDE = ("model.context=256", "data.max_prompt_length=64", "rollout.max_completion_length=32")


def jsonl(file: Path, *rows: dict[str, Any]) -> str:
    file.write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")
    return f"{{kind: jsonl, path: '{file}'}}"


def test_jsonl_with_the_math_verifier(runs: Runs, tmp_path: Path) -> None:
    """Scripted answers, graded by math-verify; rewards, answers and correctness reach every file."""
    file = jsonl(tmp_path / "sums.jsonl", *({"prompt": f"2+2= ({n})", "answer": "4"} for n in range(6)))
    ran = runs(f"data.train={file}", f"eval.sets=[{file}]", "verifier={kind: math}", ANSWERS, COLD, *WIDE)
    assert (ran.code, ran.said) == (0, ("finished", "steps"))
    verdicts = {row["response"]: (row["reward"], row["correct"], row["answer"]) for row in ran.rollouts}
    assert verdicts[r"\boxed{4}"][:2] == (1.0, True)
    assert verdicts[r"so \boxed{\frac{8}{2}}"][:2] == (1.0, True)
    assert verdicts["5"][:2] == (0.0, False)
    assert verdicts["no idea"] == (0.0, False, None)
    first = [row for row in ran.rollouts if row["step"] == 1]
    line = next(line for line in ran.metrics if line["step"] == 1)
    assert line["reward/mean"] == pytest.approx(sum(row["reward"] for row in first) / len(first))
    assert line["rollout/unparseable_share"] == sum(row["answer"] is None for row in first) / len(first)
    assert 0 < ran.evals[0]["sets"]["sums"]["pass_at"]["1"]["value"] < 1


def test_weighted_judges_with_shaping(runs: Runs, tmp_path: Path) -> None:
    """E-05, E-08: shaping and weights change the reward and never what counts as correct."""
    file = jsonl(tmp_path / "sums.jsonl", *({"prompt": f"2+2= ({n})", "answer": "4"} for n in range(6)))
    judges = (
        "verifier=[{kind: math, weight: 2.0}, {kind: regex, pattern: '^so', weight: 0.25},"
        " {kind: regex, pattern: 'idea', weight: -1.0}]"
    )
    ran = runs(f"data.train={file}", f"eval.sets=[{file}]", judges, ANSWERS, COLD, *WIDE)
    verdicts = {row["response"]: (row["reward"], row["correct"]) for row in ran.rollouts}
    assert verdicts == {
        r"\boxed{4}": (2.0, True),
        r"so \boxed{\frac{8}{2}}": (2.25, True),
        "5": (0.0, False),
        "no idea": (-1.0, False),
    }


def test_a_judge_in_a_file_beside_the_recipe(
    runs: Runs, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Relative paths of a recipe start at its file, wherever the run is started from."""
    project, elsewhere = tmp_path / "project", tmp_path / "elsewhere"
    project.mkdir()
    elsewhere.mkdir()
    jsonl(project / "sums.jsonl", *({"q": f"{n}+1=", "a": [n + 1, "many"]} for n in range(6)))
    (project / "grade.py").write_text(
        "def judge(response, gold, prompt):\n"
        "    assert prompt.set == 'sums' and gold[1] == 'many'\n"
        "    return {'reward': len(response) / 100, 'correct': response == '5', 'answer': response}\n"
    )
    (project / "mine.yaml").write_text(
        "name: mine\nbudget: {steps: 2}\ntrack: {mlflow: off}\nresources: {cpus: 1}\n"
        "model: {kind: tiny, layers: 1, width: 32, heads: 2, context: 64, warm_start: {steps: 0}}\n"
        "data: {train: {kind: jsonl, path: sums.jsonl, prompt: q, answer: a}, max_prompt_length: 32}\n"
        "rollout: {prompts_per_step: 4, group_size: 4, max_completion_length: 4}\n"
        "verifier: {kind: python, path: 'grade.py:judge'}\n"
        "engine: {kind: scripted, responses: ['5', 'six']}\n"
    )
    monkeypatch.chdir(elsewhere)
    ran = runs(base=str(project / "mine.yaml"))
    assert (ran.code, ran.said) == (0, ("finished", "steps"))
    assert {(row["response"], row["reward"], row["correct"], row["answer"]) for row in ran.rollouts} == {
        ("5", 0.01, True, "5"),
        ("six", 0.03, False, "six"),
    }
    assert ran.rollouts[0]["gold"][1] == "many"
    assert list(elsewhere.iterdir()) == []


def test_two_sets_to_evaluate_on(runs: Runs) -> None:
    sets = (
        "eval.sets=[{kind: arithmetic, digits: 1, problems: 5}, {kind: countdown, problems: 7},"
        " {kind: arithmetic, digits: 2, problems: 3}]"
    )
    ran = runs(sets, "data.max_prompt_length=48", "rollout.max_completion_length=8")
    found = ran.evals[0]["sets"]
    assert {name: entry["problems"] for name, entry in found.items()} == {
        "arithmetic": 5, "countdown": 7, "arithmetic-2": 3
    }  # fmt: skip
    for name in found:
        assert ran.metrics[0][f"eval/{name}/pass@1"] == found[name]["pass_at"]["1"]["value"]


def test_v07_golds_that_cannot_be_parsed_are_said(
    runs: Runs, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """V-07: before step 0, by uid, with the golds themselves."""
    rows = [{"prompt": f"2+2= ({n})", "answer": "4"} for n in range(12)] + [
        {"prompt": "who?", "answer": "Evelyn Å ???"}
    ]
    file = jsonl(tmp_path / "sums.jsonl", *rows)
    runs(f"data.train={file}", "eval={sets: []}", "verifier={kind: math}", ANSWERS, COLD, *WIDE)
    said = " ".join("".join(capsys.readouterr()).split())
    assert "1 gold answers that the verifier cannot parse: sums:12" in said
    assert said.index("sums:12") < said.index("begins at step 0")


def test_a11_rows_with_equal_text_stay_apart(runs: Runs, tmp_path: Path) -> None:
    """A-11: the same question twice with different golds: two groups, each judged by its own gold."""
    file = jsonl(tmp_path / "same.jsonl", *({"prompt": "which?", "answer": text} for text in "abab"))
    answers = "engine={kind: scripted, responses: ['a', 'b']}"
    ran = runs(f"data.train={file}", "eval={sets: []}", "verifier={kind: exact}", answers, COLD)
    for step in (1, 2, 3):
        rows = [row for row in ran.rollouts if row["step"] == step]
        assert Counter(row["uid"] for row in rows) == {f"same:{n}": 4 for n in range(4)}
        for row in rows:
            assert row["gold"] == "abab"[int(row["uid"].partition(":")[2])]
            assert row["correct"] == (row["response"] == row["gold"])
        for uid in {row["uid"] for row in rows}:
            assert sum(row["advantage"] for row in rows if row["uid"] == uid) == pytest.approx(0, abs=1e-9)


def test_a12_equal_ids_of_two_sets_stay_apart(runs: Runs, tmp_path: Path) -> None:
    """A-12: in training by uid, in evaluation by the name of the set."""
    one = jsonl(tmp_path / "one.jsonl", *({"prompt": "which?", "answer": "a"} for _ in range(3)))
    two = jsonl(tmp_path / "two.jsonl", *({"prompt": "which?", "answer": "c"} for _ in range(3)))
    answers = "engine={kind: scripted, responses: ['a', 'b']}"
    ran = runs(
        f"data.train=[{one}, {two}]", f"eval.sets=[{one}, {two}]", "verifier={kind: exact}", answers, COLD,
        "budget.steps=4", "eval.samples=8",
    )  # fmt: skip
    assert {row["uid"].partition(":")[0] for row in ran.rollouts} == {"one", "two"}
    assert not any(row["correct"] for row in ran.rollouts if row["uid"].startswith("two"))
    assert any(row["correct"] for row in ran.rollouts if row["uid"].startswith("one"))
    assert ran.metrics[0]["eval/two/pass@1"] == 0.0 < ran.metrics[0]["eval/one/pass@1"]


def test_a10_rewards_of_zero_and_less(runs: Runs) -> None:
    """A-10: 0.0 and -1.0 arrive as they are."""
    ran = runs(f"verifier={{kind: python, path: '{JUDGES}:signs'}}")
    assert {row["reward"] for row in ran.rollouts} == {0.0, -1.0}
    for row in ran.rollouts:
        assert row["reward"] == -float(len(row["response"]) % 2)
    mixed = [row for row in ran.rollouts if row["advantage"]]
    assert mixed
    assert all((row["advantage"] > 0) == (row["reward"] == 0.0) for row in mixed)


def test_a08_answers_that_are_not_judged(runs: Runs, tmp_path: Path) -> None:
    """A-08: None is no reward: null in the file, advantage 0, counted, and not part of the mean."""
    (tmp_path / "some.py").write_text(
        "def judge(response, gold):\n    return {'a': None, 'b': 1.0, 'c': 0.5}[response]\n"
    )
    file = jsonl(tmp_path / "same.jsonl", *({"prompt": f"which {n}?", "answer": "-"} for n in range(8)))
    answers = "engine={kind: scripted, responses: ['a', 'b', 'c']}"
    judge = f"verifier={{kind: python, path: '{tmp_path / 'some.py'}:judge'}}"
    ran = runs(f"data.train={file}", "eval={sets: []}", judge, answers, COLD)
    silent = [row for row in ran.rollouts if row["response"] == "a"]
    assert silent
    assert {(row["reward"], row["advantage"]) for row in silent} == {(None, 0.0)}
    assert sum(ran.series("rollout/not_judged")) == len(silent)
    for line in ran.metrics[-3:]:
        rewards = [
            row["reward"] for row in ran.rollouts if row["step"] == line["step"] and row["reward"] is not None
        ]
        assert line["reward/mean"] == pytest.approx(sum(rewards) / len(rewards))


def test_b21_overlong_prompts_are_dropped_with_a_count(
    runs: Runs, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """B-21: before step 0, and none of them is ever sampled."""
    rows = [{"prompt": "x" * (30 if n % 3 else 40) + str(n), "answer": "a"} for n in range(9)]
    file = jsonl(tmp_path / "long.jsonl", *rows)
    answers = "engine={kind: scripted, responses: ['a', 'b']}"
    ran = runs(f"data.train={file}", "eval={sets: []}", "verifier={kind: exact}", answers, COLD)
    said = "".join(capsys.readouterr())
    assert "long: 3 prompts over data.max_prompt_length dropped" in said
    assert said.index("dropped") < said.index("begins at step 0")
    assert {row["uid"] for row in ran.rollouts} == {f"long:{n}" for n in range(9) if n % 3}
    assert all(len(row["prompt"]) == 31 for row in ran.rollouts)


def test_b16_b17_truncated_answers_and_answers_that_end(runs: Runs, tmp_path: Path) -> None:
    """B-17, B-23: the engine's finish decides; lengths are tokens, the end token among them."""
    file = jsonl(tmp_path / "same.jsonl", *({"prompt": f"which {n}?", "answer": "ab"} for n in range(8)))
    answers = "engine={kind: scripted, responses: ['ab', 'abcd', 'é€ü']}"
    ran = runs(f"data.train={file}", "eval={sets: []}", "verifier={kind: exact}", answers, COLD)
    found = {row["response"][:2]: (row["finish"], row["tokens"], row["correct"]) for row in ran.rollouts}
    assert found["ab"] in {("stop", 3, True), ("length", 4, False)}
    by_finish = {row["finish"]: row["tokens"] for row in ran.rollouts}
    assert by_finish == {"stop": by_finish["stop"], "length": 4}
    for line in ran.metrics:
        rows = [row for row in ran.rollouts if row["step"] == line["step"]]
        assert line["rollout/truncated_share"] == sum(row["finish"] == "length" for row in rows) / len(rows)


def test_a_published_set_from_a_folder(runs: Runs) -> None:
    """GSM8K by `data.root`, judged by math-verify, with its own chat template and system prompt."""
    ran = runs(
        f"data.root={need_data()}", "data.train={kind: gsm8k, limit: 40}",
        "eval.sets=[{kind: gsm8k, limit: 5}, {kind: svamp, limit: 3}]",
        "data.template=chat", "data.system_prompt='Think.'",
        "data.max_prompt_length=600", "model.context=700",
        r"engine={kind: scripted, responses: ['\boxed{10}', '5']}", COLD, "rollout.max_completion_length=16",
    )  # fmt: skip
    assert (ran.code, ran.said) == (0, ("finished", "steps"))
    assert set(ran.evals[0]["sets"]) == {"gsm8k", "svamp"}
    assert all(row["uid"].startswith("gsm8k:") for row in ran.rollouts)
