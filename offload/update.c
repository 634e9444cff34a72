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
#define AHEAD_ROWS 64 /* a worker takes at once */
#define AHEAD_ELEMS ((size_t)1024) /* of a row, on the stack */

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

/* Of the tile's elements [at, *ret_stop), at most to `end`, those that decay. */
static struct span decay_of_some(const struct pen_update *u, size_t at, size_t end,
                                 size_t *ret_stop)
{
  const struct pen_block *block = &u->workload->blocks[u->tile->block];
  size_t base = u->tile->begin;
  struct span decay = find_decay(block, base + at, base + end);
  struct span next = find_decay(block, decay.end, base + end);
  *ret_stop = next.begin == base + end ? end
                                       : (next.begin - base) /
                                             PEN_STATE_GROUP_ELEMS *
                                             PEN_STATE_GROUP_ELEMS;
  assert(base + *ret_stop >= decay.end); /* else a group has two such spans */
  return (struct span){decay.begin - base, decay.end - base};
}

static void update_piece(void *ctx, size_t item, size_t worker)
{
  const struct pen_update *u = ctx;
  size_t at = item * PIECE_ELEMS, stop;
  size_t end = at + PIECE_ELEMS < u->tile->elems ? at + PIECE_ELEMS
                                                 : u->tile->elems;
  (void)worker;
  for (; at < end; at = stop) {
    struct span decay = decay_of_some(u, at, end, &stop);
    update_range(u, decay, at, stop);
  }
}

void pen_update_tile(struct pen_pool *pool, const struct pen_update *update)
{
  size_t pieces = (update->tile->elems + PIECE_ELEMS - 1) / PIECE_ELEMS;
  struct pen_update u = *update;
  pen_pool_run(pool, pieces, update_piece, &u);
}

/* ---- ahead ---- */

/* Elements [begin, begin + n) of the tile, copied: groups of them, at most
 * AHEAD_ELEMS. */
struct aside {
  _Alignas(64) char state[AHEAD_ELEMS * 3 * sizeof(float)];
  _Alignas(64) char weight[AHEAD_ELEMS * sizeof(float)];
};

static void copy_aside(const struct pen_update *u, size_t begin, size_t n,
                       struct aside *to)
{
  const struct pen_state_format *format = u->workload->state;
  struct pen_state_part from = {u->state, u->tile->elems, begin, n};
  struct pen_state_part part = {to->state, n, 0, n};
  void *old[PEN_STATE_ARRAYS_MAX], *new[PEN_STATE_ARRAYS_MAX];
  size_t elem_bytes = u->workload->weight_elem_bytes;
  pen_state_find_arrays(format, &from, old);
  pen_state_find_arrays(format, &part, new);
  for (size_t i = 0; i < format->n_arrays; i++)
    memcpy(new[i], old[i],
           n / PEN_STATE_GROUP_ELEMS * format->arrays[i].group_bytes);
  memcpy(to->weight, (const char *)u->weight + begin * elem_bytes,
         n * elem_bytes);
}

/* Makes the weights of whole groups. */
static void update_aside(const struct pen_update *u, size_t begin, size_t n,
                         struct aside *aside)
{
  struct pen_update here = *u;
  struct pen_tile tile = *u->tile;
  size_t stop;
  copy_aside(u, begin, n, aside);
  tile.begin += begin;
  tile.elems = n;
  here.tile = &tile;
  here.state = aside->state;
  here.weight = aside->weight;
  here.grad = (const char *)u->grad + begin * u->workload->weight_elem_bytes;
  for (size_t at = 0; at < n; at = stop) {
    struct span decay = decay_of_some(&here, at, n, &stop);
    update_range(&here, decay, at, stop);
  }
}

/* Elements [from, to) of the tile, to `out`. */
static void look_ahead(const struct pen_update *u, size_t from, size_t to,
                       char *out)
{
  struct aside aside;
  size_t elem_bytes = u->workload->weight_elem_bytes;
  for (size_t at = from, n; at < to; at += n) {
    size_t begin = at / PEN_STATE_GROUP_ELEMS * PEN_STATE_GROUP_ELEMS;
    size_t end = begin + AHEAD_ELEMS < u->tile->elems ? begin + AHEAD_ELEMS
                                                      : u->tile->elems;
    while (end - PEN_STATE_GROUP_ELEMS >= to)
      end -= PEN_STATE_GROUP_ELEMS;
    n = (end < to ? end : to) - at;
    update_aside(u, begin, end - begin, &aside);
    memcpy(out + (at - from) * elem_bytes,
           aside.weight + (at - begin) * elem_bytes, n * elem_bytes);
  }
}

static void rows_piece(void *ctx, size_t item, size_t worker)
{
  const struct pen_update_ahead *a = ctx;
  const struct pen_update *u = a->update;
  const struct pen_step_rows *rows = a->rows;
  size_t elem_bytes = u->workload->weight_elem_bytes, i = item * AHEAD_ROWS;
  size_t stop = i + AHEAD_ROWS < rows->n ? i + AHEAD_ROWS : rows->n;
  size_t begin = u->tile->begin, end = begin + u->tile->elems;
  (void)worker;
  for (; i < stop; i++) {
    size_t first = (rows->ids[i] - rows->begin) * rows->width;
    size_t from = first > begin ? first : begin;
    size_t to = first + rows->width < end ? first + rows->width : end;
    if (rows->ids[i] < rows->begin || rows->ids[i] >= rows->end || from >= to)
      continue;
    char *out = (char *)a->out +
                (i * rows->width + (from - first)) * elem_bytes;
    if (a->applies)
      look_ahead(u, from - begin, to - begin, out);
    else
      memcpy(out, (const char *)u->weight + (from - begin) * elem_bytes,
             (to - from) * elem_bytes);
  }
}

void pen_update_rows(struct pen_pool *pool, const struct pen_update_ahead *ahead)
{
  struct pen_update_ahead a = *ahead;
  size_t pieces = (a.rows->n + AHEAD_ROWS - 1) / AHEAD_ROWS;
  pen_pool_run(pool, pieces, rows_piece, &a);
}
