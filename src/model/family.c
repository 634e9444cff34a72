/* family.c: one row per model family.
 *
 * Adding a family is adding a row and a golden test.  Constant; any thread. */
#include "src/model/family.h"

#include <string.h>

static const struct pen_model_family families[] = {
  {
    /* also SmolLM2, TinyLlama and whatever else says llama */
    .model_type = "llama",
    .qkv_bias = PEN_BIAS_BY_CONFIG,
    .o_bias = PEN_BIAS_BY_CONFIG,
    .mlp_bias = PEN_BIAS_BY_CONFIG,
    .window = PEN_WINDOW_NEVER,
    .default_positions = 2048,
    .default_norm_eps = 1e-6,
    .default_rope_theta = 10000,
  },
  {
    .model_type = "mistral",
    .qkv_bias = PEN_BIAS_NEVER,
    .o_bias = PEN_BIAS_NEVER,
    .mlp_bias = PEN_BIAS_NEVER,
    .window = PEN_WINDOW_ALL_LAYERS,
    .default_window = 4096,
    .default_kv_heads = 8,
    .default_positions = 131072,
    .default_norm_eps = 1e-6,
    .default_rope_theta = 10000,
  },
  {
    .model_type = "qwen2",
    .qkv_bias = PEN_BIAS_ALWAYS,
    .o_bias = PEN_BIAS_NEVER,
    .mlp_bias = PEN_BIAS_NEVER,
    .window = PEN_WINDOW_OPT_IN,
    .default_window = 4096,
    .default_kv_heads = 32,
    .default_positions = 32768,
    .default_norm_eps = 1e-6,
    .default_rope_theta = 10000,
  },
  {
    .model_type = "qwen3",
    .qkv_bias = PEN_BIAS_BY_CONFIG,
    .o_bias = PEN_BIAS_BY_CONFIG,
    .mlp_bias = PEN_BIAS_NEVER,
    .qk_norm = true,
    .window = PEN_WINDOW_OPT_IN,
    .default_window = 4096,
    .default_kv_heads = 32,
    .default_head_dim = 128,
    .default_positions = 32768,
    .default_norm_eps = 1e-6,
    .default_rope_theta = 10000,
  },
};

const struct pen_model_family *pen_family_at(size_t i)
{
  return i < sizeof families / sizeof families[0] ? &families[i] : NULL;
}

const struct pen_model_family *pen_family_find(const char *model_type)
{
  const struct pen_model_family *family;
  for (size_t i = 0; (family = pen_family_at(i)); i++)
    if (!strcmp(family->model_type, model_type))
      return family;
  return NULL;
}
