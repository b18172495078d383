"""From a recipe to the parts of a run: each gets its own section, none the whole recipe."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

from rlctl.algorithm import Algorithm
from rlctl.algorithm.control import Controls
from rlctl.budget import ResourcesSpec
from rlctl.data import AnySource, overlap
from rlctl.data.load import Dataset, Judge, load_all
from rlctl.data.render import Renderer
from rlctl.data.source import Mixture
from rlctl.data.tasks import Split
from rlctl.errors import UserError
from rlctl.evaluate import EvalSpec
from rlctl.models import ModelSpec
from rlctl.recipe import Recipe
from rlctl.rollout import Collector, Sampling
from rlctl.sync import Sync
from rlctl.types import Engine, Prompt, Verifier
from rlctl.verify.base import BuiltVerifier
from rlctl.verify.guard import FailureGuard

Say = Callable[[str], None]
SHOWN_GOLDS = 5
MAX_BAD_GOLDS = 0.1  # of a set; above it, loading stops


@dataclass(frozen=True)
class Sampler:
    """A policy, the engine that samples from it, and the learner that holds its weights."""

    policy: Any
    engine: Engine
    engine_kind: str
    learner: Any
    sync: Sync


@dataclass(frozen=True)
class Parts:
    """All that a run is made of."""

    algorithm: Algorithm
    controls: Controls
    source: Mixture
    eval_sets: dict[str, tuple[Prompt, ...]]
    eval_sampling: Sampling
    policy: Any
    engine: Engine
    engine_kind: str
    sync: Sync
    verifier: Verifier
    guard: FailureGuard
    collector: Collector
    learner: Any
    reference: str | None  # fingerprint of the reference policy, where the algorithm has one

    def close(self) -> None:
        """Let go of worker processes and threads."""
        self.collector.close()
        self.verifier.close()
        self.engine.close()


def build(recipe: Recipe, say: Say) -> Parts:
    """Build the parts of a training run, telling `say` what a reader should know."""
    fix_threads(recipe.resources)
    from rlctl.models import load as models
    from rlctl.verify.build import build as build_verifier

    tokenizer = models.tokenizer(recipe.model)
    train, held_out = load_data(recipe, tokenizer, say)
    verifier = build_verifier(recipe.verifier, judges(train, held_out))
    check_golds(verifier, {d.name: d.prompts for d in (*train, *held_out)}, say)

    demonstrated = [prompt for dataset in train for prompt in dataset.prompts]
    policy = models.load(recipe.model, tokenizer, demonstrated, recipe.seed, say)
    _save_memory(recipe.model, policy.module)
    with_reference = "ref_logp" in recipe.algorithm.needs
    made = sampler(recipe, policy, train[0].prompts, say, reference=with_reference)
    say(
        f"engine: {made.engine_kind}; {len(train)} training set(s), "
        f"{sum(len(d.prompts) for d in train)} problems"
    )
    corrected = not made.engine.same_program
    algorithm = recipe.algorithm if corrected else recipe.algorithm.without_correction()
    return Parts(
        algorithm=algorithm,
        controls=Controls(algorithm.control, recipe.seed),
        source=Mixture(train, recipe.seed),
        eval_sets={d.name: d.prompts for d in held_out},
        eval_sampling=eval_sampling(recipe.eval, Sampling.of(recipe.rollout)),
        policy=policy,
        engine=made.engine,
        engine_kind=made.engine_kind,
        sync=made.sync,
        verifier=verifier,
        guard=FailureGuard(),
        collector=Collector(made.engine, verifier, decoder(tokenizer), seed=recipe.seed),
        learner=made.learner,
        reference=made.learner.fingerprint() if with_reference else None,
    )


def sampler(
    recipe: Recipe, policy: Any, prompts: Sequence[Prompt], say: Say, *, reference: bool = False
) -> Sampler:
    """Build what samples; some of `prompts` show that weights arrive. With `reference` it is kept too."""
    from rlctl.engine.build import build as build_engine
    from rlctl.learner.learner import Learner

    _check_context(recipe, policy.context_length)
    autocast = _autocast(recipe.model)
    engine, kind = build_engine(recipe.engine, policy, _setting(recipe, policy, autocast, reference), say)
    learner = Learner(
        policy.module,
        recipe.optim,
        total_steps=recipe.budget.steps,
        autocast=autocast,
        reference=reference,
    )
    sync = Sync(
        engine,
        policy.lora if engine.swaps else policy.whole,
        learner.score,
        prompts,
        temperature=recipe.rollout.temperature,
        seed=recipe.seed,
    )
    return Sampler(policy, engine, kind, learner, sync)


def fix_threads(resources: ResourcesSpec) -> None:
    """Fix the threads of the arithmetic, part of what makes a run repeatable, and hide GPUs if asked."""
    threads = len(os.sched_getaffinity(0)) if resources.cpus == "auto" else resources.cpus
    os.environ["OMP_NUM_THREADS"] = str(threads)
    # Threads that wait by spinning take the cores from each other on a busy machine: ten times slower.
    os.environ.setdefault("OMP_WAIT_POLICY", "PASSIVE")
    os.environ.setdefault("TOKENIZERS_PARALLELISM", "false")
    os.environ.setdefault("TORCH_CPP_LOG_LEVEL", "ERROR")  # no notes on where memory is bound
    # What the learner lets go of must be whole again for an engine on the same card.
    os.environ.setdefault("PYTORCH_CUDA_ALLOC_CONF", "expandable_segments:True")
    if resources.gpus == 0:
        os.environ["CUDA_VISIBLE_DEVICES"] = ""
    import torch

    torch.set_num_threads(threads)


def load_data(recipe: Recipe, tokenizer: Any, say: Say) -> tuple[list[Dataset], list[Dataset]]:
    """Load and render the sets to train on and those to evaluate on."""
    sources = recipe.data.train if isinstance(recipe.data.train, tuple) else (recipe.data.train,)
    train = _fitted(recipe, tokenizer, sources, "train", say)
    held_out = load_held_out(recipe, tokenizer, say)
    kept, told = overlap.separate(train, held_out, recipe.data)
    for line in told:
        say(line)
    return kept, held_out


def load_held_out(recipe: Recipe, tokenizer: Any, say: Say) -> list[Dataset]:
    """Load and render the sets to evaluate on."""
    return _fitted(recipe, tokenizer, recipe.eval.sets, "test", say)


def _fitted(
    recipe: Recipe, tokenizer: Any, specs: Sequence[AnySource], split: Split, say: Say
) -> list[Dataset]:
    datasets = load_all(specs, root=recipe.data.root, split=split, seed=recipe.seed)
    kept, dropped = Renderer(tokenizer, recipe.data).fit(datasets)
    for name, count in dropped.items():
        say(f"{name}: {count} prompts over data.max_prompt_length dropped")
    return kept


def judges(train: list[Dataset], held_out: list[Dataset]) -> dict[str, Judge]:
    """Map names of sets to their own judges.

    Raises:
        UserError: a training and an evaluation set of one name are judged differently.
    """
    evaluated = {d.name: d.judge for d in held_out}
    for d in train:
        if evaluated.get(d.name, d.judge) is not d.judge:
            raise UserError(
                f"eval.sets and data.train both have a set {d.name!r}, judged in two ways",
                "give the one from a file another `name`",
            )
    return {d.name: d.judge for d in (*train, *held_out) if d.judge is not None}


def _longest_completion(recipe: Recipe) -> int:
    return max(recipe.rollout.max_completion_length, recipe.eval.max_completion_length or 0)


def _check_context(recipe: Recipe, context_length: int) -> None:
    needed = recipe.data.max_prompt_length + _longest_completion(recipe)
    if needed > context_length:
        raise UserError(
            f"prompts and completions may take {needed} tokens, the model's context has {context_length}",
            "lower data.max_prompt_length or rollout.max_completion_length",
        )


def check_golds(verifier: BuiltVerifier, sets: Mapping[str, Sequence[Prompt]], say: Say) -> None:
    """Tell of gold answers that the verifier cannot parse.

    Raises:
        UserError: they are more than `MAX_BAD_GOLDS` of a set: the field or the verifier is the wrong one.
    """
    for name, prompts in sets.items():
        if not (bad := verifier.check_golds(prompts)):
            continue
        shown = ", ".join(f"{p.uid} ({p.gold!r:.80})" for p in bad[:SHOWN_GOLDS])
        if len(bad) > MAX_BAD_GOLDS * len(prompts):
            raise UserError(
                f"{name}: the verifier cannot parse {len(bad)} of {len(prompts)} gold answers: {shown}",
                "name the field with the answer, its `answer_transform`, or another `verifier`",
            )
        say(f"{len(bad)} gold answers that the verifier cannot parse: {shown}")


def _autocast(model: ModelSpec) -> Any:
    import torch

    wanted = model.dtype == "bfloat16" or (model.dtype == "auto" and torch.cuda.is_available())
    return torch.bfloat16 if wanted else None


def _setting(recipe: Recipe, policy: Any, autocast: Any, with_reference: bool) -> Any:
    """What an engine must know of the run around it."""
    from rlctl.engine.memory import learner_bytes
    from rlctl.engine.policy import Setting

    copied = with_reference and not policy.adapter  # an adapter's reference is the model without it
    return Setting(
        longest=recipe.data.max_prompt_length + _longest_completion(recipe),
        dtype=_engine_dtype(recipe.model),
        autocast=autocast,
        learner_bytes=partial(learner_bytes, policy.parameters, policy.trained, copied),
    )


def _engine_dtype(model: ModelSpec) -> Any:
    """Half precision where the machine computes it, unless the model is to be computed in float32."""
    import torch

    able = torch.cuda.is_available() or torch.cpu.get_capabilities().get("avx512_bf16", False)
    half = model.dtype == "bfloat16" or (model.dtype == "auto" and able)
    return torch.bfloat16 if half else torch.float32


def _save_memory(model: ModelSpec, module: Any) -> None:
    """Compute activations again in the backward pass: on a GPU, where memory is the limit, unless told."""
    import torch

    wanted = model.gradient_checkpointing
    if torch.cuda.is_available() if wanted == "auto" else wanted:
        module.gradient_checkpointing_enable(gradient_checkpointing_kwargs={"use_reentrant": False})


def eval_sampling(spec: EvalSpec, train: Sampling) -> Sampling:
    """Everything that an evaluation uses is set here; nothing is taken over unseen from training."""
    return Sampling(
        purpose="eval",
        samples=spec.samples or max(spec.pass_at),
        temperature=spec.temperature,
        max_tokens=spec.max_completion_length or train.max_tokens,
        stop=train.stop,
    )


def decoder(tokenizer: Any) -> Callable[[Any], str]:
    """Return what turns token ids into text, without special tokens."""

    def decode(ids: Any) -> str:
        text: str = tokenizer.decode(list(ids), skip_special_tokens=True)
        return text

    return decode
