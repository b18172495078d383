import json
import random
import sys

import gguf
import gguf_files
import numpy as np
import pytest
import torch
from smollm2 import need_smollm2
from transformers import AutoModelForCausalLM, AutoTokenizer

from rlctl import cli
from rlctl.errors import UserError
from rlctl.models import PretrainedModel
from rlctl.models.gguf import import_gguf
from rlctl.models.load import load, tokenizer


@pytest.fixture
def rlctl(monkeypatch, capsys):
    """Call the command line; return exit code and both streams."""

    def call(*arguments):
        monkeypatch.setattr(sys, "argv", ["rlctl", *map(str, arguments)])
        capsys.readouterr()
        with pytest.raises(SystemExit) as end:
            cli.main()
        return end.value.code or 0, *capsys.readouterr()

    return call


@pytest.fixture
def refused(rlctl, tmp_path):
    """Import what cannot be; return what is said of it."""

    def call(source, out=None):
        before = sorted(tmp_path.rglob("*"))
        code, said, complaint = rlctl("model", "import", source, out or tmp_path / "out")
        assert (code, said) == (2, "")
        assert complaint.startswith("error: ") and len(complaint.splitlines()) <= 3
        assert sorted(tmp_path.rglob("*")) == before
        return complaint

    return call


def policy_of(folder):
    spec = PretrainedModel(kind="pretrained", path=str(folder))
    return load(spec, tokenizer(spec), [], seed=0)


@pytest.mark.parametrize("tied", [True, False])
@pytest.mark.parametrize("kind", ["F32", "F16", "BF16", "Q8_0"])
def test_weights_are_exactly_those_of_the_file(tmp_path, tied, kind):
    state = gguf_files.weights(tied)
    import_gguf(gguf_files.write(tmp_path / "m.gguf", state, kind=kind), tmp_path / "out")
    policy = policy_of(tmp_path / "out")
    quantisation = gguf.GGMLQuantizationType[kind]
    for name, weight in policy.module.named_parameters():
        plain = state[name]
        if plain.ndim == 2:
            plain = gguf.dequantize(gguf.quantize(plain, quantisation), quantisation)
        np.testing.assert_array_equal(weight.numpy(force=True), plain, err_msg=name)
    assert {name for name, _ in policy.module.named_parameters()} == set(state)
    head, embedding = policy.module.get_output_embeddings(), policy.module.get_input_embeddings()
    assert (head.weight is embedding.weight) == tied == policy.module.config.tie_word_embeddings
    assert policy.module(torch.tensor([[5, 6, 7]])).logits.isfinite().all()


def test_the_folder_is_plain(tmp_path, rlctl):
    """transformers loads it as any other: no quantisation, no sampling defaults, eos ids of all kinds."""

    def hostile(writer):
        writer.add_float32("general.sampling.temp", 0.1)
        writer.add_int32("general.sampling.top_k", 1)
        writer.add_eot_token_id(1)

    place, out = tmp_path / "downloads", tmp_path / "new" / "out"
    place.mkdir()
    beside = {
        "config.json": {"model_type": "bert"},
        "generation_config.json": {"top_p": 0.1, "max_length": 3},
    }
    beside |= {"tokenizer_config.json": {"eos_token": "a"}, "adapter_config.json": {"peft_type": "LORA"}}
    for name, content in beside.items():
        (place / name).write_text(json.dumps(content))
    gguf_files.write(place / "m.gguf", gguf_files.weights(True), extra=hostile)

    code, said, complaint = rlctl("model", "import", place / "m.gguf", out)
    assert (code, complaint) == (0, "")
    assert "a turn ends at <|endoftext|> or <|im_start|> or <|im_end|>" in said
    assert f"--set model.path={out}" in said.splitlines()[1]
    assert [file.name for file in out.parent.iterdir()] == ["out"]

    generation = json.loads((out / "generation_config.json").read_text())
    assert {*generation} == {"eos_token_id", "transformers_version"}
    config = json.loads((out / "config.json").read_text())
    assert config["eos_token_id"] == generation["eos_token_id"] == [0, 1, 2]
    assert (config["dtype"], config["architectures"]) == ("float32", ["LlamaForCausalLM"])
    assert config["rope_parameters"]["rope_theta"] == 5000.0
    assert not [key for key in config if "quantization" in key or "top_" in key or "temp" in key]
    assert policy_of(out).eos_ids == {0, 1, 2}
    assert policy_of(out).context_length == 64
    module, report = AutoModelForCausalLM.from_pretrained(out, output_loading_info=True)
    assert not any(report.values()) and not hasattr(module, "hf_quantizer")


