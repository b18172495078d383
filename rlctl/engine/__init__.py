"""Who samples: engines by `kind`, and the section `engine` of a recipe."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field

from rlctl.spec import Seq, Spec


class AutoEngine(Spec):
    """The fastest engine that is installed; the run says which."""

    kind: Literal["auto"] = "auto"


class TransformersEngine(Spec):
    """Batched sampling with the learner's own module."""

    kind: Literal["transformers"] = "transformers"
    max_rows: int = Field(256, ge=1)  # rows sampled at once


class VllmEngine(Spec):
    """vLLM in this process, on GPUs or, with its CPU build, without one."""

    kind: Literal["vllm"] = "vllm"
    dtype: Literal["auto", "bfloat16", "float16", "float32"] = (
        "auto"  # auto: that of the learner's arithmetic
    )
    max_rows: int = Field(256, ge=1)  # rows sampled at once
    lora: Literal["swap", "merge"] = "swap"  # how an adapter arrives: beside the weights, or added in
    max_mismatch: Literal["auto"] | Annotated[float, Field(gt=0)] = "auto"  # see rlctl/engine/vllm.py
    enforce_eager: Literal["auto", True, False] = "auto"  # auto: on a CPU, where compiling does not pay
    tensor_parallel_size: int = Field(1, ge=1)  # GPUs that share the engine's weights
    # of the card's memory; auto: what the learner leaves
    gpu_memory_utilization: Literal["auto"] | Annotated[float, Field(gt=0, lt=1)] = "auto"
    sleep: bool = True  # on a GPU: lend the engine's memory to the learner while it updates
    # of main memory on a CPU; auto: what max_rows need, at most a quarter of what is free
    kv_cache_gib: Literal["auto"] | Annotated[float, Field(gt=0)] = "auto"


class ScriptedEngine(Spec):
    """Fixed responses, for tests: the request's seed chooses among them."""

    kind: Literal["scripted"] = "scripted"
    responses: Seq[str] = Field(min_length=1)


EngineSpec = Annotated[
    AutoEngine | TransformersEngine | VllmEngine | ScriptedEngine, Field(discriminator="kind")
]
