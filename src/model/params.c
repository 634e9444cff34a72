/* params.c: what is asked of a parameter table.
 *
 * Pure, but for free; any thread. */
#include "src/model/params.h"

#include <stdlib.h>

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
