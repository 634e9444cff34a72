/* run_load.c: fills a new run: state tile by tile, weights from the state.
 *
 * Before the first step, on the main thread, one transfer at a time, in slots
 * the run has anyway: loading and resuming need no memory that training does
 * not.  Disadvantage: nothing overlaps here, so a large state loads at the
 * speed of one request. */
#include <stdlib.h>
#include <string.h>

#include "base/error.h"
#include "kernels/cast.h"
#include "offload/run_lanes.h"

static void *slot_address(const struct pen_run *run, uint32_t slot)
{
  const struct pen_slot *s = &run->o.layout->slots[slot];
  return (char *)run->arena[s->tier] + run->offset[slot];
}

static int finish_transfer(struct pen_store_queue *queue, int rc)
{
  uint64_t tag;
  if (rc == 0)
    rc = pen_store_reap(queue, 1, 1, &tag);
  return rc < 0 ? rc : 0;
}

#define PIECE_ELEMS PEN_NORM_CHUNK_ELEMS

struct loading {
  struct pen_run *run;
  pen_run_loader load;
  void *ctx;
  float *piece; /* p, m, v of PIECE_ELEMS; NULL where the format is fp32 */
};

/* Where a tile's parts go: its arrays, and its halves or, in formats without
 * them, its weights. */
struct parts {
  void *arrays;
  char *weights;
};

/* A format of fp32 arrays is filled in place, its weights made from them. */
static int load_plain(const struct loading *g, uint32_t number,
                      const struct parts *to)
{
  const struct pen_run *run = g->run;
  size_t n = run->o.layout->tiles[number].elems;
  float *p = to->arrays;
  int rc = g->load(g->ctx, number, 0, n, p, p + n, p + 2 * n);
  if (rc < 0)
    return rc;
  if (run->o.workload->weight_elem_bytes == sizeof(uint16_t))
    pen_cast_f32_to_bf16_away(run->o.isa, n, p, (uint16_t *)to->weights);
  else
    memcpy(to->weights, p, n * sizeof *p);
  return rc;
}

static int load_pieces(const struct loading *g, uint32_t number,
                       const struct parts *to)
{
  const struct pen_run *run = g->run;
  size_t elems = run->o.layout->tiles[number].elems;
  float *p = g->piece, *m = p + PIECE_ELEMS, *v = m + PIECE_ELEMS;
  int rc = 0;
  for (size_t at = 0, n; rc >= 0 && at < elems; at += n) {
    n = elems - at < PIECE_ELEMS ? elems - at : PIECE_ELEMS;
    struct pen_state_part part = {to->arrays, elems, at, n};
    rc = g->load(g->ctx, number, at, n, p, m, v);
    if (rc >= 0)
      pen_state_pack(run->o.layout->state, run->o.isa, &part,
                     (uint16_t *)to->weights + at, p, m, v);
  }
  return rc;
}

/* The tile's image into an open slot, and its weights to their place. */
static int load_image(const struct loading *g, uint32_t number, char *image,
                      char *weights)
{
  const struct pen_layout *l = g->run->o.layout;
  const struct pen_tile *tile = &l->tiles[number];
  size_t arrays = pen_layout_state_bytes(l, tile);
  size_t at = pen_layout_half_offset(l, tile);
  size_t half = pen_state_half_bytes(l->state, tile->elems);
  struct parts to = {image, weights};
  memset(image + arrays, 0, at - arrays);
  int rc = l->state->is_plain ? load_plain(g, number, &to)
                              : load_pieces(g, number, &to);
  bool keeps_half = half && (tile->state_home == PEN_NONE ||
                             !pen_layout_half_is_weight(l, tile));
  if (rc < 0 || !keeps_half)
    return rc;
  memcpy(image + at, weights, half);
  memset(image + at + half, 0, pen_layout_image_bytes(l, tile) - at - half);
  return rc;
}

static int load_tile(const struct loading *g, uint32_t number, void *weights)
{
  struct pen_run *run = g->run;
  const struct pen_layout *l = run->o.layout;
  const struct pen_tile *tile = &l->tiles[number];
  uint32_t home = tile->state_home;
  bool on_device =
      home != PEN_NONE && l->slots[home].tier == PEN_TIER_DEVICE;
  uint32_t slot =
      home != PEN_NONE && !on_device ? home : l->tile_state.first;
  pen_poison_open(&run->poison, slot);
  char *image = slot_address(run, slot);
  int rc = load_image(
      g, number, image,
      (char *)weights + tile->begin * run->o.workload->weight_elem_bytes);
  bool in_store = rc == PEN_RUN_IN_STORE;
  if (in_store)
    rc = 0;
  if (rc == 0 && tile->store_tile != PEN_NONE && !in_store) {
    struct pen_store_queue *queue = run->lanes[PEN_LANE_WRITE].queue;
    rc = finish_transfer(
        queue, pen_store_write_tile(queue, tile->store_tile, image,
                                    pen_layout_image_bytes(l, tile),
                                    pen_layout_half_offset(l, tile), 0));
  }
  if (rc == 0 && on_device) {
    pen_poison_open(&run->poison, home);
    rc = pen_run_upload_now(run, slot_address(run, home), image,
                            l->slots[home].bytes);
    pen_poison_close(&run->poison, home);
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

static bool is_told_to_stop(const struct pen_run *run)
{
  const volatile sig_atomic_t *stop = run->o.hooks.stop;
  return stop && *stop;
}

static int load_block(const struct loading *g, size_t block)
{
  struct pen_run *run = g->run;
  const struct pen_layout *l = run->o.layout;
  uint32_t home = l->weight_home[block];
  uint32_t slot =
      l->slots[home].tier == PEN_TIER_HOST ? home : l->weight_host.first;
  int rc = 0;
  pen_poison_open(&run->poison, slot);
  void *weights = slot_address(run, slot);
  for (uint32_t t = l->block_tiles[block];
       rc == 0 && t < l->block_tiles[block + 1] && !is_told_to_stop(run); t++)
    rc = load_tile(g, t, weights);
  if (rc == 0)
    rc = put_weights(run, home, weights);
  pen_poison_close(&run->poison, slot);
  const char *name = run->o.workload->blocks[block].name;
  if (rc < 0)
    return pen_error_context(rc, "loading block %s", name);
  return is_told_to_stop(run)
             ? pen_error_set(PEN_ESTOPPED, "stopped while loading block %s, %zu "
                             "of %zu", name, block + 1, run->o.workload->n_blocks)
             : 0;
}

int pen_run_load(struct pen_run *run, pen_run_loader load, void *ctx)
{
  struct loading g = {.run = run, .load = load, .ctx = ctx};
  if (!run->o.layout->state->is_plain &&
      !(g.piece = malloc(3 * PIECE_ELEMS * sizeof *g.piece)))
    return pen_error_set(PEN_ENOFIT, "no memory to load a piece of state");
  if (run->o.layout->kept != PEN_NONE) /* every step's, so open for good */
    pen_poison_open(&run->poison, run->o.layout->kept);
  int rc = put_tables(run);
  for (size_t b = 0; rc == 0 && b < run->o.workload->n_blocks; b++)
    rc = load_block(&g, b);
  free(g.piece);
  return rc;
}
