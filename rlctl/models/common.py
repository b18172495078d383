"""Small things that every model here needs: a device, a seed that stays put, and quiet libraries."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import torch


def device() -> torch.device:
    """Return where models live: the first GPU, or the CPU."""
    return torch.device("cuda" if torch.cuda.is_available() else "cpu")


@contextmanager
def seeded(seed: int) -> Iterator[None]:
    """Draw from torch's global generators as if freshly seeded, and put them back afterwards."""
    with torch.random.fork_rng():
        torch.manual_seed(seed)
        yield


def quiet() -> None:
    """Turn off transformers' progress bars and warnings; its errors still show."""
    from transformers.utils import logging

    logging.set_verbosity_error()
    logging.disable_progress_bar()
