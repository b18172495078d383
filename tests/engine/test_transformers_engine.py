import math

import numpy as np
import pytest
import torch
from transformers import LlamaConfig, LlamaForCausalLM

from rlctl.engine import TransformersEngine as Spec
from rlctl.engine.transformers import TransformersEngine
from rlctl.models import TinyModel
from rlctl.models.tiny import EOS, character_tokenizer
from rlctl.types import Request

TOKENIZER = character_tokenizer(TinyModel(kind="tiny"))
EOS_ID = TOKENIZER.convert_tokens_to_ids(EOS)
V = len(TOKENIZER)


def make(scale: float = 8.0, **config) -> LlamaForCausalLM:
    """An untrained Llama whose laws are far from flat."""
    torch.manual_seed(0)
    shape = {"hidden_size": 32, "intermediate_size": 48, "num_hidden_layers": 1, "num_attention_heads": 2}
    module = LlamaForCausalLM(LlamaConfig(vocab_size=V, max_position_embeddings=128, **{**shape, **config}))
    torch.nn.init.normal_(module.lm_head.weight, std=scale / math.sqrt(32))
    torch.nn.init.normal_(module.model.embed_tokens.weight, std=1.0)
    return module.train()


@pytest.fixture(scope="module")
def module():
    return make()


def engine(module, eos=(EOS_ID,), max_rows=256):
    return TransformersEngine(module, TOKENIZER, frozenset(eos), Spec(max_rows=max_rows))


def requests(prompts, n=1, **changes):
    """`n` requests for each prompt, all with seeds of their own."""
    rows = [tuple(TOKENIZER(p)["input_ids"]) if isinstance(p, str) else p for p in prompts for _ in range(n)]
    return [
        Request(**{"index": i, "ids": p, "seed": 1000 + i, "max_tokens": 8, **changes})
        for i, p in enumerate(rows)
    ]


def run(sampler, rows):
    done = list(sampler.generate(rows))
    assert sorted(c.index for c in done) == [r.index for r in rows]
    return sorted(done, key=lambda c: c.index)


def chi_square(tokens, probability):
    """Chi-square statistic over tokens expected at least five times, and its degrees of freedom."""
    expected = len(tokens) * probability
    seen = np.bincount(tokens, minlength=len(probability)).astype(float)
    common = expected >= 5
    cells = [
        *zip(seen[common], expected[common], strict=True),
        (seen[~common].sum(), expected[~common].sum()),
    ]
    cells = [(o, e) for o, e in cells if e > 0]
    return sum((o - e) ** 2 / e for o, e in cells), len(cells) - 1


def last_logits(module, ids):
    with torch.no_grad():
        return module(torch.tensor([ids])).logits[0, -1].double()


def within_chance(tokens, probability):
    statistic, freedom = chi_square(np.array(tokens), probability)
    return statistic < freedom + 4 * math.sqrt(2 * freedom) + 4  # about four sigma; the seeds are fixed


@pytest.mark.parametrize("temperature", [0.7, 1.0, 1.5])
def test_first_tokens_follow_the_softmax(temperature):
    module = make(scale=2.0)
    rows = requests(["7+5="], n=4000, max_tokens=1, temperature=temperature)
    tokens = [c.ids[0] for c in run(engine(module, max_rows=4000), rows)]
    probability = (last_logits(module, rows[0].ids) / temperature).softmax(0).numpy()
    assert within_chance(tokens, probability)
    assert not within_chance(tokens, np.roll(probability, 1)), "the test could not fail"


def test_later_tokens_follow_the_softmax_given_the_earlier_ones():
    module = make(scale=4.0)
    rows = requests(["7+5="], n=4000, max_tokens=2)
    done = [c.ids for c in run(engine(module, max_rows=4000), rows) if len(c.ids) == 2]
    first = max({ids[0] for ids in done}, key=[ids[0] for ids in done].count)
    tokens = [ids[1] for ids in done if ids[0] == first]
    assert len(tokens) > 300
    assert within_chance(tokens, last_logits(module, (*rows[0].ids, first)).softmax(0).numpy())


