/* family_moe.c: families whose MLP is a mixture of experts: mixtral, and
 * qwen3_moe, which is qwen3 with experts in some of its layers or all. */
#include "src/model/family.h"

/* ---- mixtral ---- */

static const struct pen_family_tensor mixtral_tensors[] = {
  {PEN_ROLE_ATTN_NORM, "input_layernorm.weight", PEN_DIM_HIDDEN, PEN_DIM_ONE,
   PEN_ALWAYS},
  {PEN_ROLE_MLP_NORM, "post_attention_layernorm.weight", PEN_DIM_HIDDEN,
   PEN_DIM_ONE, PEN_ALWAYS},
  {PEN_ROLE_Q, "self_attn.q_proj.weight", PEN_DIM_Q, PEN_DIM_HIDDEN,
   PEN_ALWAYS},
  {PEN_ROLE_K, "self_attn.k_proj.weight", PEN_DIM_KV, PEN_DIM_HIDDEN,
   PEN_ALWAYS},
  {PEN_ROLE_V, "self_attn.v_proj.weight", PEN_DIM_KV, PEN_DIM_HIDDEN,
   PEN_ALWAYS},
  {PEN_ROLE_O, "self_attn.o_proj.weight", PEN_DIM_HIDDEN, PEN_DIM_Q,
   PEN_ALWAYS},
  {PEN_ROLE_ROUTER, "block_sparse_moe.gate.weight", PEN_DIM_EXPERTS,
   PEN_DIM_HIDDEN, PEN_ALWAYS},
};

static const struct pen_family_tensor mixtral_expert[] = {
  {PEN_ROLE_GATE, "w1.weight", PEN_DIM_EXPERT_FFN, PEN_DIM_HIDDEN, PEN_ALWAYS},
  {PEN_ROLE_UP, "w3.weight", PEN_DIM_EXPERT_FFN, PEN_DIM_HIDDEN, PEN_ALWAYS},
  {PEN_ROLE_DOWN, "w2.weight", PEN_DIM_HIDDEN, PEN_DIM_EXPERT_FFN, PEN_ALWAYS},
};

static const struct pen_family_names mixtral_names = {
  .prefix = "model.",
  .layers = "layers",
  .tensors = mixtral_tensors,
  .n_tensors = sizeof mixtral_tensors / sizeof mixtral_tensors[0],
  .embed = "embed_tokens.weight",
  .final_norm = "norm.weight",
};

static const struct pen_family_mixture mixtral_mixture = {
  .names = "block_sparse_moe.experts",
  .tensors = mixtral_expert,
  .n_tensors = sizeof mixtral_expert / sizeof mixtral_expert[0],
  .n_key = "num_local_experts",
  .n_key_too = "num_experts",
  .always_normalises = true,
  .default_n = 8,
  .default_per_token = 2,
};

const struct pen_model_family pen_family_mixtral = {
  .model_type = "mixtral",
  .names = &mixtral_names,
  .keys = &pen_family_usual_keys,
  .mixture = &mixtral_mixture,
  .window = PEN_WINDOW_ALL_LAYERS,
  .default_kv_heads = 8,
  .default_positions = 131072,
  .default_norm_eps = 1e-5,
  .default_rope_theta = 1000000,
};

/* ---- qwen3_moe ---- */

