"""The command line as a user meets it: real processes, exit codes, both streams."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
SNAPSHOTS = Path(__file__).parent / "snapshots"
QUICKSTART = str(ROOT / "recipes/quickstart.yaml")
HEAVY = (
    "torch",
    "transformers",
    "mlflow",
    "vllm",
    "peft",
    "datasets",
    "numpy",
    "math_verify",
    "ray",
    "matplotlib",
)


def rlctl(*arguments, cwd=ROOT):
    env = {**os.environ, "COLUMNS": "80", "TERM": "dumb", "NO_COLOR": "1"}
    start = "import sys; sys.argv[0] = 'rlctl'; from rlctl.cli import main; main()"
    command = [sys.executable, "-c", start, *arguments]
    return subprocess.run(command, cwd=cwd, env=env, capture_output=True, text=True, check=False)


def same_as_snapshot(name, text):
    """Compare; `UPDATE_SNAPSHOTS=1 pytest tests/test_cli.py` writes them anew: review the difference."""
    file = SNAPSHOTS / name
    if os.environ.get("UPDATE_SNAPSHOTS"):
        file.parent.mkdir(exist_ok=True)
        file.write_text(text, encoding="utf-8")
    assert text == file.read_text(encoding="utf-8"), f"{name} changed; UPDATE_SNAPSHOTS=1 accepts it"


def bare(schema):
    """Leave out the words, which may change freely."""
    if isinstance(schema, list):
        return [bare(item) for item in schema]
    if not isinstance(schema, dict):
        return schema
    words = [key for key in ("title", "description") if isinstance(schema.get(key), str)]
    return {key: bare(value) for key, value in schema.items() if key not in words}


def test_help_of_every_verb_as_before():
    verbs = [
        "",
        "train",
        "check",
        "list",
        "show",
        "grade",
        "eval",
        "schema",
        "new",
        "model",
        "model import",
        "lab",
    ]
    verbs += [f"lab {name}" for name in ("tail-miss", "collapse", "clip", "rank", "categorical")]
    text = "\n".join(rlctl(*verb.split(), "--help").stdout for verb in verbs)
    assert "completion" not in text.replace("completions", "")
    same_as_snapshot("help.txt", text)


def test_schema_as_before():
    result = rlctl("schema")
    schema = json.loads(result.stdout)
    assert "grpo" in schema["properties"]["algorithm"]["anyOf"][0]["enum"]
    assert "group_size" in schema["$defs"]["RolloutSpec"]["properties"]
    same_as_snapshot("schema.json", json.dumps(bare(schema), indent=1) + "\n")


@pytest.mark.parametrize(
    "arguments",
    [
        ["--help"],
        ["check", QUICKSTART],
        ["check", "gsm8k_grpo", "--json"],
        ["list", "algorithms"],
        ["schema"],
        ["grade", "--help"],
        ["eval", "--help"],
        ["model", "import", "--help"],
        ["lab", "categorical", "--help"],
    ],
)
def test_c14_light_verbs_import_nothing_heavy(arguments):
    """C-14: asked of the process itself."""
    code = (
        "import sys\n"
        f"sys.argv = ['rlctl', *{arguments!r}]\n"
        "from rlctl.cli import main\n"
        "try:\n    main()\n"
        "except SystemExit as end:\n    assert not end.code, end.code\n"
        f"print([name for name in {HEAVY!r} if name in sys.modules], file=sys.stderr)\n"
    )
    result = subprocess.run(
        [sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, check=True
    )
    assert result.stderr.splitlines()[-1] == "[]"


def test_check_prints_recipe_and_plan():
    result = rlctl("check", QUICKSTART, "--set", "algorithm=gspo", "--set", "budget.steps=3")
    assert result.returncode == 0, result.stderr
    assert "preset: gspo" in result.stdout
    rows = dict(line.split("  ", 1) for line in result.stdout.splitlines() if "  " in line.strip())
    assert rows["optimiser steps"].strip() == "12"


def test_check_json_is_json_alone_and_warnings_go_aside():
    cut = ["--set", "rollout.top_p=0.5", "--set", "algorithm.correction={kind: none}"]
    result = rlctl("check", QUICKSTART, "--json", *cut)
    facts = json.loads(result.stdout)
    assert set(facts) == {"recipe", "plan", "run_folder", "warnings"}
    assert "top_p" in facts["warnings"][0]
    assert "warning: rollout.top_p" in rlctl("check", QUICKSTART, *cut).stderr


def test_f02_f07_a_mistake_is_three_lines_at_most_on_standard_error():
    """F-02, F-07: exit code 2, no traceback."""
    for verb in ("check", "train"):
        result = rlctl(verb, QUICKSTART, "--set", "rollout.groupsize=8")
        assert result.returncode == 2
        assert result.stdout == ""
        assert result.stderr.splitlines() == [
            "error: --set rollout.groupsize=8: unknown key `groupsize`",
            "hint: did you mean `group_size`?",
        ]


def test_wrong_usage():
    for arguments in (
        ["train"],
        ["frobnicate"],
        ["list", "nothing"],
        ["train", QUICKSTART, "--resume", "maybe"],
    ):
        result = rlctl(*arguments)
        assert (result.returncode, result.stdout) == (2, "")
        assert "Traceback" not in result.stderr


BOUNDARY = """
import sys
from rlctl import cli
from rlctl.errors import RunError, UserError
def fail(): raise {error}
cli.app.command("fail")(fail)
sys.argv = ["rlctl", "fail"]
cli.main()
"""


@pytest.mark.parametrize(
    ("error", "code", "said"),
    [
        ("UserError('no', 'yes')", 2, "error: no\nhint: yes\n"),
        ("UserError('no')", 2, "error: no\n"),
        ("RunError('lost')", 1, "error: lost\n"),
        ("KeyboardInterrupt", 130, ""),
        ("KeyError('a real bug')", 1, None),
    ],
)
def test_boundary_between_mistakes_and_bugs(error, code, said):
    command = [sys.executable, "-c", BOUNDARY.format(error=error)]
    result = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    assert result.returncode == code
    if said is None:
        assert "Traceback" in result.stderr
        assert "a real bug" in result.stderr
    else:
        assert result.stderr == said


@pytest.mark.parametrize("what", ["algorithms", "data", "verifiers", "engines", "recipes"])
def test_list(what):
    rows = json.loads(rlctl("list", what, "--json").stdout)
    text = rlctl("list", what).stdout
    assert rows
    for row in rows:
        assert next(iter(row.values())) in text
        assert all(row.values())


def make_run(folder, name, step):
    run = folder / "runs" / name
    run.mkdir(parents=True)
    status = {"state": "finished", "stop_reason": "steps", "step": step, "tokens": 1234567, "seconds": 3.5}
    (run / "status.json").write_text(json.dumps(status))
    (run / "metrics.jsonl").write_text('{"step": 0}\n{"step": 1, "reward/mean": 0.25}\n{"step": 2, "rew')
    (run / "evals.jsonl").write_text('{"step": 0, "sets": {"arithmetic": {"pass_at": {"1": 0.5}}}}\n')
    return run


def test_runs_and_show(tmp_path):
    assert json.loads(rlctl("list", "runs", "--json", cwd=tmp_path).stdout) == []
    make_run(tmp_path, "alpha-1", 5)
    make_run(tmp_path, "alpha-2", 7)
    run = make_run(tmp_path, "beta-1", 9)
    names = [row["name"] for row in json.loads(rlctl("list", "runs", "--json", cwd=tmp_path).stdout)]
    assert sorted(names) == ["alpha-1", "alpha-2", "beta-1"]
    assert "1,234,567" in rlctl("list", "runs", cwd=tmp_path).stdout
    for name in ("beta", "beta-1", "runs/beta-1", str(run)):
        facts = json.loads(rlctl("show", name, "--json", cwd=tmp_path).stdout)
        assert facts["status"]["step"] == 9
        assert facts["metrics"] == {"step": 1, "reward/mean": 0.25}  # a torn last line is left out
        assert len(facts["evals"]) == 1
    assert "reward/mean" in rlctl("show", "beta", cwd=tmp_path).stdout
    ambiguous = rlctl("show", "alpha", cwd=tmp_path)
    assert (ambiguous.returncode, "alpha-1, alpha-2" in ambiguous.stderr) == (2, True)
    unknown = rlctl("show", "bet-1", cwd=tmp_path)
    assert (unknown.returncode, "did you mean beta-1?" in unknown.stderr) == (2, True)


def test_new_writes_a_recipe_that_checks_and_never_overwrites(tmp_path):
    assert rlctl("new", "mine", cwd=tmp_path).returncode == 0
    text = (tmp_path / "mine.yaml").read_text()
    assert "name: mine" in text
    assert text.count("#") > 8
    assert rlctl("check", "mine.yaml", cwd=tmp_path).returncode == 0
    (tmp_path / "mine.yaml").write_text("precious")
    again = rlctl("new", "mine.yaml", cwd=tmp_path)
    assert (again.returncode, "is there already" in again.stderr) == (2, True)
    assert (tmp_path / "mine.yaml").read_text() == "precious"
    bad = rlctl("new", "-x y", cwd=tmp_path)
    assert bad.returncode == 2
    assert sorted(file.name for file in tmp_path.iterdir()) == ["mine.yaml"]


def test_the_alternatives_in_the_starter_are_legal(tmp_path):
    """Each commented line, put in the place of the one above it, checks."""
    from rlctl.recipe import load_text
    from rlctl.recipe.shelf import starter

    lines = starter("mine").splitlines()
    commented = [
        index for index, line in enumerate(lines) if line.lstrip().startswith(("# model:", "# train:"))
    ]
    assert len(commented) == 2
    for index in commented:
        changed = [*lines[: index - 1], lines[index].replace("# ", "", 1), *lines[index + 1 :]]
        load_text("\n".join(changed), "mine.yaml")
