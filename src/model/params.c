/* params.c: builds the parameter table from a config.
 *
 * The family's list says which tensors a decoder layer has, of what shape, and
 * when.  Built once, then read by any thread.  Disadvantage: the
 * whole table is in memory, about 200 bytes a tensor. */
#include "src/model/params.h"

#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/error.h"

static size_t dim_of(const struct pen_model_config *c, enum pen_family_dim dim)
{
  switch (dim) {
  case PEN_DIM_HIDDEN:
    return c->hidden_size;
  case PEN_DIM_FFN:
    return c->intermediate_size;
  case PEN_DIM_GATE_AND_UP:
    return 2 * c->intermediate_size;
  case PEN_DIM_EXPERT_FFN:
    return c->expert_size;
  case PEN_DIM_EXPERTS:
    return c->n_experts;
  case PEN_DIM_HEAD:
    return c->head_dim;
  case PEN_DIM_Q:
    return c->n_heads * c->head_dim;
  case PEN_DIM_KV:
    return c->n_kv_heads * c->head_dim;
  case PEN_DIM_QKV:
    return (c->n_heads + 2 * c->n_kv_heads) * c->head_dim;
  case PEN_DIM_ONE:
    break;
  }
  return 1;
}

static bool is_present(const struct pen_model_config *c,
                       enum pen_family_presence when)
{
  switch (when) {
  case PEN_WITH_QKV_BIAS:
    return c->qkv_bias;
  case PEN_WITH_O_BIAS:
    return c->o_bias;
  case PEN_WITH_MLP_BIAS:
    return c->mlp_bias;
  case PEN_WITH_QK_NORM:
    return c->family->qk_norm;
  case PEN_ALWAYS:
    break;
  }
  return true;
}

static size_t aligned(size_t elems)
{
  return (elems + PEN_BLOCK_ALIGN_ELEMS - 1) / PEN_BLOCK_ALIGN_ELEMS *
         PEN_BLOCK_ALIGN_ELEMS;
}

/* Is a tensor of the family's list in blocks of this kind?  In a layer with
 * experts the router's block takes the place of the MLP. */
static bool is_of(enum pen_param_role role, enum pen_param_block_kind kind)
{
  bool is_norm = role == PEN_ROLE_MLP_NORM || role == PEN_ROLE_MLP_NORM_BIAS;
  switch (kind) {
  case PEN_BLOCK_ATTENTION:
    return role < PEN_ROLE_MLP_NORM ||
           (role >= PEN_ROLE_Q && role <= PEN_ROLE_O);
  case PEN_BLOCK_ROUTER:
    return is_norm || role == PEN_ROLE_ROUTER;
  default:
    return role != PEN_ROLE_ROUTER;
  }
}

static size_t count_tensors(const struct pen_model_config *c,
                            enum pen_param_block_kind kind)
{
  const struct pen_family_names *names = c->family->names;
  size_t n = 0;
  for (size_t i = 0; i < names->n_tensors; i++)
    n += is_present(c, names->tensors[i].when) &&
         is_of(names->tensors[i].role, kind);
  return n;
}

/* Numbers that say how large the arrays are. */
struct counts {
  size_t row_blocks, tensors, params, blocks;
};

