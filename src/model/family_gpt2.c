/* family_gpt2.c: GPT-2 and what was made like it: layer norms, learned
 * positions, plain gelu, biases everywhere, matrices stored [in, out]
 * (Conv1D), q, k and v in one. */
#include "src/model/family.h"

static const struct pen_family_tensor tensors[] = {
  {PEN_ROLE_ATTN_NORM, "ln_1.weight", PEN_DIM_HIDDEN, PEN_DIM_ONE, PEN_ALWAYS},
  {PEN_ROLE_ATTN_NORM_BIAS, "ln_1.bias", PEN_DIM_HIDDEN, PEN_DIM_ONE,
   PEN_ALWAYS},
  {PEN_ROLE_Q_BIAS, "attn.c_attn.bias", PEN_DIM_QKV, PEN_DIM_ONE, PEN_ALWAYS},
  {PEN_ROLE_O_BIAS, "attn.c_proj.bias", PEN_DIM_HIDDEN, PEN_DIM_ONE,
   PEN_ALWAYS},
  {PEN_ROLE_MLP_NORM, "ln_2.weight", PEN_DIM_HIDDEN, PEN_DIM_ONE, PEN_ALWAYS},
  {PEN_ROLE_MLP_NORM_BIAS, "ln_2.bias", PEN_DIM_HIDDEN, PEN_DIM_ONE,
   PEN_ALWAYS},
  {PEN_ROLE_GATE_BIAS, "mlp.c_fc.bias", PEN_DIM_FFN, PEN_DIM_ONE, PEN_ALWAYS},
  {PEN_ROLE_DOWN_BIAS, "mlp.c_proj.bias", PEN_DIM_HIDDEN, PEN_DIM_ONE,
   PEN_ALWAYS},
  {PEN_ROLE_Q, "attn.c_attn.weight", PEN_DIM_HIDDEN, PEN_DIM_QKV, PEN_ALWAYS},
  {PEN_ROLE_O, "attn.c_proj.weight", PEN_DIM_Q, PEN_DIM_HIDDEN, PEN_ALWAYS},
  {PEN_ROLE_GATE, "mlp.c_fc.weight", PEN_DIM_HIDDEN, PEN_DIM_FFN, PEN_ALWAYS},
  {PEN_ROLE_DOWN, "mlp.c_proj.weight", PEN_DIM_FFN, PEN_DIM_HIDDEN,
   PEN_ALWAYS},
};

/* Masks of the causal attention. */
static const char *const buffers[] = {"h.#.attn.bias", "h.#.attn.masked_bias",
                                      NULL};

static const struct pen_family_names names = {
  .prefix = "transformer.",
  .may_lack_prefix = true,
  .layers = "h",
  .tensors = tensors,
  .n_tensors = sizeof tensors / sizeof tensors[0],
  .embed = "wte.weight",
  .final_norm = "ln_f.weight",
  .final_norm_bias = "ln_f.bias",
  .positions = "wpe.weight",
  .buffers = buffers,
};

static const struct pen_family_keys keys = {
  .hidden = "n_embd",
  .ffn = "n_inner",
  .layers = "n_layer",
  .heads = "n_head",
  .positions = "n_positions",
  .norm_eps = "layer_norm_epsilon",
  .activation = "activation_function",
};

const struct pen_model_family pen_family_gpt2 = {
  .model_type = "gpt2",
  .names = &names,
  .keys = &keys,
  .layernorm = true,
  .transposed = true,
  .positions = PEN_POSITIONS_LEARNED,
  .scales_residual_init = true,
  .passes_over_dropout = true,
  .default_activation = PEN_ACTIVATION_GELU_TANH,
  .default_ffn_factor = 4,
  .default_positions = 1024,
  .default_tied = true,
  .default_norm_eps = 1e-5,
};
