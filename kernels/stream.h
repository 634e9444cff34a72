/* stream.h: what an operation runs on: on the host a pool of workers, their
 * scratch memory and a product library, where calls return when the work is
 * done; on a device its compute queue, where they return when it is queued. */
#ifndef PEN_KERNELS_STREAM_H
#define PEN_KERNELS_STREAM_H

#include <stddef.h>

#include "base/error.h"
#include "base/pool.h"
#include "kernels/fpmode.h"
#include "kernels/isa.h"

/* Scratch memory of one worker; enough for any operation of any shape that
 * pen_ops_check_shape accepts. */
#define PEN_STREAM_SCRATCH_BYTES ((size_t)4 << 20)

struct pen_gemm_library;

/* A stream belongs to one thread at a time, and so does its pool.  The first
 * failure of an operation sticks to the stream, as on a GPU: operations return
 * nothing, and what follows a failure computes garbage until the caller asks
 * with pen_stream_take_status. */
struct pen_stream {
  void *device; /* of a backend that is not the host: its own; there the rest,
                   but for the error, is not used */
  struct pen_pool *pool;  /* borrowed */
  unsigned char *scratch; /* borrowed; 64-byte aligned, [pool's threads,
                             PEN_STREAM_SCRATCH_BYTES] */
  enum pen_isa isa;                    /* of the operations' tables */
  const struct pen_gemm_library *gemm; /* borrowed; see gemm.h */
  struct pen_error error;              /* code 0: no failure so far */
};

/* The worker's own scratch, valid during the current pool item. */
static inline void *pen_stream_scratch(const struct pen_stream *s,
                                       size_t worker)
{
  return s->scratch + worker * PEN_STREAM_SCRATCH_BYTES;
}

/* 0, or the first failure since the last call, made the calling thread's
 * standing failure. */
static inline int pen_stream_take_status(struct pen_stream *s)
{
  if (!s->error.code)
    return 0;
  int code = pen_error_put(&s->error);
  s->error.code = 0;
  return code;
}

struct pen_stream_items {
  void (*fn)(void *ctx, size_t item, size_t worker);
  void *ctx;
};

static inline void pen_stream_item(void *ctx, size_t item, size_t worker)
{
  const struct pen_stream_items *items = ctx;
  uint64_t outer = pen_fpmode_begin();
  items->fn(items->ctx, item, worker);
  pen_fpmode_set(outer);
}

/* pen_pool_run on the stream's pool, in the kernels' floating-point mode. */
static inline void pen_stream_run(const struct pen_stream *s, size_t n_items,
                                  void (*fn)(void *ctx, size_t item,
                                             size_t worker),
                                  void *ctx)
{
  struct pen_stream_items items = {fn, ctx};
  pen_pool_run(s->pool, n_items, pen_stream_item, &items);
}

#endif
