"""The learner: multiplies columns and backpropagates; it never learns an algorithm's name."""

from __future__ import annotations

import copy
import hashlib
from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from pathlib import Path
from typing import Any, Protocol

import torch
from safetensors import SafetensorError
from safetensors.torch import load_file, save_file
from torch import Tensor

from rlctl.batch import Batch
from rlctl.errors import RunError
from rlctl.learner import OptimSpec
from rlctl.learner.logprobs import check_head, token_logps
from rlctl.learner.report import Report

GPU_TOKENS, CPU_TOKENS = 16384, 8192  # of a micro-batch
CPU_WORK = 2**38  # tokens times weights: seconds on two cores, since Ctrl-C waits for a backward pass


class Objective(Protocol):
    """What an algorithm hands the learner: the gain of each token, to be maximised."""

    gain_BT: Tensor
    clipped_BT: Tensor
    vetoed_BT: Tensor
    kl_BT: Tensor | None


Gain = Callable[[Tensor, Tensor, Batch], Objective]


class Learner:
    """Model and optimiser.

    Args:
        module: a causal language model of transformers, or a peft model around one.
        spec: the section `optim`, its learning rate resolved.
        total_steps: `budget.steps`, where a schedule needs it.
        autocast: arithmetic of forward passes; None is the weights' own float32.
        reference: keep what `ref_logp` needs.
    """

    def __init__(
        self,
        module: Any,
        spec: OptimSpec,
        *,
        total_steps: int | None = None,
        autocast: torch.dtype | None = None,
        reference: bool = False,
    ) -> None:
        assert spec.learning_rate != "auto", "the recipe resolves learning_rate"
        check_head(module)
        self.module = module
        self.spec = spec
        self.total_steps = total_steps
        self.autocast = autocast
        self.device = next(module.parameters()).device
        self.trained = {n: p for n, p in module.named_parameters() if p.requires_grad}
        self.adapter = hasattr(module, "disable_adapter")
        self.frozen = None if not reference or self.adapter else copy.deepcopy(module).requires_grad_(False)
        self.optimizer = torch.optim.AdamW(
            self.trained.values(),
            lr=spec.learning_rate,
            betas=spec.betas,
            weight_decay=spec.weight_decay,
        )
        wanted = spec.micro_batch_tokens
        self.micro_tokens = self._fitting_tokens() if wanted == "auto" else wanted

    def rate(self, step: int) -> float:
        """Return the learning rate of a step, counted from 1: a pure function, so no state is kept."""
        assert self.spec.learning_rate != "auto"
        return self.spec.learning_rate * self.spec.factor(step, self.total_steps)

    def score(self, batch: Batch, needs: frozenset[str]) -> Batch:
        """Fill `old_logp_BT`, `ref_logp_BT`, `entropy_BT`, `entropy_t1_BT` as needed, without gradient."""
        columns: dict[str, Tensor] = {}
        if needs & {"old_logp", "entropy"}:
            columns["old_logp_BT"], columns["entropy_BT"] = self._score(self.module, batch)
        if "entropy_t1" in needs:
            one_B = torch.ones_like(batch.temperature_B)
            same = "entropy_BT" in columns and torch.equal(batch.temperature_B, one_B)
            entropy_BT = None if same else self._score(self.module, batch.with_(temperature_B=one_B))[1]
            columns["entropy_t1_BT"] = columns["entropy_BT"].clone() if entropy_BT is None else entropy_BT
        if "entropy" not in needs:
            columns.pop("entropy_BT", None)
        if "ref_logp" in needs:
            with self.module.disable_adapter() if self.adapter else nullcontext():
                columns["ref_logp_BT"], _ = self._score(self.frozen or self.module, batch)
        return batch.with_(**columns)

    def update(
        self,
        batch: Batch,
        gain: Gain,
        *,
        rate: float,
        seed: int,
        skip_zero_rows: bool,
        abandonable: AbstractContextManager[Any] | None = None,
    ) -> Report:
        """Take one optimiser step up the gain of `batch`, whose weight column is already normalised.

        Dropout draws from `seed`, so that nothing hides in global state. Rows that cannot move the
        gradient are left out; they stay in the weights' denominator. `abandonable` surrounds what can
        be broken off by an exception: then the weights are as before.

        Raises:
            RunError: loss or gradient is not finite; the weights are as before.
        """
        active_B = batch.mask_BT.any(1) & ((batch.advantage_B != 0) | (not skip_zero_rows))
        if not active_B.any():
            return Report.idle()
        report = Report()
        self.module.train()
        try:
            with abandonable or nullcontext(), torch.random.fork_rng():
                torch.manual_seed(seed)
                for micro in batch.rows(active_B.nonzero().flatten()).micro(self.micro_tokens):
                    report.add(self._backward(micro.to(self.device), gain))
        except BaseException:
            self.optimizer.zero_grad(set_to_none=True)
            raise
        finally:
            self.module.eval()
        norm = float(torch.nn.utils.clip_grad_norm_(self.trained.values(), self.spec.max_grad_norm))
        report.grad_norms.append(norm)
        if not report.finite():
            self.optimizer.zero_grad(set_to_none=True)
            raise RunError(
                f"loss {report.loss} or gradient norm {norm} is not finite",
                "the last checkpoint is intact; a lower `optim.learning_rate` begins another run",
                reason="nonfinite",
            )
        for group in self.optimizer.param_groups:
            group["lr"] = rate
        self.optimizer.step()
        self.optimizer.zero_grad(set_to_none=True)
        return report

    def fingerprint(self) -> str:
        """Hash the weights, to recognise the reference policy when a run is resumed."""
        digest = hashlib.sha256()
        for name, p in self.module.named_parameters():
            digest.update(name.encode())
            digest.update(p.detach().cpu().contiguous().view(-1).view(torch.uint8).numpy())
        return digest.hexdigest()

    def save(self, folder: Path) -> None:
        """Write trained weights and optimiser state as safetensors."""
        weights = {n: p.detach().cpu().contiguous() for n, p in self.trained.items()}
        slots = {
            f"{name}/{slot}": value.detach().cpu().contiguous()
            for name, p in self.trained.items()
            for slot, value in self.optimizer.state[p].items()
        }
        try:
            save_file(weights, folder / self._file)
            save_file(slots, folder / "optimizer.safetensors")
        except SafetensorError as error:  # a full disk, in this library's words
            raise OSError(None, str(error)) from error

    def restore(self, folder: Path) -> None:
        """Read back what `save` wrote; shapes and names must be the same."""
        self.restore_weights(folder)
        by_name: dict[str, dict[str, Tensor]] = {}
        for key, value in load_file(folder / "optimizer.safetensors").items():
            name, _, slot = key.rpartition("/")
            by_name.setdefault(name, {})[slot] = value if slot == "step" else value.to(self.device)
        self.optimizer.state.clear()
        for name, state in by_name.items():
            self.optimizer.state[self.trained[name]] = state

    def restore_weights(self, folder: Path) -> None:
        """Read back the trained weights alone."""
        stored = load_file(folder / self._file)
        assert stored.keys() == self.trained.keys(), "checkpoint of another model"
        with torch.no_grad():
            for name, p in self.trained.items():
                p.copy_(stored[name])

    @property
    def _file(self) -> str:
        return "adapter.safetensors" if self.adapter else "model.safetensors"

    def _fitting_tokens(self) -> int:
        if self.device.type == "cuda":
            return GPU_TOKENS
        weights: int = sum(p.numel() for p in self.module.parameters())
        return max(min(CPU_TOKENS, CPU_WORK // weights), 1)

    def _casting(self) -> AbstractContextManager[Any]:
        return torch.autocast(self.device.type, self.autocast) if self.autocast else nullcontext()

    def _score(self, module: Any, batch: Batch) -> tuple[Tensor, Tensor]:
        logp_BT = torch.zeros(batch.mask_BT.shape, dtype=torch.float64)
        entropy_BT = torch.zeros_like(logp_BT)
        index = torch.arange(len(batch))[batch.mask_BT.any(1).cpu()]
        module.eval()
        for micro in batch.with_(group_B=torch.arange(len(batch))).rows(index).micro(self.micro_tokens):
            with torch.no_grad(), self._casting():
                scored = token_logps(module, micro.to(self.device))
            for column_BT, found in zip((logp_BT, entropy_BT), scored, strict=True):
                column_BT[micro.group_B, : found.shape[1]] = found.cpu().double()
        return logp_BT, entropy_BT

    def _backward(self, micro: Batch, gain: Gain) -> Report:
        with self._casting():
            logp_BT, entropy_BT = token_logps(self.module, micro)
        micro = micro.to(self.device, logp_BT.dtype)
        objective = gain(logp_BT, entropy_BT, micro)
        assert micro.weight_BT is not None, "weigh the batch before the update"
        loss = -(micro.weight_BT * objective.gain_BT).sum()
        loss.backward()  # type: ignore[no-untyped-call]
        return Report.of(loss, logp_BT, entropy_BT, micro, objective)
