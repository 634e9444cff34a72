/* Attention's kernels against attention in double (attention_oracle.h says how
 * far they may be): every head dimension, ratios of heads, borders of
 * documents in and between tiles, strides that forbid wide moves; what lies
 * between and beside the results must survive. */
#include <math.h>

#include "base/rng.h"
#include "kernels/bf16.h"
#include "tests/gpu/attention_oracle.h"
#include "tests/gpu/simt/race.h"
#include "tests/gpu/table.h"
#include "tests/test.h"

#define TOKENS_MAX 400

/* heads, kv heads, dim; pad: elements between tokens; lengths of documents; a
 * soft cap; tokens that a token sees. */
struct shape {
  size_t heads, kv_heads, dim, pad;
  size_t documents[6];
  float softcap;
  size_t window;
};

static const struct shape shapes[] = {
    {1, 1, 64, 0, {1}, 0, 0},
    {2, 1, 64, 8, {64, 3, 130}, 0, 0},
    {1, 1, 80, 0, {3, 67, 1, 80}, 0, 0},
    {2, 2, 96, 8, {31, 33, 97}, 0, 0},
    {3, 1, 128, 0, {128, 1, 66}, 0, 0},
    {2, 2, 128, 3, {129}, 0, 0},
    {2, 1, 256, 16, {17, 130}, 0, 0},
    {4, 1, 256, 1, {40}, 0, 0},
    {4, 2, 14, 5, {200, 1, 60}, 0, 0},
    {1, 1, 2, 0, {70}, 0, 0},
    {2, 1, 32, 0, {300}, 0, 0},
    {5, 5, 40, 0, {65}, 0, 0},
    {2, 1, 64, 8, {150, 40}, 2.5f, 70},
    {2, 2, 256, 0, {90}, 5, 1},
    {2, 1, 128, 3, {70, 30}, 1.5f, 0},
    {3, 1, 16, 0, {210}, 0, 33},
};

/* An array of tokens x width elements at stride ld, NaN in between. */
struct array {
  void *memory;
  size_t bytes, ld, width;
};

struct run {
  const struct shape *shape;
  enum pen_elem elem;
  struct pen_attention a;
  uint32_t first_key[TOKENS_MAX];
  struct array q, k, v, o, d_o, dq, dk, dv, lse, delta;
  double *as_double[6]; /* q k v o do lse: what the oracle reads */
};

static struct array new_array(size_t tokens, size_t width, size_t ld,
                              enum pen_elem elem)
{
  struct array x = {.ld = ld, .width = width};
  x.bytes = (tokens * ld * pen_elem_bytes(elem) + 63) / 64 * 64;
  x.memory = aligned_alloc(64, x.bytes);
  assert_non_null(x.memory);
  memset(x.memory, 0xff, x.bytes);
  return x;
}

static float get(const struct array *x, enum pen_elem elem, size_t i)
{
  return elem == PEN_ELEM_BF16
             ? pen_bf16_to_f32(((const uint16_t *)x->memory)[i])
             : ((const float *)x->memory)[i];
}

/* Uniform in [-1, 1), as elements; returns them as doubles. */
static double *fill(struct array *x, size_t tokens, enum pen_elem elem,
                    uint64_t seed)
{
  double *copy = malloc(tokens * x->width * sizeof *copy);
  for (size_t t = 0; t < tokens; t++)
    for (size_t i = 0; i < x->width; i++) {
      size_t at = t * x->ld + i;
      float r = (float)(2 * pen_rng_double(seed, 0, at) - 1);
      if (elem == PEN_ELEM_BF16)
        ((uint16_t *)x->memory)[at] = pen_bf16_from_f32(r);
      else
        ((float *)x->memory)[at] = r;
      copy[t * x->width + i] = (double)get(x, elem, at);
    }
  return copy;
}

