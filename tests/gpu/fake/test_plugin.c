/* Every row of the loaded plugin's tables of operations, against the host's, with
 * random inputs and outputs that begin as NaN; and the same bits a second time.
 * On the fake runtime in tests, on a device by tools/gpu-check; skipped where
 * there is neither. */
#include "tests/test.h"

#include <math.h>

#include "base/rng.h"
#include "kernels/backend.h"
#include "kernels/bf16.h"

#define ARRAYS_MAX 12
#define ARENA_BYTES ((size_t)64 << 20)
#define TOKENS ((size_t)70)
#define HEADS ((size_t)6)
#define KV_HEADS ((size_t)2)
#define DIM ((size_t)64)
#define COLS ((size_t)200)
#define QKV ((HEADS + 2 * KV_HEADS) * DIM)

/* What an array holds; E is the table's element type. */
enum holds { FLOATS, ELEMS, IDS, TARGETS, DOUBLES, COUNTS };

struct array {
  enum holds holds;
  size_t n;
  bool read, written;
  float low, high; /* of random numbers */
};

static struct pen_backend *backend;
static struct pen_pool *pool;
static unsigned char *host_scratch;
static uint64_t seed;
static char *arena;

struct one_case {
  const char *name;
  struct array arrays[ARRAYS_MAX];
  void (*run)(const struct pen_ops *ops, struct pen_stream *s,
              void *const *at);
  /* Greatest difference, as a share of the array's greatest value: fp32, bf16.
   * 0: the bits. */
  double share_f32, share_bf16;
};

static size_t elem_bytes(enum holds holds, enum pen_elem elem)
{
  switch (holds) {
  case ELEMS:
    return pen_elem_bytes(elem);
  case DOUBLES:
  case COUNTS:
    return 8;
  default:
    return 4;
  }
}

static double value(enum holds holds, enum pen_elem elem, const void *x,
                    size_t i)
{
  switch (holds) {
  case ELEMS:
    if (elem == PEN_ELEM_BF16)
      return pen_bf16_to_f32(((const uint16_t *)x)[i]);
    return ((const float *)x)[i];
  case FLOATS:
    return ((const float *)x)[i];
  case DOUBLES:
    return ((const double *)x)[i];
  case COUNTS:
    return (double)((const uint64_t *)x)[i];
  default:
    return ((const int32_t *)x)[i];
  }
}

static void fill(const struct array *a, enum pen_elem elem, size_t number,
                 void *x)
{
  memset(x, 0xff, a->n * elem_bytes(a->holds, elem));
  for (size_t i = 0; a->read && i < a->n; i++) {
    double u = pen_rng_double(seed, number, i);
    float f = a->low + (a->high - a->low) * (float)u;
    if (a->holds == IDS || a->holds == TARGETS)
      ((int32_t *)x)[i] = (int32_t)floorf(f);
    else if (a->holds == ELEMS && elem == PEN_ELEM_BF16)
      ((uint16_t *)x)[i] = pen_bf16_from_f32(f);
    else
      ((float *)x)[i] = f;
  }
}

static void queue_is_done(enum pen_device_queue queue)
{
  const struct pen_device *d = backend->device;
  test_ok(d->marks->set(d, queue, 0));
  test_ok(d->marks->sync(d, queue, 0, NULL));
}

static void run_on_device(const struct one_case *c, enum pen_elem elem,
                          void *const *from, void *const *to)
{
  const struct pen_device *d = backend->device;
  struct pen_stream s = {.device = backend->stream_device};
  void *at[ARRAYS_MAX] = {0};
  size_t used = 0;
  for (size_t i = 0; i < ARRAYS_MAX && c->arrays[i].n; i++) {
    size_t bytes = c->arrays[i].n * elem_bytes(c->arrays[i].holds, elem);
    at[i] = arena + used;
    used += (bytes + 255) / 256 * 256;
    assert_true(used <= ARENA_BYTES);
    test_ok(d->upload(d, at[i], from[i], bytes));
  }
  queue_is_done(PEN_DEVICE_UPLOAD);
  c->run(backend->ops[elem], &s, at);
  test_ok(pen_stream_take_status(&s));
  queue_is_done(PEN_DEVICE_COMPUTE);
  for (size_t i = 0; i < ARRAYS_MAX && c->arrays[i].n; i++)
    test_ok(d->download(d, to[i], at[i],
                        c->arrays[i].n *
                            elem_bytes(c->arrays[i].holds, elem)));
  queue_is_done(PEN_DEVICE_DOWNLOAD);
}

