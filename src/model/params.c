/* params.c: builds the parameter table from a config.
 *
 * Three small tables say everything: which tensors a decoder layer has, of what
 * shape, and when.  Built once, then read by any thread.  Disadvantage: the
 * whole table is in memory, about 200 bytes a tensor. */
#include "src/model/params.h"

#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/error.h"

enum dim { ONE, D, F, HQ_DH, HKV_DH, DH };

enum presence { ALWAYS, QKV_BIAS, O_BIAS, MLP_BIAS, QK_NORM };

/* A decoder layer's tensors, in the order of the block. */
static const struct layer_row {
  enum pen_param_role role;
  const char *name;
  enum dim rows, cols;
  enum presence when;
} layer_rows[] = {
  {PEN_ROLE_ATTN_NORM, "input_layernorm.weight", D, ONE, ALWAYS},
  {PEN_ROLE_Q_BIAS, "self_attn.q_proj.bias", HQ_DH, ONE, QKV_BIAS},
  {PEN_ROLE_K_BIAS, "self_attn.k_proj.bias", HKV_DH, ONE, QKV_BIAS},
  {PEN_ROLE_V_BIAS, "self_attn.v_proj.bias", HKV_DH, ONE, QKV_BIAS},
  {PEN_ROLE_Q_NORM, "self_attn.q_norm.weight", DH, ONE, QK_NORM},
  {PEN_ROLE_K_NORM, "self_attn.k_norm.weight", DH, ONE, QK_NORM},
  {PEN_ROLE_O_BIAS, "self_attn.o_proj.bias", D, ONE, O_BIAS},
  {PEN_ROLE_MLP_NORM, "post_attention_layernorm.weight", D, ONE, ALWAYS},
  {PEN_ROLE_GATE_BIAS, "mlp.gate_proj.bias", F, ONE, MLP_BIAS},
  {PEN_ROLE_UP_BIAS, "mlp.up_proj.bias", F, ONE, MLP_BIAS},
  {PEN_ROLE_DOWN_BIAS, "mlp.down_proj.bias", D, ONE, MLP_BIAS},
  {PEN_ROLE_Q, "self_attn.q_proj.weight", HQ_DH, D, ALWAYS},
  {PEN_ROLE_K, "self_attn.k_proj.weight", HKV_DH, D, ALWAYS},
  {PEN_ROLE_V, "self_attn.v_proj.weight", HKV_DH, D, ALWAYS},
  {PEN_ROLE_O, "self_attn.o_proj.weight", D, HQ_DH, ALWAYS},
  {PEN_ROLE_GATE, "mlp.gate_proj.weight", F, D, ALWAYS},
  {PEN_ROLE_UP, "mlp.up_proj.weight", F, D, ALWAYS},
  {PEN_ROLE_DOWN, "mlp.down_proj.weight", D, F, ALWAYS},
};
#define N_LAYER_ROWS (sizeof layer_rows / sizeof layer_rows[0])

static size_t dim_of(const struct pen_model_config *c, enum dim dim)
{
  switch (dim) {
  case ONE:
    return 1;
  case D:
    return c->hidden_size;
  case F:
    return c->intermediate_size;
  case HQ_DH:
    return c->n_heads * c->head_dim;
  case HKV_DH:
    return c->n_kv_heads * c->head_dim;
  case DH:
    break;
  }
  return c->head_dim;
}

static bool is_present(const struct pen_model_config *c, enum presence when)
{
  switch (when) {
  case QKV_BIAS:
    return c->qkv_bias;
  case O_BIAS:
    return c->o_bias;
  case MLP_BIAS:
    return c->mlp_bias;
  case QK_NORM:
    return c->qk_norm;
  case ALWAYS:
    break;
  }
  return true;
}

static size_t aligned(size_t elems)
{
  return (elems + PEN_BLOCK_ALIGN_ELEMS - 1) / PEN_BLOCK_ALIGN_ELEMS *
         PEN_BLOCK_ALIGN_ELEMS;
}

