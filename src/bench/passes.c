/* passes.c: what lies between a layer's products: attention, and the operations
 * that pass over every element once, in the mix of a decoder layer.
 *
 * Main thread.  Disadvantage: one shape and one mix; models with other ratios of
 * norms to activations are a little off. */
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "base/error.h"
#include "kernels/ops.h"
#include "src/bench/bench.h"

#define TOKENS ((size_t)1024)
#define HIDDEN ((size_t)2048)
#define FFN ((size_t)5632)
#define HEADS ((size_t)16)
#define KV_HEADS ((size_t)4)
#define DIM ((size_t)64)
#define ROTATED (HEADS + KV_HEADS)

/* Element passes of a layer's forward: two norms, two sums, rotations, the
 * activation; its backward is counted twice, as with products. */
#define LAYER_ELEMS ((double)TOKENS * (4 * HIDDEN + ROTATED * DIM + FFN))
/* 4 operations a pair of tokens and element forward, 10 backward. */
#define ATTENTION_FLOPS \
  (14.0 * DIM * HEADS * (double)(TOKENS * (TOKENS + 1) / 2))

struct arrays {
  uint16_t *x, *y, *w;            /* [TOKENS, HIDDEN], w [HIDDEN] */
  uint16_t *gate, *up, *mid;      /* [TOKENS, FFN] */
  uint16_t *q, *k, *v, *o;        /* [TOKENS, heads, DIM] */
  uint16_t *dq, *dk, *dv;         /* all at the stride of q */
  float *rstd, *partials, *dw, *lse, *work, *angles;
  uint32_t *positions, *first_key; /* [TOKENS] */
};

/* Pieces of one mapping; base NULL only counts. */
static size_t carve(struct arrays *a, unsigned char *base)
{
  const size_t wide = TOKENS * HIDDEN, mid = TOKENS * FFN;
  const size_t rows = TOKENS * HEADS * DIM, keys = TOKENS * KV_HEADS * DIM;
  const struct {
    void **at;
    size_t bytes;
  } pieces[] = {
      {(void **)&a->x, wide * 2},     {(void **)&a->y, wide * 2},
      {(void **)&a->w, HIDDEN * 2},   {(void **)&a->gate, mid * 2},
      {(void **)&a->up, mid * 2},     {(void **)&a->mid, mid * 2},
      {(void **)&a->q, rows * 2},     {(void **)&a->k, keys * 2},
      {(void **)&a->v, keys * 2},     {(void **)&a->o, rows * 2},
      {(void **)&a->dq, rows * 2},    {(void **)&a->dk, rows * 2},
      {(void **)&a->dv, rows * 2},    {(void **)&a->rstd, TOKENS * 4},
      {(void **)&a->partials, pen_ops_partials_elems(TOKENS, HIDDEN) * 4},
      {(void **)&a->dw, HIDDEN * 4},  {(void **)&a->lse, TOKENS * HEADS * 4},
      {(void **)&a->work,
       TOKENS * pen_attention_work_per_token(HEADS, DIM) * 4},
      {(void **)&a->angles, TOKENS * DIM / 2 * 4},
      {(void **)&a->positions, TOKENS * 4},
      {(void **)&a->first_key, TOKENS * 4}};
  size_t used = 0;
  for (size_t i = 0; i < sizeof pieces / sizeof *pieces; i++) {
    if (base)
      *pieces[i].at = base + used;
    used += (pieces[i].bytes + 63) / 64 * 64;
  }
  for (size_t t = 0; base && t < TOKENS; t++) {
    a->positions[t] = (uint32_t)t;
    a->first_key[t] = 0;
  }
  return used;
}

