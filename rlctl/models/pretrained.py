"""Models that exist already: a hub id, a folder, or an earlier run."""

from __future__ import annotations

import json
import re
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

import torch

from rlctl.errors import UserError
from rlctl.models import PretrainedModel, lora
from rlctl.models.common import device, quiet
from rlctl.models.policy import Policy

if TYPE_CHECKING:
    from transformers import PreTrainedModel, PreTrainedTokenizerBase

LOCAL = "name a local one: --set model.path=FOLDER, with config.json, model.safetensors and tokenizer.json"
HUB_ID = r"[\w.-]+(/[\w.-]+)?"
FILES = ["*.json", "*.safetensors", "*.jinja", "*.txt", "*.model", "*.py"]
HEADS = ("CausalLM", "LMHeadModel", "ForConditionalGeneration")


def load_tokenizer(spec: PretrainedModel) -> PreTrainedTokenizerBase:
    """Return the tokenizer that lies with the model (with the adapter, if it is one).

    Raises:
        UserError: no such model, or no tokenizer with it.
    """
    from transformers import AutoTokenizer

    quiet()
    place = find(spec.path, spec.revision)
    try:
        found = AutoTokenizer.from_pretrained(place, trust_remote_code=spec.trust_remote_code)
    except (OSError, ValueError, ImportError) as error:
        raise UserError(f"model.path: {spec.path} has no usable tokenizer: {_line(error)}", LOCAL) from error
    return cast("PreTrainedTokenizerBase", found)


def load(spec: PretrainedModel, tokenizer: PreTrainedTokenizerBase) -> Policy:
    """Return the policy; an adapter is merged into its base model, so that a new one begins at zero.

    Raises:
        UserError: no such model, not a causal language model, incomplete weights.
    """
    place = find(spec.path, spec.revision)
    adapter = place / "adapter_config.json"
    if not adapter.is_file():
        policy = of_folder(place, tokenizer, trust_remote_code=spec.trust_remote_code)
        return replace(policy, origin=spec.path if not Path(spec.path).expanduser().exists() else str(place))
    config = json.loads(adapter.read_text())
    own = place / "base"  # an export brings its base along where that lies nowhere else
    base = own if own.is_dir() else find(config["base_model_name_or_path"], config.get("revision"))
    policy = of_folder(base, tokenizer, lasting=False, trust_remote_code=spec.trust_remote_code)
    return replace(policy, module=lora.merged(policy.module, place), origin=str(place))


def of_folder(
    place: Path,
    tokenizer: PreTrainedTokenizerBase,
    *,
    lasting: bool = True,
    trust_remote_code: bool = False,
) -> Policy:
    """Load the model of one folder: safetensors only, every weight present, float32."""
    from transformers import GenerationConfig

    module = _module(place, trust_remote_code)
    config = module.config.get_text_config()
    eos = [
        getattr(module.generation_config, "eos_token_id", None),
        config.eos_token_id,
        tokenizer.eos_token_id,
    ]
    eos_ids = frozenset[int]().union(*map(_ids, eos))
    # The folder's own top_p or temperature must not reach a sampler, and may be of a kind that
    # transformers loads but refuses to save.
    module.generation_config = GenerationConfig(
        eos_token_id=sorted(eos_ids), pad_token_id=tokenizer.pad_token_id
    )
    return Policy(
        module=module,
        tokenizer=tokenizer,
        eos_ids=eos_ids,
        context_length=getattr(config, "max_position_embeddings", None) or tokenizer.model_max_length,
        origin=str(place),
        lasting=lasting,
    )


def find(path: str, revision: str | None = None) -> Path:
    """Return the folder of a model: itself, an earlier run's `final/`, or a snapshot of the hub.

    Raises:
        UserError: nothing there, and the hub has it not or cannot be reached.
    """
    place = Path(path).expanduser().resolve()
    if any((place / name).is_file() for name in ("config.json", "adapter_config.json")):
        return place
    if (place / "final").is_dir():
        return find(str(place / "final"))
    if place.is_dir():
        unfinished = (place / "status.json").is_file()
        what = "a run that has no final model yet" if unfinished else "a folder without config.json"
        raise UserError(f"model.path: {path} is {what}", LOCAL)
    if not re.fullmatch(HUB_ID, path):
        raise UserError(f"model.path: there is no folder {path}", LOCAL)
    return _snapshot(path, revision)


def _snapshot(path: str, revision: str | None) -> Path:
    """Download what is missing in one go, so that all later reads are local and none can hang."""
    from huggingface_hub import errors, snapshot_download

    try:
        # Weights beside the root are duplicates in other formats.
        ignored = ["*/*", "consolidated*"]
        return Path(snapshot_download(path, revision=revision, allow_patterns=FILES, ignore_patterns=ignored))
    except errors.GatedRepoError as error:
        why = "is gated: accept its terms on the hub and log in with `hf auth login`"
        raise UserError(f"model.path: {path} {why}", LOCAL) from error
    except errors.RevisionNotFoundError as error:
        raise UserError(f"model.revision: {path} has no revision {revision}", LOCAL) from error
    except (errors.RepositoryNotFoundError, errors.HFValidationError) as error:
        raise UserError(f"model.path: no folder and no model of the hub is called {path}", LOCAL) from error
    except (errors.HTTPError, OSError) as error:  # type: ignore[attr-defined]
        why = "is not on this machine and the hub cannot be reached"
        raise UserError(f"model.path: {path} {why} ({_line(error)})", LOCAL) from error


def _module(place: Path, trust_remote_code: bool) -> PreTrainedModel:
    from safetensors import SafetensorError
    from transformers import AutoModelForCausalLM

    quiet()
    try:
        module, report = AutoModelForCausalLM.from_pretrained(
            place,
            dtype=torch.float32,
            use_safetensors=True,
            trust_remote_code=trust_remote_code,
            output_loading_info=True,
        )
    except (OSError, ValueError, ImportError, SafetensorError) as error:
        raise UserError(f"model.path: {place} does not load: {_line(error)}", LOCAL) from error
    named = module.config.architectures or ["CausalLM"]
    if not any(name.endswith(HEADS) for name in named) or report["missing_keys"]:
        missing = ", ".join(sorted(report["missing_keys"])[:3])
        why = f"lacks the weights {missing}" if missing else f"holds {', '.join(named)}"
        raise UserError(f"model.path: {place} is no complete causal language model: it {why}", LOCAL)
    return cast("PreTrainedModel", module.to(device()))


def _ids(eos: Any) -> frozenset[int]:
    return frozenset() if eos is None else frozenset([eos] if isinstance(eos, int) else eos)


def _line(error: Exception) -> str:
    return (str(error).strip().splitlines() or [type(error).__name__])[0][:200]
