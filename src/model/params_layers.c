/* params_layers.c: the part of the parameter table that decoder layers are: which
 * tensors of the family's lists lie in which block.
 *
 * A layer is one block; one with experts is two, and a block for each expert,
 * which come after all others.  Disadvantage: a tensor's shape is asked for by
 * name of its dimensions, so a new kind of dimension is a case here. */
#include "src/model/params_part.h"

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

size_t pen_params_count_tensors(const struct pen_model_config *c,
                            enum pen_param_block_kind kind)
{
  const struct pen_family_names *names = c->family->names;
  size_t n = 0;
  for (size_t i = 0; i < names->n_tensors; i++)
    n += is_present(c, names->tensors[i].when) &&
         is_of(names->tensors[i].role, kind);
  return n;
}

/* Puts a tensor of a layer into the open block; name is taken.  *vectors: how
 * many elements at its begin do not decay. */
static int add_row(struct pen_params *p, char *name, size_t layer,
                   const struct pen_family_tensor *row, size_t *vectors)
{
  size_t tensor = 0, rows = dim_of(&p->config, row->rows);
  int rc = pen_params_add_tensor(p, name, row->role, layer, rows,
                      dim_of(&p->config, row->cols), &tensor);
  if (rc)
    return rc;
  pen_params_add(p, tensor, 0, rows);
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
  pen_params_begin_block(p, kind);
  p->infos[p->n_blocks].layer = layer;
  for (size_t i = 0; i < names->n_tensors && !rc; i++) {
    const struct pen_family_tensor *row = &names->tensors[i];
    if (is_present(c, row->when) && is_of(row->role, kind))
      rc = add_row(p, pen_params_text("%s%s.%zu.%s", p->prefix, names->layers,
                                      layer, row->name),
                   layer, row, &vectors);
  }
  int end = pen_params_end_block(p, vectors, false, name);
  return rc ? rc : end;
}

int pen_params_add_layer(struct pen_params *p, size_t layer)
{
  if (!pen_model_config_is_sparse(&p->config, layer))
    return add_layer_block(p, layer, PEN_BLOCK_LAYER,
                           pen_params_text("layer %zu", layer));
  int rc = add_layer_block(p, layer, PEN_BLOCK_ATTENTION,
                           pen_params_text("layer %zu attention", layer));
  return rc ? rc : add_layer_block(p, layer, PEN_BLOCK_ROUTER,
                                   pen_params_text("layer %zu router", layer));
}

static int add_expert(struct pen_params *p, size_t owner, size_t expert)
{
  const struct pen_model_config *c = &p->config;
  const struct pen_family_mixture *m = c->family->mixture;
  size_t layer = p->infos[owner].layer, vectors = 0;
  struct pen_block *block = &p->blocks[p->n_blocks];
  int rc = 0;
  pen_params_begin_block(p, PEN_BLOCK_EXPERT);
  p->infos[p->n_blocks].layer = layer;
  for (size_t i = 0; i < m->n_tensors && !rc; i++)
    rc = add_row(p, pen_params_text("%s%s.%zu.%s.%zu.%s", p->prefix,
                         c->family->names->layers, layer, m->names, expert,
                         m->tensors[i].name),
                 layer, &m->tensors[i], &vectors);
  block->owner = owner;
  block->share = (double)c->experts_per_token / (double)c->n_experts;
  block->forward_flops_per_token *= block->share;
  int end = pen_params_end_block(
      p, vectors, false, pen_params_text("layer %zu expert %zu", layer, expert));
  return rc ? rc : end;
}

/* All experts, layer after layer. */
int pen_params_add_experts(struct pen_params *p)
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
