/* update.c: cuts a tile into pieces of a fixed size for the update workers.
 *
 * Pieces are counted from the tile's first element; each element's result
 * depends on nothing but itself, so neither tiles nor pieces nor workers can be
 * seen in the numbers.  Disadvantage: a tile smaller than a piece keeps all but
 * one worker idle. */
#include "offload/update.h"

#define PIECE_ELEMS ((size_t)32768)

struct job {
  enum pen_isa isa;
  const struct pen_adamw_params *params;
  const struct pen_block *block;
  const struct pen_tile *tile;
  size_t elem_bytes;
  float *state;
  const void *grad;
  void *weight;
};

/* Elements [begin, end) of the tile, all decayed or all not. */
static void update_range(const struct job *job, bool decays, size_t begin,
                         size_t end)
{
  size_t n = end - begin, elems = job->tile->elems;
  float *p = job->state + begin, *m = p + elems, *v = m + elems;
  if (job->elem_bytes == sizeof(uint16_t))
    pen_adamw_update_bf16(job->isa, job->params, decays, n, p, m, v,
                          (const uint16_t *)job->grad + begin,
                          (uint16_t *)job->weight + begin);
  else
    pen_adamw_update_f32(job->isa, job->params, decays, n, p, m, v,
                         (const float *)job->grad + begin,
                         (float *)job->weight + begin);
}

static void update_piece(void *ctx, size_t item, size_t worker)
{
  const struct job *job = ctx;
  (void)worker;
  size_t begin = item * PIECE_ELEMS, end = begin + PIECE_ELEMS;
  if (end > job->tile->elems)
    end = job->tile->elems;
  size_t base = job->tile->begin; /* ranges count from the block's start */
  for (size_t r = 0; r < job->block->n_ranges; r++) {
    const struct pen_block_range *range = &job->block->ranges[r];
    size_t from = range->begin > base + begin ? range->begin : base + begin;
    size_t to = range->end < base + end ? range->end : base + end;
    if (from < to)
      update_range(job, range->decays, from - base, to - base);
  }
}

void pen_update_tile(struct pen_pool *pool, enum pen_isa isa,
                     const struct pen_adamw_params *params,
                     const struct pen_block *block,
                     const struct pen_tile *tile, size_t elem_bytes,
                     float *state, const void *grad, void *weight)
{
  struct job job = {isa,   params, block, tile, elem_bytes,
                    state, grad,   weight};
  size_t pieces = (tile->elems + PIECE_ELEMS - 1) / PIECE_ELEMS;
  pen_pool_run(pool, pieces, update_piece, &job);
}
