"""A small Llama made here: a character tokenizer, and a warm start on the task's own demonstrations."""

from __future__ import annotations

import hashlib
import json
import os
import tempfile
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

import torch
from torch import Tensor
from torch.nn import functional
from transformers import LlamaConfig, LlamaForCausalLM, PreTrainedTokenizerFast

from rlctl.errors import UserError, writing
from rlctl.models import TinyModel, WarmStart
from rlctl.models.common import quiet, seeded
from rlctl.types import Prompt

# Pictures of control characters: no printable ASCII text can spell one of them.
PAD, EOS, UNKNOWN = "␀", "␄", "␦"
CHARACTERS = [PAD, EOS, UNKNOWN, "\n", *map(chr, range(32, 127))]
TEMPLATE = (
    "{% for m in messages %}{{ m.content }}{% if m.role == 'system' %}{{ '\\n' }}{% endif %}{% endfor %}"
)

Example = tuple[tuple[int, ...], tuple[int, ...]]  # prompt ids; demonstration ids, EOS included


def character_tokenizer(spec: TinyModel) -> PreTrainedTokenizerFast:
    """Return a tokenizer with one token a character: printable ASCII and newline."""
    from tokenizers import Regex, Tokenizer, decoders, models, pre_tokenizers

    core = Tokenizer(models.WordLevel({c: i for i, c in enumerate(CHARACTERS)}, unk_token=UNKNOWN))
    core.pre_tokenizer = pre_tokenizers.Split(Regex(r"[\s\S]"), "isolated")
    core.decoder = decoders.Fuse()
    tokenizer = PreTrainedTokenizerFast(
        tokenizer_object=core,
        pad_token=PAD,
        eos_token=EOS,
        unk_token=UNKNOWN,
        model_max_length=spec.context,
        clean_up_tokenization_spaces=False,
    )
    tokenizer.chat_template = TEMPLATE
    return tokenizer


def folder(
    spec: TinyModel,
    tokenizer: PreTrainedTokenizerFast,
    prompts: Sequence[Prompt],
    seed: int,
    say: Callable[[str], None],
) -> Path:
    """Return the cached folder of the warm-started model; make it if it is not there.

    It lies in `$RLCTL_CACHE`, else `~/.cache/rlctl`, under the hash of all that determines it.
    Two processes may make it at once: both write aside, the first to rename wins, and the loser's
    weights would have been the same.

    Raises:
        UserError: no demonstrations to start from, or one that does not fit the context.
        RunError: the cache cannot be written.
    """
    examples = _examples(spec, tokenizer, prompts)
    place = _cache() / f"tiny-{_key(spec, examples, seed)}"
    if place.is_dir():
        return place
    quiet()
    module = _scratch(spec, seed)
    _warm_start(module, examples, spec.warm_start, seed, say)
    with writing(f"the model cache {place} could not be written", "make room there, or set RLCTL_CACHE"):
        place.parent.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(dir=place.parent, prefix="making-") as aside:
            made = Path(aside) / "model"
            module.save_pretrained(made)
            tokenizer.save_pretrained(made)
            try:
                made.rename(place)
            except OSError:
                if not place.is_dir():  # otherwise another process was first
                    raise
    return place


def _cache() -> Path:
    return Path(os.environ.get("RLCTL_CACHE") or "~/.cache/rlctl").expanduser()


def _examples(
    spec: TinyModel, tokenizer: PreTrainedTokenizerFast, prompts: Sequence[Prompt]
) -> list[Example]:
    if spec.warm_start.steps == 0:
        return []
    shown = [prompt for prompt in prompts if prompt.demo is not None]
    if not shown:
        raise UserError(
            "model.warm_start: the training data has no demonstrations to start from",
            "train on a generated task, or set model.warm_start.steps to 0",
        )
    demos = tokenizer([prompt.demo for prompt in shown], add_special_tokens=False)["input_ids"]
    examples = [
        (prompt.ids, (*demo, tokenizer.eos_token_id)) for prompt, demo in zip(shown, demos, strict=True)
    ]
    longest = max(len(prompt) + len(demo) for prompt, demo in examples)
    if longest > spec.context:
        raise UserError(
            f"model.context: {spec.context} tokens, but a demonstration needs {longest} with its prompt",
            f"set model.context to {longest} or more",
        )
    return examples


