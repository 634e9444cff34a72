/* transfer.c: whole transfers of any length over an engine's ring.
 *
 * Pieces are issued in the order of the transfers, oldest first, and may
 * complete in any; a transfer is over when all its bytes moved, or when it
 * failed and nothing of it is in flight any more.  All memory is taken at
 * creation.  Threads: the queue's owner.  Disadvantage: a transfer that waits
 * for retries keeps its piece, and so a share of the depth. */
#include "io/transfer.h"

#include <errno.h>
#include <stdlib.h>

#include "base/error.h"

#define PIECES_MIN 8
#define PIECES_MAX 64

struct active {
  struct pen_transfer transfer;
  size_t issued;   /* bytes handed to pieces */
  size_t left;     /* bytes not yet moved */
  size_t n_pieces; /* in flight */
  int code;
};

struct piece {
  struct pen_engine_request request; /* its tag is the piece's index */
  struct active *active;
  uint32_t attempts;
};

/* A fixed ring buffer of indices. */
struct fifo {
  uint32_t *items; /* [capacity] */
  size_t capacity, head, n;
};

struct pen_transfer_queue {
  struct pen_engine_ring *ring;
  struct pen_engine_file *const *files;
  const struct pen_stripe *stripe;
  const uint64_t *stripe_base;
  size_t depth;
  struct active *actives; /* [depth] */
  struct fifo free_actives, waiting, finished;
  size_t ring_depth;
  struct piece *pieces; /* [ring_depth] */
  struct fifo free_pieces;
  size_t n_in_flight;
  struct pen_engine_request *batch;           /* [ring_depth] */
  struct pen_engine_completion *completions;  /* [ring_depth] */
  struct pen_transfer_counters counters;
};

static int fifo_init(struct fifo *fifo, size_t capacity, bool full)
{
  fifo->capacity = capacity;
  fifo->items = calloc(capacity, sizeof *fifo->items);
  if (!fifo->items)
    return -ENOMEM;
  for (size_t i = 0; full && i < capacity; i++)
    fifo->items[i] = (uint32_t)i;
  fifo->n = full ? capacity : 0;
  return 0;
}

static void fifo_put(struct fifo *fifo, size_t item)
{
  fifo->items[(fifo->head + fifo->n++) % fifo->capacity] = (uint32_t)item;
}

static uint32_t fifo_take(struct fifo *fifo)
{
  uint32_t item = fifo->items[fifo->head];
  fifo->head = (fifo->head + 1) % fifo->capacity;
  fifo->n--;
  return item;
}

void pen_transfer_queue_free(struct pen_transfer_queue **queue)
{
  struct pen_transfer_queue *q = *queue;
  if (!q)
    return;
  if (q->ring)
    q->ring->engine->ring_free(&q->ring);
  free(q->actives);
  free(q->free_actives.items);
  free(q->waiting.items);
  free(q->finished.items);
  free(q->pieces);
  free(q->free_pieces.items);
  free(q->batch);
  free(q->completions);
  free(q);
  *queue = NULL;
}

static int take_memory(struct pen_transfer_queue *q)
{
  q->actives = calloc(q->depth, sizeof *q->actives);
  q->pieces = calloc(q->ring_depth, sizeof *q->pieces);
  q->batch = calloc(q->ring_depth, sizeof *q->batch);
  q->completions = calloc(q->ring_depth, sizeof *q->completions);
  return q->actives && q->pieces && q->batch && q->completions &&
                 !fifo_init(&q->free_actives, q->depth, true) &&
                 !fifo_init(&q->waiting, q->depth, false) &&
                 !fifo_init(&q->finished, q->depth, false) &&
                 !fifo_init(&q->free_pieces, q->ring_depth, true)
             ? 0
             : pen_error_set(-ENOMEM, "cannot make an I/O queue");
}

int pen_transfer_queue_create(const struct pen_engine *engine, size_t depth,
                              struct pen_engine_file *const *files,
                              size_t n_files,
                              const struct pen_engine_region *regions,
                              size_t n_regions,
                              const struct pen_stripe *stripe,
                              const uint64_t *stripe_base,
                              struct pen_transfer_queue **ret_queue)
{
  if (depth == 0 || depth > UINT32_MAX)
    return pen_error_set(-EINVAL, "an I/O queue of depth %zu", depth);
  struct pen_transfer_queue *q = calloc(1, sizeof *q);
  if (!q)
    return pen_error_set(-ENOMEM, "cannot make an I/O queue");
  q->files = files;
  q->stripe = stripe;
  q->stripe_base = stripe_base;
  q->depth = depth;
  q->ring_depth = depth * 4 < PIECES_MIN   ? PIECES_MIN
                  : depth * 4 > PIECES_MAX ? PIECES_MAX
                                           : depth * 4;
  int code = take_memory(q);
  if (!code)
    code = engine->ring_create(engine, q->ring_depth, files, n_files, regions,
                               n_regions, &q->ring);
  if (code)
    pen_transfer_queue_free(&q);
  else
    *ret_queue = q;
  return code;
}

const char *pen_transfer_queue_note(const struct pen_transfer_queue *queue)
{
  return queue->ring->note;
}

void pen_transfer_counters(const struct pen_transfer_queue *queue,
                           struct pen_transfer_counters *ret_counters)
{
  *ret_counters = queue->counters;
}

