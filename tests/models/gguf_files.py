"""Small GGUF files, written by the library of those who made the format."""

import gguf
import numpy as np
from tokenizers.pre_tokenizers import ByteLevel

LAYERS, WIDTH, HEADS, KV_HEADS, INNER = 2, 32, 4, 2, 64
HEAD = WIDTH // HEADS
CONTROL = ["<|endoftext|>", "<|im_start|>", "<|im_end|>"]
TOKENS = [*CONTROL, *sorted(ByteLevel.alphabet()), "ĊĊ", "Ġa"]
TEMPLATE = (
    "{% for m in messages %}{{ '<|im_start|>' + m.role + '\\n' + m.content + '<|im_end|>\\n' }}{% endfor %}"
    "{% if add_generation_prompt %}{{ '<|im_start|>assistant\\n' }}{% endif %}"
)


def weights(tied):
    """Weights under transformers' names."""
    shapes = {"model.embed_tokens.weight": (len(TOKENS), WIDTH), "model.norm.weight": (WIDTH,)}
    if not tied:
        shapes["lm_head.weight"] = (len(TOKENS), WIDTH)
    for layer in range(LAYERS):
        own = {
            "input_layernorm": (WIDTH,),
            "post_attention_layernorm": (WIDTH,),
            "self_attn.q_proj": (HEADS * HEAD, WIDTH),
            "self_attn.k_proj": (KV_HEADS * HEAD, WIDTH),
            "self_attn.v_proj": (KV_HEADS * HEAD, WIDTH),
            "self_attn.o_proj": (WIDTH, HEADS * HEAD),
            "mlp.gate_proj": (INNER, WIDTH),
            "mlp.up_proj": (INNER, WIDTH),
            "mlp.down_proj": (WIDTH, INNER),
        }
        shapes |= {f"model.layers.{layer}.{name}.weight": shape for name, shape in own.items()}
    draw = np.random.default_rng(0)
    return {name: draw.normal(size=shape).astype(np.float32) for name, shape in shapes.items()}


GGUF_NAMES = {
    "model.embed_tokens": "token_embd",
    "model.norm": "output_norm",
    "lm_head": "output",
    "model.layers": "blk",
    "input_layernorm": "attn_norm",
    "post_attention_layernorm": "ffn_norm",
    "self_attn.q_proj": "attn_q",
    "self_attn.k_proj": "attn_k",
    "self_attn.v_proj": "attn_v",
    "self_attn.o_proj": "attn_output",
    "mlp.gate_proj": "ffn_gate",
    "mlp.up_proj": "ffn_up",
    "mlp.down_proj": "ffn_down",
}


def _stored(name, weight):
    """Return name and rows as GGUF has them: the two halves of each q and k head are interleaved."""
    for theirs, own in GGUF_NAMES.items():
        name = name.replace(theirs, own)
    if ".attn_q." in name or ".attn_k." in name:
        heads = [weight[row : row + HEAD] for row in range(0, len(weight), HEAD)]
        order = [row for pair in range(HEAD // 2) for row in (pair, pair + HEAD // 2)]
        weight = np.concatenate([head[order] for head in heads])
    return name, weight


def write(path, state, *, kind="F32", arch="llama", pre="smollm", eos=0, template=TEMPLATE, extra=None):
    """Write the model; `extra` may add to it. Matrices are stored as `kind`."""
    writer = gguf.GGUFWriter(path, arch)
    writer.add_context_length(64)
    writer.add_block_count(LAYERS)
    writer.add_embedding_length(WIDTH)
    writer.add_feed_forward_length(INNER)
    writer.add_head_count(HEADS)
    writer.add_head_count_kv(KV_HEADS)
    writer.add_layer_norm_rms_eps(1e-5)
    writer.add_rope_dimension_count(HEAD)
    writer.add_rope_freq_base(5000.0)
    writer.add_tokenizer_model("gpt2")
    writer.add_tokenizer_pre(pre)
    writer.add_token_list(TOKENS)
    writer.add_token_types([3 if token in CONTROL else 1 for token in TOKENS])
    writer.add_token_merges(["Ċ Ċ", "Ġ a"])
    if eos is not None:
        writer.add_eos_token_id(eos)
    if template:
        writer.add_chat_template(template)
    quantisation = gguf.GGMLQuantizationType[kind]
    for theirs, plain in state.items():
        name, weight = _stored(theirs, plain)
        if weight.ndim == 2:
            writer.add_tensor(name, gguf.quantize(weight, quantisation), raw_dtype=quantisation)
        else:
            writer.add_tensor(name, weight)
    if extra:
        extra(writer)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    return path
