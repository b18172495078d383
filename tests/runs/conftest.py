from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import pytest
from small_runs import Runs


@pytest.fixture(scope="session")
def model_cache(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The warm-started models, shared by all runs of a session."""
    return tmp_path_factory.mktemp("cache")


@pytest.fixture(autouse=True)
def own_process_state(model_cache: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Runs fix threads and read the environment: give both back as they were."""
    import torch

    threads = torch.get_num_threads()
    for name in [name for name in os.environ if name.startswith("MLFLOW_")]:
        monkeypatch.delenv(name)
    monkeypatch.delenv("RLCTL_DATA", raising=False)
    monkeypatch.setenv("OMP_NUM_THREADS", "1")
    monkeypatch.setenv("RLCTL_CACHE", str(model_cache))
    yield
    torch.set_num_threads(threads)


@pytest.fixture
def runs(tmp_path: Path) -> Runs:
    return Runs(tmp_path)