/* Numbers that say how large the arrays are. */
struct counts {
  size_t row_blocks, layer_tensors, tensors, params, blocks;
};

static struct counts count(const struct pen_params *p)
{
  const struct pen_model_config *c = &p->config;
  struct counts n = {0};
  for (size_t i = 0; i < N_LAYER_ROWS; i++)
    n.layer_tensors += is_present(c, layer_rows[i].when);
  n.row_blocks = (p->vocab_rows + p->head_rows - 1) / p->head_rows;
  size_t tables = c->tied ? 1 : 2;
  n.tensors = n.layer_tensors * c->n_layers + 1 + tables;
  n.params = n.layer_tensors * c->n_layers + 1 + tables * n.row_blocks;
  n.blocks = c->n_layers + 1 + tables * n.row_blocks;
  return n;
}

static int allocate(struct pen_params *p, struct counts n)
{
  p->tensors = calloc(n.tensors, sizeof *p->tensors);
  p->params = calloc(n.params, sizeof *p->params);
  p->blocks = calloc(n.blocks, sizeof *p->blocks);
  p->infos = calloc(n.blocks, sizeof *p->infos);
  if (!p->tensors || !p->params || !p->blocks || !p->infos)
    return pen_error_set(-ENOMEM, "cannot hold a table of %zu parameters",
                         n.params);
  return 0;
}

/* Starts the next tensor; name is taken (NULL: out of memory). */
static int add_tensor(struct pen_params *p, char *name,
                      enum pen_param_role role, size_t layer, size_t rows,
                      size_t cols, size_t *ret_tensor)
{
  if (!name)
    return pen_error_set(-ENOMEM, "cannot hold the parameter table");
  p->tensors[p->n_tensors] = (struct pen_param_tensor){
    .name = name, .role = role, .layer = layer,
    .rank = role < PEN_ROLE_Q || role == PEN_ROLE_FINAL_NORM ? 1 : 2,
    .shape = {rows, cols}, .first_param = p->n_params,
    .dir_index = SIZE_MAX};
  *ret_tensor = p->n_tensors++;
  return 0;
}

static void begin_block(struct pen_params *p, enum pen_param_block_kind kind)
{
  struct pen_param_block *info = &p->infos[p->n_blocks];
  info->kind = kind;
  info->first_param = p->n_params;
  for (size_t r = 0; r < PEN_N_ROLES; r++)
    info->role_offset[r] = SIZE_MAX;
}

/* Puts rows [row_begin, +rows) of a tensor at the end of the open block. */
static void add_param(struct pen_params *p, size_t tensor, size_t row_begin,
                      size_t rows)
{
  struct pen_param_tensor *t = &p->tensors[tensor];
  struct pen_block *block = &p->blocks[p->n_blocks];
  struct pen_param_block *info = &p->infos[p->n_blocks];
  p->params[p->n_params++] = (struct pen_param){
    .tensor = tensor, .role = t->role, .block = p->n_blocks,
    .offset = block->elems, .row_begin = row_begin, .rows = rows,
    .cols = t->shape[1], .decays = t->rank == 2};
  info->role_offset[t->role] = block->elems;
  info->n_params++;
  t->n_params++;
  size_t elems = rows * t->shape[1];
  p->n_elems += elems;
  block->elems += aligned(elems);
  /* a product costs one multiplication and one addition an element and token */
  if (t->rank == 2 && t->role != PEN_ROLE_EMBED)
    block->forward_flops_per_token += 2.0 * (double)elems;
}

/* Closes the block: elements up to `split` have one decay, the rest other. */
static int end_block(struct pen_params *p, size_t split, bool first_decays,
                     char *name)
{
  struct pen_block *block = &p->blocks[p->n_blocks++];
  struct pen_block_range *ranges = calloc(2, sizeof *ranges);
  block->name = name;
  block->ranges = ranges;
  if (!name || !ranges)
    return pen_error_set(-ENOMEM, "cannot hold the parameter table");
  if (split)
    ranges[block->n_ranges++] =
        (struct pen_block_range){0, split, first_decays};
  if (split < block->elems)
    ranges[block->n_ranges++] =
        (struct pen_block_range){split, block->elems, !first_decays};
  return 0;
}

