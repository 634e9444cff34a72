/* run_load.c: fills a new run: state tile by tile, weights from the state.
 *
 * Before the first step, on the main thread, one transfer at a time, in slots
 * the run has anyway: loading and resuming need no memory that training does
 * not.  Disadvantage: nothing overlaps here, so a large state loads at the
 * speed of one request. */
#include <string.h>

#include "kernels/cast.h"
#include "offload/run_lanes.h"

static void *slot_address(const struct pen_run *run, uint32_t slot)
{
  const struct pen_slot *s = &run->o.layout->slots[slot];
  return (char *)run->arena[s->tier] + s->offset;
}

static int finish_transfer(struct pen_store_queue *queue, int rc)
{
  uint64_t tag;
  if (rc == 0)
    rc = pen_store_reap(queue, 1, 1, &tag);
  return rc < 0 ? rc : 0;
}

static size_t page_up(size_t bytes)
{
  return (bytes + PEN_SLOT_ALIGN - 1) / PEN_SLOT_ALIGN * PEN_SLOT_ALIGN;
}

static int load_tile(struct pen_run *run, uint32_t number, void *weights,
                     int (*load)(void *ctx, uint32_t tile, float *p, float *m,
                                 float *v),
                     void *ctx)
{
  const struct pen_layout *l = run->o.layout;
  const struct pen_tile *tile = &l->tiles[number];
  uint32_t slot =
      tile->state_home != PEN_NONE ? tile->state_home : l->tile_state.first;
  pen_poison_open(&run->poison, slot);
  float *p = slot_address(run, slot);
  size_t bytes = tile->elems * 3 * sizeof *p;
  memset((char *)p + bytes, 0, page_up(bytes) - bytes);
  int rc = load(ctx, number, p, p + tile->elems, p + 2 * tile->elems);
  bool in_store = rc == PEN_RUN_IN_STORE;
  if (in_store)
    rc = 0;
  size_t elem = run->o.workload->weight_elem_bytes;
  char *w = (char *)weights + tile->begin * elem;
  if (rc == 0 && elem == sizeof(uint16_t))
    pen_cast_f32_to_bf16_away(run->o.isa, tile->elems, p, (uint16_t *)w);
  else if (rc == 0)
    memcpy(w, p, tile->elems * sizeof *p);
  if (rc == 0 && tile->store_tile != PEN_NONE && !in_store) {
    struct pen_store_queue *queue = run->lanes[PEN_LANE_WRITE].queue;
    rc = finish_transfer(queue, pen_store_write_tile(queue, tile->store_tile,
                                                     p, page_up(bytes), 0));
  }
  pen_poison_close(&run->poison, slot);
  return rc;
}

/* A block's weights from where they were made to their home. */
static int put_weights(struct pen_run *run, uint32_t home, void *weights)
{
  const struct pen_slot *slot = &run->o.layout->slots[home];
  if (slot->tier == PEN_TIER_HOST)
    return 0;
  if (slot->tier == PEN_TIER_NVME) {
    struct pen_store_queue *queue = run->lanes[PEN_LANE_WRITE].queue;
    return finish_transfer(
        queue, pen_store_write_scratch(queue, slot->offset, weights,
                                       slot->bytes, 0));
  }
  pen_poison_open(&run->poison, home);
  int rc = pen_run_upload_now(run, slot_address(run, home), weights, slot->bytes);
  pen_poison_close(&run->poison, home);
  return rc;
}

/* The tables, piece by piece through a slot of the host's; they stay as they
 * are, so theirs is open for good. */
static int put_tables(struct pen_run *run)
{
  const struct pen_layout *l = run->o.layout;
  if (l->tables == PEN_NONE)
    return 0;
  uint32_t through = l->inputs_host[0];
  size_t bytes = run->o.workload->tables_bytes, step = l->slots[through].bytes;
  char *to = slot_address(run, l->tables), *piece = slot_address(run, through);
  int rc = 0;
  pen_poison_open(&run->poison, l->tables);
  pen_poison_open(&run->poison, through);
  for (size_t done = 0; rc == 0 && done < bytes; done += step) {
    size_t n = bytes - done < step ? bytes - done : step;
    memcpy(piece, (const char *)run->o.workload->tables + done, n);
    rc = pen_run_upload_now(run, to + done, piece, n);
  }
  pen_poison_close(&run->poison, through);
  return rc;
}

int pen_run_load(struct pen_run *run,
                 int (*load)(void *ctx, uint32_t tile, float *p, float *m,
                             float *v),
                 void *ctx)
{
  const struct pen_layout *l = run->o.layout;
  int rc = put_tables(run);
  for (size_t b = 0; rc == 0 && b < run->o.workload->n_blocks; b++) {
    uint32_t home = l->weight_home[b];
    uint32_t slot =
        l->slots[home].tier == PEN_TIER_HOST ? home : l->weight_host.first;
    pen_poison_open(&run->poison, slot);
    void *weights = slot_address(run, slot);
    for (uint32_t t = l->block_tiles[b]; rc == 0 && t < l->block_tiles[b + 1];
         t++)
      rc = load_tile(run, t, weights, load, ctx);
    if (rc == 0)
      rc = put_weights(run, home, weights);
    pen_poison_close(&run->poison, slot);
    if (rc < 0)
      return pen_error_context(rc, "loading block %s",
                               run->o.workload->blocks[b].name);
  }
  return rc;
}
