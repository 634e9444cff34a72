"""GGUF files by the package's own reader: names, shapes, numbers, the order of the
heads' rows, tokens and their kinds; what cannot be written is refused.
"""

import json
import shutil
import struct
import sys
import unittest

from prepare_case import ROOT, Case, main

try:
    import gguf
    import numpy
except ImportError as error:
    print(f"skipped: {error} (tools/setup)")
    sys.exit(77)

from gguf_forward import Model

FIXTURES = ROOT / "tests/fixtures/models"
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


def read_safetensors(path):
    data = path.read_bytes()
    n = int.from_bytes(data[:8], "little")
    forms = {"F32": "<f4", "F64": "<f8", "I32": "<i4", "BF16": "<u2"}
    held = {}
    for name, entry in json.loads(data[8:8 + n]).items():
        if name == "__metadata__":
            continue
        begin, end = entry["data_offsets"]
        raw = numpy.frombuffer(data[8 + n + begin:8 + n + end], forms[entry["dtype"]])
        if entry["dtype"] == "BF16":
            raw = (raw.astype("<u4") << 16).view("<f4")
        held[name] = raw.reshape(entry["shape"])
    return held


def write_safetensors(path, held):
    header, body = {}, b""
    for name, tensor in held.items():
        header[name] = {"dtype": "F32", "shape": list(tensor.shape),
                        "data_offsets": [len(body), len(body) + tensor.nbytes]}
        body += tensor.astype("<f4").tobytes()
    head = json.dumps(header).encode()
    path.write_bytes(struct.pack("<Q", len(head)) + head + body)


