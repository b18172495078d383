"""Low-rank adapters by peft (2106.09685)."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

from rlctl.errors import UserError
from rlctl.models import LoraSpec
from rlctl.models.common import seeded

if TYPE_CHECKING:
    from transformers import PreTrainedModel


def add_lora(
    module: PreTrainedModel, spec: LoraSpec, seed: int, revision: str | None = None
) -> PreTrainedModel:
    """Wrap `module` in an adapter that begins at zero; only the adapter trains.

    `revision` is the base model's, for those who load the exported adapter.

    Raises:
        UserError: no module of the model is among `spec.target_modules`.
    """
    from peft import LoraConfig, get_peft_model

    targets = spec.target_modules if isinstance(spec.target_modules, str) else list(spec.target_modules)
    config = LoraConfig(
        r=spec.rank,
        lora_alpha=spec.alpha,
        lora_dropout=spec.dropout,
        target_modules=targets,
        task_type="CAUSAL_LM",
        revision=revision,
    )
    with seeded(seed):
        try:
            return cast("PreTrainedModel", get_peft_model(module, config))
        except ValueError as error:
            raise UserError(
                f"model.lora.target_modules: {targets} fits no module of {type(module).__name__}",
                "use all-linear, or the ends of module names such as [q_proj, v_proj]",
            ) from error


def merged(module: PreTrainedModel, adapter: Path) -> PreTrainedModel:
    """Return `module` with the adapter of a folder added into its weights."""
    from peft import PeftModel

    return cast("PreTrainedModel", PeftModel.from_pretrained(module, adapter).merge_and_unload())


def base_state(module: PreTrainedModel) -> dict[str, Any]:
    """Return the frozen weights under the names that they had before the adapter."""
    state = cast("Any", module).get_base_model().state_dict()
    return {name.replace(".base_layer.", "."): w for name, w in state.items() if ".lora_" not in name}
