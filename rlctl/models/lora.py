"""Low-rank adapters by peft (2106.09685)."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

from rlctl.errors import UserError
from rlctl.models import LoraSpec
from rlctl.models.common import seeded

if TYPE_CHECKING:
    from torch import Tensor
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
    """Return `module` with the adapter of a folder added into its weights, which train again."""
    from peft import PeftModel

    whole = PeftModel.from_pretrained(module, adapter).merge_and_unload()
    return cast("PreTrainedModel", whole.requires_grad_(True))


def base_state(module: PreTrainedModel) -> dict[str, Any]:
    """Return the frozen weights under the names that they had before the adapter."""
    state = cast("Any", module).get_base_model().state_dict()
    return {_plain(name): w for name, w in state.items() if ".lora_" not in name}


def base_weights(module: PreTrainedModel) -> Iterator[tuple[str, Tensor]]:
    """Yield the frozen weights under the names that they had before the adapter; tied ones once."""
    for name, p in cast("Any", module).get_base_model().named_parameters():
        if ".lora_" not in name:
            yield _plain(name), p.detach()


def merged_weights(module: PreTrainedModel) -> Iterator[tuple[str, Tensor]]:
    """Yield W + scale B A for each adapted weight and the others as they are; the module is not touched."""
    from peft.tuners.lora import LoraLayer

    base = cast("Any", module).get_base_model()
    adapted = {f"{n}.weight": layer for n, layer in base.named_modules() if isinstance(layer, LoraLayer)}
    for name, weight in base_weights(module):
        layer = adapted.get(name)
        yield name, weight if layer is None else weight + layer.get_delta_weight("default").detach()


def adapter_weights(module: PreTrainedModel) -> Iterator[tuple[str, Tensor]]:
    """Yield the adapter's matrices under the names of an adapter folder's file."""
    from peft import get_peft_model_state_dict

    # False: the embeddings are frozen, and asking about them would go to the hub.
    state = get_peft_model_state_dict(module, save_embedding_layers=False)
    yield from ((name, w.detach()) for name, w in state.items())


def _plain(name: str) -> str:
    return name.replace(".base_layer.", ".")