static void begin(struct run *r, const struct shape *shape, enum pen_elem elem)
{
  memset(r, 0, sizeof *r);
  r->shape = shape;
  r->elem = elem;
  size_t n = 0, dim = shape->dim, pad = shape->pad;
  for (const size_t *d = shape->documents; *d; d++)
    for (size_t i = 0, first = n; i < *d; i++) {
      bool slides = shape->window && i >= shape->window;
      r->first_key[n++] = (uint32_t)(slides ? first + i + 1 - shape->window
                                            : first);
    }
  assert_true(n <= TOKENS_MAX);
  size_t q_width = shape->heads * dim, k_width = shape->kv_heads * dim;
  r->a = (struct pen_attention){
      .tokens = n, .heads = shape->heads, .kv_heads = shape->kv_heads,
      .dim = dim, .scale = 4 / sqrtf((float)dim), .softcap = shape->softcap,
      .first_key = r->first_key,
      .ldq = q_width + pad, .ldk = k_width + pad, .ldv = k_width + 2 * pad,
      .ldo = q_width + pad, .ldd = q_width + 2 * pad};
  r->q = new_array(n, q_width, r->a.ldq, elem);
  r->k = new_array(n, k_width, r->a.ldk, elem);
  r->v = new_array(n, k_width, r->a.ldv, elem);
  r->o = new_array(n, q_width, r->a.ldo, elem);
  r->d_o = new_array(n, q_width, r->a.ldo, elem);
  r->dq = new_array(n, q_width, r->a.ldd, elem);
  r->dk = new_array(n, k_width, r->a.ldd, elem);
  r->dv = new_array(n, k_width, r->a.ldd, elem);
  r->lse = new_array(shape->heads, n, n, PEN_ELEM_F32);
  r->delta = new_array(shape->heads, n, n, PEN_ELEM_F32);
  r->as_double[0] = fill(&r->q, n, elem, 1);
  r->as_double[1] = fill(&r->k, n, elem, 2);
  r->as_double[2] = fill(&r->v, n, elem, 3);
}

static void end(struct run *r)
{
  struct array *all[] = {&r->q,  &r->k,  &r->v,  &r->o,   &r->d_o,
                         &r->dq, &r->dk, &r->dv, &r->lse, &r->delta};
  for (size_t i = 0; i < sizeof all / sizeof all[0]; i++)
    free(all[i]->memory);
  for (size_t i = 0; i < 6; i++)
    free(r->as_double[i]);
}

static void assert_within(const struct run *r, const char *name,
                          const struct array *x, size_t rows,
                          enum pen_elem elem, const struct attention_bound *b)
{
  for (size_t t = 0; t < rows; t++)
    for (size_t i = 0; i < x->ld; i++) {
      double y = (double)get(x, elem, t * x->ld + i);
      const struct attention_bound *want = &b[t * x->width + i];
      if (i >= x->width ? !isnan(y) : !(fabs(y - want->value) <= want->allowed))
        fail_msg("%s, dim %zu, %zu/%zu heads, %s: row %zu element %zu: %.9g is "
                 "not %.9g +- %.3g",
                 name, r->a.dim, r->a.heads, r->a.kv_heads,
                 pen_elem_name(r->elem), t, i, y,
                 i < x->width ? want->value : (double)NAN,
                 i < x->width ? want->allowed : 0);
    }
}

static struct attention_case oracle_case(const struct run *r)
{
  return (struct attention_case){
      .a = &r->a, .elem = r->elem, .q = r->as_double[0], .k = r->as_double[1],
      .v = r->as_double[2], .o = r->as_double[3], .d_o = r->as_double[4],
      .lse = r->as_double[5]};
}

static void forward(struct run *r)
{
  size_t n = r->a.tokens, n_o = n * r->o.width;
  struct attention_bound *o = malloc(n_o * sizeof *o);
  struct attention_bound *lse = malloc(n * r->a.heads * sizeof *lse);
  struct attention_case c = oracle_case(r);
  attention_oracle(&c, o, lse);
  table_of(r->elem)->attention(NULL, &r->a, r->q.memory, r->k.memory,
                               r->v.memory, r->o.memory, r->lse.memory);
  assert_within(r, "o", &r->o, n, r->elem, o);
  assert_within(r, "lse", &r->lse, r->a.heads, PEN_ELEM_F32, lse);
  free(o);
  free(lse);
}