static void compare(const struct one_case *c, enum pen_elem elem, size_t i,
                    const void *got, const void *want)
{
  const struct array *a = &c->arrays[i];
  double share = elem == PEN_ELEM_BF16 ? c->share_bf16 : c->share_f32;
  double most = 0;
  for (size_t k = 0; k < a->n; k++)
    most = fmax(most, fabs(value(a->holds, elem, want, k)));
  for (size_t k = 0; k < a->n; k++) {
    double x = value(a->holds, elem, got, k), y = value(a->holds, elem, want, k);
    bool both_untouched = isnan(x) && isnan(y);
    if (!both_untouched && !(fabs(x - y) <= share * most))
      fail_msg("%s in %s: array %zu element %zu is %g, the host has %g "
               "(greatest %g)",
               c->name, pen_elem_name(elem), i, k, x, y, most);
  }
}

static void run_case(const struct one_case *c, enum pen_elem elem)
{
  void *start[ARRAYS_MAX] = {0}, *want[ARRAYS_MAX] = {0};
  void *got[ARRAYS_MAX] = {0}, *again[ARRAYS_MAX] = {0};
  struct pen_stream host = {.pool = pool, .scratch = host_scratch,
                            .isa = PEN_ISA_SCALAR, .gemm = &pen_gemm_reference};
  for (size_t i = 0; i < ARRAYS_MAX && c->arrays[i].n; i++) {
    size_t bytes = c->arrays[i].n * elem_bytes(c->arrays[i].holds, elem);
    void **all[] = {&start[i], &want[i], &got[i], &again[i]};
    for (size_t k = 0; k < 4; k++)
      *all[k] = aligned_alloc(64, (bytes + 63) / 64 * 64);
    fill(&c->arrays[i], elem, i, start[i]);
    memcpy(want[i], start[i], bytes);
  }
  c->run(pen_ops_host(PEN_ISA_SCALAR, elem), &host, want);
  test_ok(pen_stream_take_status(&host));
  run_on_device(c, elem, start, got);
  run_on_device(c, elem, start, again);
  for (size_t i = 0; i < ARRAYS_MAX && c->arrays[i].n; i++) {
    if (c->arrays[i].written)
      compare(c, elem, i, got[i], want[i]);
    if (memcmp(got[i], again[i],
               c->arrays[i].n * elem_bytes(c->arrays[i].holds, elem)))
      fail_msg("%s in %s: array %zu differs from run to run", c->name,
               pen_elem_name(elem), i);
    void *all[] = {start[i], want[i], got[i], again[i]};
    for (size_t k = 0; k < 4; k++)
      free(all[k]);
  }
}

#define PARTIALS(rows, cols) (((rows) + 63) / 64 * (cols))
#define IN(holds, n, low, high) {holds, n, true, false, low, high}
#define INOUT(holds, n) {holds, n, true, true, -1, 1}
#define OUT(holds, n) {holds, n, false, true, 0, 0}
#define WORK(holds, n) {holds, n, false, false, 0, 0}
#define WORK_PER_TOKEN (HEADS * (1 + (DIM * 393 + 127) / 128)) /* of attention */
#define WIDE (TOKENS * HEADS * DIM)
#define FLAT (TOKENS * COLS)

/* ---- the operations ---- */

static const struct pen_heads heads = {TOKENS, HEADS, DIM};

static void gemm(const struct pen_ops *ops, struct pen_stream *s,
                 void *const *at)
{
  struct pen_gemm g = {.m = TOKENS, .n = COLS, .k = DIM, .a = at[0],
                       .lda = DIM, .b = at[1], .ldb = DIM, .b_trans = true,
                       .ab_elem = ops->elem, .c = at[2], .ldc = COLS,
                       .c_elem = ops->elem};
  ops->gemm(s, &g);
  g = (struct pen_gemm){.m = DIM, .n = COLS, .k = TOKENS, .a = at[0],
                        .lda = DIM, .a_trans = true, .b = at[3], .ldb = COLS,
                        .ab_elem = ops->elem, .c = at[4], .ldc = COLS,
                        .c_elem = PEN_ELEM_F32, .accumulate = true};
  ops->gemm(s, &g);
}

static void rmsnorm(const struct pen_ops *ops, struct pen_stream *s,
                    void *const *at)
{
  size_t ld = HEADS * DIM;
  ops->rmsnorm(s, &heads, at[0], ld, at[1], 1, 1e-5f, at[2], ld, at[3]);
}

