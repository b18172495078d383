"""Task `maze`: the way through a perfect maze, which has exactly one (algorithms.md 3.5; 2602.06717)."""

from __future__ import annotations

import re
from collections.abc import Iterator
from itertools import islice
from random import Random

from rlctl.data import MazeSource
from rlctl.data.tasks import Problem, Split, distinct, judge_exact
from rlctl.types import Prompt, Verdict

Cell = tuple[int, int]  # row, column

STEPS = {"U": (-1, 0), "D": (1, 0), "L": (0, -1), "R": (0, 1)}
_MOVES = re.compile(r"[UDLR]+")


def problems(spec: MazeSource, split: Split, seed: int) -> Iterator[Prompt]:
    """Yield `spec.problems` different mazes, or all that are found.

    A prompt is `size` lines of `#` (wall), `.` (open), `S` (start), `G` (goal); the response has
    one of U D L R for each character of the way.
    """

    def draw(rng: Random) -> Problem:
        start, goal = rng.sample(_cells(spec.size), 2)
        way_to = _carve(start, spec.size, rng)
        text = _picture(spec.size, start, goal, way_to)
        return Problem(text, text, way_to[goal], demo=way_to[goal])

    return islice(distinct(draw, split, seed), spec.problems)


def judge(prompt: Prompt, text: str) -> Verdict:
    """Correct is the one way without a detour.

    A perfect maze is a tree: a walk through open cells that visits none twice and ends on the goal is
    that way, so comparing is the same as walking. Detours count as wrong, for else wandering would be
    paid and the maze would have many solutions.
    """
    return judge_exact(prompt, text, _MOVES)


def _cells(size: int) -> list[Cell]:
    return [(row, column) for row in range(1, size, 2) for column in range(1, size, 2)]


def _carve(start: Cell, size: int, rng: Random) -> dict[Cell, str]:
    """Return the moves from the start to each cell of a random spanning tree (depth first)."""
    way_to = {start: ""}
    stack = [start]
    while stack:
        row, column = stack[-1]
        around = [(row + 2 * down, column + 2 * right, move) for move, (down, right) in STEPS.items()]
        fresh = [
            (r, c, move) for r, c, move in around if 0 < r < size and 0 < c < size and (r, c) not in way_to
        ]
        if not fresh:
            stack.pop()
            continue
        r, c, move = rng.choice(fresh)
        way_to[r, c] = way_to[row, column] + 2 * move
        stack.append((r, c))
    return way_to


def _picture(size: int, start: Cell, goal: Cell, way_to: dict[Cell, str]) -> str:
    grid = [["#"] * size for _ in range(size)]
    for (row, column), way in way_to.items():
        grid[row][column] = "."
        if way:
            down, right = STEPS[way[-1]]
            grid[row - down][column - right] = "."
    grid[start[0]][start[1]] = "S"
    grid[goal[0]][goal[1]] = "G"
    return "".join("".join(line) + "\n" for line in grid)
