/* family.c: the table of model families.
 *
 * Adding a family is a file with its row, a line here, and a golden test.
 * Constant; any thread. */
#include "src/model/family.h"

#include <string.h>

static const struct pen_model_family *const families[] = {
  &pen_family_gemma2, &pen_family_gpt2,  &pen_family_llama,
  &pen_family_mistral, &pen_family_mixtral, &pen_family_olmo2,
  &pen_family_phi3,   &pen_family_qwen2, &pen_family_qwen3,
  &pen_family_qwen3_moe,
};

const struct pen_family_keys pen_family_usual_keys = {
  .hidden = "hidden_size",
  .ffn = "intermediate_size",
  .layers = "num_hidden_layers",
  .heads = "num_attention_heads",
  .kv_heads = "num_key_value_heads",
  .head_dim = "head_dim",
  .positions = "max_position_embeddings",
  .norm_eps = "rms_norm_eps",
  .activation = "hidden_act",
};

const struct pen_model_family *pen_family_at(size_t i)
{
  return i < sizeof families / sizeof families[0] ? families[i] : NULL;
}

const struct pen_model_family *pen_family_find(const char *model_type)
{
  const struct pen_model_family *family;
  for (size_t i = 0; (family = pen_family_at(i)); i++)
    if (!strcmp(family->model_type, model_type))
      return family;
  return NULL;
}
