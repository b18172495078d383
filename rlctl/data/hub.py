"""Kind `hub`: a data set of the Hugging Face hub, or of its local cache."""

from __future__ import annotations

import logging
from collections.abc import Iterator

from rlctl.data.fields import Fields, to_prompt
from rlctl.errors import UserError
from rlctl.types import Prompt


def problems(
    path: str, config: str | None, split: str, fields: Fields, *, revision: str | None = None, hint: str = ""
) -> Iterator[Prompt]:
    """Yield the prompts of a split.

    Raises:
        UserError: the hub is unreachable, or has no such set, config or split; `hint` says what to do.
    """
    from datasets import load_dataset

    retries = logging.getLogger("huggingface_hub")  # prints each of its tries before ours is said
    level = retries.level
    retries.setLevel(logging.ERROR)
    try:
        rows = load_dataset(path, config, split=split, revision=revision)
    except (OSError, ValueError) as error:  # datasets' own errors are among these
        reason = (str(error) or type(error).__name__).splitlines()[0][:200]
        raise UserError(f"hub set {path}, split {split}: {reason}", hint) from None
    finally:
        retries.setLevel(level)
    for index, row in enumerate(rows):
        yield to_prompt(row, fields, f"hub set {path}, row {index}")
