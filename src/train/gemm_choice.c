/* gemm_choice.c: the trial, on memory that is given back before the run's own is
 * taken.
 *
 * A library's figure is the best of a few runs, taken in turns with the others',
 * so that what else the machine does hits all alike.  Main thread, at a run's
 * first start; a resumed run takes what its numerics name.  Disadvantage: two
 * shapes stand for all. */
#include "src/train/gemm_choice.h"

#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "base/error.h"
#include "kernels/stream.h"

#define ROUNDS 5
#define TOKENS_MAX ((size_t)512)
#define SIDE_MAX ((size_t)2048)

int pen_gemm_choice_open(enum pen_elem elem, struct pen_gemm_choice *ret_choice)
{
  static const char *const names[] = {"onednn", "panels", "openblas"};
  struct pen_gemm_choice c = {.n = 0};
  int rc = pen_gemm_find("auto", elem, &c.libraries[0]);
  if (rc < 0)
    return rc;
  c.chosen = c.libraries[c.n++];
  for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
    const struct pen_gemm_library *other;
    if (pen_gemm_find(names[i], elem, &other) < 0)
      pen_error_clear(); /* not here: no candidate */
    else if (other != c.chosen)
      c.libraries[c.n++] = other;
  }
  *ret_choice = c;
  return 0;
}

size_t pen_gemm_choice_pick(const double *rates, size_t n)
{
  size_t best = 0;
  for (size_t i = 1; i < n; i++)
    if (rates[i] > rates[0] * PEN_GEMM_CHOICE_MARGIN && rates[i] > rates[best])
      best = i;
  return best;
}

struct bench {
  struct pen_stream stream;
  struct pen_gemm products[2];
  void *a, *b, *c;
};

static size_t least(size_t a, size_t b) { return a < b ? a : b; }

static double flops(const struct bench *bench)
{
  const struct pen_gemm *g = &bench->products[0];
  return 2 * 2.0 * (double)g->m * (double)g->n * (double)g->k;
}

static void *take(size_t bytes)
{
  void *memory = aligned_alloc(64, (bytes + 63) / 64 * 64);
  return memory ? memset(memory, 0x3c, bytes) : NULL; /* 0.0115 in both */
}

static void done(struct bench *bench)
{
  free(bench->a);
  free(bench->b);
  free(bench->c);
  free(bench->stream.scratch);
}

/* y = x W^T of a linear layer, and dW += dy^T x. */
static int prepare(struct bench *bench, const struct pen_gemm_trial *trial)
{
  size_t m = least(trial->tokens, TOKENS_MAX);
  size_t k = least(trial->hidden, SIDE_MAX), n = least(trial->ffn, SIDE_MAX);
  size_t each = pen_elem_bytes(trial->elem);
  size_t n_threads = pen_pool_n_threads(bench->stream.pool);
  size_t c_elems = m * n > n * k ? m * n : n * k;
  bench->a = take(m * (k > n ? k : n) * each);
  bench->b = take((n > m ? n : m) * k * each);
  bench->c = take(c_elems * sizeof(float));
  bench->stream.scratch = take(n_threads * PEN_STREAM_SCRATCH_BYTES);
  if (!bench->a || !bench->b || !bench->c || !bench->stream.scratch)
    return pen_error_set(PEN_ENOFIT, "no memory to try product libraries; name "
                         "one with --gemm");
  bench->products[0] = (struct pen_gemm){
      .m = m, .n = n, .k = k, .a = bench->a, .lda = k, .b = bench->b, .ldb = k,
      .b_trans = true, .ab_elem = trial->elem, .c = bench->c, .ldc = n,
      .c_elem = trial->elem};
  bench->products[1] = (struct pen_gemm){
      .m = n, .n = k, .k = m, .a = bench->a, .lda = n, .a_trans = true,
      .b = bench->b, .ldb = k, .ab_elem = trial->elem, .c = bench->c,
      .ldc = k, .c_elem = PEN_ELEM_F32, .accumulate = true};
  return 0;
}

static double run_once(struct bench *bench,
                       const struct pen_gemm_library *library)
{
  bench->stream.gemm = library;
  uint64_t begin = pen_clock_ns();
  pen_gemm_run(&bench->stream, &bench->products[0]);
  pen_gemm_run(&bench->stream, &bench->products[1]);
  return (double)(pen_clock_ns() - begin) * 1e-9;
}

static int try_all(struct bench *bench, struct pen_gemm_choice *choice)
{
  for (size_t round = 0; round < ROUNDS; round++)
    for (size_t i = 0; i < choice->n; i++) {
      double rate = flops(bench) / run_once(bench, choice->libraries[i]);
      if (rate > choice->rates[i])
        choice->rates[i] = rate;
    }
  return pen_stream_take_status(&bench->stream);
}

int pen_gemm_choice_make(const struct pen_gemm_trial *trial, enum pen_isa isa,
                         struct pen_pool *pool, struct pen_gemm_choice *choice)
{
  struct bench bench = {.stream = {.pool = pool, .isa = isa}};
  double work = 2.0 * (double)least(trial->tokens, TOKENS_MAX) *
                (double)least(trial->hidden, SIDE_MAX) *
                (double)least(trial->ffn, SIDE_MAX);
  if (choice->n < 2 || work < PEN_GEMM_CHOICE_FLOP) {
    choice->n = 0;
    return 0;
  }
  int rc = prepare(&bench, trial);
  if (rc == 0)
    rc = try_all(&bench, choice);
  if (rc == 0)
    choice->chosen =
        choice->libraries[pen_gemm_choice_pick(choice->rates, choice->n)];
  done(&bench);
  return rc;
}
