/* family_llama.c: llama (SmolLM2, TinyLlama and whatever else says so), and
 * those that differ from it in biases, windows and defaults: mistral, qwen2,
 * qwen3. */
#include "src/model/family.h"

static const struct pen_family_tensor tensors[] = {
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
  {PEN_ROLE_GATE_BIAS, "mlp.gate_proj.bias", PEN_DIM_FFN, PEN_DIM_ONE,
   PEN_WITH_MLP_BIAS},
  {PEN_ROLE_UP_BIAS, "mlp.up_proj.bias", PEN_DIM_FFN, PEN_DIM_ONE,
   PEN_WITH_MLP_BIAS},
  {PEN_ROLE_DOWN_BIAS, "mlp.down_proj.bias", PEN_DIM_HIDDEN, PEN_DIM_ONE,
   PEN_WITH_MLP_BIAS},
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
};

/* Old files hold the inverse frequencies of their rotary embeddings. */
static const char *const buffers[] = {
  "layers.#.self_attn.rotary_emb.inv_freq", "rotary_emb.inv_freq", NULL};

static const struct pen_family_names names = {
  .prefix = "model.",
  .layers = "layers",
  .tensors = tensors,
  .n_tensors = sizeof tensors / sizeof tensors[0],
  .embed = "embed_tokens.weight",
  .final_norm = "norm.weight",
  .buffers = buffers,
};

const struct pen_model_family pen_family_llama = {
  .model_type = "llama",
  .names = &names,
  .keys = &pen_family_usual_keys,
  .qkv_bias = PEN_BIAS_BY_CONFIG,
  .o_bias = PEN_BIAS_BY_CONFIG,
  .mlp_bias = PEN_BIAS_BY_CONFIG,
  .default_positions = 2048,
  .default_norm_eps = 1e-6,
  .default_rope_theta = 10000,
};

const struct pen_model_family pen_family_mistral = {
  .model_type = "mistral",
  .names = &names,
  .keys = &pen_family_usual_keys,
  .window = PEN_WINDOW_ALL_LAYERS,
  .default_window = 4096,
  .default_kv_heads = 8,
  .default_positions = 131072,
  .default_norm_eps = 1e-6,
  .default_rope_theta = 10000,
};

const struct pen_model_family pen_family_qwen2 = {
  .model_type = "qwen2",
  .names = &names,
  .keys = &pen_family_usual_keys,
  .qkv_bias = PEN_BIAS_ALWAYS,
  .window = PEN_WINDOW_OPT_IN,
  .default_window = 4096,
  .default_kv_heads = 32,
  .default_positions = 32768,
  .default_norm_eps = 1e-6,
  .default_rope_theta = 10000,
};

const struct pen_model_family pen_family_qwen3 = {
  .model_type = "qwen3",
  .names = &names,
  .keys = &pen_family_usual_keys,
  .qk_norm = true,
  .qkv_bias = PEN_BIAS_BY_CONFIG,
  .o_bias = PEN_BIAS_BY_CONFIG,
  .window = PEN_WINDOW_OPT_IN,
  .default_window = 4096,
  .default_kv_heads = 32,
  .default_head_dim = 128,
  .default_positions = 32768,
  .default_norm_eps = 1e-6,
  .default_rope_theta = 10000,
};
