"""Logits of a GGUF file by numpy, from its metadata and tensors alone: what
llama.cpp's graphs of these architectures say, so that a file that misleads them
shows.  Positions of a text are 0, 1, ...; numbers are float64.
"""

import numpy

NEIGHBOURS = {"llama"}  # rotate x[0], x[1]; all others x[0], x[n / 2]
GELU = {"gpt2", "gemma2"}


def rms(x, weight, eps):
    return x / numpy.sqrt((x * x).mean(-1, keepdims=True) + eps) * weight


def silu(x):
    return x / (1 + numpy.exp(-x))


def gelu(x):
    return x / 2 * (1 + numpy.tanh(numpy.sqrt(2 / numpy.pi) * (x + 0.044715 * x ** 3)))


def softmax(x):
    e = numpy.exp(x - x.max(-1, keepdims=True))
    return e / e.sum(-1, keepdims=True)


class Model:
    def __init__(self, fields, tensors):
        self.arch = fields["general.architecture"]
        self.fields = {name.removeprefix(self.arch + "."): value for name, value in fields.items()}
        self.tensors = {name: numbers.astype(numpy.float64) for name, (_, numbers) in tensors.items()}
        self.heads = self.fields["attention.head_count"]
        self.kv_heads = self.fields.get("attention.head_count_kv", self.heads)
        self.width = self.fields["embedding_length"]
        self.size = self.fields.get("attention.key_length", self.width // self.heads)

    def norm(self, name, x):
        weight, bias = self.tensors.get(name + ".weight"), self.tensors.get(name + ".bias")
        if weight is None:
            return x
        if "attention.layer_norm_epsilon" in self.fields:
            centred = x - x.mean(-1, keepdims=True)
            return rms(centred, weight, self.fields["attention.layer_norm_epsilon"]) + bias
        return rms(x, weight, self.fields["attention.layer_norm_rms_epsilon"])

    def linear(self, name, x):
        y = x @ self.tensors[name + ".weight"].T
        return y + self.tensors[name + ".bias"] if name + ".bias" in self.tensors else y

    def angles(self, n, long):
        """[n, pairs] and the factor on their cosines and sines."""
        f, base, dims = self.fields, self.fields["rope.freq_base"], self.fields["rope.dimension_count"]
        frequency = base ** (-numpy.arange(0, dims, 2) / dims)
        scale, amplitude = 1.0, 1.0
        kind = f.get("rope.scaling.type")
        for name in ("rope_freqs", f"rope_factors_{'long' if long else 'short'}"):
            if name + ".weight" in self.tensors:
                frequency = frequency / self.tensors[name + ".weight"]
        if kind in ("linear", "yarn"):
            scale = 1 / f["rope.scaling.factor"]
        if kind == "longrope":
            amplitude = f["rope.scaling.attn_factor"]
        if kind == "yarn":
            low, high = (dims * numpy.log(f["rope.scaling.original_context_length"] / (beta * 2 * numpy.pi))
                         / (2 * numpy.log(base)) for beta in
                         (f["rope.scaling.yarn_beta_fast"], f["rope.scaling.yarn_beta_slow"]))
            low, high = max(0, numpy.floor(low)), min(dims - 1, numpy.ceil(high))
            ramp = 1 - ((numpy.arange(dims // 2) - low) / max(0.001, high - low)).clip(0, 1)
            amplitude = 1 + 0.1 * numpy.log(1 / scale)
            frequency = frequency * (scale * (1 - ramp) + ramp)
        else:
            frequency = frequency * scale
        return numpy.outer(numpy.arange(n), frequency), amplitude

    def rotate(self, x, long):
        """x [n, heads, size]"""
        if "rope.dimension_count" not in self.fields:
            return x
        angle, amplitude = self.angles(len(x), long)
        c, s = (amplitude * part(angle)[:, None, :] for part in (numpy.cos, numpy.sin))
        dims = self.fields["rope.dimension_count"]
        turned, rest = x[..., :dims], x[..., dims:]
        if self.arch in NEIGHBOURS:
            a, b = turned[..., 0::2], turned[..., 1::2]
            turned = numpy.stack([a * c - b * s, a * s + b * c], -1).reshape(turned.shape)
        else:
            a, b = turned[..., :dims // 2], turned[..., dims // 2:]
            turned = numpy.concatenate([a * c - b * s, a * s + b * c], -1)
        return numpy.concatenate([turned, rest], -1)

    def qkv(self, p, x):
        sizes = numpy.array([self.heads, self.kv_heads, self.kv_heads]) * self.size
        if p + "attn_qkv.weight" in self.tensors:
            parts = numpy.split(self.linear(p + "attn_qkv", x), sizes.cumsum()[:2], -1)
        else:
            parts = [self.linear(p + "attn_" + name, x) for name in "qkv"]
        split = []
        for name, part in zip("qkv", parts):
            weight = self.tensors.get(f"{p}attn_{name}_norm.weight")
            if weight is not None and len(weight) == part.shape[-1]:  # over the row
                part = self.norm(f"{p}attn_{name}_norm", part)
            part = part.reshape(len(x), -1, self.size)
            if weight is not None and len(weight) == self.size:
                part = self.norm(f"{p}attn_{name}_norm", part)
            split.append(part)
        return split

    def attention(self, i, x, long):
        p, n = f"blk.{i}.", len(x)
        q, k, v = self.qkv(p, x)
        q, k = self.rotate(q, long), self.rotate(k, long)
        k, v = (part.repeat(self.heads // self.kv_heads, 1) for part in (k, v))
        scores = numpy.einsum("ihd,jhd->hij", q, k) / numpy.sqrt(self.size)
        cap = self.fields.get("attn_logit_softcapping")
        scores = cap * numpy.tanh(scores / cap) if cap else scores
        back = numpy.subtract.outer(numpy.arange(n), numpy.arange(n))
        window = self.fields["attention.sliding_window"] if self.arch == "gemma2" and i % 2 == 0 else n
        scores = numpy.where((back >= 0) & (back < window), scores, -numpy.inf)
        mixed = numpy.einsum("hij,jhd->ihd", softmax(scores), v).reshape(n, -1)
        return self.linear(p + "attn_output", mixed)

    def experts(self, p, x):
        out = numpy.zeros_like(x)
        weights = softmax(self.linear(p + "ffn_gate_inp", x))
        gate, up, down = (self.tensors[f"{p}ffn_{name}_exps.weight"] for name in ("gate", "up", "down"))
        for t, row in enumerate(weights):
            chosen = row.argsort()[::-1][:self.fields["expert_used_count"]]
            for e in chosen:
                out[t] += row[e] / row[chosen].sum() * (down[e] @ (silu(gate[e] @ x[t]) * (up[e] @ x[t])))
        return out

    def ffn(self, i, x):
        p, act = f"blk.{i}.", gelu if self.arch in GELU else silu
        if p + "ffn_gate_inp.weight" in self.tensors:
            return self.experts(p, x)
        up = self.linear(p + "ffn_up", x)
        if p + "ffn_gate.weight" in self.tensors:
            up = act(self.linear(p + "ffn_gate", x)) * up
        elif self.arch == "phi3":
            gate, up = numpy.split(up, 2, -1)
            up = act(gate) * up
        else:
            up = act(up)
        return self.linear(p + "ffn_down", up)

    def logits(self, ids):
        original = self.fields.get("rope.scaling.original_context_length", len(ids))
        x = self.tensors["token_embd.weight"][ids]
        if self.arch == "gemma2":
            x = x * numpy.sqrt(self.width)
        if "position_embd.weight" in self.tensors:
            x = x + self.tensors["position_embd.weight"][:len(ids)]
        for i in range(self.fields["block_count"]):
            p = f"blk.{i}."
            half = self.attention(i, self.norm(p + "attn_norm", x), len(ids) > original)
            x = x + self.norm(p + "post_attention_norm", half)
            half = self.ffn(i, self.norm(p + "ffn_norm", x))
            x = x + self.norm(p + "post_ffw_norm", half)
        x = self.norm("output_norm", x)
        y = x @ self.tensors.get("output.weight", self.tensors["token_embd.weight"]).T
        cap = self.fields.get("final_logit_softcapping")
        return cap * numpy.tanh(y / cap) if cap else y
