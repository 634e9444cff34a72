/* family_olmo2.c: OLMo 2: norms of what attention and MLP give, none of what
 * they take; q and k normed over the whole row. */
#include "src/model/family.h"

static const struct pen_family_tensor tensors[] = {
  {PEN_ROLE_Q_BIAS, "self_attn.q_proj.bias", PEN_DIM_Q, PEN_DIM_ONE,
   PEN_WITH_QKV_BIAS},
  {PEN_ROLE_K_BIAS, "self_attn.k_proj.bias", PEN_DIM_KV, PEN_DIM_ONE,
   PEN_WITH_QKV_BIAS},
  {PEN_ROLE_V_BIAS, "self_attn.v_proj.bias", PEN_DIM_KV, PEN_DIM_ONE,
   PEN_WITH_QKV_BIAS},
  {PEN_ROLE_Q_NORM, "self_attn.q_norm.weight", PEN_DIM_Q, PEN_DIM_ONE,
   PEN_WITH_QK_NORM},
  {PEN_ROLE_K_NORM, "self_attn.k_norm.weight", PEN_DIM_KV, PEN_DIM_ONE,
   PEN_WITH_QK_NORM},
  {PEN_ROLE_O_BIAS, "self_attn.o_proj.bias", PEN_DIM_HIDDEN, PEN_DIM_ONE,
   PEN_WITH_O_BIAS},
  {PEN_ROLE_ATTN_POST_NORM, "post_attention_layernorm.weight", PEN_DIM_HIDDEN,
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

const struct pen_model_family pen_family_olmo2 = {
  .model_type = "olmo2",
  .names = &names,
  .keys = &pen_family_usual_keys,
  .qk_norm = true,
  .qkv_bias = PEN_BIAS_BY_CONFIG,
  .o_bias = PEN_BIAS_BY_CONFIG,
  .default_positions = 2048,
  .default_norm_eps = 1e-5,
  .default_rope_theta = 10000,
};
