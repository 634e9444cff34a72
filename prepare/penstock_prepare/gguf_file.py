"""A model directory as one GGUF file, for llama.cpp and what is built on it.

Names, shapes, metadata and the order of the heads' rows are those of the
architectures of llama.cpp (ARCHITECTURES) as the `gguf` package knows them; a
layer's experts are one tensor; vectors stay float32, matrices get the type that
is asked for.  The file gets its name when it is whole.

One disadvantage: a tensor is in memory whole while it is converted.
"""

import json
import math
import os
import re
from pathlib import Path

from penstock_prepare import PrepareError

ARCHITECTURES = {"llama": "llama", "mistral": "llama", "mixtral": "llama", "olmo2": "olmo2", "qwen2": "qwen2",
                 "qwen3": "qwen3", "qwen3_moe": "qwen3moe"}
TYPES = ("F32", "F16", "BF16", "Q8_0")
FILE_DTYPES = {"F32": "<f4", "F16": "<f2", "F64": "<f8", "BF16": "<u2"}
NORMAL, UNKNOWN, CONTROL, USER_DEFINED, UNUSED, BYTE = range(1, 7)  # llama.cpp's token types


def _load_json(path, default=None):
    try:
        return json.loads(path.read_text("utf-8"))
    except FileNotFoundError:
        if default is None:
            raise PrepareError(f"there is no {path}") from None
        return default
    except (OSError, ValueError) as error:
        raise PrepareError(f"cannot read {path}: {error}") from None


class Weights:
    """Tensors of a directory's safetensors files, as float32."""

    def __init__(self, folder):
        index = _load_json(folder / "model.safetensors.index.json", {})
        self._entries = {}
        for name in sorted(set(index.get("weight_map", {}).values())) or ["model.safetensors"]:
            self._open(folder / name)

    def _open(self, path):
        try:
            with open(path, "rb") as file:
                n = int.from_bytes(file.read(8), "little")
                header = json.loads(file.read(n))
        except (OSError, ValueError) as error:
            raise PrepareError(f"cannot read {path}: {error}") from None
        for name, entry in header.items():
            if name != "__metadata__":
                self._entries[name] = (path, 8 + n + entry["data_offsets"][0], entry)

    def names(self):
        return list(self._entries)

    def rows(self, name):
        return self._entries[name][2]["shape"][0]

    def read(self, name):
        import numpy

        path, offset, entry = self._entries[name]
        if entry["dtype"] not in FILE_DTYPES:
            raise PrepareError(f"{path}: tensor {name} is stored as {entry['dtype']}")
        count = math.prod(entry["shape"])
        raw = numpy.fromfile(path, FILE_DTYPES[entry["dtype"]], count, offset=offset)
        if entry["dtype"] == "BF16":
            raw = (raw.astype("<u4") << 16).view("<f4")
        return raw.astype(numpy.float32).reshape(entry["shape"])


