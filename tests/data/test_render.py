from __future__ import annotations

import json
import string

import pytest
from tokenizers import Regex, Tokenizer, decoders, models, pre_tokenizers
from tokenizers.processors import TemplateProcessing
from transformers import PreTrainedTokenizerFast

from rlctl.data import ArithmeticSource, DataSpec, JsonlSource
from rlctl.data.load import load
from rlctl.data.render import Renderer
from rlctl.errors import UserError
from rlctl.types import Prompt

CHAT = (
    "{% for m in messages %}[{{ m.role }}]{{ m.content }}\n{% endfor %}"
    "{% if add_generation_prompt %}>{% endif %}"
)
ASK = Prompt("set:0", (("user", "1+1="),), "2")


def tokenizer(*, adds_bos=False, chat=None):
    words = ["<pad>", "<s>", "</s>", "<unk>", "\n", *string.printable[:95], *"一二三"]
    raw = Tokenizer(models.WordLevel({word: k for k, word in enumerate(words)}, unk_token="<unk>"))
    raw.pre_tokenizer = pre_tokenizers.Split(Regex(r"[\s\S]"), "isolated")
    raw.decoder = decoders.Fuse()
    if adds_bos:
        raw.post_processor = TemplateProcessing(
            single="<s> $A </s>", special_tokens=[("<s>", 1), ("</s>", 2)]
        )
    made = PreTrainedTokenizerFast(
        tokenizer_object=raw, bos_token="<s>", eos_token="</s>", pad_token="<pad>", unk_token="<unk>"
    )
    made.chat_template = chat
    return made


def spec(**changes):
    return DataSpec(train=ArithmeticSource(kind="arithmetic"), **changes)


def shown(tok, prompt):
    return "".join(tok.convert_ids_to_tokens(list(prompt.ids)))


@pytest.mark.parametrize("adds_bos", [False, True])
@pytest.mark.parametrize("chat", ["", "{{ bos_token }}", "{{ bos_token }}{{ bos_token }}"])
def test_b20_one_bos_at_most_and_no_eos(adds_bos, chat):
    """B-20: one BOS where tokenizer or template want it, none where neither does."""
    tok = tokenizer(adds_bos=adds_bos, chat=chat + CHAT)
    wanted = "<s>" if adds_bos or chat else ""
    assert shown(tok, Renderer(tok, spec()).render(ASK)) == wanted + "[user]1+1=\n>"
    plain = Renderer(tok, spec(template="none")).render(ASK)
    assert shown(tok, plain) == ("<s>" if adds_bos else "") + "1+1="


def test_a_tokenizer_without_bos_gets_none():
    tok = tokenizer(chat=CHAT)
    tok.bos_token = None
    assert shown(tok, Renderer(tok, spec()).render(ASK)) == "[user]1+1=\n>"


def test_system_prompt():
    tok = tokenizer(chat=CHAT)
    own = Prompt("set:1", (("system", "mine"), ("user", "2")), "2")
    renderer = Renderer(tok, spec(system_prompt="Be short."))
    assert shown(tok, renderer.render(ASK)) == "[system]Be short.\n[user]1+1=\n>"
    assert shown(tok, renderer.render(own)) == "[system]mine\n[user]2\n>"
    plain = Renderer(tok, spec(system_prompt="Be short.", template="none"))
    assert shown(tok, plain.render(ASK)) == "Be short.\n1+1="
    assert plain.render(ASK).messages == ASK.messages


def test_a_template_from_a_file(tmp_path):
    path = tmp_path / "mine.jinja"
    path.write_text("Q: {{ messages[0].content }} 三 A:", encoding="utf-8")
    tok = tokenizer(chat=CHAT)
    assert shown(tok, Renderer(tok, spec(template=str(path))).render(ASK)) == "Q: 1+1= 三 A:"
    with pytest.raises(UserError, match=r"none\.jinja cannot be read"):
        Renderer(tok, spec(template=str(tmp_path / "none.jinja")))


def test_no_template_and_refusing_templates_say_what_to_do():
    with pytest.raises(UserError, match=r"data\.template: none"):
        Renderer(tokenizer(), spec())
    refusing = tokenizer(chat="{{ raise_exception('no system role here') }}")
    with pytest.raises(UserError, match="set:0: the chat template refused it: no system role here"):
        Renderer(refusing, spec()).render(ASK)


def test_everything_but_ids_stays(tmp_path):
    path = tmp_path / "x.jsonl"
    path.write_text(
        json.dumps({"prompt": "一二三", "answer": ["1", "一"]}, ensure_ascii=False), encoding="utf-8"
    )
    prompt = load(JsonlSource(kind="jsonl", path=str(path)), split="train", seed=1).prompts[0]
    rendered = Renderer(tokenizer(), spec(template="none")).render(prompt)
    assert len(rendered.ids) == 3 and 3 not in rendered.ids
    assert (rendered.uid, rendered.gold, rendered.text) == ("x:0", ("1", "一"), "一二三")


def lengths(tmp_path, *sizes):
    path = tmp_path / "sizes.jsonl"
    path.write_text("".join(json.dumps({"prompt": "二" * size, "answer": "1"}) + "\n" for size in sizes))
    return load(JsonlSource(kind="jsonl", path=str(path), weight=2.0), split="train", seed=1)


def test_b21_overlong_prompts_are_dropped_with_a_count(tmp_path):
    """B-21, B-23: tokens are counted (BOS too), the limit itself is allowed, nothing is cut."""
    dataset = lengths(tmp_path, 3, 4, 5, 9)
    renderer = Renderer(tokenizer(adds_bos=True), spec(template="none", max_prompt_length=5))
    (fitted,), dropped = renderer.fit([dataset])
    assert dropped == {"sizes": 2}
    assert [(prompt.uid, len(prompt.ids)) for prompt in fitted.prompts] == [("sizes:0", 4), ("sizes:1", 5)]
    assert fitted.weight == 2.0
    assert fitted.fingerprint != dataset.fingerprint
    assert renderer.fit([lengths(tmp_path, 1, 2)])[1] == {}


def test_b21_overlong_prompts_are_refused_where_asked(tmp_path):
    strict = Renderer(tokenizer(), spec(template="none", max_prompt_length=5, on_overlong_prompt="error"))
    with pytest.raises(UserError, match=r"sizes:2: the prompt has 9 tokens; data.max_prompt_length is 5"):
        strict.fit([lengths(tmp_path, 3, 6, 9)])
    lenient = Renderer(tokenizer(), spec(template="none", max_prompt_length=5))
    with pytest.raises(UserError, match="every prompt is too long, up to 9 tokens"):
        lenient.fit([lengths(tmp_path, 6, 9)])


def test_d15_another_template_gives_other_ids():
    """D-15: ids are made anew in each run; no cache can keep those of an older template."""
    tok = tokenizer(chat=CHAT)
    before = Renderer(tok, spec()).render(ASK)
    tok.chat_template = "!" + CHAT
    assert Renderer(tok, spec()).render(before).ids != before.ids