def _key(spec: TinyModel, examples: list[Example], seed: int) -> str:
    """Hash all that the weights depend on: this file too, since it is the recipe of the model."""
    shape = spec.model_dump(include={"layers", "width", "heads", "context", "warm_start"})
    machine = [torch.__version__, torch.get_num_threads(), torch.backends.cpu.get_cpu_capability()]
    digest = hashlib.sha256(Path(__file__).read_bytes())
    digest.update(json.dumps([shape, seed, machine, examples], sort_keys=True).encode())
    return digest.hexdigest()[:16]


def _scratch(spec: TinyModel, seed: int) -> LlamaForCausalLM:
    config = LlamaConfig(
        vocab_size=len(CHARACTERS),
        hidden_size=spec.width,
        intermediate_size=-(-spec.width * 8 // 3 // 16) * 16,  # the usual 8/3, a multiple of 16
        num_hidden_layers=spec.layers,
        num_attention_heads=spec.heads,
        num_key_value_heads=spec.heads,
        max_position_embeddings=spec.context,
        initializer_range=spec.width
        ** -0.5,  # the usual 0.02 is for wide models; here it learns five times slower
        tie_word_embeddings=False,
        bos_token_id=None,
        eos_token_id=CHARACTERS.index(EOS),
        pad_token_id=CHARACTERS.index(PAD),
    )
    with seeded(seed):
        return LlamaForCausalLM(config)


def _warm_start(
    module: LlamaForCausalLM, examples: list[Example], spec: WarmStart, seed: int, say: Callable[[str], None]
) -> None:
    """Take `spec.steps` AdamW steps on the cross-entropy of the demonstration tokens alone."""
    optimiser = torch.optim.AdamW(module.parameters(), lr=spec.learning_rate, weight_decay=0.0)
    ramp = max(spec.steps // 20, 1)
    # No decay at the end: weights that settled in a sharp valley are thrown out by the first RL step.
    schedule = torch.optim.lr_scheduler.LambdaLR(optimiser, lambda step: min((step + 1) / ramp, 1.0))
    module.train()
    batches = _batches(examples, spec, seed) if examples else []
    for step, (tokens_BT, target_BT) in enumerate(batches, start=1):
        hidden_BTD = module.model(tokens_BT, use_cache=False).last_hidden_state
        trained_BT = target_BT >= 0
        loss = functional.cross_entropy(module.lm_head(hidden_BTD[trained_BT]), target_BT[trained_BT])
        optimiser.zero_grad()
        loss.backward()  # type: ignore[no-untyped-call]
        torch.nn.utils.clip_grad_norm_(module.parameters(), 1.0)
        optimiser.step()
        schedule.step()
        if step % max(spec.steps // 5, 1) == 0:
            say(f"warm start: {step}/{spec.steps} steps, loss {loss.item():.3f}")
    module.eval()


def _batches(examples: list[Example], spec: WarmStart, seed: int) -> Iterator[tuple[Tensor, Tensor]]:
    """Yield (tokens, targets); a target is the next token, -1 where nothing is to be learnt."""
    length_N = torch.tensor([len(prompt) + len(demo) - 1 for prompt, demo in examples])
    tokens_NT = torch.zeros(len(examples), int(length_N.max()), dtype=torch.int64)
    target_NT = torch.full_like(tokens_NT, -1)
    for n, (prompt, demo) in enumerate(examples):
        tokens_NT[n, : length_N[n]] = torch.tensor((prompt + demo)[:-1])
        target_NT[n, len(prompt) - 1 : length_N[n]] = torch.tensor(demo)
    order = torch.Generator().manual_seed(seed)
    queue = torch.empty(0, dtype=torch.int64)
    for _ in range(spec.steps):
        while len(queue) < spec.batch:
            queue = torch.cat([queue, torch.randperm(len(examples), generator=order)])
        chosen, queue = queue[: spec.batch], queue[spec.batch :]
        T = int(length_N[chosen].max())
        yield tokens_NT[chosen, :T], target_NT[chosen, :T]