def test_what_the_template_writes_after_an_answer_ends_a_turn(tmp_path):
    state = gguf_files.weights(True)
    made, _ = import_gguf(gguf_files.write(tmp_path / "a.gguf", state), tmp_path / "a")
    assert made.ends == ["<|endoftext|>", "<|im_end|>"]
    made, _ = import_gguf(gguf_files.write(tmp_path / "b.gguf", state, template=None), tmp_path / "b")
    assert made.ends == ["<|endoftext|>"]
    assert tokenizer(PretrainedModel(kind="pretrained", path=str(tmp_path / "b"))).chat_template is None


def test_the_tokenizer_splits_as_the_file_says(tmp_path):
    """SmolLM's digits stand alone, so two newlines before one are a token; GPT-2's rule cuts them in two."""
    ids = gguf_files.TOKENS.index
    for pre, wanted in [("smollm", ["ĊĊ", "5", "Ġa"]), ("gpt-2", ["Ċ", "Ċ", "5", "Ġa"])]:
        import_gguf(
            gguf_files.write(tmp_path / f"{pre}.gguf", gguf_files.weights(True), pre=pre), tmp_path / pre
        )
        loaded = AutoTokenizer.from_pretrained(tmp_path / pre)
        assert loaded.encode("\n\n5 a") == [ids(token) for token in wanted]
        assert loaded.decode(loaded.encode("\n\n5 aé")) == "\n\n5 aé"
    chat = [{"role": "user", "content": "a"}]
    text = loaded.apply_chat_template(chat, tokenize=False, add_generation_prompt=True)
    assert text == "<|im_start|>user\na<|im_end|>\n<|im_start|>assistant\n"
    assert loaded.encode(text)[0] == ids("<|im_start|>")


@pytest.mark.parametrize("wanted", [True, False])
def test_the_file_says_whether_a_text_begins_with_bos(tmp_path, wanted):
    def bos(writer):
        writer.add_bos_token_id(1)
        writer.add_add_bos_token(wanted)

    import_gguf(gguf_files.write(tmp_path / "m.gguf", gguf_files.weights(True), extra=bos), tmp_path / "out")
    assert (AutoTokenizer.from_pretrained(tmp_path / "out").encode("5")[0] == 1) == wanted


def test_the_same_file_is_imported_once(tmp_path, rlctl):
    source, out = gguf_files.write(tmp_path / "m.gguf", gguf_files.weights(True)), tmp_path / "out"
    out.mkdir()  # empty: welcome
    made, new = import_gguf(source, out)
    assert new
    assert import_gguf(source, out) == (made, False)
    stamps = {file: file.stat().st_mtime_ns for file in out.iterdir()}
    source.rename(tmp_path / "renamed.gguf")
    code, said, _ = rlctl("model", "import", tmp_path / "renamed.gguf", out)
    assert (code, "is there already" in said) == (0, True)
    assert {file: file.stat().st_mtime_ns for file in out.iterdir()} == stamps

    gguf_files.write(source, gguf_files.weights(False))
    code, said, complaint = rlctl("model", "import", source, out)
    assert (code, "holds an import of another file" in complaint) == (2, True)
    assert {file: file.stat().st_mtime_ns for file in out.iterdir()} == stamps


def test_an_interrupted_import_leaves_nothing(tmp_path, rlctl, monkeypatch):
    source = gguf_files.write(tmp_path / "m.gguf", gguf_files.weights(True))

    def interrupt(*_, **__):
        assert list(tmp_path.glob(".out-*/out/model.safetensors"))  # the weights are written by now
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr("rlctl.models.gguf.asdict", interrupt)
        assert rlctl("model", "import", source, tmp_path / "out")[0] == 130
    assert list(tmp_path.iterdir()) == [source]
    assert rlctl("model", "import", source, tmp_path / "out")[0] == 0