static void rmsnorm_backward(const struct pen_ops *ops, struct pen_stream *s,
                             void *const *at)
{
  size_t ld = HEADS * DIM;
  ops->rmsnorm_backward(s, &heads, at[0], ld, PEN_ELEM_F32, at[1], ld, at[2],
                        0.5f, at[3], at[4], ld, true, at[5], at[6]);
}

static void layernorm(const struct pen_ops *ops, struct pen_stream *s,
                      void *const *at)
{
  ops->layernorm(s, TOKENS, COLS, at[0], at[1], at[2], 1e-5f, at[3], at[4],
                 at[5]);
}

static void layernorm_backward(const struct pen_ops *ops, struct pen_stream *s,
                               void *const *at)
{
  ops->layernorm_backward(s, TOKENS, COLS, at[0], ops->elem, at[1], at[2],
                          at[3], at[4], at[5], false, at[6], at[7], at[8]);
}

static void rope(const struct pen_ops *ops, struct pen_stream *s,
                 void *const *at)
{
  ops->rope(s, &heads, DIM / 2, at[0], HEADS * DIM, at[1], at[2], at[3], true);
}

static struct pen_attention attention_shape(const void *first_key)
{
  return (struct pen_attention){
      .tokens = TOKENS, .heads = HEADS, .kv_heads = KV_HEADS, .dim = DIM,
      .scale = 0.125f, .first_key = first_key, .ldq = QKV, .ldk = QKV,
      .ldv = QKV, .ldo = HEADS * DIM, .ldd = QKV};
}

/* Column `col` of rows of E. */
static void *column(const struct pen_ops *ops, void *x, size_t col)
{
  return (char *)x + col * pen_elem_bytes(ops->elem);
}

static void attention(const struct pen_ops *ops, struct pen_stream *s,
                      void *const *at)
{
  struct pen_attention a = attention_shape(at[0]);
  ops->attention(s, &a, at[1], column(ops, at[1], HEADS * DIM),
                 column(ops, at[1], (HEADS + KV_HEADS) * DIM), at[2], at[3]);
}

/* Of outputs that are made first, as backward needs them. */
static void attention_backward(const struct pen_ops *ops, struct pen_stream *s,
                               void *const *at)
{
  struct pen_attention a = attention_shape(at[0]);
  void *q = at[1], *k = column(ops, q, HEADS * DIM);
  void *v = column(ops, q, (HEADS + KV_HEADS) * DIM);
  assert_int_equal(pen_attention_work_per_token(HEADS, DIM), WORK_PER_TOKEN);
  ops->attention(s, &a, q, k, v, at[2], at[3]);
  ops->attention_backward(s, &a, q, k, v, at[2], at[3], at[5], at[4], at[6],
                          column(ops, at[6], HEADS * DIM),
                          column(ops, at[6], (HEADS + KV_HEADS) * DIM));
}

static void glu(const struct pen_ops *ops, struct pen_stream *s,
                void *const *at)
{
  ops->glu(s, PEN_ACTIVATION_SILU, TOKENS, COLS, at[0],
           column(ops, at[0], COLS), 2 * COLS, at[1]);
  ops->glu(s, PEN_ACTIVATION_GELU_TANH, TOKENS, COLS, at[0], NULL, 2 * COLS,
           at[2]);
}

static void glu_backward(const struct pen_ops *ops, struct pen_stream *s,
                         void *const *at)
{
  ops->glu_backward(s, PEN_ACTIVATION_GELU, TOKENS, COLS, at[0], at[1],
                    column(ops, at[1], COLS), 2 * COLS, at[2],
                    column(ops, at[2], COLS));
}

static void softcap(const struct pen_ops *ops, struct pen_stream *s,
                    void *const *at)
{
  ops->softcap(s, TOKENS, COLS, 3, at[0], COLS);
  ops->softcap_backward(s, TOKENS, COLS, 3, at[0], COLS, at[1]);
}

static void embed(const struct pen_ops *ops, struct pen_stream *s,
                  void *const *at)
{
  ops->embed(s, at[0], TOKENS, 10, 50, COLS, 1.5f, at[1], at[2]);
  ops->embed_backward(s, at[0], TOKENS, 10, 50, COLS, 1.5f, at[3], at[4]);
}

