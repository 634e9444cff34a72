/* params_build.c: builds the parameter table from a config.
 *
 * The family's list says which tensors a decoder layer has, of what shape, and
 * when.  Built once, then read by any thread.  Disadvantage: the whole table is in
 * memory, about 200 bytes a tensor. */
#include <errno.h>
#include <stdlib.h>

#include "base/error.h"
#include "src/model/params_part.h"

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
    body += !sparse ? pen_params_count_tensors(c, PEN_BLOCK_LAYER)
                    : pen_params_count_tensors(c, PEN_BLOCK_ATTENTION) +
                          pen_params_count_tensors(c, PEN_BLOCK_ROUTER) +
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

/* A whole tensor of the open block. */
static int add_whole(struct pen_params *p, const char *name,
                     enum pen_param_role role, size_t rows, size_t cols)
{
  size_t tensor = 0;
  int rc = pen_params_add_tensor(p, pen_params_text("%s%s", p->prefix, name),
                                 role, SIZE_MAX, rows, cols, &tensor);
  if (!rc)
    pen_params_add(p, tensor, 0, rows);
  return rc;
}

static int add_positions(struct pen_params *p)
{
  const struct pen_model_config *c = &p->config;
  if (!c->family->names->positions)
    return 0;
  pen_params_begin_block(p, PEN_BLOCK_POSITIONS);
  int rc = add_whole(p, c->family->names->positions, PEN_ROLE_POSITIONS,
                     c->max_positions, c->hidden_size);
  return rc ? rc : pen_params_end_block(p, p->blocks[p->n_blocks].elems, true,
                             pen_params_text("positions"));
}

static int add_final_norm(struct pen_params *p)
{
  const struct pen_family_names *names = p->config.family->names;
  size_t d = p->config.hidden_size;
  pen_params_begin_block(p, PEN_BLOCK_FINAL_NORM);
  int rc = add_whole(p, names->final_norm, PEN_ROLE_FINAL_NORM, d, 1);
  if (!rc && names->final_norm_bias)
    rc = add_whole(p, names->final_norm_bias, PEN_ROLE_FINAL_NORM_BIAS, d, 1);
  return rc ? rc : pen_params_end_block(p, p->blocks[p->n_blocks].elems, false,
                             pen_params_text("final norm"));
}

/* The embedding or the head, cut into row blocks; `name` is taken. */
static int add_table(struct pen_params *p, char *name,
                     enum pen_param_role role, enum pen_param_block_kind kind)
{
  size_t tensor = 0, d = p->config.hidden_size, vocab = p->config.vocab_size;
  int rc = pen_params_add_tensor(p, name, role, SIZE_MAX, p->vocab_rows, d,
                                 &tensor);
  for (size_t row = 0; row < p->vocab_rows && !rc; row += p->head_rows) {
    size_t left = p->vocab_rows - row;
    size_t rows = left < p->head_rows ? left : p->head_rows;
    size_t valid = row >= vocab ? 0 : vocab - row < rows ? vocab - row : rows;
    pen_params_begin_block(p, kind);
    struct pen_param_block *info = &p->infos[p->n_blocks];
    info->row_begin = row;
    info->rows = rows;
    info->rows_valid = valid;
    pen_params_add(p, tensor, row, rows);
    size_t split = valid == rows ? p->blocks[p->n_blocks].elems : valid * d;
    rc = pen_params_end_block(
        p, split, true,
        pen_params_text("%s rows %zu to %zu",
                        kind == PEN_BLOCK_EMBED ? "embedding" : "head", row,
                        row + rows - 1));
  }
  return rc;
}

static char *embed_name(const struct pen_params *p)
{
  return pen_params_text("%s%s", p->prefix, p->config.family->names->embed);
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
    rc = pen_params_add_layer(p, layer);
  if (!rc)
    rc = add_final_norm(p);
  p->body_end = p->head_begin = p->n_blocks;
  if (!rc)
    rc = add_table(p, p->config.tied ? embed_name(p)
                                     : pen_params_text("%s", PEN_PARAMS_HEAD_NAME),
                   PEN_ROLE_HEAD, PEN_BLOCK_HEAD);
  p->head_end = p->n_blocks;
  if (!rc && p->config.tied) {
    p->rows_begin = p->head_begin;
    p->rows_end = p->head_end;
  }
  return rc ? rc : pen_params_add_experts(p);
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