/* A printf that returns NULL when memory is out. */
static char *text(const char *format, ...)
    __attribute__((format(printf, 1, 2)));
static char *text(const char *format, ...)
{
  char *result;
  va_list args;
  va_start(args, format);
  int n = vasprintf(&result, format, args);
  va_end(args);
  return n < 0 ? NULL : result;
}

static int add_layer(struct pen_params *p, size_t layer)
{
  const struct pen_model_config *c = &p->config;
  size_t vectors = 0;
  begin_block(p, PEN_BLOCK_LAYER);
  p->infos[p->n_blocks].layer = layer;
  for (size_t i = 0; i < N_LAYER_ROWS; i++) {
    const struct layer_row *row = &layer_rows[i];
    size_t tensor = 0, rows = dim_of(c, row->rows);
    if (!is_present(c, row->when))
      continue;
    int rc = add_tensor(p, text("model.layers.%zu.%s", layer, row->name),
                        row->role, layer, rows, dim_of(c, row->cols), &tensor);
    if (rc)
      return rc;
    add_param(p, tensor, 0, rows);
    if (p->tensors[tensor].rank == 1)
      vectors = p->blocks[p->n_blocks].elems;
  }
  return end_block(p, vectors, false, text("layer %zu", layer));
}

static int add_final_norm(struct pen_params *p)
{
  size_t tensor = 0, d = p->config.hidden_size;
  begin_block(p, PEN_BLOCK_FINAL_NORM);
  int rc = add_tensor(p, text("model.norm.weight"), PEN_ROLE_FINAL_NORM,
                      SIZE_MAX, d, 1, &tensor);
  if (rc)
    return rc;
  add_param(p, tensor, 0, d);
  return end_block(p, p->blocks[p->n_blocks].elems, false, text("final norm"));
}

/* The embedding or the head, cut into row blocks. */
static int add_table(struct pen_params *p, const char *name,
                     enum pen_param_role role, enum pen_param_block_kind kind)
{
  size_t tensor = 0, d = p->config.hidden_size, vocab = p->config.vocab_size;
  int rc = add_tensor(p, text("%s", name), role, SIZE_MAX, p->vocab_rows, d,
                      &tensor);
  for (size_t row = 0; row < p->vocab_rows && !rc; row += p->head_rows) {
    size_t left = p->vocab_rows - row;
    size_t rows = left < p->head_rows ? left : p->head_rows;
    size_t valid = row >= vocab ? 0 : vocab - row < rows ? vocab - row : rows;
    begin_block(p, kind);
    struct pen_param_block *info = &p->infos[p->n_blocks];
    info->row_begin = row;
    info->rows = rows;
    info->rows_valid = valid;
    add_param(p, tensor, row, rows);
    rc = end_block(p, valid == rows ? p->blocks[p->n_blocks].elems : valid * d,
                   true, text("%s rows %zu to %zu",
                              kind == PEN_BLOCK_EMBED ? "embedding" : "head",
                              row, row + rows - 1));
  }
  return rc;
}

/* Whether the listed roles follow each other without gaps in a layer. */
static bool are_adjacent(const struct pen_params *p, size_t first, size_t last)
{
  const struct pen_param_block *info = &p->infos[p->body_begin];
  size_t end = SIZE_MAX;
  for (size_t i = 0; i < info->n_params; i++) {
    const struct pen_param *q = &p->params[info->first_param + i];
    if (q->role < first || q->role > last)
      continue;
    if (end != SIZE_MAX && q->offset != end)
      return false;
    end = q->offset + q->rows * q->cols;
  }
  return true;
}

