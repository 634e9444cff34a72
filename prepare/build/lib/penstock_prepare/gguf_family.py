"""What a config.json means in GGUF: the metadata by which llama.cpp computes such
a model, or why it cannot.

A family is a row.  What llama.cpp would silently compute otherwise is refused,
but for windows that it does not know: texts no longer than one are the same, and
a note says so.

One disadvantage: keys that penstock's own reader refuses are not looked at; it
has read the model before (`penstock export`).
"""

import math
from dataclasses import dataclass, field

from penstock_prepare import PrepareError

USUAL_KEYS = {"hidden": "hidden_size", "ffn": "intermediate_size", "layers": "num_hidden_layers",
              "heads": "num_attention_heads", "kv_heads": "num_key_value_heads",
              "positions": "max_position_embeddings", "eps": "rms_norm_eps", "activation": "hidden_act"}
GPT2_KEYS = {"hidden": "n_embd", "ffn": "n_inner", "layers": "n_layer", "heads": "n_head",
             "positions": "n_positions", "eps": "layer_norm_epsilon", "activation": "activation_function"}
ATTENTION = ("attn_q", "attn_k", "attn_v")
GELU_TANH = ("gelu_new", "gelu_pytorch_tanh")


@dataclass(frozen=True)
class Family:
    """A model_type.  `defaults`: what transformers takes for an absent key."""
    architecture: str  # llama.cpp's
    defaults: dict = field(default_factory=dict)
    keys: dict = field(default_factory=lambda: USUAL_KEYS)
    activations: tuple = ("silu",)  # that llama.cpp computes for it
    biases: tuple = ()  # of which of GGUF's tensors there may be one
    head_order: bool = False  # q and k lie as llama.cpp rotates them: neighbours
    norm_plus: int = 0  # added to norms' weights
    transposed: bool = False  # a layer's matrices are stored [in, out]
    rotary: bool = True
    one_head_size: bool = False  # the heads together are as wide as the model
    must_tie: bool = False  # llama.cpp has no head but the embedding
    window: str = "opt-in"  # when sliding_window counts: always, alternating, opt-in
    ffn_factor: int = 0  # times the width, where no key says it


LLAMA_BIASES = ATTENTION + ("attn_output", "ffn_gate", "ffn_up", "ffn_down")
FAMILIES = {
    "llama": Family("llama", biases=LLAMA_BIASES, head_order=True),
    "mistral": Family("llama", head_order=True, window="always"),
    "mixtral": Family("llama", {"rms_norm_eps": 1e-5, "rope_theta": 1e6}, head_order=True, window="always"),
    "olmo2": Family("olmo2", {"rms_norm_eps": 1e-5}),
    "qwen2": Family("qwen2", biases=ATTENTION),
    "qwen3": Family("qwen3"),
    "qwen3_moe": Family("qwen3moe"),
    "phi3": Family("phi3", {"rms_norm_eps": 1e-5, "max_position_embeddings": 4096,
                            "original_max_position_embeddings": 4096},
                   one_head_size=True, window="always"),
    "gemma2": Family("gemma2", {"num_key_value_heads": 4, "head_dim": 256, "max_position_embeddings": 8192,
                                "tie_word_embeddings": True, "query_pre_attn_scalar": 256,
                                "attn_logit_softcapping": 50.0, "final_logit_softcapping": 30.0,
                                "sliding_window": 4096, "hidden_activation": "gelu_pytorch_tanh"},
                     keys={**USUAL_KEYS, "activation": "hidden_activation"}, activations=GELU_TANH,
                     norm_plus=1, must_tie=True, window="alternating"),
    "gpt2": Family("gpt2", {"layer_norm_epsilon": 1e-5, "n_positions": 1024, "tie_word_embeddings": True,
                            "activation_function": "gelu_new"},
                   keys=GPT2_KEYS, activations=GELU_TANH, transposed=True, rotary=False, one_head_size=True,
                   biases=("attn_norm", "attn_qkv", "attn_output", "ffn_norm", "ffn_up", "ffn_down",
                           "output_norm"), ffn_factor=4),
}
DEFAULTS = {"rms_norm_eps": 1e-6, "rope_theta": 10000.0, "tie_word_embeddings": False, "hidden_act": "silu"}
LAYERS_OF_27B = 46  # by which llama.cpp knows Gemma 2 27B and how it scales scores


