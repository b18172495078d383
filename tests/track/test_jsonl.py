from __future__ import annotations

import json
import math
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import numpy
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from rlctl.errors import RunError
from rlctl.track import RolloutsSpec
from rlctl.track.jsonl import RunLog, Tail, append, read, summarise, truncate

texts = st.text(st.characters(exclude_categories=["Cs"]))


@settings(deadline=None)
@given(st.lists(st.dictionaries(texts, texts | st.integers() | st.none() | st.booleans()), max_size=5))
def test_what_is_appended_is_read_again(
    tmp_path_factory: pytest.TempPathFactory, records: list[dict]
) -> None:
    path = tmp_path_factory.mktemp("jsonl") / "x.jsonl"
    for record in records:
        append(path, record)
    append(path, *records)
    assert read(path) == records * 2


def test_numbers_that_are_not_finite_become_null(tmp_path: Path) -> None:
    path = tmp_path / "x.jsonl"
    append(
        path, {"a": math.nan, "b": [1.0, -math.inf], "c": {"d": (math.inf, 2)}, "text": "half \ud800 pair"}
    )
    line = json.loads(path.read_text(), parse_constant=lambda word: pytest.fail(f"{word} is no JSON"))
    assert line == {"a": None, "b": [1.0, None], "c": {"d": [None, 2]}, "text": "half ? pair"}


def test_a_torn_last_line_is_left_out_and_cut_away(tmp_path: Path) -> None:
    path = tmp_path / "x.jsonl"
    append(path, {"step": 1}, {"step": 2})
    with path.open("a") as file:
        file.write('{"step": 3, "rew')
    assert read(path) == [{"step": 1}, {"step": 2}]
    truncate(path, 3)
    append(path, {"step": 3})
    assert read(path) == [{"step": 1}, {"step": 2}, {"step": 3}]


def test_truncate_keeps_exactly_the_lines_up_to_a_step(tmp_path: Path) -> None:
    path = tmp_path / "x.jsonl"
    append(path, *({"step": step, "n": n} for step in range(4) for n in range(2)))
    lines = path.read_bytes().splitlines(keepends=True)
    truncate(path, 2)
    assert path.read_bytes() == b"".join(lines[:6])
    truncate(path, -1)
    assert path.read_bytes() == b""
    assert [file.name for file in tmp_path.iterdir()] == ["x.jsonl"]


def test_a_line_of_zeros_after_a_power_cut_does_not_stand(tmp_path: Path) -> None:
    path = tmp_path / "x.jsonl"
    append(path, {"step": 1})
    with path.open("ab") as file:
        file.write(b"\0" * 20 + b"\n")
    truncate(path, 5)
    assert read(path) == [{"step": 1}]


def test_a_tail_sees_new_lines_once_and_a_truncated_file_again(tmp_path: Path) -> None:
    path = tmp_path / "x.jsonl"
    tail = Tail(path)
    assert tail.more() == []
    append(path, {"step": 1, "a": "long enough to hide two short lines"}, {"step": 2})
    assert [record["step"] for record in tail.more()] == [1, 2]
    assert tail.more() == []
    truncate(path, 0)
    append(path, *({"step": step} for step in range(1, 9)))
    assert [record["step"] for record in tail.more()] == list(range(1, 9))


WRITER = """
import sys
from pathlib import Path
from rlctl.track.jsonl import RunLog, read
log = RunLog(Path(sys.argv[1]))
first = int(sys.argv[2])
log.rewind(first - 1)
print("go", flush=True)
for step in range(first, 100_000):
    log.rollouts([{"step": step, "sample": i, "response": "x" * 3000} for i in range(8)])
    log.metrics(step, {"reward/mean": step / 7})
"""


def test_a_writer_killed_and_rewound_leaves_each_step_once(tmp_path: Path) -> None:
    first = 0
    for kill in range(4):
        process = subprocess.Popen(
            [sys.executable, "-c", WRITER, tmp_path, str(first)], stdout=subprocess.PIPE
        )
        assert process.stdout and process.stdout.readline() == b"go\n"
        time.sleep(0.03 * (kill + 1))
        os.kill(process.pid, signal.SIGKILL)
        process.wait()
        first = len(read(tmp_path / "metrics.jsonl")) * 2 // 3  # a checkpoint some steps ago
    assert first > 10
    RunLog(tmp_path).rewind(first)
    for name, copies in (("metrics.jsonl", 1), ("rollouts.jsonl", 8)):
        steps = [json.loads(line)["step"] for line in (tmp_path / name).read_text().split("\n")[:-1]]
        assert steps == [step for step in range(first + 1) for _ in range(copies)]


def test_g07_a_nan_neither_hides_a_mean_nor_passes_unseen(tmp_path: Path) -> None:
    """G-07: means leave NaN out, and what was not finite is counted."""
    assert summarise({"a": [1.0, math.nan, 3.0], "b": math.inf, "c": 2, "d": None}) == (
        {"a/mean": 2.0, "a/min": 1.0, "a/max": 3.0, "b": None, "c": 2, "d": None},
        2,
    )
    log = RunLog(tmp_path)
    log.metrics(1, {"a": [1.0, math.nan, 3.0], "b": math.inf})
    log.metrics(2, {"a": [1.0], "b": 0.5})
    first, second = read(tmp_path / "metrics.jsonl")
    assert first["a/mean"] == 2.0
    assert first["train/nonfinite"] == 2
    assert "train/nonfinite" not in second


def test_g04_a_list_of_any_length_becomes_three_numbers() -> None:
    """G-04: lists become summary stats."""
    flat, nonfinite = summarise({"lengths": list(range(1000)), "nothing": []})
    assert flat == {"lengths/mean": 499.5, "lengths/min": 0, "lengths/max": 999}
    assert nonfinite == 0


def test_tensors_and_arrays_are_taken(tmp_path: Path) -> None:
    RunLog(tmp_path).metrics(
        1, {"a": torch.tensor(0.5), "b": numpy.float32(2), "c": torch.tensor([1.0, 3.0])}
    )
    (record,) = read(tmp_path / "metrics.jsonl")
    assert (record["a"], record["b"], record["c/mean"]) == (0.5, 2.0, 2.0)


def test_rollouts_are_bounded_by_the_recipe(tmp_path: Path) -> None:
    log = RunLog(tmp_path, RolloutsSpec(every=2, rows=3))
    for step in range(1, 5):
        log.rollouts([{"step": step, "sample": sample} for sample in range(8)])
    log.rollouts([])
    assert [(row["step"], row["sample"]) for row in read(tmp_path / "rollouts.jsonl")] == [
        (2, 0), (2, 1), (2, 2), (4, 0), (4, 1), (4, 2),
    ]  # fmt: skip


def test_rewind_reaches_all_three_files(tmp_path: Path) -> None:
    log = RunLog(tmp_path)
    log.rewind(3)  # a fresh folder has none of them
    for step in (1, 2):
        log.metrics(step, {})
        log.rollouts([{"step": step}])
        log.evals({"step": step, "sets": {}})
    log.sync()
    log.rewind(1)
    for name in ("metrics.jsonl", "rollouts.jsonl", "evals.jsonl"):
        assert [record["step"] for record in read(tmp_path / name)] == [1]


def test_a_full_disk_is_said_in_plain_words() -> None:
    full = Path("/dev/full")
    if not full.exists():
        pytest.skip("no /dev/full on this system")
    with pytest.raises(RunError, match="No space left") as caught:
        append(full, {"step": 1})
    assert "resumes" in caught.value.hint