def test_refusals_name_the_fault(tmp_path, refused):
    state = gguf_files.weights(True)
    good = gguf_files.write(tmp_path / "good.gguf", state)
    assert "No such file" in refused(tmp_path / "none.gguf")
    assert "Is a directory" in refused(tmp_path)
    (tmp_path / "text.gguf").write_text("no model at all")
    assert "is no GGUF file" in refused(tmp_path / "text.gguf")
    (tmp_path / "empty.gguf").touch()
    assert "is no GGUF file" in refused(tmp_path / "empty.gguf")
    (tmp_path / "cut.gguf").write_bytes(good.read_bytes()[:-5000])
    assert "cut short" in refused(tmp_path / "cut.gguf")
    assert "whisper" in refused(gguf_files.write(tmp_path / "arch.gguf", state, arch="whisper"))
    assert "holds no weights" in refused(gguf_files.write(tmp_path / "vocabulary.gguf", {}))

    assert "File exists" in refused(good, good / "out")
    (tmp_path / "full").mkdir()
    (tmp_path / "full" / "precious").write_text("mine")
    assert "is there already" in refused(good, tmp_path / "full")
    assert "is there already" in refused(good, tmp_path / "text.gguf")


def test_what_transformers_would_get_wrong_in_silence_is_refused(tmp_path, refused):
    state = gguf_files.weights(True)
    path = tmp_path / "m.gguf"
    lacking = {name: weight for name, weight in state.items() if "1.mlp.up_proj" not in name}
    assert "weights where transformers' llama has" in refused(gguf_files.write(path, lacking))

    def frequencies(writer):
        writer.add_tensor("rope_freqs.weight", np.ones(4, np.float32))

    assert "weights where" in refused(gguf_files.write(path, state, extra=frequencies))

    def scaled(writer):
        writer.add_rope_scaling_type(gguf.RopeScalingType.LINEAR)

    assert "rotary positions (linear)" in refused(gguf_files.write(path, state, extra=scaled))
    assert "`deepseek-llm`" in refused(gguf_files.write(path, state, pre="deepseek-llm"))
    assert "no token that ends" in refused(gguf_files.write(path, state, eos=None, template=None))
    broken = {**state, "model.norm.weight": np.full(gguf_files.WIDTH, np.nan, np.float32)}
    assert "no numbers" in refused(gguf_files.write(path, broken))


def test_damaged_files_are_refused_or_imported_never_a_bug(tmp_path):
    """Truncations anywhere, byte flips mostly in the header, where each byte means something."""
    whole = gguf_files.write(tmp_path / "m.gguf", gguf_files.weights(True)).read_bytes()
    header = gguf.GGUFReader(tmp_path / "m.gguf").data_offset
    draw, outcomes = random.Random(0), {True: 0, False: 0}
    for trial in range(48):
        data = bytearray(whole)
        if trial % 3 == 0:
            del data[draw.randrange(len(data)) :]
        else:
            place = draw.randrange(4, header if trial % 3 == 1 else 1500)
            data[place] ^= draw.randrange(1, 256)
        (tmp_path / "damaged.gguf").write_bytes(data)
        out = tmp_path / f"out{trial}"
        try:
            import_gguf(tmp_path / "damaged.gguf", out)
        except UserError as error:
            assert len(str(error).splitlines()) <= 2
            assert not out.exists()
        outcomes[out.exists()] += 1
        assert not list(tmp_path.glob(".*"))
    assert min(outcomes.values()) > 0, outcomes  # neither is the only way out


@pytest.mark.heavy
def test_smollm2_is_the_model_that_it_was():
    policy = policy_of(need_smollm2())
    words = policy.tokenizer
    assert policy.module.get_output_embeddings().weight is policy.module.get_input_embeddings().weight
    assert policy.module.num_parameters() == 134_515_008
    assert policy.eos_ids == {words.convert_tokens_to_ids("<|im_end|>")} == {2}
    assert words.encode("Hello world! 123") == [19556, 905, 17, 216, 33, 34, 35]
    assert words.convert_ids_to_tokens(words.encode("\n\n5")) == ["ĊĊ", "5"]
    chat = [{"role": "user", "content": "What is 2 + 3?"}]
    text = words.apply_chat_template(chat, tokenize=False, add_generation_prompt=True)
    assert text.endswith("<|im_start|>user\nWhat is 2 + 3?<|im_end|>\n<|im_start|>assistant\n")
    ids = torch.tensor([words.encode(text)])
    with torch.no_grad():
        answer = policy.module.generate(ids, do_sample=False, max_new_tokens=40)[0, ids.shape[1] :]
    assert "5" in words.decode(answer) and answer[-1] == 2
