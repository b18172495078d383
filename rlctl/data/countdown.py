"""Task `countdown`: reach a target from given numbers; `3 5 7=22:` -> `3*5+7`, `7+5*3`, ...

Every number is used exactly once, with + - * and parentheses. Many responses are correct, which
makes it the task for pass@k and for the loss of rare solutions.
"""

from __future__ import annotations

import ast
import operator
import re
from collections.abc import Iterator
from itertools import islice
from random import Random
from typing import NamedTuple

from rlctl.data import CountdownSource
from rlctl.data.tasks import Problem, Split, distinct, verdict
from rlctl.types import Prompt, Verdict

_LARGEST_TARGET = 99
_LARGEST_STEP = 198  # of the values inside a demonstration
_FORM = re.compile(r"[0-9+\-*() ]{1,64}")
_OPERATIONS = {"+": operator.add, "-": operator.sub, "*": operator.mul}
_NODES: dict[type[ast.operator], str] = {ast.Add: "+", ast.Sub: "-", ast.Mult: "*"}


class _Term(NamedTuple):
    value: int
    text: str
    is_sum: bool  # needs parentheses as a factor


def problems(spec: CountdownSource, split: Split, seed: int) -> Iterator[Prompt]:
    """Yield `spec.problems` different problems, or all that are found.

    The target is the value of a random expression, which becomes the demonstration: so each problem
    has a solution, and the demonstrations are random ones among the solutions.
    """

    def draw(rng: Random) -> Problem:
        while True:
            numbers = rng.sample(range(1, spec.largest + 1), spec.numbers)
            solution = _expression(numbers, rng)
            if 1 <= solution.value <= _LARGEST_TARGET:
                break
        target = str(solution.value)
        text = f"{' '.join(map(str, numbers))}={target}:"
        # The order of the numbers does not matter, so it must not move a problem to the other split.
        return Problem(
            f"{sorted(numbers)}={target}", text, target, solution.text, {"numbers": tuple(numbers)}
        )

    return islice(distinct(draw, split, seed), spec.problems)


def judge(prompt: Prompt, text: str) -> Verdict:
    """Correct is an expression alone that uses each number exactly once and has the target's value."""
    answer = text.strip().replace(" ", "")
    tree = _parse(text.strip())
    if tree is None:
        return verdict(False, None)
    used = sorted(map(int, re.findall("[0-9]+", answer)))
    # Numbers first: after this no value can be large.
    correct = used == sorted(prompt.meta["numbers"]) and _value(tree) == int(str(prompt.gold))
    return verdict(correct, answer)


def _expression(numbers: list[int], rng: Random) -> _Term:
    terms = [_Term(number, str(number), False) for number in numbers]
    while len(terms) > 1:
        left, right = (terms.pop(int(rng.random() * len(terms))) for _ in range(2))
        near = [sign for sign in "+-*" if abs(_OPERATIONS[sign](left.value, right.value)) <= _LARGEST_STEP]
        terms.append(_join(left, rng.choice(near), right))
    return terms[0]


def _join(left: _Term, sign: str, right: _Term) -> _Term:
    """Join two terms with no more parentheses than needed."""
    before = f"({left.text})" if left.is_sum and sign == "*" else left.text
    after = f"({right.text})" if right.is_sum and sign != "+" else right.text
    return _Term(_OPERATIONS[sign](left.value, right.value), f"{before}{sign}{after}", sign != "*")


def _parse(text: str) -> ast.expr | None:
    """Return the expression, or None unless it is whole numbers, binary + - * and parentheses."""
    if not _FORM.fullmatch(text):
        return None
    try:
        tree = ast.parse(text, mode="eval").body
    except SyntaxError:
        return None
    return tree if _is_plain(tree) else None


def _is_plain(node: ast.AST) -> bool:
    if isinstance(node, ast.BinOp):
        return type(node.op) in _NODES and _is_plain(node.left) and _is_plain(node.right)
    return isinstance(node, ast.Constant) and isinstance(node.value, int)


def _value(node: ast.expr) -> int:
    if isinstance(node, ast.BinOp):
        value: int = _OPERATIONS[_NODES[type(node.op)]](_value(node.left), _value(node.right))
        return value
    assert isinstance(node, ast.Constant) and isinstance(node.value, int)
    return node.value