static struct counts count(const struct pen_params *p)
{
  const struct pen_model_config *c = &p->config;
  const struct pen_family_names *names = c->family->names;
  const struct pen_family_mixture *mixture = c->family->mixture;
  struct counts n = {0};
  n.row_blocks = (p->vocab_rows + p->head_rows - 1) / p->head_rows;
  size_t tables = c->tied ? 1 : 2, positions = names->positions ? 1 : 0;
  size_t body = positions + (names->final_norm_bias ? 2 : 1);
  n.blocks = 1 + positions + tables * n.row_blocks;
  for (size_t layer = 0; layer < c->n_layers; layer++) {
    bool sparse = pen_model_config_is_sparse(c, layer);
    n.blocks += sparse ? 2 + c->n_experts : 1;
    body += !sparse ? count_tensors(c, PEN_BLOCK_LAYER)
                    : count_tensors(c, PEN_BLOCK_ATTENTION) +
                          count_tensors(c, PEN_BLOCK_ROUTER) +
                          c->n_experts * mixture->n_tensors;
  }
  n.tensors = body + tables;
  n.params = body + tables * n.row_blocks;
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
    .rank = cols == 1 && role < PEN_ROLE_POSITIONS ? 1 : 2,
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
  if (t->rank == 2 && t->role != PEN_ROLE_EMBED &&
      t->role != PEN_ROLE_POSITIONS)
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

/* Puts a tensor of a layer into the open block; name is taken.  *vectors: how
 * many elements at its begin do not decay. */
static int add_row(struct pen_params *p, char *name, size_t layer,
                   const struct pen_family_tensor *row, size_t *vectors)
{
  size_t tensor = 0, rows = dim_of(&p->config, row->rows);
  int rc = add_tensor(p, name, row->role, layer, rows,
                      dim_of(&p->config, row->cols), &tensor);
  if (rc)
    return rc;
  add_param(p, tensor, 0, rows);
  if (p->tensors[tensor].rank == 1)
    *vectors = p->blocks[p->n_blocks].elems;
  return 0;
}

/* The block of one kind of a layer; its name is taken. */
static int add_layer_block(struct pen_params *p, size_t layer,
                           enum pen_param_block_kind kind, char *name)
{
  const struct pen_model_config *c = &p->config;
  const struct pen_family_names *names = c->family->names;
  size_t vectors = 0;
  int rc = 0;
  begin_block(p, kind);
  p->infos[p->n_blocks].layer = layer;
  for (size_t i = 0; i < names->n_tensors && !rc; i++) {
    const struct pen_family_tensor *row = &names->tensors[i];
    if (is_present(c, row->when) && is_of(row->role, kind))
      rc = add_row(p, text("%s%s.%zu.%s", p->prefix, names->layers, layer,
                           row->name),
                   layer, row, &vectors);
  }
  int end = end_block(p, vectors, false, name);
  return rc ? rc : end;
}

static int add_layer(struct pen_params *p, size_t layer)
{
  if (!pen_model_config_is_sparse(&p->config, layer))
    return add_layer_block(p, layer, PEN_BLOCK_LAYER, text("layer %zu", layer));
  int rc = add_layer_block(p, layer, PEN_BLOCK_ATTENTION,
                           text("layer %zu attention", layer));
  return rc ? rc : add_layer_block(p, layer, PEN_BLOCK_ROUTER,
                                   text("layer %zu router", layer));
}

static int add_expert(struct pen_params *p, size_t owner, size_t expert)
{
  const struct pen_model_config *c = &p->config;
  const struct pen_family_mixture *m = c->family->mixture;
  size_t layer = p->infos[owner].layer, vectors = 0;
  struct pen_block *block = &p->blocks[p->n_blocks];
  int rc = 0;
  begin_block(p, PEN_BLOCK_EXPERT);
  p->infos[p->n_blocks].layer = layer;
  for (size_t i = 0; i < m->n_tensors && !rc; i++)
    rc = add_row(p, text("%s%s.%zu.%s.%zu.%s", p->prefix,
                         c->family->names->layers, layer, m->names, expert,
                         m->tensors[i].name),
                 layer, &m->tensors[i], &vectors);
  block->owner = owner;
  block->share = (double)c->experts_per_token / (double)c->n_experts;
  block->forward_flops_per_token *= block->share;
  int end = end_block(p, vectors, false,
                      text("layer %zu expert %zu", layer, expert));
  return rc ? rc : end;
}

/* All experts, layer after layer. */
static int add_experts(struct pen_params *p)
{
  int rc = 0;
  p->experts_begin = p->n_blocks;
  for (size_t b = p->body_begin; b < p->body_end && !rc; b++) {
    if (p->infos[b].kind != PEN_BLOCK_ROUTER)
      continue;
    p->blocks[b].experts_begin = p->n_blocks;
    for (size_t e = 0; e < p->config.n_experts && !rc; e++)
      rc = add_expert(p, b, e);
    p->blocks[b].experts_end = p->n_blocks;
  }
  p->experts_end = p->n_blocks;
  return rc;
}

/* A whole tensor of the open block. */
static int add_whole(struct pen_params *p, const char *name,
                     enum pen_param_role role, size_t rows, size_t cols)
{
  size_t tensor = 0;
  int rc = add_tensor(p, text("%s%s", p->prefix, name), role, SIZE_MAX, rows,
                      cols, &tensor);
  if (!rc)
    add_param(p, tensor, 0, rows);
  return rc;
}

static int add_positions(struct pen_params *p)
{
  const struct pen_model_config *c = &p->config;
  if (!c->family->names->positions)
    return 0;
  begin_block(p, PEN_BLOCK_POSITIONS);
  int rc = add_whole(p, c->family->names->positions, PEN_ROLE_POSITIONS,
                     c->max_positions, c->hidden_size);
  return rc ? rc : end_block(p, p->blocks[p->n_blocks].elems, true,
                             text("positions"));
}

static int add_final_norm(struct pen_params *p)
{
  const struct pen_family_names *names = p->config.family->names;
  size_t d = p->config.hidden_size;
  begin_block(p, PEN_BLOCK_FINAL_NORM);
  int rc = add_whole(p, names->final_norm, PEN_ROLE_FINAL_NORM, d, 1);
  if (!rc && names->final_norm_bias)
    rc = add_whole(p, names->final_norm_bias, PEN_ROLE_FINAL_NORM_BIAS, d, 1);
  return rc ? rc : end_block(p, p->blocks[p->n_blocks].elems, false,
                             text("final norm"));
}

/* The embedding or the head, cut into row blocks; `name` is taken. */
static int add_table(struct pen_params *p, char *name,
                     enum pen_param_role role, enum pen_param_block_kind kind)
{
  size_t tensor = 0, d = p->config.hidden_size, vocab = p->config.vocab_size;
  int rc = add_tensor(p, name, role, SIZE_MAX, p->vocab_rows, d, &tensor);
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

static char *embed_name(const struct pen_params *p)
{
  return text("%s%s", p->prefix, p->config.family->names->embed);
}

static int fill(struct pen_params *p)
{
  int rc = 0;
  p->rows_begin = p->rows_end = 0;
  if (!p->config.tied)
    rc = add_table(p, embed_name(p), PEN_ROLE_EMBED, PEN_BLOCK_EMBED);
  p->rows_end = p->body_begin = p->n_blocks;
  if (!rc)
    rc = add_positions(p);
  for (size_t layer = 0; layer < p->config.n_layers && !rc; layer++)
    rc = add_layer(p, layer);
  if (!rc)
    rc = add_final_norm(p);
  p->body_end = p->head_begin = p->n_blocks;
  if (!rc)
    rc = add_table(p, p->config.tied ? embed_name(p)
                                     : text("%s", PEN_PARAMS_HEAD_NAME),
                   PEN_ROLE_HEAD, PEN_BLOCK_HEAD);
  p->head_end = p->n_blocks;
  if (!rc && p->config.tied) {
    p->rows_begin = p->head_begin;
    p->rows_end = p->head_end;
  }
  return rc ? rc : add_experts(p);
}

/* About as many elements as a decoder layer has, so that one ring of weight
 * slots serves both. */
static size_t choose_head_rows(const struct pen_model_config *c)
{
  size_t heads = c->n_heads + 2 * c->n_kv_heads;
  size_t ffn = c->n_experts ? c->expert_size : c->intermediate_size;
  size_t layer = c->hidden_size * c->head_dim * heads +
                 c->n_heads * c->head_dim * c->hidden_size +
                 3 * c->hidden_size * ffn;
  size_t rows = (layer / c->hidden_size + 1023) / 1024 * 1024;
  return rows < c->vocab_size ? rows : c->vocab_size;
}

int pen_params_build_named(const struct pen_model_config *config,
                           const char *prefix, size_t head_rows,
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
  p->prefix = prefix;
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

int pen_params_build(const struct pen_model_config *config, size_t head_rows,
                     size_t vocab_rows, struct pen_params **ret_params)
{
  return pen_params_build_named(config, config->family->names->prefix,
                                head_rows, vocab_rows, ret_params);
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

const struct pen_param_block *
pen_params_first(const struct pen_params *params, enum pen_param_block_kind kind)
{
  for (size_t b = 0; b < params->n_blocks; b++)
    if (params->infos[b].kind == kind)
      return &params->infos[b];
  return NULL;
}

size_t pen_params_elems(const struct pen_params *params,
                        const struct pen_param_block *info,
                        enum pen_param_role role)
{
  for (size_t i = 0; i < info->n_params; i++) {
    const struct pen_param *p = &params->params[info->first_param + i];
    if (p->role == role)
      return p->rows * p->cols;
  }
  return 0;
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
  workload->experts_begin = params->experts_begin;
  workload->experts_end = params->experts_end;
}