class Gguf(Case):
    def checkpoint(self, kind="llama", **more):
        folder = self.model()
        held = tensors(kind)
        (folder / "config.json").write_text(json.dumps(config(kind, **more)))
        write_safetensors(folder / "model.safetensors", held)
        return folder, held

    def fixture(self, name, **change):
        """A model of tests/fixtures, with its tensors and golden logits; it is given a tokenizer."""
        folder = self.model(name)
        held = read_safetensors(FIXTURES / name / "model.safetensors")
        settings = {**json.loads((FIXTURES / name / "config.json").read_text()), **change}
        (folder / "config.json").write_text(json.dumps(settings))
        write_safetensors(folder / "model.safetensors", held)
        return folder, held, read_safetensors(FIXTURES / name / "golden.safetensors")

    def assert_logits(self, folder, golden):
        """What llama.cpp computes of the file is what transformers does of the directory."""
        fields, got = self.write_gguf(folder, "F32")
        model, borders = Model(fields, got), golden["doc_begin"]
        for begin, end in zip(borders, borders[1:]):
            found = model.logits(golden["ids"][begin:end])
            self.assertLess(numpy.abs(found - golden["logits"][begin:end]).max(),
                            2e-5 * numpy.abs(golden["logits"]).max(), folder.name)
        return fields, got

    def write_gguf(self, folder, kind):
        path = self.folder / f"{kind}.gguf"
        self.tool("--tokenizer", folder, "--gguf", kind, "-o", path)
        reader = gguf.GGUFReader(path)
        return ({name: field.contents() for name, field in reader.fields.items()},
                {t.name: (t.tensor_type, gguf.quants.dequantize(t.data, t.tensor_type)) for t in reader.tensors})

    def test_logits(self):
        """Of each architecture, and of every kind of rotation."""
        for name in ("llama", "llama-tied", "llama-bias", "llama-head-dim", "llama-rope-linear", "llama-rope-llama3",
                     "llama-rope-yarn", "mistral", "mixtral", "olmo2", "phi3", "qwen2", "qwen3", "gpt2"):
            with self.subTest(name):
                folder, held, golden = self.fixture(name)
                fields, got = self.assert_logits(folder, golden)
                if name != "mixtral":  # its experts are one tensor, phi3's and llama3's factors more
                    factors = [n for n in got if n.startswith("rope_")]
                    self.assertEqual(len(got) - len(factors), len(held))

    def test_gpt2(self):
        folder, held, _ = self.fixture("gpt2")
        fields, got = self.write_gguf(folder, "F32")
        self.assertEqual({k: v for k, v in fields.items() if k.startswith(("gpt2.", "general.arch"))}, {
            "general.architecture": "gpt2", "gpt2.vocab_size": 71, "gpt2.context_length": 64,
            "gpt2.embedding_length": 36, "gpt2.block_count": 2, "gpt2.feed_forward_length": 144,
            "gpt2.attention.head_count": 3, "gpt2.attention.layer_norm_epsilon": fields["gpt2.attention.layer_norm_epsilon"]})
        self.assertAlmostEqual(fields["gpt2.attention.layer_norm_epsilon"], 1e-3)
        names = {"wte.weight": "token_embd.weight", "wpe.weight": "position_embd.weight",
                 "ln_f.weight": "output_norm.weight", "ln_f.bias": "output_norm.bias"}
        for i in range(2):
            for old, new in (("ln_1", "attn_norm"), ("attn.c_attn", "attn_qkv"), ("attn.c_proj", "attn_output"),
                             ("ln_2", "ffn_norm"), ("mlp.c_fc", "ffn_up"), ("mlp.c_proj", "ffn_down")):
                names |= {f"h.{i}.{old}.{last}": f"blk.{i}.{new}.{last}" for last in ("weight", "bias")}
        self.assertEqual(set(got), set(names.values()))
        for old, new in names.items():
            there = held["transformer." + old]
            there = there.T if ".c_" in old and there.ndim == 2 else there
            self.assertTrue((got[new][1] == there).all(), new)
        self.assertEqual(self.write_gguf(folder, "Q8_0")[1]["position_embd.weight"][0].name, "F32")

    def test_gpt2_with_masks_and_a_head(self):
        """Buffers of attention are no parameters; exact gelu is refused."""
        folder, held, golden = self.fixture("gpt2")
        bare = {name.removeprefix("transformer."): t for name, t in held.items()}
        bare["h.0.attn.bias"] = numpy.ones((1, 1, 64, 64), numpy.float32)
        bare["h.1.attn.masked_bias"] = numpy.ones((1,), numpy.float32)
        write_safetensors(folder / "model.safetensors", bare)
        _, got = self.assert_logits(folder, golden)
        self.assertEqual(len(got), len(held))
        folder, _, golden = self.fixture("gpt2-gelu")
        self.refuse("activation_function is gelu, not gelu_new", folder)
        config = json.loads((folder / "config.json").read_text())
        (folder / "config.json").write_text(json.dumps({**config, "activation_function": "gelu_new"}))
        _, got = self.write_gguf(folder, "F32")
        self.assertIn("output.weight", got)

    def test_gemma2(self):
        """Its fixture's scores are scaled by another number than llama.cpp's: the queries make up for it."""
        folder, held, golden = self.fixture("gemma2")
        self.refuse("query_pre_attn_scalar is 10, not 14", folder)
        config = json.loads((folder / "config.json").read_text())
        (folder / "config.json").write_text(json.dumps({**config, "query_pre_attn_scalar": 14}))
        scaled = {n: t * numpy.float32(1.4 ** 0.5) if "q_proj" in n else t for n, t in held.items()}
        write_safetensors(folder / "model.safetensors", scaled)
        fields, got = self.assert_logits(folder, golden)
        self.assertEqual([fields["gemma2." + k] for k in (
            "attention.sliding_window", "attn_logit_softcapping", "final_logit_softcapping", "attention.key_length",
            "attention.head_count_kv", "feed_forward_length")], [6, 4.0, 12.0, 14, 2, 52])
        for old, new in (("input_layernorm", "attn_norm"), ("post_attention_layernorm", "post_attention_norm"),
                         ("pre_feedforward_layernorm", "ffn_norm"), ("post_feedforward_layernorm", "post_ffw_norm")):
            self.assertTrue((got[f"blk.2.{new}.weight"][1] == held[f"model.layers.2.{old}.weight"] + 1).all())
        self.assertTrue((got["output_norm.weight"][1] == held["model.norm.weight"] + 1).all())
        self.assertTrue((got["blk.1.attn_q.weight"][1] == scaled["model.layers.1.self_attn.q_proj.weight"]).all())
        self.assertNotIn("output.weight", got)

    def test_gemma2_that_gguf_cannot_say(self):
        for change, why in (({"final_logit_softcapping": None}, "final_logit_softcapping is null"),
                            ({"attn_logit_softcapping": None}, "attn_logit_softcapping is null"),
                            ({"tie_word_embeddings": False}, "tie_word_embeddings"),
                            ({"layer_types": ["full_attention"] * 3}, "layer_types"),
                            ({"hidden_activation": "gelu"}, "hidden_activation is gelu")):
            folder, _, _ = self.fixture("gemma2", query_pre_attn_scalar=14, **change)
            self.refuse(why, folder)
            shutil.rmtree(folder)

    def test_phi3(self):
        folder, held, _ = self.fixture("phi3")
        fields, got = self.write_gguf(folder, "F16")
        self.assertEqual([fields["phi3." + k] for k in (
            "rope.dimension_count", "rope.scaling.type", "rope.scaling.original_context_length", "context_length",
            "feed_forward_length", "attention.head_count_kv")], [6, "longrope", 8, 64, 60, 2])
        # sqrt(1 + ln 8 / ln 8)
        self.assertAlmostEqual(fields["phi3.rope.scaling.attn_factor"], 2 ** 0.5, places=6)
        for which, factors in (("long", [1.5, 4.0, 7.5]), ("short", [1.0, 1.25, 1.5])):
            form, numbers = got[f"rope_factors_{which}.weight"]
            self.assertEqual((form.name, numbers.tolist()), ("F32", factors))
        for old, new in (("self_attn.qkv_proj", "attn_qkv"), ("mlp.gate_up_proj", "ffn_up"),
                         ("self_attn.o_proj", "attn_output"), ("mlp.down_proj", "ffn_down")):
            there = held[f"model.layers.1.{old}.weight"]
            self.assertTrue((got[f"blk.1.{new}.weight"][1] == there.astype(numpy.float16)).all(), new)
        rope = json.loads((folder / "config.json").read_text())["rope_scaling"]
        for change, why in (({"long_factor": [1, 2]}, "long_factor is no list of 3"), ({"type": "dynamic"}, "dynamic")):
            shutil.rmtree(folder)
            folder, _, _ = self.fixture("phi3", rope_scaling={**rope, **change})
            self.refuse(why, folder)

    def test_windows_are_noted(self):
        folder, _, _ = self.fixture("mistral-window")
        done = self.tool("--tokenizer", folder, "--gguf", "F16", "-o", self.folder / "x.gguf")
        self.assertIn("no window of 6 tokens", done.stderr)
        folder, _, _ = self.fixture("qwen2")  # has one that is not used
        done = self.tool("--tokenizer", folder, "--gguf", "F16", "-o", self.folder / "x.gguf")
        self.assertNotIn("window", done.stderr)

    def refuse(self, why, folder, kind="F16"):
        self.refused(why, "--tokenizer", folder, "--gguf", kind, "-o", self.folder / "x.gguf")
        self.assertEqual(list(self.folder.glob("x.gguf")), [])

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
        self.assertEqual(got["blk.0.ffn_gate_inp.weight"][0].name, "F32")
        return fields

    def test_mixtral(self):
        self.experts("mixtral", "llama", num_local_experts=N_EXPERTS)

    def test_qwen3_moe(self):
        fields = self.experts("qwen3_moe", "qwen3moe", num_experts=N_EXPERTS, norm_topk_prob=True,
                              moe_intermediate_size=FFN)
        self.assertEqual(fields["qwen3moe.expert_feed_forward_length"], FFN)

    def test_experts_that_gguf_cannot_say(self):
        """Both kinds of the fixtures: layers without experts, weights that do not sum to 1."""
        folder, _, _ = self.fixture("qwen3-moe")
        self.refuse("some layers have no experts", folder)
        folder, _, _ = self.fixture("qwen3-moe-step")
        self.refuse("norm_topk_prob", folder)

    def test_biases_that_gguf_cannot_say(self):
        folder, held, _ = self.fixture("qwen3")
        held["model.layers.0.self_attn.q_proj.bias"] = numpy.zeros(64, numpy.float32)
        write_safetensors(folder / "model.safetensors", held)
        self.refuse("no bias model.layers.0.self_attn.q_proj.bias", folder)

    def test_an_expert_that_is_missing(self):
        folder, held = self.checkpoint("mixtral", num_local_experts=N_EXPERTS, num_experts_per_tok=2)
        del held["model.layers.1.block_sparse_moe.experts.3.w1.weight"]
        write_safetensors(folder / "model.safetensors", held)
        self.refuse("of experts there are only", folder)

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

    def test_blanks_in_front(self):
        """Byte-fallback tokenizers: whether text gets a blank in front is told by tokenizer.json."""
        for said, expected in (({"normalizer": {"type": "Sequence", "normalizers": [
                {"type": "Prepend", "prepend": "\u2581"},
                {"type": "Replace", "pattern": {"String": " "}, "content": "\u2581"}]}}, True),
                ({"normalizer": {"type": "Replace", "pattern": {"String": " "}, "content": "\u2581"}}, False)):
            folder, _ = self.checkpoint()
            path = folder / "tokenizer.json"
            words = json.loads(path.read_text())
            words["model"]["byte_fallback"] = True
            path.write_text(json.dumps({**words, **said, "pre_tokenizer": None}))
            fields, _ = self.write_gguf(folder, "F16")
            self.assertEqual(fields["tokenizer.ggml.model"], "llama")
            self.assertEqual(fields["tokenizer.ggml.add_space_prefix"], expected)
            shutil.rmtree(folder)

    def test_refused(self):
        folder, held = self.checkpoint("bert")
        self.refuse("a bert model is not written to GGUF", folder)
        self.refused("takes no data", "--tokenizer", folder, "--gguf", "F16", code=2)
        self.refused("is no model directory", "--tokenizer", folder / "tokenizer.json", "--gguf", "F16", "-o",
                     self.folder / "x.gguf")

    def test_damaged(self):
        """Each is one line, whatever is wrong with the directory."""
        folder, held = self.checkpoint()
        weights, whole = folder / "model.safetensors", (folder / "model.safetensors").read_bytes()
        settings = config()
        for name, value in (("hidden_size", None), ("num_attention_heads", "4"), ("rope_theta", "x"),
                            ("rope_scaling", [1]), ("hidden_act", "gelu"), ("max_position_embeddings", 0)):
            (folder / "config.json").write_text(json.dumps({**settings, name: value}))
            self.refuse(name.replace("hidden_act", "hidden_act is gelu"), folder)
        for text in ("[]", "{", '{"a": ' + "[" * 100000):
            (folder / "config.json").write_text(text)
            self.refuse("config.json", folder)
        (folder / "config.json").write_text(json.dumps(settings))
        n = int.from_bytes(whole[:8], "little")
        for damaged, why in ((whole[:-1], "download it again"), (whole[:7], "download it again"), (b"", "download it again"),
                             (whole[:8] + b"x" * n + whole[8 + n:], "is not JSON"),
                             (struct.pack("<Q", 2) + b"{}", "no tensor"),
                             (struct.pack("<Q", 8) + b'{"a": 1}', "not described"),
                             (whole.replace(b'"F32"', b'"F99"', 1), "is none of F32")):
            weights.write_bytes(damaged)
            self.refuse(why, folder)
        extra = {**held, "model.layers.0.self_attn.q_proj.strange": held["model.norm.weight"]}
        write_safetensors(weights, extra)
        self.refuse("has no name in GGUF", folder)
        held["model.norm.weight"][0] = 1e5  # a vector: it stays F32
        write_safetensors(weights, held)
        self.write_gguf(folder, "F16")
        held["model.layers.0.mlp.up_proj.weight"][3, 2] = -1e5
        write_safetensors(weights, held)
        self.refuse("the number 100000, which F16 cannot hold", folder)
        self.write_gguf(folder, "BF16")


if __name__ == "__main__":
    main()
