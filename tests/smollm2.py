"""The real pretrained model that `make smollm2` puts into its place."""

import os
from pathlib import Path

import pytest

SMOLLM2 = Path("~/.cache/rlctl/smollm2-135m-instruct").expanduser()


def need_smollm2() -> Path:
    """Its folder; who has not made it skips the test, CI fails."""
    if not (SMOLLM2 / "config.json").exists():
        assert not os.environ.get("CI"), f"{SMOLLM2} is missing: run `make smollm2` first"
        pytest.skip(f"{SMOLLM2} is not there: `make smollm2` fetches it")
    return SMOLLM2
