from __future__ import annotations

from pathlib import Path

import pytest

from rlctl.track.courier import State, _thin, in_short
from rlctl.track.jsonl import append, read


@pytest.mark.parametrize(("rows", "kept"), [(5, [0, 3, 6, 9]), (20, list(range(12)))])
def test_g09_the_sample_of_rollouts_spreads_over_the_run(tmp_path: Path, rows: int, kept: list[int]) -> None:
    """G-09: the artifact stays small and shows the whole run, without a torn last line."""
    path, sample = tmp_path / "rollouts.jsonl", tmp_path / "sample.jsonl"
    assert _thin(path, rows) == ""
    append(path, *({"step": step, "response": "a\r\u2028b"} for step in range(12)))
    with path.open("a") as file:
        file.write('{"step": 12')
    sample.write_text(_thin(path, rows), newline="")
    assert [row["step"] for row in read(sample)] == kept


def test_a_password_in_the_uri_is_not_repeated() -> None:
    error = ValueError("no answer from http://me:se@cret@host:5000/api and sqlite:////x\nmore")
    assert in_short(error) == "ValueError: no answer from http://host:5000/api and sqlite:////x"
    assert in_short(ValueError()) == "ValueError: "
    assert len(in_short(ValueError("x" * 999))) == 200


def test_state_goes_from_one_process_to_the_other(tmp_path: Path) -> None:
    assert State.read(tmp_path) == State(None, None)
    State("id", "a problem").write(tmp_path)
    assert State.read(tmp_path) == State("id", "a problem")
    assert [path.name for path in tmp_path.iterdir()] == ["mlflow.json"]
