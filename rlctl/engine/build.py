"""From a recipe's section `engine` to the engine."""

from __future__ import annotations

from collections.abc import Callable

from rlctl import engine
from rlctl.engine.policy import Sampled, Setting
from rlctl.errors import UserError
from rlctl.types import Engine


def build(
    spec: engine.EngineSpec, policy: Sampled, setting: Setting, say: Callable[[str], None]
) -> tuple[Engine, str]:
    """Return the engine and its kind; with `auto`, `say` why it is not vLLM.

    Raises:
        UserError: vLLM was asked for and is not there, or the model does not fit the machine.
    """
    if isinstance(spec, engine.AutoEngine):
        spec = _fastest(say)
    if isinstance(spec, engine.VllmEngine):
        from rlctl.engine.vllm import VllmEngine

        return VllmEngine(policy, spec, setting), spec.kind
    if isinstance(spec, engine.ScriptedEngine):
        from rlctl.engine.scripted import ScriptedEngine

        return ScriptedEngine(policy.tokenizer, spec.responses, min(policy.eos_ids)), spec.kind
    from rlctl.engine.transformers import TransformersEngine

    return TransformersEngine(
        policy.module, policy.tokenizer, policy.eos_ids, spec, setting.autocast
    ), spec.kind


def _fastest(say: Callable[[str], None]) -> engine.VllmEngine | engine.TransformersEngine:
    """Take vLLM where it imports."""
    from rlctl.engine import vllm

    try:
        vllm.load()
    except UserError as error:
        if vllm.installed():  # else there is nothing to mend
            say(error.message)
        return engine.TransformersEngine()
    return engine.VllmEngine()