/* After forward: from its o and lse. */
static void backward(struct run *r)
{
  size_t n = r->a.tokens, n_q = n * r->q.width, n_k = n * r->k.width;
  r->as_double[3] = malloc(n_q * sizeof(double));
  for (size_t t = 0; t < n; t++)
    for (size_t i = 0; i < r->o.width; i++)
      r->as_double[3][t * r->o.width + i] =
          (double)get(&r->o, r->elem, t * r->o.ld + i);
  r->as_double[4] = fill(&r->d_o, n, r->elem, 4);
  r->as_double[5] = malloc(n * r->a.heads * sizeof(double));
  for (size_t i = 0; i < n * r->a.heads; i++)
    r->as_double[5][i] = (double)((float *)r->lse.memory)[i];
  struct attention_bound *dq = malloc(n_q * sizeof *dq);
  struct attention_bound *dk = malloc(n_k * sizeof *dk);
  struct attention_bound *dv = malloc(n_k * sizeof *dv);
  struct attention_case c = oracle_case(r);
  attention_oracle_backward(&c, dq, dk, dv);
  table_of(r->elem)->attention_backward(
      NULL, &r->a, r->q.memory, r->k.memory, r->v.memory, r->o.memory,
      r->lse.memory, r->d_o.memory, r->delta.memory, r->dq.memory,
      r->dk.memory, r->dv.memory);
  assert_within(r, "dq", &r->dq, n, r->elem, dq);
  assert_within(r, "dk", &r->dk, n, r->elem, dk);
  assert_within(r, "dv", &r->dv, n, r->elem, dv);
  free(dq);
  free(dk);
  free(dv);
}

/* The first document again, some tokens at a time from a cache: the same
 * bits. */
static void cached(struct run *r)
{
  size_t n = r->shape->documents[0], e = pen_elem_bytes(r->elem), m;
  size_t elems = pen_attention_cache_elems(n, r->a.kv_heads, r->a.dim);
  struct array keys = new_array(1, elems, elems, r->elem);
  struct array values = new_array(1, elems, elems, r->elem);
  struct array o = new_array(n, r->o.width, r->o.ld, r->elem);
  for (size_t at = 0; at < n; at += m) {
    m = at % 3 ? (n - at + 1) / 2 : 1;
    struct pen_attention_cache c = {
        .tokens = m, .heads = r->a.heads, .kv_heads = r->a.kv_heads,
        .dim = r->a.dim, .scale = r->a.scale, .softcap = r->a.softcap,
        .first = at, .capacity = n, .window = r->shape->window,
        .ldq = r->a.ldq, .ldk = r->a.ldk, .ldv = r->a.ldv, .ldo = r->a.ldo};
    table_of(r->elem)->attention_cached(
        NULL, &c, (char *)r->q.memory + at * r->a.ldq * e,
        (char *)r->k.memory + at * r->a.ldk * e,
        (char *)r->v.memory + at * r->a.ldv * e, keys.memory, values.memory,
        (char *)o.memory + at * r->a.ldo * e);
  }
  assert_memory_equal(o.memory, r->o.memory, n * r->o.ld * e);
  free(keys.memory);
  free(values.memory);
  free(o.memory);
}

/* Bit i: shapes[i]. */
struct choice {
  enum pen_elem elem;
  unsigned shapes;
};

static void each_shape(void *ctx)
{
  const struct choice *c = ctx;
  for (size_t i = 0; i < sizeof shapes / sizeof shapes[0]; i++) {
    struct run r;
    if (!(c->shapes >> i & 1))
      continue;
    begin(&r, &shapes[i], c->elem);
    forward(&r);
    cached(&r);
    backward(&r);
    end(&r);
  }
}

/* Several tiles, wide moves and narrow, both ways to prefetch: in every order.
 * The others once; not at all with PEN_TEST_QUICK, nor where races are looked
 * for, which depend on none of what they add. */
#define EVERY_ORDER (1u << 1 | 1u << 6 | 1u << 8 | 1u << 12)

static void each_order(enum pen_elem elem)
{
  struct choice some = {elem, EVERY_ORDER}, others = {elem, ~EVERY_ORDER};
  table_each_order(each_shape, &some);
  if (!getenv("PEN_TEST_QUICK") && !simt_race_is_on())
    each_shape(&others);
}

static void test_fp32(void **state)
{
  each_order(PEN_ELEM_F32);
}

static void test_bf16(void **state)
{
  each_order(PEN_ELEM_BF16);
}

int main(void)
{
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(test_fp32),
      cmocka_unit_test(test_bf16),
  };
  return cmocka_run_group_tests_name("gpu attention", tests, NULL, NULL);
}
