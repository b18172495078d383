from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pydantic import ValidationError

from rlctl.data import MazeSource
from rlctl.data.maze import judge, problems

MOVES = {"U": (-1, 0), "D": (1, 0), "L": (0, -1), "R": (0, 1)}
MAZES = list(problems(MazeSource(kind="maze", size=7, problems=20), "train", 1))


def place(grid, what):
    return next((r, line.index(what)) for r, line in enumerate(grid) if what in line)


def walk(prompt, moves):
    """Does the walk reach the goal through open cells without coming by a place twice?"""
    grid = prompt.text.splitlines()
    visited = [place(grid, "S")]
    for move in moves:
        row, column = visited[-1][0] + MOVES[move][0], visited[-1][1] + MOVES[move][1]
        if grid[row][column] == "#" or (row, column) in visited:
            return False
        visited.append((row, column))
    return visited[-1] == place(grid, "G")


@settings(max_examples=300, deadline=None)
@given(prompt=st.sampled_from(MAZES), data=st.data())
def test_judge_agrees_with_walking(prompt, data):
    cut = data.draw(st.integers(0, len(prompt.demo)))
    moves = prompt.demo[:cut] + data.draw(st.one_of(st.just(prompt.demo[cut:]), st.text("UDLR", max_size=6)))
    assert judge(prompt, moves).correct == walk(prompt, moves)


def test_walls_detours_and_extra_characters_are_wrong():
    prompt = next(p for p in MAZES if len(p.demo) > 4)
    back = {"U": "D", "D": "U", "L": "R", "R": "L"}
    first = prompt.demo[0]
    detour = first + back[first] + prompt.demo
    through_a_wall = next(m for m in MOVES if not walk(prompt, m + prompt.demo)) + prompt.demo
    for wrong in (detour, through_a_wall, prompt.demo[:-1], prompt.demo + prompt.demo[-1]):
        verdict = judge(prompt, wrong)
        assert not verdict.correct and verdict.answer == wrong
    for unparseable in (prompt.demo + "X", prompt.demo.lower(), " ".join(prompt.demo), ""):
        assert judge(prompt, unparseable).answer is None


@pytest.mark.parametrize("size", [5, 9, 17])
def test_mazes_are_perfect(size):
    """A tree over the cells: open characters are cells plus one passage less, and all are reached."""
    for prompt in problems(MazeSource(kind="maze", size=size, problems=20), "train", 3):
        grid = prompt.text.splitlines()
        assert [len(line) for line in grid] == [size] * size
        cells = (size // 2) ** 2
        reached, waiting = set(), [place(grid, "S")]
        while waiting:
            row, column = waiting.pop()
            if grid[row][column] != "#" and (row, column) not in reached:
                reached.add((row, column))
                waiting += [(row + r, column + c) for r, c in MOVES.values()]
        assert len(reached) == sum(line.count(c) for line in grid for c in ".SG") == 2 * cells - 1
        assert prompt.text.count("S") == prompt.text.count("G") == 1


def test_even_sizes_are_refused():
    with pytest.raises(ValidationError, match="odd"):
        MazeSource(kind="maze", size=8)
