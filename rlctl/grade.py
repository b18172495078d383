"""Grading a file of responses outside of any run: what `rlctl grade` does."""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any

from pydantic import Field, ValidationError

from rlctl.data.files import rows
from rlctl.errors import UserError
from rlctl.recipe.document import parse
from rlctl.recipe.explain import explain
from rlctl.spec import Seq, Spec
from rlctl.track.console import printable
from rlctl.types import Prompt, Verifier
from rlctl.verify import AnyVerifier
from rlctl.verify.base import BuiltVerifier
from rlctl.verify.build import build

_HINT = "give a file with one JSON object a line, with `gold` and `response`"


class _Line(Spec, extra="ignore"):
    """A line of the file; what else stands there is passed over."""

    gold: str | Annotated[Seq[str], Field(min_length=1)]
    response: str
    id: str | int | None = None
    expected: bool | None = None


class _Choice(Spec):
    verifier: AnyVerifier | Annotated[Seq[AnyVerifier], Field(min_length=1)]


@dataclass(frozen=True, slots=True)
class Case:
    """One response, its gold answers, and what is expected of the verdict."""

    id: str | int
    prompt: Prompt
    response: str
    expected: bool | None


def read_cases(path: Path) -> list[Case]:
    """Read one JSON object a line: `gold` (text or list), `response`, perhaps `id` and `expected`.

    Raises:
        UserError: with file and line.
    """
    cases = []
    for where, row in rows(path, _HINT):
        number = int(where.rpartition(" ")[2])
        try:
            line = _Line.model_validate(row)
        except ValidationError as error:
            raise explain(error, _Line, row, _always(where)) from None
        name = number if line.id is None else line.id
        cases.append(Case(name, Prompt(f"cases:{number}", (), line.gold), line.response, line.expected))
    if not cases:
        raise UserError(f"{path}: no case in it", _HINT)
    return cases


def build_verifier(text: str, workers: int) -> BuiltVerifier:
    """Build a verifier from its kind, or from a mapping in YAML; it gets `workers` processes, if any.

    One that stands alone is the one that says what is correct, so it is no shaping.

    Raises:
        UserError: there is no such verifier.
    """
    data = parse(text, "--verifier").data
    data = {"verifier": {"kind": data} if isinstance(data, str) else data}
    try:
        spec = _Choice.model_validate(data).verifier
    except ValidationError as error:
        raise explain(error, _Choice, data, _always(f"--verifier {text}")) from None
    if not isinstance(spec, tuple):
        return build(_with(spec, shaping=False, workers=workers), {})
    return build(tuple(_with(part, workers=workers) for part in spec), {})


def _with(part: AnyVerifier, **fields: Any) -> AnyVerifier:
    return part.model_copy(update={key: fields[key] for key in fields if key in type(part).model_fields})


def _always(place: str) -> Callable[[object], str]:
    return lambda _: place


def run(
    path: Path, verifier: str, workers: int, *, as_json: bool, warn: Callable[[Iterable[str]], None]
) -> Iterator[str]:
    """Grade a file and yield the lines to print: verdicts not as expected, or all as JSON; then a summary.

    Raises:
        UserError: a bad line of the file, or no such verifier.
    """
    cases = read_cases(path)
    judge = build_verifier(verifier, workers)
    try:
        bad = judge.check_golds([case.prompt for case in cases])
        warn(f"the verifier cannot parse the gold answer {printable(repr(prompt.gold))}" for prompt in bad)
        graded = []
        for row in grade(cases, judge, workers):
            graded.append(row)
            if as_json:
                yield json.dumps(row)
            elif row["expected"] not in (None, row["correct"]):
                yield _told(row)
    finally:
        judge.close()
    summary = summarise(graded)
    yield json.dumps({"summary": summary}) if as_json else _summed(summary, graded)


def grade(cases: Sequence[Case], verifier: Verifier, workers: int) -> Iterator[dict[str, Any]]:
    """Yield `id`, `correct`, `expected`, `answer`, `reason` and `seconds` of each case, in their order."""

    def one(case: Case) -> dict[str, Any]:
        started = time.monotonic()
        verdict = verifier.judge(case.prompt, case.response)
        return {
            "id": case.id,
            "correct": verdict.correct,
            "expected": case.expected,
            "answer": verdict.answer,
            "reason": verdict.error or verdict.reason,
            "seconds": round(time.monotonic() - started, 3),
        }

    with ThreadPoolExecutor(workers) as threads:
        yield from threads.map(one, cases)


def summarise(graded: Sequence[dict[str, Any]]) -> dict[str, Any]:
    """Count how many verdicts are as expected, where something is, and find the longest time."""
    told = [row for row in graded if row["expected"] is not None]
    agree = sum(row["correct"] == row["expected"] for row in told)
    return {
        "cases": len(graded),
        "agree": agree,
        "agree_share": agree / len(told) if told else None,
        "slowest_s": max(row["seconds"] for row in graded),
    }


def _told(row: dict[str, Any]) -> str:
    verdict = f"{'right' if row['correct'] else 'wrong'}, expected {'right' if row['expected'] else 'wrong'}"
    return printable(f"{row['id']}: {verdict}: answer {row['answer']!r:.80}: {row['reason']}")


def _summed(summary: dict[str, Any], graded: Sequence[dict[str, Any]]) -> str:
    found = f"{sum(row['correct'] for row in graded)} of {summary['cases']} correct"
    if summary["agree_share"] is not None:
        found += f"; {summary['agree']} as expected ({summary['agree_share']:.1%})"
    return f"{found}; slowest {summary['slowest_s']:.2f} s"
