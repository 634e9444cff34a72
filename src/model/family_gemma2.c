/* family_gemma2.c: Gemma 2: norms before and after both halves, their weights
 * counted from 1; soft caps on scores and logits; every other layer in a window;
 * a scaled embedding. */
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
  {PEN_ROLE_O_BIAS, "self_attn.o_proj.bias", PEN_DIM_HIDDEN, PEN_DIM_ONE,
   PEN_WITH_O_BIAS},
  {PEN_ROLE_ATTN_POST_NORM, "post_attention_layernorm.weight", PEN_DIM_HIDDEN,
   PEN_DIM_ONE, PEN_ALWAYS},
  {PEN_ROLE_MLP_NORM, "pre_feedforward_layernorm.weight", PEN_DIM_HIDDEN,
   PEN_DIM_ONE, PEN_ALWAYS},
  {PEN_ROLE_MLP_POST_NORM, "post_feedforward_layernorm.weight", PEN_DIM_HIDDEN,
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
};

static const struct pen_family_names names = {
  .prefix = "model.",
  .layers = "layers",
  .tensors = tensors,
  .n_tensors = sizeof tensors / sizeof tensors[0],
  .embed = "embed_tokens.weight",
  .final_norm = "norm.weight",
};

static const struct pen_family_keys keys = {
  .hidden = "hidden_size",
  .ffn = "intermediate_size",
  .layers = "num_hidden_layers",
  .heads = "num_attention_heads",
  .kv_heads = "num_key_value_heads",
  .head_dim = "head_dim",
  .positions = "max_position_embeddings",
  .norm_eps = "rms_norm_eps",
  .activation = "hidden_activation",
};

const struct pen_model_family pen_family_gemma2 = {
  .model_type = "gemma2",
  .names = &names,
  .keys = &keys,
  .norm_w_plus = 1,
  .qkv_bias = PEN_BIAS_BY_CONFIG,
  .o_bias = PEN_BIAS_BY_CONFIG,
  .window = PEN_WINDOW_EVEN_LAYERS,
  .scales_embedding = true,
  .softcaps = true,
  .default_activation = PEN_ACTIVATION_GELU_TANH,
  .default_window = 4096,
  .default_kv_heads = 4,
  .default_head_dim = 256,
  .default_positions = 8192,
  .default_query_scalar = 256,
  .default_tied = true,
  .default_norm_eps = 1e-6,
  .default_rope_theta = 10000,
  .default_attention_cap = 50,
  .default_final_cap = 30,
};
