/* streams.h: what memory gives, by passes over long arrays without arithmetic:
 * the streams of AdamW, and plain ones. */
#ifndef PEN_BENCH_STREAMS_H
#define PEN_BENCH_STREAMS_H

#include <stddef.h>
#include <stdint.h>

/* fp32 p, m, v and bf16 grad, weight, [n] each; 64-byte aligned. */
struct pen_streams {
  size_t n; /* multiple of 32 */
  float *p, *m, *v;
  uint16_t *grad, *weight;
};

/* A pass over elements [begin, end), multiples of 32, on the calling thread. */
typedef void pen_streams_pass(const struct pen_streams *s, size_t begin,
                              size_t end);

enum pen_streams_kind {
  PEN_STREAMS_ADAMW,  /* p, m, v read and written back, grad read, weight
                         written past the cache */
  PEN_STREAMS_READ,   /* p */
  PEN_STREAMS_WRITE,  /* p, past the cache */
  PEN_STREAMS_COPY,   /* m = p, past the cache */
  PEN_STREAMS_TRIAD,  /* v = p + 3 m, past the cache */
  PEN_STREAMS_UPDATE, /* p read and written back */
  PEN_STREAMS_KINDS,
};

struct pen_streams_row {
  const char *name;
  size_t bytes_per_elem; /* of traffic */
  pen_streams_pass *pass;
};

/* The passes as vectors of this CPU make them. */
const struct pen_streams_row *pen_streams_row(enum pen_streams_kind kind);

/* Takes the arrays, filled with 0.0115 (no denormals), huge pages where there
 * are; ends the program where there is not the memory. */
void pen_streams_init(struct pen_streams *ret_streams, size_t n);
void pen_streams_done(struct pen_streams *streams);

/* Seconds of one pass by plain threads, each over its own part. */
double pen_streams_run(const struct pen_streams *streams,
                       const struct pen_streams_row *row, size_t n_threads);

#endif
