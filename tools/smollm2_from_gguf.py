"""Writes a Hugging Face model directory from the GGUF file of a small Llama.

    smollm2_from_gguf.py FILE.gguf DIR

Used by tools/get-smollm2, which brings the packages gguf and numpy.  Weights
are dequantised to fp32 and rounded to bf16 (nearest, ties to even); they are
what the quantised file holds, which is near the published model and not equal
to it.  Refuses any architecture, tokenizer or tensor it was not made for.
"""

import json
import struct
import sys
from pathlib import Path

import numpy as np
from gguf import GGUFReader
from gguf.quants import dequantize

LAYER_NAMES = {
    "attn_norm": "input_layernorm",
    "attn_q": "self_attn.q_proj",
    "attn_k": "self_attn.k_proj",
    "attn_v": "self_attn.v_proj",
    "attn_output": "self_attn.o_proj",
    "ffn_norm": "post_attention_layernorm",
    "ffn_gate": "mlp.gate_proj",
    "ffn_up": "mlp.up_proj",
    "ffn_down": "mlp.down_proj",
}
TOP_NAMES = {"token_embd": "model.embed_tokens", "output_norm": "model.norm",
             "output": "lm_head"}
CONTROL_TOKEN = 3  # GGUF's token type of special tokens


class Metadata:
    def __init__(self, reader):
        self._fields = reader.fields

    def __getitem__(self, key):
        if key not in self._fields:
            sys.exit(f"get-smollm2: the GGUF file has no {key}")
        return self._fields[key].contents()

    def expect(self, key, value):
        if self[key] != value:
            sys.exit(f"get-smollm2: {key} is {self[key]!r}, not {value!r}: another model than "
                     "this script was made for")

    def decimal(self, key):
        """A float32 as the shortest decimal that gives it back (1e-05)."""
        return float(str(np.float32(self[key])))


def config(meta, tensors):
    return {
        "architectures": ["LlamaForCausalLM"],
        "attention_bias": False,
        "attention_dropout": 0.0,
        "bos_token_id": int(meta["tokenizer.ggml.bos_token_id"]),
        "eos_token_id": int(meta["tokenizer.ggml.eos_token_id"]),
        "hidden_act": "silu",
        "hidden_size": int(meta["llama.embedding_length"]),
        "initializer_range": 0.041666666666666664,
        "intermediate_size": int(meta["llama.feed_forward_length"]),
        "max_position_embeddings": int(meta["llama.context_length"]),
        "mlp_bias": False,
        "model_type": "llama",
        "num_attention_heads": int(meta["llama.attention.head_count"]),
        "num_hidden_layers": int(meta["llama.block_count"]),
        "num_key_value_heads": int(meta["llama.attention.head_count_kv"]),
        "pad_token_id": int(meta["tokenizer.ggml.padding_token_id"]),
        "pretraining_tp": 1,
        "rms_norm_eps": meta.decimal("llama.attention.layer_norm_rms_epsilon"),
        "rope_scaling": None,
        "rope_theta": meta.decimal("llama.rope.freq_base"),
        "tie_word_embeddings": "lm_head.weight" not in tensors,
        "torch_dtype": "bfloat16",
        "use_cache": True,
        "vocab_size": int(meta["llama.vocab_size"]),
    }


def tokenizer(meta):
    """tokenizer.json: byte-level BPE, every digit a piece of its own, which is
    what the pre-tokenizer called smollm stands for."""
    meta.expect("tokenizer.ggml.model", "gpt2")
    meta.expect("tokenizer.ggml.pre", "smollm")
    tokens = meta["tokenizer.ggml.tokens"]
    types = meta["tokenizer.ggml.token_type"]
    byte_level = {"type": "ByteLevel", "add_prefix_space": False, "trim_offsets": True,
                  "use_regex": True}
    return {
        "version": "1.0",
        "truncation": None,
        "padding": None,
        "added_tokens": [
            {"id": i, "content": token, "single_word": False, "lstrip": False, "rstrip": False,
             "normalized": False, "special": True}
            for i, (token, kind) in enumerate(zip(tokens, types)) if kind == CONTROL_TOKEN],
        "normalizer": None,
        "pre_tokenizer": {"type": "Sequence", "pretokenizers": [
            {"type": "Digits", "individual_digits": True}, byte_level]},
        "post_processor": None,
        "decoder": dict(byte_level, add_prefix_space=True),
        "model": {
            "type": "BPE", "dropout": None, "unk_token": None,
            "continuing_subword_prefix": None, "end_of_word_suffix": None, "fuse_unk": False,
            "byte_fallback": False, "ignore_merges": False,
            "vocab": {token: i for i, token in enumerate(tokens)},
            "merges": meta["tokenizer.ggml.merges"],
        },
    }


def special_tokens(meta):
    tokens = meta["tokenizer.ggml.tokens"]
    return {name + "_token": tokens[int(meta[f"tokenizer.ggml.{key}_token_id"])]
            for name, key in (("bos", "bos"), ("eos", "eos"), ("pad", "padding"),
                              ("unk", "unknown"))}


