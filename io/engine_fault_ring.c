/* engine_fault_ring.c: the fault engine's rings.
 *
 * Each request takes a slot, whose number is its tag below; a completion waits
 * in its slot until its delay is over.  Invariant: a completion that is held
 * back is let go as soon as nothing else could be returned.
 * Threads: the ring's owner; the state's mutex where it is shared.
 * Disadvantage: reads of un-synced bytes are blocking when power may be cut. */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/error.h"
#include "io/engine_fault_state.h"

enum slot_state { SLOT_FREE, SLOT_BELOW, SLOT_DONE };

struct slot {
  enum slot_state state;
  struct pen_engine_request request;
  int64_t result; /* of SLOT_DONE */
  size_t report;  /* at most this many bytes are told */
  unsigned delay;
};

struct fault_ring {
  struct pen_engine_ring base;
  struct pen_engine_ring *inner;
  struct pen_fault_file **files;
  struct slot *slots; /* [depth] */
  size_t depth, n_below, n_done;
};

void pen_fault_ring_free(struct pen_engine_ring **base)
{
  struct fault_ring *ring = (struct fault_ring *)*base;
  if (!ring)
    return;
  if (ring->inner)
    ring->inner->engine->ring_free(&ring->inner);
  free(ring->files);
  free(ring->slots);
  free(ring);
  *base = NULL;
}

int pen_fault_ring_create(const struct pen_engine *engine, size_t depth,
                          struct pen_engine_file *const *files, size_t n_files,
                          const struct pen_engine_region *regions,
                          size_t n_regions, struct pen_engine_ring **ret_ring)
{
  const struct pen_engine *inner = pen_fault_state(engine)->inner;
  struct fault_ring *ring = calloc(1, sizeof *ring);
  struct pen_engine_file **below = calloc(n_files, sizeof *below);
  struct pen_engine_ring *base = (struct pen_engine_ring *)ring;
  int code = 0;
  if (ring) {
    ring->base.engine = engine;
    ring->depth = depth;
    ring->files = calloc(n_files, sizeof *ring->files);
    ring->slots = calloc(depth, sizeof *ring->slots);
  }
  if (!ring || !below || !ring->files || !ring->slots) {
    code = pen_error_set(-ENOMEM, "cannot make an I/O ring");
  } else {
    for (size_t i = 0; i < n_files; i++) {
      ring->files[i] = (struct pen_fault_file *)files[i];
      below[i] = ring->files[i]->inner;
    }
    code = inner->ring_create(inner, depth, below, n_files, regions, n_regions,
                              &ring->inner);
  }
  free(below);
  if (code) {
    pen_fault_ring_free(&base);
    return code;
  }
  snprintf(base->note, sizeof base->note, "fault over %.300s",
           ring->inner->note);
  *ret_ring = base;
  return 0;
}

static void finish(struct fault_ring *ring, struct slot *slot, int64_t result)
{
  slot->state = SLOT_DONE;
  slot->result = result;
  ring->n_done++;
  if (result <= (int64_t)slot->report)
    return;
  slot->result = (int64_t)slot->report;
  if (!slot->request.write) /* whoever believes these bytes shall notice */
    memset((char *)slot->request.buffer + slot->report, 0xa5,
           (size_t)result - slot->report);
}

/* Passes the request on, or to the log; with the mutex held. */
static int start(struct fault_ring *ring, struct slot *slot,
                 struct pen_fault_state *state)
{
  struct pen_engine_request below = slot->request;
  struct pen_fault_file *file = ring->files[below.file];
  below.tag = (uint64_t)(slot - ring->slots);
  if (below.write) /* a short one still has whole sectors */
    below.bytes = (slot->report + PEN_ENGINE_ALIGN - 1) &
                  ~(size_t)(PEN_ENGINE_ALIGN - 1);
  if (below.bytes > slot->request.bytes)
    below.bytes = slot->request.bytes;
  if (state->logs && below.write) {
    int code = pen_fault_log_write(file, below.buffer, below.bytes,
                                   below.offset);
    finish(ring, slot, code ? code : (int64_t)below.bytes);
    return 0;
  }
  if (state->logs && pen_fault_logged(file, below.bytes, below.offset)) {
    finish(ring, slot, pen_fault_read_logged(file, below.buffer, below.bytes,
                                             below.offset));
    return 0;
  }
  slot->state = SLOT_BELOW;
  ring->n_below++;
  return ring->inner->engine->ring_submit(ring->inner, &below, 1);
}