static int fill(struct pen_params *p)
{
  int rc = 0;
  p->rows_begin = p->rows_end = 0;
  if (!p->config.tied)
    rc = add_table(p, "model.embed_tokens.weight", PEN_ROLE_EMBED,
                   PEN_BLOCK_EMBED);
  p->rows_end = p->body_begin = p->n_blocks;
  for (size_t layer = 0; layer < p->config.n_layers && !rc; layer++)
    rc = add_layer(p, layer);
  if (!rc)
    rc = add_final_norm(p);
  p->body_end = p->head_begin = p->n_blocks;
  if (!rc)
    rc = add_table(p, p->config.tied ? "model.embed_tokens.weight"
                                     : "lm_head.weight",
                   PEN_ROLE_HEAD, PEN_BLOCK_HEAD);
  p->head_end = p->n_blocks;
  if (rc)
    return rc;
  if (p->config.tied) {
    p->rows_begin = p->head_begin;
    p->rows_end = p->head_end;
  }
  p->qkv_adjacent = are_adjacent(p, PEN_ROLE_Q, PEN_ROLE_V) &&
                    are_adjacent(p, PEN_ROLE_Q_BIAS, PEN_ROLE_V_BIAS);
  p->gate_up_adjacent = are_adjacent(p, PEN_ROLE_GATE, PEN_ROLE_UP) &&
                        are_adjacent(p, PEN_ROLE_GATE_BIAS, PEN_ROLE_UP_BIAS);
  return 0;
}

/* About as many elements as a decoder layer has, so that one ring of weight
 * slots serves both. */
static size_t choose_head_rows(const struct pen_model_config *c)
{
  size_t heads = c->n_heads + 2 * c->n_kv_heads;
  size_t layer = c->hidden_size * c->head_dim * heads +
                 c->n_heads * c->head_dim * c->hidden_size +
                 3 * c->hidden_size * c->intermediate_size;
  size_t rows = (layer / c->hidden_size + 1023) / 1024 * 1024;
  return rows < c->vocab_size ? rows : c->vocab_size;
}

int pen_params_build(const struct pen_model_config *config, size_t head_rows,
                     size_t vocab_rows, struct pen_params **ret_params)
{
  if (vocab_rows && vocab_rows < config->vocab_size)
    return pen_error_set(-PEN_EMISMATCH,
                         "the embedding has %zu rows, the vocabulary %zu "
                         "tokens", vocab_rows, config->vocab_size);
  struct pen_params *p = calloc(1, sizeof *p);
  if (!p)
    return pen_error_set(-ENOMEM, "cannot hold the parameter table");
  p->config = *config;
  p->head_rows = head_rows ? head_rows : choose_head_rows(config);
  p->head_copy = SIZE_MAX;
  p->vocab_rows = vocab_rows ? vocab_rows : config->vocab_size;
  int rc = allocate(p, count(p));
  if (!rc)
    rc = fill(p);
  if (rc) {
    pen_params_free(&p);
    return rc;
  }
  *ret_params = p;
  return 0;
}

void pen_params_free(struct pen_params **params)
{
  struct pen_params *p = *params;
  if (!p)
    return;
  for (size_t i = 0; i < p->n_tensors; i++)
    free((char *)p->tensors[i].name);
  for (size_t i = 0; i < p->n_blocks; i++) {
    free((char *)p->blocks[i].name);
    free((struct pen_block_range *)p->blocks[i].ranges);
  }
  free(p->tensors);
  free(p->params);
  free(p->blocks);
  free(p->infos);
  free(p);
  *params = NULL;
}

void pen_params_workload(const struct pen_params *params,
                         struct pen_workload *workload)
{
  workload->blocks = params->blocks;
  workload->n_blocks = params->n_blocks;
  workload->rows_begin = params->rows_begin;
  workload->rows_end = params->rows_end;
  workload->body_begin = params->body_begin;
  workload->body_end = params->body_end;
  workload->head_begin = params->head_begin;
  workload->head_end = params->head_end;
}
