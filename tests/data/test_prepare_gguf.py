"""GGUF files by the package's own reader: names, shapes, numbers, the order of the
heads' rows, tokens and their kinds; what cannot be written is refused.
"""

import json
import struct
import sys
import unittest

from prepare_case import Case, main

try:
    import gguf
    import numpy
except ImportError as error:
    print(f"skipped: {error} (tools/setup)")
    sys.exit(77)

HEADS, KV_HEADS, DIM, HIDDEN, FFN, LAYERS, ROWS = 4, 2, 16, 64, 96, 2, 304
N_EXPERTS = 12  # two digits: their order is that of numbers
EXPERTS = {"mixtral": ("block_sparse_moe.gate.weight", "block_sparse_moe.experts", "w1", "w3", "w2"),
           "qwen3_moe": ("mlp.gate.weight", "mlp.experts", "gate_proj", "up_proj", "down_proj")}


def config(kind="llama", **more):
    return {"model_type": kind, "hidden_size": HIDDEN, "intermediate_size": FFN, "num_attention_heads": HEADS,
            "num_key_value_heads": KV_HEADS, "num_hidden_layers": LAYERS, "vocab_size": ROWS,
            "max_position_embeddings": 128, "rms_norm_eps": 1e-5, "rope_theta": 5000.0,
            "tie_word_embeddings": True, **more}


def tensors(kind):
    draw = numpy.random.default_rng(7)
    shapes = {"model.embed_tokens.weight": (ROWS, HIDDEN), "model.norm.weight": (HIDDEN,)}
    for i in range(LAYERS):
        p = f"model.layers.{i}."
        shapes |= {p + "input_layernorm.weight": (HIDDEN,), p + "post_attention_layernorm.weight": (HIDDEN,),
                   p + "self_attn.q_proj.weight": (HEADS * DIM, HIDDEN),
                   p + "self_attn.k_proj.weight": (KV_HEADS * DIM, HIDDEN),
                   p + "self_attn.v_proj.weight": (KV_HEADS * DIM, HIDDEN),
                   p + "self_attn.o_proj.weight": (HIDDEN, HEADS * DIM)}
        if kind in EXPERTS:
            router, experts, gate, up, down = EXPERTS[kind]
            shapes[p + router] = (N_EXPERTS, HIDDEN)
            for e in range(N_EXPERTS):
                shapes |= {f"{p}{experts}.{e}.{gate}.weight": (FFN, HIDDEN),
                           f"{p}{experts}.{e}.{up}.weight": (FFN, HIDDEN),
                           f"{p}{experts}.{e}.{down}.weight": (HIDDEN, FFN)}
        else:
            shapes |= {p + "mlp.gate_proj.weight": (FFN, HIDDEN), p + "mlp.up_proj.weight": (FFN, HIDDEN),
                       p + "mlp.down_proj.weight": (HIDDEN, FFN)}
        if kind in ("olmo2", "qwen3_moe"):
            heads = {"q": HEADS, "k": KV_HEADS} if kind == "olmo2" else {"q": 1, "k": 1}
            shapes |= {p + f"self_attn.{n}_norm.weight": (heads[n] * DIM,) for n in "qk"}
        if kind == "olmo2":
            del shapes[p + "input_layernorm.weight"]
            shapes[p + "post_feedforward_layernorm.weight"] = (HIDDEN,)
        if kind == "qwen2":
            shapes[p + "self_attn.q_proj.bias"] = (HEADS * DIM,)
    return {name: draw.standard_normal(shape).astype(numpy.float32) for name, shape in shapes.items()}


