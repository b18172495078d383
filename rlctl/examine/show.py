"""Records and comparisons as lines for people."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

MANY = 0.9  # a share that a reader must be told of

Record = Mapping[str, Any]


def reports(records: Sequence[Record]) -> Iterator[str]:
    """Yield a table for each set of each record."""
    for record in records:
        yield f"{_title(record['target'], record['step'])}: {record['verifier']}"
        yield ", ".join(f"{key} {_plain(value)}" for key, value in record["sampling"].items())
        for name, found in record["sets"].items():
            yield f"{name}: {found['problems']} problems, {found['samples']} samples each"
            yield f"  {'k':>5}  {'pass@k':23}majority@k"
            for k, estimate in found["pass_at"].items():
                yield f"  {k:>5}  {_interval(estimate):23}{_interval(found['majority'][k])}"
            yield f"  strict {_interval(found['strict'])}, lenient {_interval(found['lenient'])}"
            yield (
                f"  truncated {found['truncated_share']:.1%}, unparseable {found['unparseable_share']:.1%}, "
                f"{found['length_tokens']:.1f} tokens on average"
            )
        yield ""


def differences(compared: Sequence[Record]) -> Iterator[str]:
    """Yield paired differences, a table for each set that two targets share."""
    for pair in compared:
        names = _title(pair["target"], pair["step"]), _title(pair["against"], pair["against_step"])
        yield f"{names[0]} minus {names[1]}"
        if not pair["sets"]:
            yield "  they have no problem in common"
        for name, found in pair["sets"].items():
            yield f"{name}: {found['problems']} problems in common"
            for k, estimate in found["pass_at"].items():
                yield f"  pass@{k:<4} {_interval(estimate, '+')}"
            yield f"  newly solved {found['newly_solved']}, forgotten {found['forgotten']}"
        yield ""


def notes(record: Record) -> Iterator[str]:
    """Yield what would else hide behind a low score."""
    limit = record["sampling"]["max_completion_length"]
    for name, found in record["sets"].items():
        if found["truncated_share"] >= MANY:
            yield (
                f"{name}: {found['truncated_share']:.1%} of the answers were cut off at {limit} tokens: "
                "raise eval.max_completion_length"
            )
        elif found["unparseable_share"] >= MANY:
            yield (
                f"{name}: in {found['unparseable_share']:.1%} of the responses the verifier finds no answer: "
                "do template, system prompt and verifier fit the model?"
            )
        if found["errors"]:
            yield f"{name}: {found['errors']} samples failed and count as wrong"


def _title(name: str, step: int | None) -> str:
    return name if step is None else f"{name}, step {step}"


def _interval(estimate: Mapping[str, float], sign: str = "") -> str:
    value, low, high = (format(estimate[part], f"{sign}.3f") for part in ("value", "low", "high"))
    return f"{value} [{low}, {high}]"


def _plain(value: Any) -> str:
    if value is None or value == []:
        return "none"
    return f"{value:g}" if isinstance(value, float) else str(value)
