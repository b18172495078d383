"""What a run leaves behind: a folder that transformers, peft and vLLM load."""

from __future__ import annotations

import copy
import shutil
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

from rlctl.models.lora import base_state
from rlctl.models.policy import Policy

if TYPE_CHECKING:
    from transformers import PreTrainedModel


def export(policy: Policy, folder: Path, merge: bool = False) -> None:
    """Write the policy to `folder`, aside first, in place of what lay there.

    Full: config, model.safetensors, tokenizer. Adapter: adapter_config.json, adapter_model.safetensors,
    tokenizer; `base/` beside them where the base model lies nowhere that lasts; with `merge`,
    `merged/`: one whole model for tools that know no adapters.
    """
    folder = folder.resolve()
    aside = folder.with_name(folder.name + ".tmp")
    shutil.rmtree(aside, ignore_errors=True)
    if policy.adapter:
        _adapter(policy, aside, folder)
        if merge:
            _whole(copy.deepcopy(policy.module).merge_and_unload(), policy, aside / "merged")
    else:
        _whole(policy.module, policy, aside)
    shutil.rmtree(folder, ignore_errors=True)
    aside.rename(folder)


def _adapter(policy: Policy, aside: Path, folder: Path) -> None:
    module = cast("Any", policy.module)
    origin = policy.origin
    if not policy.lasting:
        _whole(module.get_base_model(), policy, aside / "base", base_state(module))
        origin = str(folder / "base")
    module.peft_config["default"].base_model_name_or_path = origin
    # False: the embeddings are frozen, and asking about them would go to the hub.
    module.save_pretrained(aside, save_embedding_layers=False)
    (aside / "README.md").unlink(missing_ok=True)  # peft's empty model card
    policy.tokenizer.save_pretrained(aside)


def _whole(
    module: PreTrainedModel, policy: Policy, folder: Path, state: dict[str, Any] | None = None
) -> None:
    module.save_pretrained(folder, state_dict=state)
    policy.tokenizer.save_pretrained(folder)
