"""A GGUF file as a folder that transformers and vLLM load: the weights as plain float32."""

from __future__ import annotations

import hashlib
import io
import json
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager, redirect_stderr
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

from rlctl.errors import UserError, writing

if TYPE_CHECKING:
    from gguf import GGUFReader
    from transformers import PreTrainedConfig, PreTrainedModel, PreTrainedTokenizerBase

RECORD = "rlctl.json"  # in the folder: what it was made of
INSIDE = "model.gguf"
ELSEWHERE = "take the model's safetensors files instead, if there are any"
# Byte-level vocabularies, by `tokenizer.ggml.pre`, whose split transformers does not know and
# replaces by GPT-2's: those that were trained with single digits, and those for which that is right.
SINGLE_DIGITS = frozenset(["smollm", "starcoder", "refact", "command-r", "codeshell", "exaone", "minerva-7b"])
LIKE_GPT2 = frozenset([None, "default", "gpt-2", "phi-2", "mpt", "olmo", "jais", "trillion", "exaone4"])
ANSWER = "4217"  # in no template


@dataclass(frozen=True)
class Imported:
    """What a folder was made of."""

    source: str  # name of the file
    sha256: str
    architecture: str
    parameters: int
    ends: list[str]  # the tokens that end a turn


def import_gguf(source: Path, out: Path) -> tuple[Imported, bool]:
    """Write the model of a GGUF file into the folder `out`; False if it lies there already.

    Quantised weights become the float32 numbers that they stand for, so nothing is lost whatever
    the file's types are. Made aside and renamed: `out` is whole or not there.

    Raises:
        UserError: no whole GGUF file of a causal language model that transformers reads, or `out`
            is something else.
        RunError: the disk is full.
    """
    source, out = source.expanduser().resolve(), out.expanduser().resolve()
    sha256 = _digest(source)
    earlier = _earlier(out, sha256)
    if earlier:
        return earlier, False
    with _aside(out) as aside:
        # A folder of its own: what lies beside the file must not be taken for a part of it.
        (aside / "in").mkdir()
        (aside / "in" / INSIDE).symlink_to(source)
        module, tokenizer, ends = _read(aside / "in", source)
        made = Imported(
            source=source.name,
            sha256=sha256,
            architecture=type(module).__name__,
            parameters=module.num_parameters(),
            ends=cast("list[str]", tokenizer.convert_ids_to_tokens(ends)),
        )
        with writing(f"{out}: could not be written", "make room there, or choose another folder"):
            module.save_pretrained(aside / "out")
            tokenizer.save_pretrained(aside / "out")
            (aside / "out" / RECORD).write_text(json.dumps(asdict(made), indent=2), encoding="utf-8")
            (aside / "out").rename(out)
    return made, True


def _digest(source: Path) -> str:
    try:
        with source.open("rb") as file:
            if file.read(4) != b"GGUF":
                raise UserError(f"{source}: is no GGUF file", "name a file that ends in .gguf")
            file.seek(0)
            return hashlib.file_digest(file, "sha256").hexdigest()
    except OSError as error:
        raise UserError(f"{source}: cannot be read: {error.strerror}") from None


def _earlier(out: Path, sha256: str) -> Imported | None:
    """Return the record of an import of the same file.

    Raises:
        UserError: something else is there.
    """
    if not out.exists() or (out.is_dir() and not any(out.iterdir())):
        return None
    try:
        found = json.loads((out / RECORD).read_text(encoding="utf-8"))
        if found["sha256"] == sha256:
            return Imported(**found)
        what = f"holds an import of another file, {found['source']}"
    except (OSError, ValueError, KeyError, TypeError):
        what = "is there already"
    raise UserError(f"{out}: {what}", "choose another folder, or remove it")


@contextmanager
def _aside(out: Path) -> Iterator[Path]:
    """Make a folder beside `out` that is gone afterwards."""
    try:
        out.parent.mkdir(parents=True, exist_ok=True)
        aside = tempfile.TemporaryDirectory(dir=out.parent, prefix=f".{out.name}-")
    except OSError as error:
        raise UserError(f"{out}: cannot be written: {error.strerror}", "choose another folder") from None
    with aside as name:
        yield Path(name)


def _read(place: Path, source: Path) -> tuple[PreTrainedModel, PreTrainedTokenizerBase, list[int]]:
    """Return model, tokenizer and the ids that end a turn."""
    try:
        with redirect_stderr(io.StringIO()):  # progress bars that cannot be turned off
            return _parts(place)
    except UserError as error:
        raise UserError(f"{source}: {error.message}", ELSEWHERE) from error
    except Exception as error:  # the parsers meet damaged bytes with any exception there is
        why = str(error).replace(str(place / INSIDE), source.name).strip().partition("\n")[0][:200]
        message = f"{source}: does not load ({type(error).__name__}: {why})"
        raise UserError(
            message, "it may be damaged, cut short, or of a kind that transformers does not read"
        ) from error