def rotate(x, position, halves):
    """A head's vector, rotated by halves (transformers) or neighbours (llama.cpp)."""
    angle = position * 5000.0 ** (-numpy.arange(0, DIM, 2) / DIM)
    a, b = (x[:DIM // 2], x[DIM // 2:]) if halves else (x[0::2], x[1::2])
    turned = a * numpy.cos(angle) - b * numpy.sin(angle), a * numpy.sin(angle) + b * numpy.cos(angle)
    return numpy.concatenate(turned) if halves else numpy.stack(turned, 1).ravel()


class Gguf(Case):
    def checkpoint(self, kind="llama", **more):
        folder = self.model()
        held = tensors(kind)
        (folder / "config.json").write_text(json.dumps(config(kind, **more)))
        header, body = {}, b""
        for name, tensor in held.items():
            header[name] = {"dtype": "F32", "shape": list(tensor.shape),
                            "data_offsets": [len(body), len(body) + tensor.nbytes]}
            body += tensor.tobytes()
        head = json.dumps(header).encode()
        (folder / "model.safetensors").write_bytes(struct.pack("<Q", len(head)) + head + body)
        return folder, held

    def write_gguf(self, folder, kind):
        path = self.folder / f"{kind}.gguf"
        self.tool("--tokenizer", folder, "--gguf", kind, "-o", path)
        reader = gguf.GGUFReader(path)
        return ({name: field.contents() for name, field in reader.fields.items()},
                {t.name: (t.tensor_type, gguf.quants.dequantize(t.data, t.tensor_type)) for t in reader.tensors})

    def test_numbers(self):
        folder, held = self.checkpoint()
        bounds = {"F32": 0, "F16": 2 ** -11, "BF16": 2 ** -8, "Q8_0": 1 / 127}
        for kind, bound in bounds.items():
            fields, got = self.write_gguf(folder, kind)
            self.assertEqual(fields["general.architecture"], "llama")
            self.assertEqual(len(got), len(held))
            down, (form, numbers) = held["model.layers.1.mlp.down_proj.weight"], got["blk.1.ffn_down.weight"]
            self.assertEqual(form.name, kind)
            self.assertEqual(numbers.shape, down.shape)
            scale = numpy.abs(down) if kind != "Q8_0" else numpy.abs(down).max()
            self.assertTrue((numpy.abs(numbers - down) <= bound * scale).all(), kind)
            form, norm = got["output_norm.weight"]
            self.assertEqual(form.name, "F32")
            self.assertTrue((norm == held["model.norm.weight"]).all())

    def test_head_order(self):
        """What attention multiplies is the same, though each rotates in its own way."""
        folder, held = self.checkpoint()
        _, got = self.write_gguf(folder, "F32")
        x, y = numpy.random.default_rng(1).standard_normal((2, HIDDEN))
        for head in range(HEADS):
            kv = head // (HEADS // KV_HEADS)
            scores = []
            for weights, halves in ((held, True), (got, False)):
                q = weights["model.layers.0.self_attn.q_proj.weight"] if halves else got["blk.0.attn_q.weight"][1]
                k = weights["model.layers.0.self_attn.k_proj.weight"] if halves else got["blk.0.attn_k.weight"][1]
                q, k = (q @ x)[head * DIM:][:DIM], (k @ y)[kv * DIM:][:DIM]
                scores.append(rotate(q, 9, halves) @ rotate(k, 4, halves))
            self.assertAlmostEqual(scores[0], scores[1], places=3)

    def test_qwen_keeps_its_order(self):
        folder, held = self.checkpoint("qwen2")
        fields, got = self.write_gguf(folder, "F16")
        self.assertEqual(fields["general.architecture"], "qwen2")
        bias = got["blk.0.attn_q.bias"]
        self.assertEqual(bias[0].name, "F32")
        self.assertTrue((bias[1] == held["model.layers.0.self_attn.q_proj.bias"]).all())
        self.assertTrue(numpy.allclose(got["blk.0.attn_q.weight"][1],
                                       held["model.layers.0.self_attn.q_proj.weight"], atol=4e-3))

    def experts(self, kind, architecture, **more):
        """A layer's experts are one tensor, in the order of their numbers."""
        folder, held = self.checkpoint(kind, num_experts_per_tok=2, **more)
        fields, got = self.write_gguf(folder, "F32")
        self.assertEqual(fields["general.architecture"], architecture)
        self.assertEqual(fields[f"{architecture}.expert_count"], N_EXPERTS)
        self.assertEqual(fields[f"{architecture}.expert_used_count"], 2)
        router, experts, *maps = EXPERTS[kind]
        for name, new in zip(maps, ("gate", "up", "down")):
            stacked = got[f"blk.1.ffn_{new}_exps.weight"][1]
            self.assertEqual(len(stacked), N_EXPERTS)
            for e, one in enumerate(stacked):
                self.assertTrue((one == held[f"model.layers.1.{experts}.{e}.{name}.weight"]).all(), (name, e))
        self.assertTrue((got["blk.0.ffn_gate_inp.weight"][1] == held[f"model.layers.0.{router}"]).all())
        _, got = self.write_gguf(folder, "Q8_0")
        self.assertEqual(got["blk.0.ffn_down_exps.weight"][0].name, "Q8_0")
        return fields

    def test_mixtral(self):
        self.experts("mixtral", "llama", num_local_experts=N_EXPERTS)

    def test_qwen3_moe(self):
        fields = self.experts("qwen3_moe", "qwen3moe", num_experts=N_EXPERTS, norm_topk_prob=True,
                              moe_intermediate_size=FFN)
        self.assertEqual(fields["qwen3moe.expert_feed_forward_length"], FFN)

    def test_weights_of_experts_that_gguf_cannot_say(self):
        folder, _ = self.checkpoint("qwen3_moe", num_experts=N_EXPERTS, num_experts_per_tok=2)
        self.refused("norm_topk_prob", "--tokenizer", folder, "--gguf", "F16", "-o", self.folder / "x.gguf")

    def test_olmo2(self):
        folder, held = self.checkpoint("olmo2")
        fields, got = self.write_gguf(folder, "F32")
        self.assertEqual(fields["general.architecture"], "olmo2")
        self.assertEqual(len(got), len(held))
        for name, new in (("self_attn.q_norm", "attn_q_norm"), ("post_attention_layernorm", "post_attention_norm"),
                          ("post_feedforward_layernorm", "post_ffw_norm"), ("self_attn.q_proj", "attn_q")):
            self.assertTrue((got[f"blk.1.{new}.weight"][1] == held[f"model.layers.1.{name}.weight"]).all(), name)

    def test_words_and_numbers(self):
        folder, _ = self.checkpoint()
        fields, _ = self.write_gguf(folder, "F16")
        tokens, kinds = fields["tokenizer.ggml.tokens"], fields["tokenizer.ggml.token_type"]
        self.assertEqual(len(tokens), ROWS)
        self.assertEqual((tokens[0], kinds[0], tokens[1], kinds[1]), ("<s>", 3, "</s>", 3))
        self.assertEqual(kinds[2], 1)
        self.assertEqual((tokens[-1], kinds[-1]), (f"[PAD{ROWS - 1}]", 5))
        self.assertEqual(fields["tokenizer.ggml.model"], "gpt2")
        self.assertEqual(fields["tokenizer.ggml.pre"], "gpt-2")
        self.assertEqual(fields["tokenizer.ggml.eos_token_id"], 1)
        self.assertEqual(fields["llama.attention.head_count_kv"], KV_HEADS)
        self.assertEqual(fields["llama.rope.freq_base"], 5000.0)
        self.assertEqual(fields["llama.context_length"], 128)

    def test_llama3_frequencies(self):
        scaling = {"rope_type": "llama3", "factor": 8.0, "low_freq_factor": 1.0, "high_freq_factor": 4.0,
                   "original_max_position_embeddings": 64}
        folder, _ = self.checkpoint(rope_scaling=scaling)
        _, got = self.write_gguf(folder, "F16")
        factors = got["rope_freqs.weight"][1]
        self.assertEqual(factors.shape, (DIM // 2,))
        self.assertEqual((factors[0], factors[-1]), (1, 8))
        self.assertTrue((numpy.diff(factors) >= 0).all())

    def test_refused(self):
        folder, _ = self.checkpoint("gemma2")
        self.refused("is not written to GGUF", "--tokenizer", folder, "--gguf", "F16", "-o", self.folder / "x.gguf")
        self.refused("takes no data", "--tokenizer", folder, "--gguf", "F16", code=2)
        self.assertEqual(list(self.folder.glob("*.gguf")) + list(self.folder.glob(".*.tmp")), [])


if __name__ == "__main__":
    main()