def tokenizer_config(meta):
    return dict(special_tokens(meta), add_prefix_space=False,
                add_bos_token=bool(meta["tokenizer.ggml.add_bos_token"]),
                chat_template=meta["tokenizer.chat_template"],
                clean_up_tokenization_spaces=False,
                model_max_length=int(meta["llama.context_length"]),
                tokenizer_class="PreTrainedTokenizerFast")


def weight_name(name):
    parts = name.split(".")
    if parts[-1] == "weight":
        if len(parts) == 2 and parts[0] in TOP_NAMES:
            return TOP_NAMES[parts[0]] + ".weight"
        if len(parts) == 4 and parts[0] == "blk" and parts[2] in LAYER_NAMES:
            return f"model.layers.{parts[1]}.{LAYER_NAMES[parts[2]]}.weight"
    sys.exit(f"get-smollm2: there is a tensor {name}, which a Llama does not have")


def unpermute(weight, n_heads):
    """GGUF holds the rows of a head's q and k as (0, half, 1, half+1, ...), for
    rotation of neighbours; Hugging Face rotates the first half with the second."""
    rows, columns = weight.shape
    return (weight.reshape(n_heads, rows // n_heads // 2, 2, columns)
            .swapaxes(1, 2).reshape(rows, columns))


def bf16(values):
    """Bits of the nearest bf16, ties to even; the weights are finite."""
    bits = np.ascontiguousarray(values, dtype="<f4").view("<u4")
    return ((bits + 0x7FFF + (bits >> 16 & 1)) >> 16).astype("<u2")


def weights(reader, meta):
    heads = {"q_proj": int(meta["llama.attention.head_count"]),
             "k_proj": int(meta["llama.attention.head_count_kv"])}
    result = {}
    for tensor in reader.tensors:
        name = weight_name(tensor.name)
        value = dequantize(tensor.data, tensor.tensor_type).astype(np.float32)
        value = value.reshape([int(n) for n in reversed(tensor.shape)])
        if not np.isfinite(value).all():
            sys.exit(f"get-smollm2: {tensor.name} is not finite")
        kind = name.split(".")[-2]
        if kind in heads:
            value = unpermute(value, heads[kind])
        result[name] = bf16(value)
    return result


def check_shapes(tensors, c):
    """Every tensor that the config asks for, of its shape, and no other."""
    hidden, inner = c["hidden_size"], c["intermediate_size"]
    kv = hidden // c["num_attention_heads"] * c["num_key_value_heads"]
    layer = {"input_layernorm": (hidden,), "post_attention_layernorm": (hidden,),
             "self_attn.q_proj": (hidden, hidden), "self_attn.k_proj": (kv, hidden),
             "self_attn.v_proj": (kv, hidden), "self_attn.o_proj": (hidden, hidden),
             "mlp.gate_proj": (inner, hidden), "mlp.up_proj": (inner, hidden),
             "mlp.down_proj": (hidden, inner)}
    expected = {"model.embed_tokens.weight": (c["vocab_size"], hidden),
                "model.norm.weight": (hidden,)}
    if not c["tie_word_embeddings"]:
        expected["lm_head.weight"] = (c["vocab_size"], hidden)
    for i in range(c["num_hidden_layers"]):
        expected |= {f"model.layers.{i}.{k}.weight": shape for k, shape in layer.items()}
    found = {name: value.shape for name, value in tensors.items()}
    for name in sorted(expected.keys() | found.keys()):
        if expected.get(name) != found.get(name):
            sys.exit(f"get-smollm2: {name} has shape {found.get(name)}, "
                     f"expected {expected.get(name)}")


def write_safetensors(path, tensors):
    header, at = {"__metadata__": {"format": "pt"}}, 0
    for name in sorted(tensors):
        n_bytes = tensors[name].nbytes
        header[name] = {"dtype": "BF16", "shape": list(tensors[name].shape),
                        "data_offsets": [at, at + n_bytes]}
        at += n_bytes
    text = json.dumps(header, separators=(",", ":")).encode()
    text += b" " * (-len(text) % 8)
    with open(path, "wb") as file:
        file.write(struct.pack("<Q", len(text)) + text)
        for name in sorted(tensors):
            file.write(tensors[name].tobytes())


def main():
    if len(sys.argv) != 3:
        sys.exit(__doc__)
    reader, folder = GGUFReader(sys.argv[1]), Path(sys.argv[2])
    meta = Metadata(reader)
    meta.expect("general.architecture", "llama")
    tensors = weights(reader, meta)
    c = config(meta, tensors)
    check_shapes(tensors, c)
    files = {
        "config.json": c,
        "generation_config.json": {k: c[k] for k in ("bos_token_id", "eos_token_id",
                                                     "pad_token_id")},
        "tokenizer.json": tokenizer(meta),
        "tokenizer_config.json": tokenizer_config(meta),
        "special_tokens_map.json": special_tokens(meta),
    }
    for name, content in files.items():
        (folder / name).write_text(json.dumps(content, indent=2, ensure_ascii=False) + "\n",
                                   "utf-8")
    write_safetensors(folder / "model.safetensors", tensors)
    print(f"get-smollm2: {sum(t.size for t in tensors.values()):,} parameters in "
          f"{len(tensors)} tensors", file=sys.stderr)


if __name__ == "__main__":
    main()
