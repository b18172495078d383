import os

import pytest

# Before torch is imported: test processes share the cores with whatever else runs.
os.environ.setdefault("OMP_NUM_THREADS", "1")
os.environ.setdefault("OMP_WAIT_POLICY", "PASSIVE")


@pytest.fixture
def surroundings(tmp_path_factory, monkeypatch):
    """For tests that build parts: one cache for all; threads and the environment as they were afterwards."""
    import torch

    monkeypatch.setenv("RLCTL_CACHE", str(tmp_path_factory.getbasetemp() / "cache"))
    environment, threads = dict(os.environ), torch.get_num_threads()
    yield
    torch.set_num_threads(threads)
    os.environ.clear()
    os.environ.update(environment)
