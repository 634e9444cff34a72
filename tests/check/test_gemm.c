/* Products: every library against double, in every layout it is used in, and
 * the same bits for 1, 2 and 3 threads.
 *
 * A sum of k products of numbers below 1 is off by at most k 2^-24 of the sum
 * of their magnitudes, whatever its order; C in bf16 is off by another 2^-8 of
 * itself. */
#include <math.h>

#include "kernels/bf16.h"
#include "tests/check/level.h"
#include "tests/check/trial.h"

static uint64_t seed;
static enum pen_isa level;

#if defined(__SANITIZE_THREAD__) /* cannot see into libraries */
static const char *const libraries[] = {"reference", "panels"};
#else
static const char *const libraries[] = {"reference", "openblas", "onednn",
                                        "panels"};
#endif
#define N_LIBRARIES (sizeof libraries / sizeof libraries[0])

struct layout {
  bool a_trans, b_trans, accumulate, c_bf16; /* c_bf16: only for bf16 */
};

/* y = x W^T, dx = dy W (also added up), dW += dy^T x, and none twice. */
static const struct layout layouts[] = {
    {false, true, false, true}, {false, true, false, false},
    {false, false, false, true}, {false, false, true, false},
    {true, false, true, false}, {true, false, false, false},
    {true, true, true, false}};
#define N_LAYOUTS (sizeof layouts / sizeof layouts[0])

static const size_t shapes[][3] = {{1, 1, 1},     {3, 5, 7},
                                   {1, 300, 70},  {65, 97, 130},
                                   {300, 64, 33}, {130, 1100, 600}};
#define N_SHAPES (sizeof shapes / sizeof shapes[0])

/* Operands with rows 3 elements apart. */
static struct pen_gemm make(struct trial *t, const size_t *s,
                            const struct layout *l)
{
  struct pen_gemm g = {.m = s[0], .n = s[1], .k = s[2], .a_trans = l->a_trans,
                       .b_trans = l->b_trans, .accumulate = l->accumulate,
                       .ab_elem = t->ops->elem, .c_elem = PEN_ELEM_F32};
  size_t a_rows = l->a_trans ? g.k : g.m, b_rows = l->b_trans ? g.n : g.k;
  g.lda = (l->a_trans ? g.m : g.k) + 3;
  g.ldb = (l->b_trans ? g.k : g.n) + 3;
  g.ldc = g.n + 3;
  g.a = trial_in(t, a_rows * g.lda, -1, 1);
  g.b = trial_in(t, b_rows * g.ldb, -1, 1);
  if (l->accumulate) {
    g.c = trial_inout_f32(t, g.m * g.ldc, -1, 1);
  } else if (l->c_bf16) {
    g.c_elem = t->ops->elem;
    g.c = trial_out(t, g.m * g.ldc);
  } else {
    g.c = trial_out_f32(t, g.m * g.ldc);
  }
  return g;
}

static double get_c(const struct pen_gemm *g, size_t i, size_t j)
{
  size_t at = i * g->ldc + j;
  return (double)(g->c_elem == PEN_ELEM_BF16
                      ? pen_bf16_to_f32(((const uint16_t *)g->c)[at])
                      : ((const float *)g->c)[at]);
}

static void check_element(const struct trial *t, const struct pen_gemm *g,
                          size_t i, size_t j, double before, const char *what)
{
  double sum = before, size = fabs(before);
  for (size_t k = 0; k < g->k; k++) {
    double a = (double)trial_get(
        t, g->a, g->a_trans ? k * g->lda + i : i * g->lda + k);
    double b = (double)trial_get(
        t, g->b, g->b_trans ? j * g->ldb + k : k * g->ldb + j);
    sum += a * b;
    size += fabs(a * b);
  }
  double bound = (double)(g->k + 1) * 0x1p-24 * size;
  if (g->c_elem == PEN_ELEM_BF16)
    bound += 0x1p-8 * fabs(sum);
  if (!(fabs(get_c(g, i, j) - sum) <= bound))
    fail_msg("%s: element %zu, %zu is %.9g, not %.9g", what, i, j,
             get_c(g, i, j), sum);
}

