/* params_part.c: puts tensors into the blocks of a parameter table.
 *
 * Whoever builds it: arrays are large enough, blocks are opened and closed in
 * turn. */
#include "src/model/params_part.h"

#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>

#include "base/error.h"

static size_t aligned(size_t elems)
{
  return (elems + PEN_BLOCK_ALIGN_ELEMS - 1) / PEN_BLOCK_ALIGN_ELEMS *
         PEN_BLOCK_ALIGN_ELEMS;
}

int pen_params_add_tensor(struct pen_params *p, char *name,
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

void pen_params_begin_block(struct pen_params *p, enum pen_param_block_kind kind)
{
  struct pen_param_block *info = &p->infos[p->n_blocks];
  info->kind = kind;
  info->first_param = p->n_params;
  for (size_t r = 0; r < PEN_N_ROLES; r++)
    info->role_offset[r] = SIZE_MAX;
}

void pen_params_add(struct pen_params *p, size_t tensor, size_t row_begin,
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

int pen_params_end_block(struct pen_params *p, size_t split, bool first_decays,
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

char *pen_params_text(const char *format, ...)
{
  char *result;
  va_list args;
  va_start(args, format);
  int n = vasprintf(&result, format, args);
  va_end(args);
  return n < 0 ? NULL : result;
}
