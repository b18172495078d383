"""Symbolic comparison by math-verify; loaded by a worker process, never imported.

Everything here may hang or die. math-verify's own time-outs are off: the worker has a deadline.
"""

from __future__ import annotations

import logging
from functools import lru_cache
from typing import Any

from math_verify import parse, verify

logging.disable()  # math-verify warns of the missing time-outs


def grade(golds: list[str], answer: str) -> bool:
    """Whether the answer equals one of the golds."""
    target = _parse(answer)
    return any(verify(list(_parse_gold(gold)), target, timeout_seconds=None) for gold in golds)


def parses(gold: str) -> bool:
    """Whether there is an expression in the gold."""
    return any(not isinstance(found, str) for found in _parse_gold(gold))


def _parse(answer: str) -> list[Any]:
    found: list[Any] = parse(f"\\boxed{{{answer}}}", parsing_timeout=None)
    return found


@lru_cache(4096)
def _parse_gold(gold: str) -> tuple[Any, ...]:
    return tuple(_parse(gold))
