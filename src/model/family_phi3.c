/* family_phi3.c: Phi-3 and its successors: llama with q, k, v in one matrix and
 * gate and up in another; longrope; part of each head may go unrotated. */
#include "src/model/family.h"

static const struct pen_family_tensor tensors[] = {
  {PEN_ROLE_ATTN_NORM, "input_layernorm.weight", PEN_DIM_HIDDEN, PEN_DIM_ONE,
   PEN_ALWAYS},
  {PEN_ROLE_MLP_NORM, "post_attention_layernorm.weight", PEN_DIM_HIDDEN,
   PEN_DIM_ONE, PEN_ALWAYS},
  {PEN_ROLE_Q, "self_attn.qkv_proj.weight", PEN_DIM_QKV, PEN_DIM_HIDDEN,
   PEN_ALWAYS},
  {PEN_ROLE_O, "self_attn.o_proj.weight", PEN_DIM_HIDDEN, PEN_DIM_Q,
   PEN_ALWAYS},
  {PEN_ROLE_GATE, "mlp.gate_up_proj.weight", PEN_DIM_GATE_AND_UP,
   PEN_DIM_HIDDEN, PEN_ALWAYS},
  {PEN_ROLE_DOWN, "mlp.down_proj.weight", PEN_DIM_HIDDEN, PEN_DIM_FFN,
   PEN_ALWAYS},
};

static const char *const buffers[] = {
  "layers.#.self_attn.rotary_emb.inv_freq", NULL};

static const struct pen_family_names names = {
  .prefix = "model.",
  .layers = "layers",
  .tensors = tensors,
  .n_tensors = sizeof tensors / sizeof tensors[0],
  .embed = "embed_tokens.weight",
  .final_norm = "norm.weight",
  .buffers = buffers,
};

const struct pen_model_family pen_family_phi3 = {
  .model_type = "phi3",
  .names = &names,
  .keys = &pen_family_usual_keys,
  .positions = PEN_POSITIONS_PARTLY_ROTARY,
  .window = PEN_WINDOW_ALL_LAYERS,
  .default_positions = 4096,
  .default_original_positions = 4096,
  .default_norm_eps = 1e-5,
  .default_rope_theta = 10000,
};
