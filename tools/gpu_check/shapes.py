"""The models and step sizes that stages step and peer time, and the arithmetic of their figures."""
import json
import re

WARM_UP, TIMED = 1, 3  # steps: the first has no update yet
QWEN2 = {"architectures": ["Qwen2ForCausalLM"], "model_type": "qwen2", "hidden_act": "silu",
         "max_position_embeddings": 32768, "rms_norm_eps": 1e-6, "rope_theta": 1000000.0,
         "use_sliding_window": False, "torch_dtype": "bfloat16", "bos_token_id": 1, "eos_token_id": 2}
MODELS = {
    "1.5b": {**QWEN2, "hidden_size": 1536, "intermediate_size": 8960, "num_hidden_layers": 28,
             "num_attention_heads": 12, "num_key_value_heads": 2, "vocab_size": 151936, "tie_word_embeddings": True},
    "7b": {**QWEN2, "hidden_size": 3584, "intermediate_size": 18944, "num_hidden_layers": 28,
           "num_attention_heads": 28, "num_key_value_heads": 4, "vocab_size": 152064, "tie_word_embeddings": False},
}
# What stands for both in a rehearsal.
TINY = {**QWEN2, "hidden_size": 32, "intermediate_size": 96, "num_hidden_layers": 2, "num_attention_heads": 2,
        "num_key_value_heads": 1, "vocab_size": 260, "tie_word_embeddings": False}
# Sequences of a micro-batch, micro-batches of a step; of LENGTH tokens each.
STEPS = {"4k": (1, 1), "16k": (4, 1), "64k": (4, 4)}
LENGTH, TINY_LENGTH = 4096, 16

# Dense bf16 FLOP/s of NVIDIA's data sheets, by a part of the name; offload/gpus.c has the sources.
DATA_SHEET = {"B200": 2250e12, "H200": 989.4e12, "H100 PCIe": 756e12, "H100": 989.4e12, "H20": 148e12,
              "A100": 312e12, "L40S": 362.1e12, "RTX 4090": 165.2e12, "RTX 5090": 209.5e12, "RTX 3090": 71.2e12}


def config(check, model):
    return TINY if check.fake else MODELS[model]


def length(check):
    return TINY_LENGTH if check.fake else LENGTH


def tokens_of(check, size):
    batch, micros = STEPS[size]
    return batch * micros * length(check)


def parameters(check, model):
    """(all, those that multiply each token: without the embedding's table, with the head)"""
    c = config(check, model)
    h, f, layers = c["hidden_size"], c["intermediate_size"], c["num_hidden_layers"]
    head_dim = h // c["num_attention_heads"]
    kv = head_dim * c["num_key_value_heads"]
    layer = 2 * h * h + 2 * h * kv + h + 2 * kv + 3 * h * f + 2 * h
    table = c["vocab_size"] * h
    return layers * layer + h + table * (1 if c["tie_word_embeddings"] else 2), layers * layer + h + table


def data_sheet(name):
    for part, flops in sorted(DATA_SHEET.items(), key=lambda row: -len(row[0])):
        if part in name:
            return flops
    return None


def profile(check):
    with open(check.path("machine.json"), encoding="utf-8") as f:
        return json.load(f)


def utilisation(check, model, size, seconds):
    """6NT over the time, as shares of the data sheet's rate and of the measured products'."""
    machine = profile(check)
    flops = 6 * parameters(check, model)[1] * tokens_of(check, size) / seconds
    sheet = data_sheet(machine.get("device", ""))
    return {"model_flops_per_s": flops, "mfu_of_data_sheet": flops / sheet if sheet else None,
            "mfu_of_measured_products": flops / machine["device_bf16_flops"]}


def planned_bytes(output):
    """{tier: bytes} of what train says before it starts."""
    found = re.findall(r"^(device|host|nvme) .*\((\d+) bytes\)", output, re.MULTILINE)
    return {tier: int(n) for tier, n in found}


def median(values):
    values = sorted(values)
    return values[len(values) // 2]