static void bias(const struct pen_ops *ops, struct pen_stream *s,
                 void *const *at)
{
  ops->bias(s, TOKENS, COLS, at[0], COLS, at[1]);
  ops->bias_backward(s, TOKENS, COLS, at[2], COLS, at[3], at[4]);
}

static void add(const struct pen_ops *ops, struct pen_stream *s,
                void *const *at)
{
  ops->add(s, TOKENS * COLS, at[0], at[1], at[2]);
  ops->add_f32(s, TOKENS * COLS, at[3], at[1]);
  ops->from_f32(s, TOKENS * COLS, at[3], at[4]);
  ops->zero_f32(s, COLS, at[5]);
}

static void xent(const struct pen_ops *ops, struct pen_stream *s,
                 void *const *at)
{
  struct pen_logits shape = {.rows = TOKENS, .cols = COLS, .ld = COLS,
                             .tokens = TOKENS, .targets = at[0]};
  ops->xent_begin(s, TOKENS, at[1]);
  ops->xent_add(s, &shape, at[2], at[1]);
  ops->xent_loss(s, TOKENS, at[0], at[1], at[3]);
  ops->xent_backward(s, &shape, at[2], at[1], at[4]);
}

static void gradient_finish(const struct pen_ops *ops, struct pen_stream *s,
                            void *const *at)
{
  ops->gradient_finish(s, TOKENS * COLS, 4096, at[0], at[1], at[2], at[3],
                       at[4]);
}

/* Shares: sums of up to 448 products in another order, 448 times 2^-24 at the
 * very most; functions a few units apart; in bf16 a neighbour, 2^-8, and for
 * attention the probabilities' own rounding on top. */
static const struct one_case cases[] = {
    {"gemm", {IN(ELEMS, TOKENS * DIM, -1, 1), IN(ELEMS, COLS * DIM, -1, 1),
              OUT(ELEMS, FLAT), IN(ELEMS, FLAT, -1, 1),
              INOUT(FLOATS, DIM * COLS)}, gemm, 3e-5, 8e-3},
    {"rmsnorm", {IN(ELEMS, WIDE, -1, 1), IN(ELEMS, DIM, -1, 1),
                 OUT(ELEMS, WIDE), OUT(FLOATS, TOKENS * HEADS)},
     rmsnorm, 3e-5, 8e-3},
    {"rmsnorm_backward",
     {IN(FLOATS, WIDE, -1, 1), IN(ELEMS, WIDE, -1, 1), IN(ELEMS, DIM, -1, 1),
      IN(FLOATS, TOKENS * HEADS, 1, 2), INOUT(ELEMS, WIDE), INOUT(FLOATS, DIM),
      WORK(FLOATS, PARTIALS(TOKENS * HEADS, DIM))},
     rmsnorm_backward, 3e-5, 8e-3},
    {"layernorm", {IN(ELEMS, FLAT, -1, 1), IN(ELEMS, COLS, -1, 1),
                   IN(ELEMS, COLS, -1, 1), OUT(ELEMS, FLAT),
                   OUT(FLOATS, TOKENS), OUT(FLOATS, TOKENS)},
     layernorm, 3e-5, 8e-3},
    {"layernorm_backward",
     {IN(ELEMS, FLAT, -1, 1), IN(ELEMS, FLAT, -1, 1), IN(ELEMS, COLS, -1, 1),
      IN(FLOATS, TOKENS, -0.1f, 0.1f), IN(FLOATS, TOKENS, 1, 2),
      OUT(ELEMS, FLAT), INOUT(FLOATS, COLS), INOUT(FLOATS, COLS),
      WORK(FLOATS, PARTIALS(TOKENS, 2 * COLS))},
     layernorm_backward, 3e-5, 8e-3},
    {"rope", {INOUT(ELEMS, WIDE), IN(IDS, TOKENS, 0, 30),
              IN(FLOATS, 30 * DIM / 4, -1, 1), IN(FLOATS, 30 * DIM / 4, -1, 1)},
     rope, 0, 0},
    {"attention", {IN(IDS, TOKENS, 0, 0.5f), IN(ELEMS, TOKENS * QKV, -1, 1),
                   OUT(ELEMS, WIDE), OUT(FLOATS, HEADS * TOKENS)},
     attention, 3e-5, 2e-2},
    {"attention_backward",
     {IN(IDS, TOKENS, 0, 0.5f), IN(ELEMS, TOKENS * QKV, -1, 1),
      OUT(ELEMS, WIDE), OUT(FLOATS, HEADS * TOKENS),
      WORK(FLOATS, TOKENS * WORK_PER_TOKEN), IN(ELEMS, WIDE, -1, 1),
      OUT(ELEMS, TOKENS * QKV)}, attention_backward, 1e-4, 3e-2},
    {"glu", {IN(ELEMS, 2 * FLAT, -3, 3), OUT(ELEMS, FLAT), OUT(ELEMS, FLAT)},
     glu, 3e-6, 8e-3},
    {"glu_backward", {IN(ELEMS, FLAT, -1, 1), IN(ELEMS, 2 * FLAT, -3, 3),
                      OUT(ELEMS, 2 * FLAT)}, glu_backward, 3e-6, 8e-3},
    {"softcap", {INOUT(FLOATS, FLAT), INOUT(ELEMS, FLAT)}, softcap, 3e-6, 8e-3},
    {"embed", {IN(IDS, TOKENS, 0, 70), IN(ELEMS, 50 * COLS, -1, 1),
               OUT(ELEMS, FLAT), IN(ELEMS, FLAT, -1, 1),
               INOUT(FLOATS, 50 * COLS)}, embed, 0, 0},
    {"bias", {INOUT(ELEMS, FLAT), IN(ELEMS, COLS, -1, 1),
              IN(ELEMS, FLAT, -1, 1), INOUT(FLOATS, COLS),
              WORK(FLOATS, PARTIALS(TOKENS, COLS))}, bias, 3e-5, 8e-3},
    {"add", {IN(ELEMS, FLAT, -1, 1), INOUT(ELEMS, FLAT), OUT(ELEMS, FLAT),
             IN(FLOATS, FLAT, -1, 1), OUT(ELEMS, FLAT), OUT(FLOATS, COLS)},
     add, 0, 0},
    {"xent", {IN(TARGETS, TOKENS, -20, (float)COLS),
              OUT(FLOATS, PEN_XENT_ROWS * TOKENS), IN(FLOATS, FLAT, -5, 5),
              OUT(DOUBLES, 1), OUT(ELEMS, FLAT)}, xent, 3e-5, 8e-3},
    {"gradient_finish", {IN(FLOATS, FLAT, -1, 1), IN(FLOATS, FLAT, -1, 1),
                         OUT(ELEMS, FLAT), OUT(DOUBLES, (FLAT + 4095) / 4096),
                         OUT(COUNTS, 1)}, gradient_finish, 0, 0},
};

