"""`final/` is the policy at the end of the run: a fresh process loads it and finds the same logits."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file
from small_runs import DENSE, Runs

LOAD = """
import sys, torch
from pathlib import Path
from safetensors.torch import save_file
from transformers import AutoModelForCausalLM, AutoTokenizer
found = {}
for number, folder in enumerate(sys.argv[2:]):
    model = AutoModelForCausalLM.from_pretrained(folder).eval()
    ids = AutoTokenizer.from_pretrained(folder)("12+34=", return_tensors="pt")["input_ids"]
    with torch.no_grad():
        found[str(number)] = model(ids).logits.contiguous()
save_file(found, sys.argv[1])
"""


@pytest.fixture(scope="module")
def finals(tmp_path_factory: pytest.TempPathFactory, model_cache: Path) -> list[tuple[str, Any, Any, Any]]:
    """Of each kind of run: its name, its logits before training, in memory at the end, and loaded afresh."""
    root, patch = tmp_path_factory.mktemp("finals"), pytest.MonkeyPatch()
    patch.setenv("RLCTL_CACHE", str(model_cache))
    runs, names, before, inside, folders = Runs(root), [], [], [], []
    from rlctl import session

    begin, export = session._begin, session._export

    def at_first(run: Any, *others: Any) -> None:
        before.append(logits(run.parts.policy))
        begin(run, *others)

    def at_last(recipe: Any, parts: Any, folder: Any) -> None:
        inside.append(logits(parts.policy))
        export(recipe, parts, folder)

    patch.setattr(session, "_begin", at_first)
    patch.setattr(session, "_export", at_last)
    for name, sets in {
        "full": (),
        "adapter": ("model.lora.rank=4",),
        "merged": ("model.lora.rank=4", "model.lora.merge_final=true"),
        "resumed": ("model.lora.rank=4",),
    }.items():
        ran = runs(DENSE, *sets, place=name)
        if name == "resumed":
            before.pop(), inside.pop()
            ran = runs(DENSE, *sets, "budget.steps=5", place=name)
        names.append(name)
        folders.append(ran.folder / "final" / ("merged" if name == "merged" else ""))
    patch.undo()
    out = root / "logits.safetensors"
    subprocess.run([sys.executable, "-c", LOAD, str(out), *map(str, folders)], check=True, timeout=240)
    afresh = load_file(out)
    return list(zip(names, before, inside, (afresh[str(n)] for n in range(len(names))), strict=True))


def logits(policy: Any) -> Any:
    with torch.no_grad():
        return policy.module(policy.tokenizer("12+34=", return_tensors="pt")["input_ids"]).logits


def test_c09_final_is_the_policy(finals: list[tuple[str, Any, Any, Any]]) -> None:
    """C-09 at the size of a run: differs from the base, equals what was trained."""
    assert [name for name, *_ in finals] == ["full", "adapter", "merged", "resumed"]
    for name, before, inside, afresh in finals:
        assert afresh.shape == inside.shape
        tolerance = 1e-5 if name == "merged" else 0.0
        assert torch.allclose(afresh, inside, rtol=0, atol=tolerance), name
        assert (inside - before).abs().max() > 1e-3, name


@pytest.mark.parametrize("lora", [(), ("model.lora.rank=4",)], ids=["full", "adapter"])
def test_a_run_begins_where_an_earlier_one_ended(lora: tuple[str, ...], runs: Runs) -> None:
    """`model.path: runs/NAME`, an adapter merged first: the reference is the earlier run's last policy."""
    first = runs(DENSE, *lora, "optim.learning_rate=5e-3", place="first")
    model = f"model={{kind: pretrained, path: '{first.folder}'}}"
    second = runs(DENSE, model, *lora, "algorithm.kl=0.1", "data.template=none", place="second")
    assert (second.code, second.said) == (0, ("finished", "steps"))
    divergence = second.series("train/kl_ref")
    assert divergence[0] == pytest.approx(0, abs=1e-6)
    assert divergence[-1] > 1e-6
