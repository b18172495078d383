"""From a recipe's `verifier` to something that judges."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping

from rlctl.verify import (
    AnyVerifier,
    ExactVerifier,
    MathVerifier,
    PythonVerifier,
    RandomVerifier,
    RegexVerifier,
    VerifierSpec,
)
from rlctl.verify.base import BuiltVerifier
from rlctl.verify.coin import RandomJudge
from rlctl.verify.combine import Part, WeightedJudge
from rlctl.verify.exact import ExactJudge
from rlctl.verify.math import MathJudge
from rlctl.verify.python import PythonJudge
from rlctl.verify.regex import RegexJudge
from rlctl.verify.task import TaskJudge, TaskVerifier


def build(spec: VerifierSpec, judges: Mapping[str, TaskJudge]) -> BuiltVerifier:
    """Build a verifier; `judges` holds the data tasks' own by name of set, used by `auto` only.

    Raises:
        UserError: a `python` path that leads nowhere.
    """
    if spec == "auto":
        math = MathJudge(MathVerifier())
        return TaskVerifier(judges, math) if judges else math
    if isinstance(spec, tuple):
        return WeightedJudge([_part(each, label) for each, label in zip(spec, _labels(spec), strict=True)])
    if spec.shaping or spec.weight != 1.0:
        return WeightedJudge([_part(spec, spec.kind)])
    return _one(spec)


def _part(spec: AnyVerifier, label: str) -> Part:
    return Part(label, _one(spec), spec.weight, spec.shaping)


def _labels(specs: tuple[AnyVerifier, ...]) -> list[str]:
    """Kinds, numbered from 2 where one comes again: `regex`, `regex_2`."""
    seen: Counter[str] = Counter()
    labels = []
    for spec in specs:
        seen[spec.kind] += 1
        labels.append(spec.kind if seen[spec.kind] == 1 else f"{spec.kind}_{seen[spec.kind]}")
    return labels


def _one(spec: AnyVerifier) -> BuiltVerifier:
    match spec:
        case ExactVerifier():
            return ExactJudge(spec)
        case RegexVerifier():
            return RegexJudge(spec)
        case MathVerifier():
            return MathJudge(spec)
        case RandomVerifier():
            return RandomJudge(spec)
        case PythonVerifier():
            return PythonJudge(spec)