@pytest.mark.parametrize(
    "changes", [{"top_k": 5}, {"top_p": 0.6}, {"top_k": 12, "top_p": 0.8, "temperature": 0.8}]
)
def test_cut_laws_are_sampled_and_reported_renormalised(changes):
    module = make(scale=2.0)
    rows = requests(["7+5="], n=2000, max_tokens=1, **changes)
    done = run(engine(module, max_rows=2000), rows)
    p = (last_logits(module, rows[0].ids) / changes.get("temperature", 1.0)).softmax(0).numpy()
    kept = np.argsort(-p)[: changes.get("top_k", V)]  # the formula a second way: sets, in plain numpy
    share = p[kept] / p[kept].sum()
    kept = kept[: int(np.searchsorted(share.cumsum(), changes.get("top_p", 1.0 - 1e-12))) + 1]
    law = np.zeros(V)
    law[kept] = p[kept] / p[kept].sum()
    assert within_chance([c.ids[0] for c in done], law)
    for c in done[:100]:
        assert c.logps[0] == pytest.approx(math.log(law[c.ids[0]]), abs=1e-5)


@pytest.mark.parametrize("temperature", [0.7, 1.0])
def test_log_probs_equal_a_plain_forward_pass(module, temperature):
    done = run(
        engine(module),
        rows := requests(["1", "12+3=", "a much longer prompt than others"], 4, temperature=temperature),
    )
    module.eval()
    for row, c in zip(rows, done, strict=True):
        with torch.no_grad():
            logits = module(torch.tensor([row.ids + c.ids])).logits[0, len(row.ids) - 1 : -1]
        wanted = (logits / temperature).log_softmax(-1)[range(len(c.ids)), list(c.ids)]
        assert c.logps == pytest.approx(wanted.tolist(), abs=1e-5)
    module.train()


def test_a02_samples_of_one_prompt_differ():
    """A-02: G=8 completions of one prompt at T=1 from a flat model are not copies."""
    rows = requests(["1+1="], n=8)
    done = run(engine(make(scale=0.1)), rows)
    assert len({c.ids for c in done}) == 8


def test_a13_a_prompt_drawn_twice_is_sampled_anew(module):
    """A-13: the seed decides, not the prompt: equal seeds repeat, other seeds do not."""
    rows = requests(["1+1=", "1+1="], n=4)
    same = [Request(r.index, r.ids, 1000 + r.index % 4, r.max_tokens) for r in rows]
    anew, repeated = run(engine(module), rows), run(engine(module), same)
    assert [c.ids for c in anew[:4]] != [c.ids for c in anew[4:]]
    assert [c.ids for c in repeated[:4]] == [c.ids for c in repeated[4:]]


def test_same_requests_give_bitwise_the_same(module):
    rows = requests(["1", "12+3=", "abc"], 5)
    assert run(engine(module), rows) == run(engine(module), rows)


def test_a_row_does_not_depend_on_its_neighbours(module):
    """Padding, order, chunks and other rows' laws change nothing but rounding."""
    rows = requests(["1", "12+3=", "a much longer prompt than others"], 3, temperature=0.9)
    rows += [Request(9, rows[0].ids, 77, 3, temperature=0.0), Request(10, rows[0].ids, 78, 8, top_k=3)]
    together = run(engine(module), rows)
    for row, c in zip(rows, together, strict=True):
        (alone,) = engine(module).generate([row])
        assert (alone.ids, alone.finish) == (c.ids, c.finish)
        assert alone.logps == pytest.approx(c.logps, abs=1e-5)


def test_more_requests_than_rows_at_once(module):
    rows = requests(["1", "12+3=", "abc"], 5)
    small = list(engine(module, max_rows=4).generate(rows))
    assert [{c.index for c in small[i : i + 4]} for i in range(0, 15, 4)] == [
        {0, 1, 2, 3}, {4, 5, 6, 7}, {8, 9, 10, 11}, {12, 13, 14}
    ]  # fmt: skip
    assert {c.index: c.ids for c in small} == {c.index: c.ids for c in run(engine(module), rows)}


