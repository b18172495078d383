"""`rlctl grade`: files of cases as people write them, in real processes."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
from published import CASES, need_data

ROOT = Path(__file__).parents[1]


def grade(*arguments, cwd=ROOT):
    start = "import sys; sys.argv[0] = 'rlctl'; from rlctl.cli import main; main()"
    env = {**os.environ, "PYTHONPATH": str(ROOT), "COLUMNS": "80", "NO_COLOR": "1"}
    command = [sys.executable, "-c", start, "grade", *map(str, arguments)]
    return subprocess.run(command, cwd=cwd, env=env, capture_output=True, text=True, check=False)


def write(folder, *rows):
    file = folder / "cases.jsonl"
    file.write_text("".join(row if isinstance(row, str) else json.dumps(row) + "\n" for row in rows))
    return file


ROWS = [
    {"id": "half", "gold": r"\frac{1}{2}", "response": "so 0.5", "expected": True, "why": "passed over"},
    {"gold": ["3", r"\sqrt{2}"], "response": r"\boxed{2^{1/2}}"},
    "\n",
    {"id": 7, "gold": "5", "response": "\u001b[31m6", "expected": True},
    {"gold": "5", "response": "nothing", "expected": False},
]


def test_c14_grading_starts_without_anything_heavy(tmp_path):
    """C-14: sympy and math-verify are the worker's, and plain numbers need none."""
    code = (
        f"import sys; sys.argv = ['rlctl', 'grade', {str(write(tmp_path, ROWS[0]))!r}]\n"
        "from rlctl.cli import main\n"
        "try: main()\nexcept SystemExit: pass\n"
        "heavy = ('torch', 'transformers', 'sympy', 'math_verify', 'datasets', 'numpy')\n"
        "print([name for name in heavy if name in sys.modules], file=sys.stderr)"
    )
    env = {**os.environ, "PYTHONPATH": str(ROOT)}
    done = subprocess.run([sys.executable, "-c", code], env=env, capture_output=True, text=True, check=True)
    assert done.stderr.strip() == "[]"


def test_what_disagrees_and_a_summary(tmp_path):
    done = grade(write(tmp_path, *ROWS))
    assert (done.returncode, done.stderr) == (0, "")
    disagrees, summary = done.stdout.splitlines()
    assert disagrees == "7: wrong, expected right: answer '6': numbers differ"
    assert summary.startswith("2 of 4 correct; 2 as expected (66.7%); slowest ")


def test_json_has_every_verdict_and_nothing_else(tmp_path):
    *rows, last = map(json.loads, grade(write(tmp_path, *ROWS), "--json", "--workers", 2).stdout.splitlines())
    assert [(r["id"], r["correct"], r["expected"], r["answer"], r["reason"]) for r in rows] == [
        ("half", True, True, "0.5", "equal numbers"),
        (2, True, None, "2^{1/2}", "expressions are equal"),
        (7, False, True, "6", "numbers differ"),
        (5, False, False, None, "no answer found"),
    ]
    assert all(set(row) == {"id", "correct", "expected", "answer", "reason", "seconds"} for row in rows)
    slowest = max(row["seconds"] for row in rows)
    assert last == {"summary": {"cases": 4, "agree": 2, "agree_share": 2 / 3, "slowest_s": slowest}}


def test_nothing_expected(tmp_path):
    file = write(tmp_path, {"gold": "5", "response": "5"}, {"gold": "5", "response": "6"})
    assert grade(file).stdout.startswith("1 of 2 correct; slowest ")
    last = grade(file, "--json").stdout.splitlines()[-1]
    assert json.loads(last)["summary"]["agree_share"] is None


@pytest.mark.parametrize(
    ("verifier", "correct"),
    [
        ("exact", [False, True]),
        ("{kind: exact, ignore_case: true}", [True, True]),
        ('{kind: regex, pattern: "^P"}', [True, False]),
        ("[{kind: exact, ignore_case: true}, {kind: regex, pattern: x}]", [True, True]),
        ("{kind: python, path: 'own.py:judge'}", [False, False]),
    ],
)
def test_other_verifiers(tmp_path, verifier, correct):
    (tmp_path / "own.py").write_text(
        "def judge(response, gold):\n    return {'reward': 0.0, 'reason': 'never'}\n"
    )
    file = write(tmp_path, {"gold": "paris", "response": "Paris"}, {"gold": "rome", "response": "rome"})
    rows = [
        json.loads(line)
        for line in grade(file, "--verifier", verifier, "--json", cwd=tmp_path).stdout.splitlines()
    ]
    assert [row["correct"] for row in rows[:-1]] == correct


def test_golds_that_cannot_be_parsed_are_told(tmp_path):
    done = grade(write(tmp_path, {"gold": r"\frac{", "response": "2"}))
    assert (done.returncode, done.stderr) == (
        0,
        "warning: the verifier cannot parse the gold answer '\\\\frac{'\n",
    )


@pytest.mark.parametrize(
    ("rows", "words"),
    [
        ([ROWS[0], {"gold": "1"}], "line 2: response: is missing"),
        ([{"gold": 1, "response": "1"}], "line 1: gold: is 1, must be text"),
        ([{"gold": [], "response": "1"}], "line 1: gold: is []"),
        (
            [{"gold": "1", "response": "1", "expected": "yes"}],
            'line 1: expected: is "yes", must be true or false',
        ),
        (["\n", "{\n"], "line 2: broken JSON"),
        (["[1]\n"], "line 1: is [1], must be a table of keys"),
        ([], "no case in it"),
    ],
)
def test_f02_bad_files(tmp_path, rows, words):
    """F-02: file and line, exit code 2, nothing on standard output."""
    done = grade(write(tmp_path, *rows))
    assert (done.returncode, done.stdout) == (2, "")
    assert "cases.jsonl" in done.stderr
    assert words in done.stderr
    assert len(done.stderr.splitlines()) <= 3


@pytest.mark.parametrize(
    ("verifier", "words"),
    [
        ("mth", "did you mean `math`?"),
        ("{kind: regex}", "verifier.pattern: is missing"),
        ("{kind: math, worker: 3}", "did you mean `workers`?"),
        ("[]", "must be a table of keys or a list of at least 1"),
        ("[", "broken YAML"),
    ],
)
def test_f02_bad_verifiers(tmp_path, verifier, words):
    """F-02."""
    done = grade(write(tmp_path, ROWS[0]), "--verifier", verifier)
    assert (done.returncode, done.stdout) == (2, "")
    assert words in done.stderr


def test_no_such_file(tmp_path):
    done = grade(tmp_path / "none.jsonl")
    assert done.returncode == 2
    assert "none.jsonl: cannot be read (No such file or directory)" in done.stderr


def test_the_graded_cases():
    """Ids, agreement and time as a person sees them."""
    need_data()
    *rows, last = map(json.loads, grade(CASES, "--json").stdout.splitlines())
    assert [row["id"] for row in rows if row["correct"] != row["expected"]] == []
    assert all(row["reason"] for row in rows)
    assert last["summary"]["agree_share"] == 1.0
