/* update.c: cuts a tile into pieces of a fixed size for the update workers.
 *
 * Pieces are counted from the tile's first element; each element's result
 * depends on nothing but itself, so neither tiles nor pieces nor workers can be
 * seen in the numbers.  Disadvantage: a tile smaller than a piece keeps all but
 * one worker idle. */
#include "offload/update.h"

#include <assert.h>
#include <string.h>

#include "base/rng.h"

#define PIECE_ELEMS ((size_t)32768)

struct span {
  size_t begin, end;
};

/* The first elements in [at, end) that decay, as far as they go together; both
 * ends `end` where there are none.  Counted from the block's start. */
static struct span find_decay(const struct pen_block *block, size_t at,
                              size_t end)
{
  struct span found = {end, end};
  for (size_t r = 0; r < block->n_ranges; r++) {
    const struct pen_block_range *range = &block->ranges[r];
    size_t from = range->begin > at ? range->begin : at;
    size_t to = range->end < end ? range->end : end;
    if (!range->decays || from >= to)
      continue;
    if (found.begin < end && from != found.end)
      break;
    if (found.begin == end)
      found.begin = from;
    found.end = to;
  }
  return found;
}

/* Elements [begin, end) of the tile; what of them decays lies together.  An old
 * state is copied by the range, so that the update finds it in the cache. */
static void update_range(const struct pen_update *u, struct span decay,
                         size_t begin, size_t end)
{
  size_t elem_bytes = u->workload->weight_elem_bytes;
  size_t bytes = (end - begin) * elem_bytes;
  struct pen_state_update update = {
      .isa = u->isa,
      .params = u->params,
      .part = {u->state, u->tile->elems, begin, end - begin},
      .decay_begin = decay.begin - begin,
      .decay_end = decay.end - begin,
      .key = pen_rng_u64(u->seed, u->step, u->tile->block),
      .first = u->tile->begin + begin,
      .elem = elem_bytes == sizeof(uint16_t) ? PEN_ELEM_BF16 : PEN_ELEM_F32,
      .grad = (const char *)u->grad + begin * elem_bytes,
      .weight = (char *)u->weight + begin * elem_bytes};
  if (u->old_state)
    pen_state_copy(u->workload->state, &update.part, u->old_state);
  if (u->old_half)
    memcpy(update.weight, (const char *)u->old_half + begin * elem_bytes, bytes);
  pen_state_update(u->workload->state, &update);
  if (u->copy)
    memcpy((char *)u->copy + begin * elem_bytes, update.weight, bytes);
}

static void update_piece(void *ctx, size_t item, size_t worker)
{
  const struct pen_update *u = ctx;
  const struct pen_block *block = &u->workload->blocks[u->tile->block];
  size_t base = u->tile->begin, at = item * PIECE_ELEMS, stop;
  size_t end = at + PIECE_ELEMS < u->tile->elems ? at + PIECE_ELEMS
                                                 : u->tile->elems;
  (void)worker;
  for (; at < end; at = stop) {
    struct span decay = find_decay(block, base + at, base + end);
    struct span next = find_decay(block, decay.end, base + end);
    stop = next.begin == base + end
               ? end
               : (next.begin - base) / PEN_STATE_GROUP_ELEMS *
                     PEN_STATE_GROUP_ELEMS;
    assert(base + stop >= decay.end); /* else a group has two such spans */
    decay.begin -= base;
    decay.end -= base;
    update_range(u, decay, at, stop);
  }
}

void pen_update_tile(struct pen_pool *pool, const struct pen_update *update)
{
  size_t pieces = (update->tile->elems + PIECE_ELEMS - 1) / PIECE_ELEMS;
  struct pen_update u = *update;
  pen_pool_run(pool, pieces, update_piece, &u);
}
