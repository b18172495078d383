"""A collector that runs for real, over scripted responses: shared by the tests of rollout and evaluate."""

import torch
from tokenizers import Tokenizer, decoders, models, pre_tokenizers
from tokenizers.pre_tokenizers import ByteLevel
from transformers import LlamaConfig, LlamaForCausalLM, PreTrainedTokenizerFast

from rlctl.engine import TransformersEngine as EngineSpec
from rlctl.engine.scripted import ScriptedEngine
from rlctl.engine.transformers import TransformersEngine
from rlctl.models import TinyModel
from rlctl.models.tiny import EOS, character_tokenizer
from rlctl.rollout import Collector, RolloutSpec, Sampling
from rlctl.types import Completion, Group, Prompt, Sample
from rlctl.verify import ExactVerifier
from rlctl.verify.build import build

LETTERS = character_tokenizer(TinyModel(kind="tiny"))
EOS_ID = LETTERS.convert_tokens_to_ids(EOS)
SPEC = RolloutSpec(group_size=4, prompts_per_step=3, max_completion_length=16, max_refills=3)


def byte_tokenizer():
    """One token a byte, so that a character of several bytes can be cut in the middle."""
    vocabulary = {c: i for i, c in enumerate([*sorted(ByteLevel.alphabet()), "<eos>"])}
    core = Tokenizer(models.BPE(vocab=vocabulary, merges=[]))
    core.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    core.decoder = decoders.ByteLevel()
    return PreTrainedTokenizerFast(tokenizer_object=core, eos_token="<eos>")


def ambiguous_tokenizer():
    """Ids (0, 1) and (2,) decode to the same text."""
    core = Tokenizer(models.WordLevel({"a": 0, "b": 1, "ab": 2, "<eos>": 3}, unk_token="<eos>"))
    core.decoder = decoders.Fuse()
    return PreTrainedTokenizerFast(tokenizer_object=core, eos_token="<eos>")


def make_prompts(n, name="toy"):
    return [
        Prompt(f"{name}:{i}", (("user", f"q{i}"),), "yes", ids=tuple(LETTERS(f"q{i}")["input_ids"]))
        for i in range(n)
    ]


class Watched(ScriptedEngine):
    """A scripted engine that remembers what it was asked."""

    def __init__(self, script, tokenizer=LETTERS):
        responses = (script,) if isinstance(script, str) else ()
        eos_id = tokenizer.eos_token_id
        super().__init__(tokenizer, responses, eos_id, None if responses else script)
        self.asked = []

    def generate(self, requests):
        self.asked += requests
        return super().generate(requests)


class Forgetful(Watched):
    """Never answers the requests that fail."""

    def generate(self, requests):
        return (c for c in super().generate(requests) if c.finish != "error")


def llama_engine(max_rows):
    """A real engine with a model of random weights."""
    torch.manual_seed(0)
    config = LlamaConfig(
        vocab_size=len(LETTERS),
        hidden_size=16,
        intermediate_size=16,
        num_hidden_layers=1,
        num_attention_heads=2,
        max_position_embeddings=64,
    )
    module = LlamaForCausalLM(config).eval()
    return TransformersEngine(
        module, LETTERS, frozenset([LETTERS.eos_token_id]), EngineSpec(max_rows=max_rows)
    )


def mixed(request):
    """Half of each group is right."""
    return "yes" if request.index % 2 else "no"


EXACT = ExactVerifier()


def collector(engine, verifier=EXACT, seed=17, tokenizer=LETTERS):
    judge = verifier if hasattr(verifier, "judge") else build(verifier, {})
    return Collector(
        engine, judge, lambda ids: tokenizer.decode(list(ids), skip_special_tokens=True), seed=seed
    )


class Plan:
    """The choices of an algorithm without controllers."""

    probe_samples = 0

    def __init__(self, take, admit):
        self.prompts, self.admit = take, admit

    def temperatures(self, prompts, probes):
        return None


def fill(gathered, take, spec, step, admit):
    return gathered.fill(Plan(take, admit), Sampling.of(spec), step, spec.prompts_per_step, spec.max_refills)


def everything(groups):
    return [True] * len(groups)


def nothing(groups):
    return [False] * len(groups)


class Supply:
    """Draws `prompts` again and again, in order."""

    def __init__(self, prompts):
        self.prompts = prompts
        self.taken = []

    def take(self, n):
        start = len(self.taken)
        self.taken += [self.prompts[i % len(self.prompts)] for i in range(start, start + n)]
        return self.taken[start:]


def group(*verdicts, lengths=None, finish="stop"):
    """A group with these verdicts."""
    lengths = lengths or [2] * len(verdicts)
    samples = [
        Sample(Completion(i, (1,) * n, (-1.0,) * n, finish), "text", verdict, 1.0)
        for i, (verdict, n) in enumerate(zip(verdicts, lengths, strict=True))
    ]
    return Group(make_prompts(1)[0], tuple(samples))
