"""Kind `jsonl`: a file with one JSON object a line."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from rlctl.data.fields import Fields, to_prompt
from rlctl.errors import UserError
from rlctl.types import Prompt


def problems(path: Path, fields: Fields) -> Iterator[Prompt]:
    """Yield the prompts of a file; blank lines are skipped.

    Raises:
        UserError: the file is missing or no UTF-8, or a line is no JSON object with the named fields.
    """
    for where, row in rows(path, "check `path`: in a recipe it is relative to the recipe's file"):
        yield to_prompt(row, fields, where)


def rows(path: Path, hint: str) -> Iterator[tuple[str, Any]]:
    """Yield file and line in words, and the JSON value that stands there.

    Raises:
        UserError: the file cannot be read (with `hint`), is no UTF-8, or a line is no JSON.
    """
    try:
        lines = path.read_bytes().decode("utf-8-sig").split("\n")  # U+2028 may stand inside a text
    except OSError as error:
        raise UserError(f"{path}: cannot be read ({error.strerror})", hint) from None
    except UnicodeDecodeError as error:
        raise UserError(f"{path}: not UTF-8 at byte {error.start}", "save the file as UTF-8") from None
    for number, line in enumerate(lines, 1):
        if line.strip():
            where = f"{path}, line {number}"
            try:
                row = json.loads(line)
            except json.JSONDecodeError as error:
                hint = "write one JSON object a line"
                raise UserError(f"{where}: broken JSON ({error.msg}, column {error.colno})", hint) from None
            yield where, row
