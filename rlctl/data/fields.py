"""Rows of a file or of the hub become prompts: fields, answer transforms, errors that say where."""

from __future__ import annotations

import math
import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal

from rlctl.errors import UserError
from rlctl.types import Message, Prompt

Transform = Literal["none", "after_hashes", "boxed"]
Row = Mapping[str, Any]

_THOUSANDS = re.compile(r"(?<=\d),(?=\d{3}(?!\d))")


@dataclass(frozen=True, slots=True)
class Fields:
    """Where question and gold answer stand in a row."""

    prompt: tuple[str, ...]  # several are joined to one text
    answer: tuple[str, ...]  # the first of these that is there
    transform: Transform = "none"


def to_prompt(row: Any, fields: Fields, where: str) -> Prompt:
    """Return the prompt of a row; `load` gives it its uid.

    Raises:
        UserError: naming `where`, the field and the fields that are there.
    """
    if not isinstance(row, Mapping):
        raise UserError(f"{where}: not an object with fields", 'write one {"field": value, ...} a line')
    parts = [_field(row, (name,), where) for name in fields.prompt]
    question = parts[0] if len(parts) == 1 else _joined(parts)
    name = "`, `".join(fields.answer)
    gold = _gold(_field(row, fields.answer, where), fields.transform, f"{where}, field `{name}`")
    return Prompt("", _messages(question, f"{where}, field `{fields.prompt[0]}`"), gold)


def _field(row: Row, names: tuple[str, ...], where: str) -> Any:
    for name in names:
        if name in row:
            return row[name]
    there = ", ".join(map(str, row))
    raise UserError(
        f"{where}: no field `{names[0]}`; there are: {there[:200] or 'none'}",
        "set `prompt` and `answer` of the source to the names of its fields",
    )


def _joined(parts: list[str]) -> str:
    """Join sentences; SVAMP's bodies often lack their full stop."""
    *before, last = (part.strip() for part in parts)
    return " ".join([part if part.endswith((".", "?", "!")) else part + "." for part in before] + [last])


def _messages(question: Any, where: str) -> tuple[Message, ...]:
    if isinstance(question, str):
        question = [{"role": "user", "content": question}]
    match question:
        case [{"role": str(), "content": str()}, *_] if all(map(_is_message, question)):
            return tuple((message["role"], message["content"]) for message in question)
    raise UserError(f"{where}: no question", "write a text, or a list of {role, content} with texts")


def _is_message(message: Any) -> bool:
    match message:
        case {"role": str(), "content": str(content)}:
            return bool(content.strip())
    return False


def _gold(value: Any, transform: Transform, where: str) -> str | tuple[str, ...]:
    """Return the gold answer; of a list each entry is accepted."""
    if isinstance(value, list):
        answers = tuple(_answer(entry, transform, where) for entry in value)
        if not answers:
            raise UserError(f"{where}: an empty list of answers", "give each problem at least one answer")
        return answers if len(answers) > 1 else answers[0]
    return _answer(value, transform, where)


def _answer(value: Any, transform: Transform, where: str) -> str:
    text = _plain(value, where)
    if transform == "after_hashes":
        found = text.rpartition("####")[1:]
        text = _THOUSANDS.sub("", found[1].strip()) if found[0] else ""
    elif transform == "boxed":
        text = last_boxed(text) or ""
    if not text:
        wanted = {
            "none": "a text",
            "after_hashes": "an answer after ####",
            "boxed": "a complete \\boxed{...}",
        }
        raise UserError(f"{where}: no answer", f"it must hold {wanted[transform]}; see `answer_transform`")
    return text


def _plain(value: Any, where: str) -> str:
    """Return text and numbers as text; 27.0 becomes `27`."""
    match value:
        case str():
            return value.strip()
        case float() if math.isfinite(value):
            return str(int(value)) if value.is_integer() else repr(value)
        case int() if not isinstance(value, bool):
            return str(value)
    raise UserError(
        f"{where}: {value!r:.40} is neither text nor a number", "choose another field as `answer`"
    )


def last_boxed(text: str) -> str | None:
    r"""Return what stands in the last complete `\boxed{...}`; braces may nest, `\{` does not count."""
    for opening in reversed(list(re.finditer(r"\\boxed\s*\{", text))):
        depth = 1
        for brace in re.finditer(r"\\.|[{}]", text[opening.end() :], re.DOTALL):
            depth += {"{": 1, "}": -1}.get(brace.group(), 0)
            if depth == 0:
                return text[opening.end() : opening.end() + brace.start()].strip()
    return None