def _parts(place: Path) -> tuple[PreTrainedModel, PreTrainedTokenizerBase, list[int]]:
    from gguf import GGUFReader
    from transformers import AutoConfig, AutoTokenizer, GenerationConfig

    from rlctl.models.common import quiet

    quiet()
    config = AutoConfig.from_pretrained(place, gguf_file=INSIDE)
    reader = GGUFReader(place / INSIDE)  # after the config: it never ends on some damaged files
    _check(config, reader)
    tokenizer = AutoTokenizer.from_pretrained(place, gguf_file=INSIDE)
    _mend(tokenizer, reader)
    ends = _ends(tokenizer, reader)
    module = _module(place)
    module.config.eos_token_id = ends if len(ends) > 1 else ends[0]
    module.config.bos_token_id = tokenizer.bos_token_id
    module.config.pad_token_id = tokenizer.pad_token_id
    module.generation_config = GenerationConfig(eos_token_id=ends)
    tokenizer.model_max_length = getattr(config, "max_position_embeddings", tokenizer.model_max_length)
    return module, tokenizer, ends


def _value(reader: GGUFReader, key: str) -> Any:
    field = reader.get_field(key)
    return field.contents() if field else None


def _check(config: PreTrainedConfig, reader: GGUFReader) -> None:
    """Refuse a file of which transformers would make a smaller, larger or other model.

    It leaves out what it does not know (scaled rotary positions, say), and would fill in at random,
    or in gigabytes, what a header promises and the file lacks.
    """
    import torch
    from transformers import AutoModelForCausalLM

    if not reader.tensors:
        raise UserError("holds no weights")
    if getattr(config, "num_hidden_layers", 0) > len(reader.tensors):
        raise UserError(
            f"speaks of {config.num_hidden_layers} layers but holds {len(reader.tensors)} tensors"
        )
    with torch.device("meta"):
        state = AutoModelForCausalLM.from_config(config).state_dict(keep_vars=True)
    wanted = sum({id(weight): weight.numel() for weight in state.values()}.values())  # tied ones once
    held = sum(int(tensor.n_elements) for tensor in reader.tensors)
    if wanted != held:
        raise UserError(f"holds {held:,} weights where transformers' {config.model_type} has {wanted:,}")
    scaling = _value(reader, f"{_value(reader, 'general.architecture')}.rope.scaling.type") or "none"
    rope = getattr(config, "rope_parameters", None) or {}
    if scaling != "none" and rope.get("rope_type", "default") == "default":
        raise UserError(f"scales its rotary positions ({scaling}), which transformers does not read from it")


def _mend(tokenizer: PreTrainedTokenizerBase, reader: GGUFReader) -> None:
    """Give the tokenizer what transformers leaves out: the split before the merges, and the BOS."""
    from tokenizers import pre_tokenizers

    core = cast("Any", tokenizer).backend_tokenizer
    kind, split = _value(reader, "tokenizer.ggml.model"), _value(reader, "tokenizer.ggml.pre")
    if kind == "gpt2" and isinstance(core.pre_tokenizer, pre_tokenizers.ByteLevel):
        if split in SINGLE_DIGITS:
            core.pre_tokenizer = pre_tokenizers.Sequence(
                [
                    pre_tokenizers.Digits(individual_digits=True),
                    pre_tokenizers.ByteLevel(add_prefix_space=False),
                ]
            )
        elif split not in LIKE_GPT2:
            raise UserError(f"splits words by the rules of `{split}`, which transformers does not know")
    bos = _value(reader, "tokenizer.ggml.add_bos_token")
    cast("Any", tokenizer).add_bos_token = kind == "llama" if bos is None else bool(bos)


def _ends(tokenizer: PreTrainedTokenizerBase, reader: GGUFReader) -> list[int]:
    """Return the ids that end a turn: those that the file names, and what its template writes there."""
    named = {_value(reader, f"tokenizer.ggml.{name}_token_id") for name in ("eos", "eot", "eom")}
    if tokenizer.chat_template:
        chat = [{"role": "user", "content": "2"}, {"role": "assistant", "content": ANSWER}]
        text = cast("str", tokenizer.apply_chat_template(chat, tokenize=False))
        after = tokenizer.encode(text.rpartition(ANSWER)[2].lstrip(), add_special_tokens=False)
        special = tokenizer.added_tokens_decoder
        named |= {token for token in after[:1] if token in special and special[token].special}
    ends = sorted(token for token in named if token is not None and 0 <= token < len(tokenizer))
    if not ends:
        raise UserError("names no token that ends a text")
    return ends


def _module(place: Path) -> PreTrainedModel:
    import torch
    from transformers import AutoModelForCausalLM, GgufConfig

    module, report = AutoModelForCausalLM.from_pretrained(
        place,
        gguf_file=INSIDE,
        dtype=torch.float32,
        quantization_config=GgufConfig(dequantize=True),
        output_loading_info=True,
    )
    missing = ", ".join(sorted(report["missing_keys"])[:3])
    if missing:
        raise UserError(f"lacks the weights {missing}")
    if not all(bool(weight.isfinite().all()) for weight in module.state_dict().values()):
        raise UserError("holds weights that are no numbers")
    return cast("PreTrainedModel", module)