def test_finished_rows_leave_the_batch_and_come_out_first(module):
    sizes = []
    hook = module.register_forward_pre_hook(
        lambda m, a, k: sizes.append(k["input_ids"].shape), with_kwargs=True
    )
    rows = [Request(i, (40, 41), 1000 + i, limit) for i, limit in enumerate([5, 1, 3, 3])]
    done = list(engine(module, eos=()).generate(rows))
    hook.remove()
    assert [c.index for c in done] == [1, 2, 3, 0]
    assert [len(c.ids) for c in done] == [1, 3, 3, 5]
    # one prefill of the one distinct prompt, then a token a row; nothing is run for the finished
    assert sizes == [(1, 2), (3, 1), (3, 1), (1, 1), (1, 1)]


def test_b17_every_eos_id_stops(module):
    """B-17: the finish reason decides truncation, and generation stops on the union of EOS ids."""
    rows = requests(["1+1="], n=200, max_tokens=12)
    long = run(engine(module, eos=()), rows)
    common = np.bincount([t for c in long for t in c.ids]).argsort()[::-1][:2].tolist()
    for whole, c in zip(long, run(engine(module, eos=common), rows), strict=True):
        hits = [i for i, t in enumerate(whole.ids) if t in common]
        assert c.ids == (whole.ids[: hits[0] + 1] if hits else whole.ids)
        assert c.finish == ("stop" if hits else "length")


def test_b18_pad_equal_to_eos_changes_nothing(module):
    """B-18: the sampled EOS is kept with its log-prob though it is the pad token as well."""
    tokenizer = character_tokenizer(TinyModel(kind="tiny"))
    tokenizer.pad_token = tokenizer.eos_token
    rows = requests(["1", "12+3=", EOS + "a" + EOS], n=40)  # an EOS inside a prompt is attended to
    plain = run(engine(module), rows)
    padded = run(TransformersEngine(module, tokenizer, frozenset([EOS_ID]), Spec()), rows)
    assert padded == plain
    stopped = [c for c in plain if c.finish == "stop"]
    assert stopped and all(c.ids[-1] == EOS_ID and len(c.logps) == len(c.ids) for c in stopped)


def test_b19_truncated_rows_stay_as_sampled(module):
    """B-19: no EOS is appended to a truncated completion; a longer limit only continues it."""
    short = run(engine(module), requests(["1+1="], n=50, max_tokens=3))
    long = run(engine(module), requests(["1+1="], n=50, max_tokens=6))
    cut = [(s, w) for s, w in zip(short, long, strict=True) if s.finish == "length"]
    assert cut
    for s, w in cut:
        assert len(s.ids) == 3 and EOS_ID not in s.ids and w.ids[:3] == s.ids
    assert all(s.ids[-1] == EOS_ID for s in short if s.finish == "stop")


def test_eos_as_the_last_allowed_token_is_a_stop(module):
    rows = requests(["1+1="], n=20, max_tokens=1)
    (first, *_) = {c.ids[0] for c in run(engine(module), rows)}
    finish = {c.ids[0]: c.finish for c in run(engine(module, eos=(first,)), rows)}
    assert finish.pop(first) == "stop" and set(finish.values()) == {"length"}


def test_stop_strings_end_a_row_after_the_token_that_completes_them(module):
    rows = requests(["1+1="], n=100, max_tokens=12)
    long = run(engine(module, eos=()), rows)
    text = [TOKENIZER.decode(c.ids) for c in long]
    pairs = [t[i : i + 2] for t in text for i in range(1, 9)]
    stop = max(set(pairs), key=pairs.count)
    stopping = [
        Request(r.index, r.ids, r.seed, r.max_tokens, stop=("\n\n\n", stop) if i % 2 else ())
        for i, r in enumerate(rows)
    ]
    hits = 0
    for i, (whole, t, c) in enumerate(zip(long, text, run(engine(module, eos=()), stopping), strict=True)):
        end = t.find(stop) + 2 if i % 2 and stop in t else len(t)
        hits += end < len(t)
        assert c.ids == whole.ids[:end]
        assert c.finish == ("stop" if i % 2 and stop in t else "length")
    assert hits


