import subprocess
import sys

import pytest
import torch
from pydantic import TypeAdapter

from rlctl.engine import AutoEngine, EngineSpec, ScriptedEngine, TransformersEngine
from rlctl.engine.build import build
from rlctl.engine.policy import Setting
from rlctl.models import TinyModel, WarmStart
from rlctl.models.load import load, tokenizer
from rlctl.types import Request


@pytest.fixture
def policy(tmp_path, monkeypatch):
    monkeypatch.setenv("RLCTL_CACHE", str(tmp_path))
    spec = TinyModel(kind="tiny", layers=1, width=32, heads=2, warm_start=WarmStart(steps=0))
    return load(spec, tokenizer(spec), [], seed=0)


@pytest.mark.parametrize(
    ("spec", "kind"),
    [
        (TransformersEngine(max_rows=2), "transformers"),
        (ScriptedEngine(responses=("4",)), "scripted"),
    ],
)
def test_every_kind_answers_every_request(policy, spec, kind):
    engine, took = build(spec, policy, Setting(64, torch.float32), print)
    assert took == kind and engine.same_program == (kind == "transformers")
    done = list(engine.generate([Request(i, (5, 6), i, 3) for i in range(5)]))
    assert sorted(c.index for c in done) == list(range(5))
    with engine.resting():
        pass
    engine.close()


def test_the_union_covers_what_build_knows():
    assert TypeAdapter(EngineSpec).validate_python({"kind": "auto"}) == AutoEngine()


def test_the_room_imports_nothing_heavy():
    code = (
        "import rlctl.engine, rlctl.models, sys; print({'torch','transformers','numpy'} & set(sys.modules))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "set()"