static const struct pen_family_tensor qwen3_tensors[] = {
  {PEN_ROLE_ATTN_NORM, "input_layernorm.weight", PEN_DIM_HIDDEN, PEN_DIM_ONE,
   PEN_ALWAYS},
  {PEN_ROLE_Q_BIAS, "self_attn.q_proj.bias", PEN_DIM_Q, PEN_DIM_ONE,
   PEN_WITH_QKV_BIAS},
  {PEN_ROLE_K_BIAS, "self_attn.k_proj.bias", PEN_DIM_KV, PEN_DIM_ONE,
   PEN_WITH_QKV_BIAS},
  {PEN_ROLE_V_BIAS, "self_attn.v_proj.bias", PEN_DIM_KV, PEN_DIM_ONE,
   PEN_WITH_QKV_BIAS},
  {PEN_ROLE_Q_NORM, "self_attn.q_norm.weight", PEN_DIM_HEAD, PEN_DIM_ONE,
   PEN_WITH_QK_NORM},
  {PEN_ROLE_K_NORM, "self_attn.k_norm.weight", PEN_DIM_HEAD, PEN_DIM_ONE,
   PEN_WITH_QK_NORM},
  {PEN_ROLE_O_BIAS, "self_attn.o_proj.bias", PEN_DIM_HIDDEN, PEN_DIM_ONE,
   PEN_WITH_O_BIAS},
  {PEN_ROLE_MLP_NORM, "post_attention_layernorm.weight", PEN_DIM_HIDDEN,
   PEN_DIM_ONE, PEN_ALWAYS},
  {PEN_ROLE_Q, "self_attn.q_proj.weight", PEN_DIM_Q, PEN_DIM_HIDDEN,
   PEN_ALWAYS},
  {PEN_ROLE_K, "self_attn.k_proj.weight", PEN_DIM_KV, PEN_DIM_HIDDEN,
   PEN_ALWAYS},
  {PEN_ROLE_V, "self_attn.v_proj.weight", PEN_DIM_KV, PEN_DIM_HIDDEN,
   PEN_ALWAYS},
  {PEN_ROLE_O, "self_attn.o_proj.weight", PEN_DIM_HIDDEN, PEN_DIM_Q,
   PEN_ALWAYS},
  {PEN_ROLE_GATE, "mlp.gate_proj.weight", PEN_DIM_FFN, PEN_DIM_HIDDEN,
   PEN_ALWAYS},
  {PEN_ROLE_UP, "mlp.up_proj.weight", PEN_DIM_FFN, PEN_DIM_HIDDEN, PEN_ALWAYS},
  {PEN_ROLE_DOWN, "mlp.down_proj.weight", PEN_DIM_HIDDEN, PEN_DIM_FFN,
   PEN_ALWAYS},
  {PEN_ROLE_ROUTER, "mlp.gate.weight", PEN_DIM_EXPERTS, PEN_DIM_HIDDEN,
   PEN_ALWAYS},
};

static const struct pen_family_tensor qwen3_expert[] = {
  {PEN_ROLE_GATE, "gate_proj.weight", PEN_DIM_EXPERT_FFN, PEN_DIM_HIDDEN,
   PEN_ALWAYS},
  {PEN_ROLE_UP, "up_proj.weight", PEN_DIM_EXPERT_FFN, PEN_DIM_HIDDEN,
   PEN_ALWAYS},
  {PEN_ROLE_DOWN, "down_proj.weight", PEN_DIM_HIDDEN, PEN_DIM_EXPERT_FFN,
   PEN_ALWAYS},
};

static const struct pen_family_names qwen3_names = {
  .prefix = "model.",
  .layers = "layers",
  .tensors = qwen3_tensors,
  .n_tensors = sizeof qwen3_tensors / sizeof qwen3_tensors[0],
  .embed = "embed_tokens.weight",
  .final_norm = "norm.weight",
};

static const struct pen_family_mixture qwen3_mixture = {
  .names = "mlp.experts",
  .tensors = qwen3_expert,
  .n_tensors = sizeof qwen3_expert / sizeof qwen3_expert[0],
  .n_key = "num_experts",
  .n_key_too = "num_local_experts",
  .ffn_key = "moe_intermediate_size",
  .some_layers = true,
  .default_n = 128,
  .default_per_token = 8,
  .default_ffn = 768,
};

const struct pen_model_family pen_family_qwen3_moe = {
  .model_type = "qwen3_moe",
  .names = &qwen3_names,
  .keys = &pen_family_usual_keys,
  .mixture = &qwen3_mixture,
  .qk_norm = true,
  .qkv_bias = PEN_BIAS_BY_CONFIG,
  .o_bias = PEN_BIAS_BY_CONFIG,
  .window = PEN_WINDOW_OPT_IN_ALL_LAYERS,
  .default_window = 4096,
  .default_kv_heads = 4,
  .default_positions = 32768,
  .default_norm_eps = 1e-6,
  .default_rope_theta = 10000,
};