def test_b22_ids_are_never_made_from_text(module):
    """B-22: two id sequences that decode alike (unknown characters, here) stay what was sampled."""

    class Blind:
        def __getattr__(self, name):
            raise AssertionError(f"the engine used tokenizer.{name}")

    rows = requests([(2, 2, 40), (2, 40)], n=3)
    sampler = TransformersEngine(module, Blind(), frozenset([EOS_ID]), Spec())
    assert run(sampler, rows) == run(engine(module), rows)


def test_b23_limits_count_tokens(module):
    """B-23: max_tokens counts ids, whatever their text."""
    done = run(engine(module, eos=()), requests(["1"], n=4, max_tokens=7))
    assert [(len(c.ids), len(c.logps)) for c in done] == [(7, 7)] * 4


def test_greedy_takes_the_likeliest_token_with_certainty(module):
    (c,) = engine(module).generate(requests(["12+3="], temperature=0.0))
    module.eval()
    ids = list(requests(["12+3="])[0].ids)
    for token, logp in zip(c.ids, c.logps, strict=True):
        assert token == int(last_logits(module, ids).argmax()) and logp == 0.0
        ids.append(token)
    module.train()


def test_dropout_is_off_while_sampling_and_modes_come_back():
    module = make(attention_dropout=0.5)
    module.model.norm.eval()  # a part that was frozen on purpose
    before = {name: part.training for name, part in module.named_modules()}
    rows = requests(["1", "12+3="], 3)
    assert run(engine(module), rows) == run(engine(module.eval()), rows)
    module.train().model.norm.eval()
    abandoned = engine(module).generate(rows)
    next(abandoned)
    assert {name: part.training for name, part in module.named_modules()} == before  # even while it is open
    abandoned.close()
    hook = module.lm_head.register_forward_pre_hook(lambda *_: 1 / 0)
    with pytest.raises(ZeroDivisionError):
        list(engine(module).generate(rows))
    hook.remove()
    assert {name: part.training for name, part in module.named_modules()} == before


def test_training_goes_on_after_sampling():
    """Nothing that sampling leaves in the module hinders a backward pass or moves the global RNG."""
    module = make()
    module.gradient_checkpointing_enable()
    torch.manual_seed(3)
    state = torch.get_rng_state()
    list(engine(module).generate(requests(["12+3="], 4)))
    assert torch.equal(torch.get_rng_state(), state)
    assert module.is_gradient_checkpointing and module.config.use_cache
    module(torch.tensor([[4, 5, 6]]), use_cache=False).logits.sum().backward()
    assert all(p.grad is not None for p in module.parameters())


def test_new_weights_are_sampled_at_once():
    module = make()
    sampler, rows = engine(module), requests(["12+3="], 4)
    before = run(sampler, rows)
    with torch.no_grad():
        module.lm_head.weight.mul_(-1)
    sampler.refresh(lambda: module.named_parameters(), 7)
    assert sampler.version == 7 and sampler.same_program
    assert run(sampler, rows) != before


def test_no_requests_no_completions(module):
    assert list(engine(module).generate([])) == []


def test_autocast_is_for_the_forward_pass_alone(module):
    seen = []
    hook = module.lm_head.register_forward_hook(lambda m, a, out: seen.append(out.dtype))
    sampler = TransformersEngine(module, TOKENIZER, frozenset([EOS_ID]), Spec(), autocast=torch.bfloat16)
    rows = requests(["12+3="], 4)
    low, full = run(sampler, rows), run(engine(module), rows)
    hook.remove()
    assert set(seen) == {torch.bfloat16, torch.float32} and not torch.is_autocast_enabled("cpu")
    assert low[0].logps[0] == pytest.approx(full[0].logps[0], abs=0.2)
