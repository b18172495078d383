from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from calling import Rlctl, Said
from small_runs import Runs

from rlctl import cli


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


@pytest.fixture
def rlctl(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Rlctl:
    """Call `rlctl` with arguments in a folder of its own, in this process."""
    monkeypatch.chdir(tmp_path)

    def call(*arguments: str) -> Said:
        capsys.readouterr()
        monkeypatch.setattr(sys, "argv", ["rlctl", *arguments])
        try:
            cli.main()
        except SystemExit as end:
            code = end.code
        else:
            code = 0
        out, err = capsys.readouterr()
        assert isinstance(code, int | None)
        return Said(code or 0, out, err)

    return call
