"""`rlctl lab` as a user meets it."""

import json
import os
import subprocess
import sys

import pytest

PNG = b"\x89PNG\r\n"
START = "import sys; sys.argv[0] = 'rlctl'; from rlctl.cli import main; main()"
SMALL = {
    "tail-miss": ["--trials", "50"],
    "collapse": ["--trials", "50"],
    "clip": [],
    "rank": ["--prompts", "2"],
    "categorical": ["--actions", "128", "--sizes", "2,8", "--gammas", "0,0.5", "--seeds", "2"],
}


def lab(*arguments, cwd):
    env = {**os.environ, "COLUMNS": "80", "TERM": "dumb", "NO_COLOR": "1"}
    command = [sys.executable, "-c", START, "lab", *arguments]
    return subprocess.run(command, cwd=cwd, env=env, capture_output=True, text=True, check=False)


@pytest.mark.parametrize("verb", SMALL)
def test_json_alone_and_a_plot(verb, tmp_path):
    result = lab(verb, *SMALL[verb], "--json", cwd=tmp_path)
    assert result.returncode == 0, result.stderr
    facts = json.loads(result.stdout)
    assert facts["experiment"] == verb
    assert facts["plot"] == f"runs/lab/{verb}.png"
    assert (tmp_path / facts["plot"]).read_bytes().startswith(PNG)
    for rows in facts["tables"].values():
        assert rows
        assert len({tuple(row) for row in rows}) == 1  # every row has the same columns


def test_table_for_people(tmp_path):
    result = lab("categorical", *SMALL["categorical"], "--seed", "3", "--plot", "new/mine.png", cwd=tmp_path)
    assert result.returncode == 0, result.stderr
    assert "retained" in result.stdout
    assert result.stdout.endswith("plot: new/mine.png\n")
    assert (tmp_path / "new/mine.png").read_bytes().startswith(PNG)
    assert "gamma 0.5, N 8: retained" in result.stderr


def test_the_same_seed_gives_the_same(tmp_path):
    def tables(*seed):
        result = lab("collapse", "--trials", "50", "--json", *seed, cwd=tmp_path)
        return json.loads(result.stdout)["tables"]

    assert tables() == tables("--seed", "0") != tables("--seed", "1")


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["categorical", "--sizes", "2,many"], "--sizes 2,many: not a list of whole numbers from 1"),
        (["categorical", "--gammas", "-1"], "--gammas -1: not a list of numbers from 0"),
        (["categorical", "--gammas", "nan"], "--gammas nan: not a list"),
        (["tail-miss", "--plot", "picture.jpg"], "--plot picture.jpg: plots are PNG files"),
        (["collapse", "--plot", "file/plot.png"], "its folder cannot be made"),
        (["categorical", "--form", "other"], "--form"),
        (["collapse", "--trials", "0"], "--trials"),
        (["clip", "--seed", "1"], "No such option"),
        (["nothing"], "No such command"),
    ],
)
def test_wrong_options(arguments, said, tmp_path):
    (tmp_path / "file").write_text("")
    result = lab(*arguments, cwd=tmp_path)
    assert (result.returncode, result.stdout) == (2, "")
    assert said in result.stderr
    assert "Traceback" not in result.stderr
    assert not (tmp_path / "runs").exists()
