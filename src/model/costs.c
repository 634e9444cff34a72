/* costs.c: counts what lies between a layer's products.
 *
 * Pure.  Disadvantage: norms inside attention, biases and caps are not
 * counted; they are a few percent of what is. */
#include "src/model/costs.h"

/* Tokens that a token sees in the mean, itself too, of documents of `length`
 * through a window (0: none). */
static double seen(double length, double window)
{
  if (window == 0 || window >= length)
    return (length + 1) / 2;
  return window - window * (window - 1) / (2 * length);
}

static void fill_attention(const struct pen_model_config *c, size_t layer,
                           double document_tokens, struct pen_block *block)
{
  double window = (double)pen_model_config_window(c, layer);
  double heads = (double)c->n_heads, dim = (double)c->head_dim;
  /* Scores and their sum of values: 2 products of `dim`, each pair. */
  block->forward_vector_flops_per_token =
      4 * heads * dim * seen(document_tokens, window);
  /* A norm, a sum, rotations. */
  block->forward_pass_elems_per_token =
      2 * (double)c->hidden_size + (heads + (double)c->n_kv_heads) * dim;
}

void pen_costs_fill(struct pen_params *params, double document_tokens)
{
  const struct pen_model_config *c = &params->config;
  double hidden = (double)c->hidden_size;
  for (size_t b = 0; b < params->n_blocks; b++) {
    struct pen_block *block = &params->blocks[b];
    const struct pen_param_block *info = &params->infos[b];
    double *passes = &block->forward_pass_elems_per_token;
    switch (info->kind) {
    case PEN_BLOCK_LAYER:
      fill_attention(c, info->layer, document_tokens, block);
      *passes += 2 * hidden + (double)c->intermediate_size;
      break;
    case PEN_BLOCK_ATTENTION:
      fill_attention(c, info->layer, document_tokens, block);
      break;
    case PEN_BLOCK_ROUTER:
      *passes = 2 * hidden;
      break;
    case PEN_BLOCK_EXPERT: /* the activation, and its part of the sum */
      *passes = block->share * ((double)block->elems / (3 * hidden) + hidden);
      break;
    case PEN_BLOCK_FINAL_NORM:
      *passes = hidden;
      break;
    case PEN_BLOCK_HEAD: /* softmax */
      *passes = (double)info->rows_valid;
      break;
    default:
      break;
    }
  }
}
