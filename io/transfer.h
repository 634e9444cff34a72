/* transfer.h: whole transfers of any length over an engine's ring.
 *
 * A transfer is cut into pieces of at most PEN_TRANSFER_PIECE_BYTES, several
 * in flight at once; short, interrupted and refused ones are issued again
 * from the aligned offset below, so that a transfer is all done or failed.
 * A queue belongs to the one thread that submits to and reaps from it. */
#ifndef PEN_IO_TRANSFER_H
#define PEN_IO_TRANSFER_H

#include "io/engine.h"
#include "io/stripe.h"

#define PEN_TRANSFER_PIECE_BYTES ((size_t)1 << 20)
#define PEN_TRANSFER_STRIPED UINT32_MAX

struct pen_transfer {
  bool write;
  uint32_t file;   /* index, or PEN_TRANSFER_STRIPED */
  uint64_t offset; /* in the file, or position in the stripes */
  void *buffer;    /* borrowed until reaped */
  size_t bytes;
  uint64_t tag;
};

struct pen_transfer_done {
  uint64_t tag;
  int code; /* 0: every byte moved */
};

struct pen_transfer_counters {
  uint64_t bytes_read, bytes_written, retries, short_transfers;
};

struct pen_transfer_queue;

/* For up to `depth` transfers at once.  files, stripe and stripe_base (offset
 * of the stripes in each file) are borrowed until free; the last two may be
 * NULL where nothing is striped.  Caller owns. */
int pen_transfer_queue_create(const struct pen_engine *engine, size_t depth,
                              struct pen_engine_file *const *files,
                              size_t n_files,
                              const struct pen_engine_region *regions,
                              size_t n_regions,
                              const struct pen_stripe *stripe,
                              const uint64_t *stripe_base,
                              struct pen_transfer_queue **ret_queue);
/* Waits for what is in flight. */
void pen_transfer_queue_free(struct pen_transfer_queue **queue);
const char *pen_transfer_queue_note(const struct pen_transfer_queue *queue);

/* -EAGAIN (without a text) when `depth` transfers are in flight. */
int pen_transfer_submit(struct pen_transfer_queue *queue,
                        const struct pen_transfer *transfer);
/* Waits for at least `min` (or all there are), returns how many were written
 * to ret_done (at most `max`), or a negative code when the engine broke down.
 * A failed transfer's text is this thread's standing failure. */
int pen_transfer_reap(struct pen_transfer_queue *queue, size_t min, size_t max,
                      struct pen_transfer_done *ret_done);
void pen_transfer_counters(const struct pen_transfer_queue *queue,
                           struct pen_transfer_counters *ret_counters);

#endif