static void check_values(const struct pen_gemm_library *library,
                         enum pen_elem elem, const size_t *shape,
                         const struct layout *l)
{
  struct trial t;
  char what[128];
  trial_begin(&t, level, elem, library, 2, seed++);
  struct pen_gemm g = make(&t, shape, l);
  float *before = calloc(g.m * g.ldc, sizeof *before);
  if (l->accumulate)
    memcpy(before, g.c, g.m * g.ldc * sizeof *before);
  snprintf(what, sizeof what, "%s %s [%zu, %zu, %zu] %d%d%d", library->name,
           pen_elem_name(elem), g.m, g.n, g.k, l->a_trans, l->b_trans,
           l->accumulate);
  t.ops->gemm(&t.stream, &g);
  size_t step = g.m * g.n / 5000 + 1; /* not a divisor of n: all columns */
  step += g.n % step == 0 && step > 1;
  for (size_t at = 0; at < g.m * g.n; at += step)
    check_element(&t, &g, at / g.n, at % g.n,
                  (double)before[at / g.n * g.ldc + at % g.n], what);
  free(before);
  trial_end(&t);
}

static void check_threads(const struct pen_gemm_library *library,
                          enum pen_elem elem, const size_t *shape,
                          const struct layout *l)
{
  struct trial trials[3];
  for (size_t i = 0; i < 3; i++) {
    trial_begin(&trials[i], level, elem, library, i + 1, seed);
    struct pen_gemm g = make(&trials[i], shape, l);
    trials[i].ops->gemm(&trials[i].stream, &g);
  }
  trial_assert_same(&trials[0], &trials[1], library->name);
  trial_assert_same(&trials[0], &trials[2], library->name);
  for (size_t i = 0; i < 3; i++)
    trial_end(&trials[i]);
}

typedef void check_fn(const struct pen_gemm_library *library,
                      enum pen_elem elem, const size_t *shape,
                      const struct layout *l);

static void each(check_fn *check)
{
  for (size_t i = 0; i < N_LIBRARIES; i++)
    for (int elem = PEN_ELEM_BF16; elem <= PEN_ELEM_F32; elem++) {
      const struct pen_gemm_library *library;
      if (pen_gemm_find(libraries[i], elem, &library)) {
        printf("# without %s: %s\n", libraries[i], pen_error_text());
        pen_error_clear();
        continue;
      }
      printf("# %s %s, variant %s\n", library->name, pen_elem_name(elem),
             library->variant());
      for (size_t s = 0; s < N_SHAPES; s++)
        for (size_t l = 0; l < N_LAYOUTS; l++)
          check(library, elem, shapes[s], &layouts[l]);
    }
}

static void test_values(void **state)
{
  each(check_values);
}

static void test_threads(void **state)
{
  each(check_threads);
}

/* Bias and addend are the operations of their own, bit for bit. */
static void test_ends(void **state)
{
  const size_t m = 70, n = 130, k = 90;
  for (int elem = PEN_ELEM_BF16; elem <= PEN_ELEM_F32; elem++)
    for (int ends = 1; ends < 4; ends++) {
      struct trial trials[2];
      for (int fused = 0; fused < 2; fused++) {
        struct trial *t = &trials[fused];
        trial_begin(t, level, elem, &pen_gemm_reference, 2, seed + ends);
        struct pen_gemm g = {.m = m, .n = n, .k = k, .lda = k, .ldb = n,
                             .ldc = n, .ab_elem = elem, .c_elem = elem};
        g.a = trial_in(t, m * k, -1, 1);
        g.b = trial_in(t, k * n, -1, 1);
        const void *bias = ends & 1 ? trial_in(t, n, -1, 1) : NULL;
        const void *addend = ends & 2 ? trial_in(t, m * n, -1, 1) : NULL;
        g.c = trial_out(t, m * n);
        g.bias = fused ? bias : NULL;
        g.addend = fused ? addend : NULL;
        t->ops->gemm(&t->stream, &g);
        if (!fused && bias)
          t->ops->bias(&t->stream, m, n, g.c, n, bias);
        if (!fused && addend)
          t->ops->add(&t->stream, m * n, addend, g.c, g.c);
      }
      trial_assert_same(&trials[0], &trials[1], "a product with what is added");
      trial_end(&trials[0]);
      trial_end(&trials[1]);
    }
}

static void test_find(void **state)
{
  const struct pen_gemm_library *library = NULL;
  test_ok(pen_gemm_find("auto", PEN_ELEM_BF16, &library));
  assert_non_null(library);
  test_ok(pen_gemm_find("reference", PEN_ELEM_F32, &library));
  assert_ptr_equal(library, &pen_gemm_reference);
  test_fails(pen_gemm_find("mkl", PEN_ELEM_F32, &library),
             PEN_EUSAGE, "\"mkl\"");
  /* the environment is as the user left it */
  assert_null(getenv("OPENBLAS_CORETYPE"));
}

int main(void)
{
  seed = test_seed(4711);
  level = test_level();
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(test_values),
      cmocka_unit_test(test_threads),
      cmocka_unit_test(test_ends),
      cmocka_unit_test(test_find),
  };
  return cmocka_run_group_tests_name("gemm", tests, NULL, NULL);
}