static int submit_one(struct fault_ring *ring, struct slot *slot,
                      const struct pen_engine_request *request)
{
  struct pen_fault_state *state = pen_fault_state(ring->base.engine);
  int code = 0;
  pthread_mutex_lock(&state->mutex);
  struct pen_fault_verdict verdict =
      pen_fault_judge(state, true, request->bytes);
  *slot = (struct slot){.request = *request, .report = verdict.bytes,
                        .delay = verdict.delay};
  if (verdict.code)
    finish(ring, slot, verdict.code);
  else
    code = start(ring, slot, state);
  if (verdict.cut_now) {
    pen_fault_cut_power(state);
    slot->report = 0;
    if (slot->state == SLOT_DONE)
      slot->result = -EIO;
  }
  pthread_mutex_unlock(&state->mutex);
  return code;
}

int pen_fault_ring_submit(struct pen_engine_ring *base,
                          const struct pen_engine_request *requests, size_t n)
{
  struct fault_ring *ring = (struct fault_ring *)base;
  size_t s = 0;
  for (size_t i = 0; i < n; i++) {
    while (s < ring->depth && ring->slots[s].state != SLOT_FREE)
      s++;
    if (s == ring->depth)
      return pen_error_set(-EBUSY, "more than %zu requests in flight",
                           ring->depth);
    int code = submit_one(ring, &ring->slots[s], &requests[i]);
    if (code)
      return code;
  }
  return 0;
}

/* Takes what is complete below, waiting for one if `wait`. */
static int collect(struct fault_ring *ring, bool wait)
{
  struct pen_engine_completion done[16];
  int n = ring->n_below ? ring->inner->engine->ring_reap(
                              ring->inner, wait ? 1 : 0, 16, done)
                        : 0;
  for (int i = 0; i < n; i++) {
    finish(ring, &ring->slots[done[i].tag], done[i].result);
    ring->n_below--;
  }
  return n;
}

/* Lets go of completions whose time has come; of all if `hurry`. */
static size_t release(struct fault_ring *ring, bool hurry, size_t max,
                      struct pen_engine_completion *ret_completions)
{
  size_t n = 0;
  for (size_t s = 0; s < ring->depth && n < max; s++) {
    struct slot *slot = &ring->slots[s];
    if (slot->state != SLOT_DONE || (slot->delay && !hurry))
      continue;
    ret_completions[n++] = (struct pen_engine_completion){
        .tag = slot->request.tag, .result = slot->result};
    slot->state = SLOT_FREE;
    ring->n_done--;
  }
  return n;
}

int pen_fault_ring_reap(struct pen_engine_ring *base, size_t min, size_t max,
                        struct pen_engine_completion *ret_completions)
{
  struct fault_ring *ring = (struct fault_ring *)base;
  for (size_t s = 0; s < ring->depth; s++)
    if (ring->slots[s].delay)
      ring->slots[s].delay--;
  size_t n = 0;
  for (;;) {
    int code = collect(ring, false);
    if (code < 0)
      return code;
    n += release(ring, false, max - n, ret_completions + n);
    if (n >= min || (!ring->n_below && !ring->n_done))
      return (int)n;
    if (ring->n_below)
      code = collect(ring, true);
    else
      n += release(ring, true, max - n, ret_completions + n);
    if (code < 0)
      return code;
  }
}