class Shape:
    """A model's config.json with its family's defaults."""

    def __init__(self, config):
        kind = config.get("model_type")
        self.family = FAMILIES.get(kind) if isinstance(kind, str) else None
        if not self.family:
            raise PrepareError(f"a {kind} model is not written to GGUF; {', '.join(FAMILIES)} are")
        self.kind = kind
        self._config = {**DEFAULTS, **self.family.defaults, **config}
        self.hidden, self.layers, self.heads = (self.size(k) for k in ("hidden", "layers", "heads"))
        self.positions = self.size("positions")
        self.ffn = self.size("ffn", self.family.ffn_factor * self.hidden)
        self.kv_heads = self.size("kv_heads", self.heads)
        self.head_dim = self.whole("head_dim", self.hidden // self.heads)
        self.tied = bool(self.get("tie_word_embeddings"))
        self.rope = self._rope()

    def get(self, key, default=None):
        value = self._config.get(key)
        return default if value is None else value

    def whole(self, key, default=0):
        value = self.get(key, default)
        if isinstance(value, bool) or not isinstance(value, int) or value < 1:
            raise PrepareError(f"config.json: {key} is {value or 'not there'}, no number of 1 or more")
        return value

    def number(self, key, of=None, default=None):
        """A number above 0 in config.json, or in `of`, a part of it."""
        value = (self._config if of is None else of).get(key, default)
        if isinstance(value, bool) or not isinstance(value, (int, float)) or not value > 0:
            raise PrepareError(f"config.json: {key} is {value}, no number above 0")
        return float(value)

    def size(self, what, default=0):
        key = self.family.keys.get(what)
        return self.whole(key, default) if key else default

    def _rope(self):
        rope = self.get("rope_parameters") or self.get("rope_scaling") or {}
        if not isinstance(rope, dict):
            raise PrepareError("config.json: rope_scaling is no object")
        kind = rope.get("rope_type") or rope.get("type") or "default"
        return {**rope, "kind": "longrope" if kind == "su" else kind}

    @property
    def theta(self):
        return self.number("rope_theta", self.rope, self._config["rope_theta"])

    @property
    def rotated(self):
        """How many numbers of a head are rotated."""
        part = self.get("partial_rotary_factor", 1.0) if self.kind == "phi3" else 1.0
        return int(self.head_dim * self.number("partial_rotary_factor", self.rope, part))

    def original_positions(self):
        key = "original_max_position_embeddings"
        if self.kind == "phi3" and self.rope["kind"] == "longrope":
            return int(self.number(key, {key: self._config.get(key) or self.rope.get(key)}))
        return int(self.number(key, self.rope, self.positions))

    def window(self):
        """Positions a layer looks back, where it is not all; else None."""
        kind = self.family.window
        if kind == "opt-in" and not self.get("use_sliding_window"):
            return None
        window = self.get("sliding_window")
        return self.whole("sliding_window") if window is not None and window < self.positions else None

    def _refuse(self, why):
        raise PrepareError(f"GGUF's architecture {self.family.architecture} cannot say what this model does: {why}")

    def check(self):
        """Refuses what llama.cpp would compute otherwise."""
        name = self.family.keys["activation"]
        if self.get(name) not in self.family.activations:
            self._refuse(f"{name} is {self.get(name)}, not {self.family.activations[0]}")
        if self.family.one_head_size and self.heads * self.head_dim != self.hidden:
            self._refuse(f"{self.heads} heads of {self.head_dim} are not as wide as the model, {self.hidden}")
        if self.family.must_tie and not self.tied:
            self._refuse("its head is not its embedding (tie_word_embeddings)")
        if self.kind == "qwen3_moe":
            self._check_mixture()
        if self.kind == "gemma2":
            self._check_gemma()

    def _check_mixture(self):
        if not self.get("norm_topk_prob", False):
            self._refuse("a token's weights of experts do not sum to 1 (norm_topk_prob)")
        if self.get("mlp_only_layers") or self.get("decoder_sparse_step", 1) != 1:
            self._refuse("some layers have no experts (mlp_only_layers, decoder_sparse_step)")

    def _check_gemma(self):
        for key in ("attn_logit_softcapping", "final_logit_softcapping"):
            if self.get(key) is None:
                self._refuse(f"{key} is null")
        scalar = self.hidden // self.heads if self.layers == LAYERS_OF_27B else self.head_dim
        if self.whole("query_pre_attn_scalar") != scalar:
            self._refuse(f"query_pre_attn_scalar is {self.get('query_pre_attn_scalar')}, not {scalar}")
        turns = ["sliding_attention", "full_attention"] * self.layers
        if self.get("layer_types", turns[:self.layers]) != turns[:self.layers]:
            self._refuse("its windows are not in every other layer from the first on (layer_types)")


def _add_rope(writer, gguf, shape):
    kind, rope = shape.rope["kind"], shape.rope
    writer.add_rope_dimension_count(shape.rotated)
    writer.add_rope_freq_base(shape.theta)
    if kind in ("linear", "yarn"):
        writer.add_rope_scaling_type(gguf.RopeScalingType(kind))
        writer.add_rope_scaling_factor(shape.number("factor", rope))
    if kind == "yarn":
        for key in ("attention_factor", "mscale", "mscale_all_dim", "truncate"):
            if rope.get(key) not in (None, True):
                raise PrepareError(f"yarn's {key} is not written to GGUF")
        writer.add_rope_scaling_orig_ctx_len(shape.original_positions())
        writer.add_rope_scaling_yarn_beta_fast(shape.number("beta_fast", rope, 32.0))
        writer.add_rope_scaling_yarn_beta_slow(shape.number("beta_slow", rope, 1.0))
    elif kind == "longrope" and shape.kind == "phi3":
        original = shape.original_positions()
        factor = shape.number("factor", rope, max(shape.positions / original, 1.0))
        usual = math.sqrt(1 + math.log(factor) / math.log(original)) if factor > 1 else 1.0
        writer.add_rope_scaling_type(gguf.RopeScalingType.LONGROPE)
        writer.add_rope_scaling_orig_ctx_len(original)
        writer.add_rope_scaling_attn_factors(shape.number("attention_factor", rope, usual))
    elif kind not in ("default", "linear", "llama3"):
        raise PrepareError(f"rope scaling {kind!r} is not written to GGUF for a {shape.kind} model")


def _add_experts(writer, shape):
    """llama.cpp lets a token's weights of experts sum to 1."""
    if shape.kind not in ("mixtral", "qwen3_moe"):
        return
    count = shape.get("num_local_experts", shape.get("num_experts"))
    writer.add_expert_count(shape.whole("num_experts", count))
    writer.add_expert_used_count(shape.whole("num_experts_per_tok", 2))
    if shape.kind == "qwen3_moe":
        writer.add_expert_feed_forward_length(shape.whole("moe_intermediate_size", 768))


def add_shape(writer, gguf, shape):
    """The metadata of a model; notes for people about it."""
    shape.check()
    notes = []
    writer.add_context_length(shape.positions)
    writer.add_embedding_length(shape.hidden)
    writer.add_block_count(shape.layers)
    writer.add_feed_forward_length(shape.ffn)
    writer.add_head_count(shape.heads)
    eps = shape.number(shape.family.keys["eps"])
    if shape.family.rotary:
        writer.add_head_count_kv(shape.kv_heads)
        writer.add_key_length(shape.head_dim)
        writer.add_value_length(shape.head_dim)
        writer.add_layer_norm_rms_eps(eps)
        _add_rope(writer, gguf, shape)
    else:
        writer.add_layer_norm_eps(eps)
    if shape.family.window == "alternating":
        writer.add_sliding_window(shape.window() or shape.positions)
        writer.add_attn_logit_softcapping(shape.number("attn_logit_softcapping"))
        writer.add_final_logit_softcapping(shape.number("final_logit_softcapping"))
    elif shape.window():
        notes.append(f"llama.cpp knows no window of {shape.window()} tokens here: longer texts differ")
    _add_experts(writer, shape)
    return notes


def rope_tensors(shape):
    """Factors by which frequencies are divided: {GGUF's name: float32 [pairs]}."""
    import numpy

    rope, pairs = shape.rope, shape.rotated // 2
    if not shape.family.rotary or rope["kind"] not in ("llama3", "longrope"):
        return {}
    if rope["kind"] == "longrope":
        found = {}
        for which in ("long", "short"):
            factors = rope.get(f"{which}_factor")
            if not isinstance(factors, list) or len(factors) != pairs:
                raise PrepareError(f"config.json: {which}_factor is no list of {pairs} numbers")
            found[f"rope_factors_{which}.weight"] = numpy.array(
                [shape.number(which, {which: f}) for f in factors], numpy.float32)
        return found
    low, high, factor = (shape.number(k, rope) for k in ("low_freq_factor", "high_freq_factor", "factor"))
    context = shape.original_positions()
    waves = 2 * math.pi * shape.theta ** (numpy.arange(0, shape.head_dim, 2) / shape.head_dim)
    smooth = (context / waves - low) / (high - low)
    blend = 1 / ((1 - smooth) / factor + smooth)
    out = numpy.where(waves > context / low, factor, numpy.where(waves < context / high, 1.0, blend))
    return {"rope_freqs.weight": out.astype(numpy.float32)}