def _head_order(tensor, heads):
    """Rows of q and k as llama.cpp rotates them: neighbours, not halves."""
    split = tensor.reshape(heads, 2, tensor.shape[0] // heads // 2, *tensor.shape[1:])
    return split.swapaxes(1, 2).reshape(tensor.shape)


def _rope(config):
    return config.get("rope_parameters") or config.get("rope_scaling") or {}


def _rope_factors(config, head_dim):
    """Llama 3's scaling, by which each frequency is divided; None: another."""
    import numpy

    rope = _rope(config)
    if rope.get("rope_type", rope.get("type")) != "llama3":
        return None
    theta = rope.get("rope_theta", config.get("rope_theta", 10000.0))
    low, high, factor = (float(rope[k]) for k in ("low_freq_factor", "high_freq_factor", "factor"))
    context = rope["original_max_position_embeddings"]
    waves = 2 * math.pi * theta ** (numpy.arange(0, head_dim, 2) / head_dim)
    smooth = (context / waves - low) / (high - low)
    blend = 1 / ((1 - smooth) / factor + smooth)
    out = numpy.where(waves > context / low, factor, numpy.where(waves < context / high, 1.0, blend))
    return out.astype(numpy.float32)


def _add_shape(writer, gguf, config, head_dim):
    heads = config["num_attention_heads"]
    rope = _rope(config)
    writer.add_context_length(config["max_position_embeddings"])
    writer.add_embedding_length(config["hidden_size"])
    writer.add_block_count(config["num_hidden_layers"])
    writer.add_feed_forward_length(config["intermediate_size"])
    writer.add_head_count(heads)
    writer.add_head_count_kv(config.get("num_key_value_heads") or heads)
    writer.add_key_length(head_dim)
    writer.add_value_length(head_dim)
    writer.add_rope_dimension_count(head_dim)
    writer.add_layer_norm_rms_eps(config.get("rms_norm_eps", 1e-6))
    writer.add_rope_freq_base(float(rope.get("rope_theta", config.get("rope_theta", 10000.0))))
    kind = rope.get("rope_type", rope.get("type", "default"))
    if kind in ("linear", "yarn"):
        writer.add_rope_scaling_type(gguf.RopeScalingType(kind))
        writer.add_rope_scaling_factor(float(rope["factor"]))
        if kind == "yarn":
            writer.add_rope_scaling_orig_ctx_len(
                rope.get("original_max_position_embeddings") or config["max_position_embeddings"])
    elif kind not in ("default", "llama3"):
        raise PrepareError(f"rope scaling {kind!r} is not written to GGUF")


def _add_experts(writer, config):
    """How many experts there are and are used.  llama.cpp lets a token's weights sum to 1, in both."""
    count = config.get("num_local_experts", config.get("num_experts"))
    if count is None:
        return
    if config["model_type"] == "qwen3_moe":
        if not config.get("norm_topk_prob", False):
            raise PrepareError("GGUF's architecture qwen3moe makes a token's weights of experts sum to 1; "
                               "this model does not (norm_topk_prob)")
        writer.add_expert_feed_forward_length(config.get("moe_intermediate_size", 768))
    writer.add_expert_count(count)
    writer.add_expert_used_count(config["num_experts_per_tok"])


def _splitter(tokenizer_json):
    """llama.cpp's name for how a byte-level tokenizer splits text."""
    split = json.dumps(tokenizer_json.get("pre_tokenizer"))
    for sign, name in (("\\\\p{N}{1,3}", "llama-bpe"), ("\\\\p{N}", "qwen2"),
                       ('"individual_digits": true', "smollm"), ('"Split"', None),
                       ('"ByteLevel"', "gpt-2")):
        if sign in split:
            if name:
                return name
            break
    raise PrepareError("llama.cpp has no name that is known here for the way this tokenizer "
                       "splits text (pre_tokenizer)")


def _token_kinds(tokenizer, model, n_rows):
    tokens = [f"[PAD{i}]" for i in range(n_rows)]
    kinds = [UNUSED] * n_rows
    for token, number in tokenizer.vocab.items():
        if number < n_rows:
            tokens[number], kinds[number] = token, NORMAL
    if model.get("byte_fallback"):
        for i, token in enumerate(tokens):
            if len(token) == 6 and token.startswith("<0x") and token.endswith(">"):
                kinds[i] = BYTE
    for number, token in tokenizer.added_tokens().items():
        if number < n_rows:
            kinds[number] = CONTROL if token.special else USER_DEFINED
    unknown = model.get("unk_token")
    if unknown in tokenizer.vocab:
        kinds[tokenizer.vocab[unknown]] = UNKNOWN
    return tokens, kinds


def _add_tokenizer(writer, tokenizer, folder, n_rows):
    described = _load_json(folder / "tokenizer.json")
    model = described["model"]
    if model.get("type") != "BPE":
        raise PrepareError(f"{folder}: a {model.get('type')} tokenizer is not written to GGUF; BPE is")
    tokens, kinds = _token_kinds(tokenizer, model, n_rows)
    merges = [m if isinstance(m, str) else " ".join(m) for m in model["merges"]]
    writer.add_tokenizer_model("llama" if model.get("byte_fallback") else "gpt2")
    writer.add_token_list(tokens)
    writer.add_token_types(kinds)
    if model.get("byte_fallback"):
        # What is merged earlier is better; what no merge makes comes last.
        rank = {}
        for i, merge in enumerate(merges):
            rank.setdefault(merge.replace(" ", ""), float(-i))
        writer.add_token_scores([rank.get(token, float(-len(merges))) for token in tokens])
    else:
        writer.add_tokenizer_pre(_splitter(described))
        writer.add_token_merges(merges)
        writer.add_add_space_prefix(False)
    for number, add in ((tokenizer.bos_id, writer.add_bos_token_id),
                        (tokenizer.eos_id, writer.add_eos_token_id),
                        (tokenizer.pad_id, writer.add_pad_token_id)):
        if number is not None:
            add(number)
    writer.add_add_bos_token(bool(tokenizer.prefix))
    template = tokenizer.template(None)
    if template:
        writer.add_chat_template(template.source)


class _Experts:
    """The same matrix of all experts of a layer, which GGUF holds as one tensor: [experts, out, in]."""

    NAME = re.compile(r"(.*\.experts)\.(\d+)(\.\w+\.weight)")

    def __init__(self, weights):
        self._weights = weights
        self._held = {}
        for name in weights.names():
            found = self.NAME.fullmatch(name)
            if found:
                self._held.setdefault(found[1] + found[3], {})[int(found[2])] = name

    def is_part(self, name):
        return self.NAME.fullmatch(name) is not None

    def names(self):
        return list(self._held)

    def read(self, name):
        import numpy

        parts = self._held[name]
        return numpy.stack([self._weights.read(parts[i]) for i in range(len(parts))])


def _add_tensors(writer, gguf, weights, config, architecture, kind):
    names = gguf.get_tensor_name_map(
        {v: k for k, v in gguf.MODEL_ARCH_NAMES.items()}[architecture], config["num_hidden_layers"])
    wanted = gguf.GGMLQuantizationType[kind]
    heads = config["num_attention_heads"]
    experts = _Experts(weights)
    for name in [n for n in weights.names() if not experts.is_part(n)] + experts.names():
        if name.endswith("rotary_emb.inv_freq") or \
                (name == "lm_head.weight" and config.get("tie_word_embeddings")):
            continue
        new = names.get_name(name, try_suffixes=(".weight", ".bias"))
        if new is None:
            raise PrepareError(f"tensor {name} has no name in GGUF's architecture {architecture}")
        tensor = (experts if name in experts.names() else weights).read(name)
        if architecture == "llama" and ".self_attn.q_proj." in name:
            tensor = _head_order(tensor, heads)
        if architecture == "llama" and ".self_attn.k_proj." in name:
            tensor = _head_order(tensor, config.get("num_key_value_heads") or heads)
        form = wanted if tensor.ndim > 1 else gguf.GGMLQuantizationType.F32
        if form == gguf.GGMLQuantizationType.Q8_0 and tensor.shape[-1] % 32:
            form = gguf.GGMLQuantizationType.F16  # rows are not whole blocks
        writer.add_tensor(new, gguf.quants.quantize(tensor, form), raw_dtype=form)


def write_gguf(folder, tokenizer, kind, output):
    """The model in `folder` as `output`."""
    try:
        import gguf
    except ImportError:
        raise PrepareError("writing GGUF needs the package gguf (tools/setup, or pip install "
                           "gguf)") from None
    folder, output = Path(folder), Path(output)
    config = _load_json(folder / "config.json")
    architecture = ARCHITECTURES.get(config.get("model_type"))
    if not architecture:
        raise PrepareError(f"a {config.get('model_type')} model is not written to GGUF; "
                           f"{', '.join(ARCHITECTURES)} are")
    weights = Weights(folder)
    head_dim = config.get("head_dim") or config["hidden_size"] // config["num_attention_heads"]
    n_rows = weights.rows("model.embed_tokens.weight")
    temporary = output.with_name(f".{output.name}.{os.getpid()}.tmp")
    writer = gguf.GGUFWriter(temporary, architecture)
    try:
        writer.add_name(folder.resolve().name)
        writer.add_file_type(gguf.LlamaFileType[f"MOSTLY_{kind}" if kind != "F32" else "ALL_F32"])
        writer.add_quantization_version(gguf.GGML_QUANT_VERSION)
        writer.add_vocab_size(n_rows)
        _add_shape(writer, gguf, config, head_dim)
        _add_experts(writer, config)
        _add_tokenizer(writer, tokenizer, folder, n_rows)
        factors = _rope_factors(config, head_dim)
        if factors is not None:
            writer.add_tensor("rope_freqs.weight", factors)
        _add_tensors(writer, gguf, weights, config, architecture, kind)
        writer.write_header_to_file()
        writer.write_kv_data_to_file()
        writer.write_tensors_to_file()
        writer.close()
        with open(temporary, "rb") as file:
            os.fsync(file.fileno())
        os.replace(temporary, output)
    finally:
        if temporary.exists():
            temporary.unlink()
    return f"{output}: {len(weights.names())} tensors, {kind}, {output.stat().st_size} bytes"