/* Cuts the next piece of a transfer. */
static void cut_piece(struct pen_transfer_queue *q, struct active *active,
                      struct piece *piece)
{
  const struct pen_transfer *t = &active->transfer;
  size_t bytes = t->bytes - active->issued;
  size_t run = PEN_TRANSFER_PIECE_BYTES;
  struct pen_engine_request *r = &piece->request;
  *r = (struct pen_engine_request){
      .write = t->write,
      .file = t->file,
      .buffer = (char *)t->buffer + active->issued,
      .offset = t->offset + active->issued,
      .tag = (uint64_t)(piece - q->pieces)};
  if (t->file == PEN_TRANSFER_STRIPED) {
    run = pen_stripe_locate(q->stripe, r->offset, &r->file, &r->offset);
    r->offset += q->stripe_base[r->file];
  }
  r->bytes = bytes < run ? bytes : run;
  piece->active = active;
  piece->attempts = 0;
  active->issued += r->bytes;
  active->n_pieces++;
}

/* Hands pieces to the ring while it has room; `n` in the batch already. */
static int pump(struct pen_transfer_queue *q, size_t n)
{
  while (q->waiting.n && q->free_pieces.n) {
    struct active *active = &q->actives[q->waiting.items[q->waiting.head]];
    if (!active->code) {
      struct piece *piece = &q->pieces[fifo_take(&q->free_pieces)];
      cut_piece(q, active, piece);
      q->batch[n++] = piece->request;
      q->n_in_flight++;
    }
    if (active->code || active->issued == active->transfer.bytes)
      fifo_take(&q->waiting);
  }
  return n ? q->ring->engine->ring_submit(q->ring, q->batch, n) : 0;
}

int pen_transfer_submit(struct pen_transfer_queue *queue,
                        const struct pen_transfer *transfer)
{
  if (!queue->free_actives.n)
    return -EAGAIN;
  if (((uintptr_t)transfer->buffer | transfer->bytes | transfer->offset) %
          PEN_ENGINE_ALIGN || !transfer->bytes)
    return pen_error_set(-EINVAL, "a transfer of %zu bytes at byte %llu from "
                         "%p is not aligned to %d", transfer->bytes,
                         (unsigned long long)transfer->offset,
                         transfer->buffer, PEN_ENGINE_ALIGN);
  uint32_t index = fifo_take(&queue->free_actives);
  queue->actives[index] =
      (struct active){.transfer = *transfer, .left = transfer->bytes};
  fifo_put(&queue->waiting, index);
  return pump(queue, 0);
}

/* One completion; true when the piece goes on (its request is then set). */
static bool take_completion(struct pen_transfer_queue *q, struct piece *piece,
                            int64_t result)
{
  struct pen_engine_request *r = &piece->request;
  struct active *active = piece->active;
  size_t moved = r->bytes;
  int code = 0;
  enum pen_engine_next next =
      pen_engine_judge(q->files[r->file], r->write, r->bytes, r->offset,
                       result, &piece->attempts, &moved, &code);
  if (next == PEN_ENGINE_RETRY || next == PEN_ENGINE_FAILED)
    moved = 0;
  if (next == PEN_ENGINE_RETRY || next == PEN_ENGINE_ADVANCE)
    q->counters.retries++;
  if (result >= 0 && next != PEN_ENGINE_DONE)
    q->counters.short_transfers++;
  if (next == PEN_ENGINE_FAILED && !active->code)
    active->code = code;
  active->left -= moved;
  *(r->write ? &q->counters.bytes_written : &q->counters.bytes_read) += moved;
  r->buffer = (char *)r->buffer + moved;
  r->offset += moved;
  r->bytes -= moved;
  return r->bytes && !active->code;
}

/* Completions from the ring; those that go on are issued again. */
static int collect(struct pen_transfer_queue *q, size_t min)
{
  int got = q->ring->engine->ring_reap(q->ring, min, q->ring_depth,
                                       q->completions);
  size_t n = 0;
  for (int i = 0; i < got; i++) {
    struct piece *piece = &q->pieces[q->completions[i].tag];
    if (take_completion(q, piece, q->completions[i].result)) {
      q->batch[n++] = piece->request;
      continue;
    }
    struct active *active = piece->active;
    fifo_put(&q->free_pieces, (size_t)(piece - q->pieces));
    q->n_in_flight--;
    active->n_pieces--;
    if (!active->n_pieces && (active->code || !active->left))
      fifo_put(&q->finished, (size_t)(active - q->actives));
  }
  return got < 0 ? got : pump(q, n);
}

int pen_transfer_reap(struct pen_transfer_queue *queue, size_t min, size_t max,
                      struct pen_transfer_done *ret_done)
{
  size_t n = 0;
  int code = queue->n_in_flight ? collect(queue, 0) : 0;
  while (!code) {
    while (n < max && queue->finished.n) {
      uint32_t index = fifo_take(&queue->finished);
      const struct active *active = &queue->actives[index];
      ret_done[n++] = (struct pen_transfer_done){
          .tag = active->transfer.tag, .code = active->code};
      fifo_put(&queue->free_actives, index);
    }
    if (n >= min || n == max || !queue->n_in_flight)
      return (int)n;
    code = collect(queue, 1);
  }
  return code;
}