static int open_backend(void **state)
{
  (void)state;
  seed = test_seed(20261130);
  test_ok(pen_pool_create(1, "host", &pool));
  host_scratch = aligned_alloc(64, PEN_STREAM_SCRATCH_BYTES);
  if (pen_backend_open("cuda", 0, &backend) < 0) {
    printf("# no backend: %s\n", pen_error_text());
    pen_error_clear();
    return 0;
  }
  printf("# %s\n", backend->about);
  void *base = NULL;
  test_ok(backend->device->alloc(backend->device, ARENA_BYTES, &base));
  arena = base;
  return 0;
}

static int close_backend(void **state)
{
  void *base = arena;
  (void)state;
  if (backend)
    backend->device->free(backend->device, &base, ARENA_BYTES);
  pen_backend_close(&backend);
  pen_pool_free(&pool);
  free(host_scratch);
  return 0;
}

static void test_operations(void **state)
{
  (void)state;
  if (!backend)
    test_skip("there is no device");
  for (size_t i = 0; i < sizeof cases / sizeof *cases; i++)
    for (int elem = 0; elem <= PEN_ELEM_F32; elem++)
      run_case(&cases[i], (enum pen_elem)elem);
  printf("# %zu operations in two precisions\n", sizeof cases / sizeof *cases);
}

static void test_shapes(void **state)
{
  (void)state;
  if (!backend)
    test_skip("there is no device");
  const struct pen_ops *ops = backend->ops[PEN_ELEM_BF16];
  test_ok(ops->check_shape(8, 2, 128));
  test_fails(ops->check_shape(8, 2, 512), PEN_EUNSUPPORTED, "up to 256");
  test_fails(ops->check_shape(8, 3, 64), PEN_EUNSUPPORTED, "multiple");
}

int main(void)
{
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(test_operations),
      cmocka_unit_test(test_shapes),
  };
  return cmocka_run_group_tests(tests, open_backend, close_backend);
}
