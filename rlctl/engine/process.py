"""What an engine in this process needs of the machine, and what it must leave as it was."""

from __future__ import annotations

import os
import shutil
import warnings
from collections.abc import Iterable, Iterator
from contextlib import contextmanager

import torch

SHARED = "/dev/shm"
LEAKS = ("LD_PRELOAD", "LD_LIBRARY_PATH")  # that vLLM sets for children which are not its own


def in_memory(tensors: Iterable[torch.Tensor]) -> str | None:
    """Return a folder that never touches the disk, where there is one with room to spare."""
    size = sum(tensor.nbytes for tensor in tensors)
    roomy = os.access(SHARED, os.W_OK) and shutil.disk_usage(SHARED).free > 2 * size
    return SHARED if roomy else None


@contextmanager
def unchanged_process() -> Iterator[None]:
    """Undo what vLLM does to this process and to children that are not its own."""
    before = {name: os.environ.get(name) for name in LEAKS}
    set_threads, threads = torch.set_num_threads, torch.get_num_threads()
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # of one library about another
            yield
    finally:
        torch.set_num_threads = set_threads
        torch.set_num_threads(threads)
        for name, value in before.items():
            if value is None:
                os.environ.pop(name, None)
            else:
                os.environ[name] = value
