#!/usr/bin/env python3
"""Every kind of model trains, ends with the same bits wherever its bytes lie, and
can be read again.

    test_families.py PENSTOCK

One line that makes it red: positions left out of the inputs a device gets, a
post-norm's input that recomputing does not make again.
"""
from penstock import TILE, Job, log, main, succeed, test

STEPS = 8

# What of e2e/penstock.py's llama is another in each.
FAMILIES = {
    "gemma2": {"model_type": "gemma2", "head_dim": 24, "query_pre_attn_scalar": 20, "sliding_window": 9,
               "attn_logit_softcapping": 5.0, "final_logit_softcapping": 20.0},
    "gpt2": {"model_type": "gpt2", "n_embd": 64, "n_layer": 3, "n_head": 4, "n_positions": 64, "attn_pdrop": 0.1},
    "mistral with a window": {"model_type": "mistral", "sliding_window": 9},
    "mixtral": {"model_type": "mixtral", "intermediate_size": 96, "num_local_experts": 6,
                "output_router_logits": True, "router_aux_loss_coef": 0.05},
    "olmo2": {"model_type": "olmo2", "tie_word_embeddings": False},
    "phi3": {"model_type": "phi3", "original_max_position_embeddings": 16, "partial_rotary_factor": 0.5,
             "rope_scaling": {"type": "longrope", "short_factor": [1.0, 1.0, 1.5, 2.0],
                              "long_factor": [1.0, 2.0, 4.0, 8.0]}},
    "qwen2": {"model_type": "qwen2"},
    "qwen3": {"model_type": "qwen3", "head_dim": 32, "torch_dtype": "bfloat16"},
    "qwen3_moe": {"model_type": "qwen3_moe", "head_dim": 32, "torch_dtype": "bfloat16", "num_experts": 16,
                  "num_experts_per_tok": 2, "moe_intermediate_size": 48, "mlp_only_layers": [1]},
}
ON_DISK = ("--offload-optimizer", "nvme", "--offload-params", "nvme", "--offload-gradients", "nvme",
           "--offload-activations", "nvme", *TILE)


PLACES = {
    "disk": (*ON_DISK, "--recompute", "all"),
    "device": ("--host-mode", "discrete", "--group-size", "1", "--threads", "3"),
}
# Where experts are fetched only if routed to.
PLACES_OF_EXPERTS = {
    "device, all on disk": (*ON_DISK, "--host-mode", "discrete", "--group-size", "2", "--weight-slots", "1"),
    "groups of 1 on disk": ("--offload-params", "nvme", "--group-size", "1", "--weight-slots", "6"),
}


def same_everywhere(config):
    places = dict(PLACES, **(PLACES_OF_EXPERTS if "num_experts_per_tok" in config or "num_local_experts" in config
                             else {}))

    def body(folder):
        job = Job(f"{folder}/job", "--gradient-accumulation-steps", "2", steps=STEPS, **config)
        losses = [line["loss"] for line in log(job.straight()) if "loss" in line]
        assert losses[-1] < losses[0] - 0.5, losses
        for name, words in places.items():
            drive = ("--nvme-path", f"{folder}/nvme-{name}".replace(",", "")) if "nvme" in words else ()
            job.train(f"{folder}/{name}", *words, *drive)
            job.check(f"{folder}/{name}")
        succeed("verify", f"{job.straight()}/model")
        done = succeed("eval", "--model", f"{job.straight()}/model", "--data", job.data, "--max-length", "32")
        assert "loss" in done.stdout, done.stdout
    return body


for family, settings in FAMILIES.items():
    function = same_everywhere(settings)
    function.__name__ = family
    test(function)

main()