static double layer_pass(struct pen_stream *s, const struct pen_ops *ops,
                         const struct arrays *a)
{
  const struct pen_heads rows = {TOKENS, 1, HIDDEN};
  const struct pen_heads q = {TOKENS, HEADS, DIM}, k = {TOKENS, KV_HEADS, DIM};
  const enum pen_activation silu = PEN_ACTIVATION_SILU;
  uint64_t begin = pen_clock_ns();
  for (int half = 0; half < 2; half++) {
    ops->rmsnorm(s, &rows, a->x, HIDDEN, a->w, 0, 1e-5f, a->y, HIDDEN, a->rstd);
    ops->add(s, TOKENS * HIDDEN, a->x, a->y, a->y);
    ops->rope(s, half ? &k : &q, DIM, half ? a->k : a->q,
              (half ? KV_HEADS : HEADS) * DIM, a->positions, a->angles,
              a->angles, false);
  }
  ops->glu(s, silu, TOKENS, FFN, a->gate, a->up, FFN, a->mid);
  ops->glu_backward(s, silu, TOKENS, FFN, a->mid, a->gate, a->up, FFN, a->gate,
                    a->up);
  for (int half = 0; half < 2; half++) {
    ops->rmsnorm_backward(s, &rows, a->y, HIDDEN, PEN_ELEM_BF16, a->x, HIDDEN,
                          a->w, 0, a->rstd, a->y, HIDDEN, true, a->dw,
                          a->partials);
    ops->rope(s, half ? &k : &q, DIM, half ? a->dk : a->dq,
              (half ? KV_HEADS : HEADS) * DIM, a->positions, a->angles,
              a->angles, true);
  }
  return (double)(pen_clock_ns() - begin) * 1e-9;
}

static double attention_pass(struct pen_stream *s, const struct pen_ops *ops,
                             const struct arrays *a)
{
  const struct pen_attention at = {.tokens = TOKENS,
                                   .heads = HEADS,
                                   .kv_heads = KV_HEADS,
                                   .dim = DIM,
                                   .scale = 0.125f,
                                   .first_key = a->first_key,
                                   .ldq = HEADS * DIM,
                                   .ldk = KV_HEADS * DIM,
                                   .ldv = KV_HEADS * DIM,
                                   .ldo = HEADS * DIM,
                                   .ldd = HEADS * DIM};
  uint64_t begin = pen_clock_ns();
  ops->attention(s, &at, a->q, a->k, a->v, a->o, a->lse);
  ops->attention_backward(s, &at, a->q, a->k, a->v, a->o, a->lse, a->q, a->work,
                          a->dq, a->dk, a->dv);
  return (double)(pen_clock_ns() - begin) * 1e-9;
}

/* Small numbers again: what passed before may have left any. */
static void refill(struct arrays *a, unsigned char *memory, size_t bytes)
{
  memset(memory, 0x3c, bytes);
  carve(a, memory);
}

static int measure(const struct pen_bench_options *o, size_t threads,
                   struct pen_bench_table *table, double *ret_passes,
                   double *ret_attention)
{
  struct pen_stream s = {.isa = o->isa};
  const struct pen_ops *ops = pen_ops_host(o->isa, PEN_ELEM_BF16);
  double layer[PEN_BENCH_RUNS_MAX], attention[PEN_BENCH_RUNS_MAX];
  struct arrays a;
  size_t bytes = carve(&a, NULL);
  void *memory = NULL;
  int rc = pen_pool_create(threads, "bench", &s.pool);
  if (rc == 0)
    rc = pen_bench_map(bytes, &memory);
  if (rc == 0) {
    s.scratch = aligned_alloc(64, threads * PEN_STREAM_SCRATCH_BYTES);
    if (!s.scratch)
      rc = pen_error_set(PEN_ENOFIT, "no memory for scratch");
  }
  for (size_t i = 0; rc == 0 && i <= o->n_runs; i++) {
    size_t at = i ? i - 1 : 0; /* the first does not count */
    refill(&a, memory, bytes);
    layer[at] = layer_pass(&s, ops, &a);
    attention[at] = attention_pass(&s, ops, &a);
    rc = pen_stream_take_status(&s);
  }
  if (rc == 0) {
    *ret_passes = pen_bench_add(table, "elements/s", 3 * LAYER_ELEMS, layer,
                                o->n_runs, PEN_BENCH_NO_CEILING,
                                "passes over a layer, %zu thread%s", threads,
                                threads > 1 ? "s" : "");
    *ret_attention = pen_bench_add(table, "FLOP/s", ATTENTION_FLOPS, attention,
                                   o->n_runs, PEN_BENCH_NO_CEILING,
                                   "attention, %zu thread%s", threads,
                                   threads > 1 ? "s" : "");
  }
  free(s.scratch);
  pen_bench_unmap(&memory, bytes);
  pen_pool_free(&s.pool);
  return rc;
}

int pen_bench_passes(const struct pen_bench_options *options,
                     struct pen_bench_table *table, struct pen_machine *machine)
{
  int rc = measure(options, 1, table, &machine->pass_core,
                   &machine->vector_core);
  return rc < 0 ? rc
                : measure(options, options->threads, table,
                          &machine->pass_all, &machine->vector_all);
}
