/* gemm_openblas.c: sgemm of an OpenBLAS found at run time; bf16 operands are
 * widened to fp32 panels in scratch first.
 *
 * OpenBLAS picks its kernels when it is loaded and does not know CPUs younger
 * than itself (it then takes those of 2004), so the core type is set from our
 * own detection before dlopen, unless the user has set one.  It is the
 * machine's, not the level our kernels were asked to run at: that level is free
 * to change between starts, and the core type changes bits.  Every call is
 * single-threaded.  State: handles loaded once, read-only afterwards.
 * Disadvantage: setenv during the load is not safe beside other threads. */
#include "kernels/gemm.h"

#include <dlfcn.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/error.h"
#include "kernels/cast.h"

/* The C interface of BLAS; values are the standard's. */
enum { ROW_MAJOR = 101, NO_TRANS = 111, TRANS = 112 };
typedef void sgemm_fn(int order, int trans_a, int trans_b, int m, int n, int k,
                      float alpha, const float *a, int lda, const float *b,
                      int ldb, float beta, float *c, int ldc);

static struct {
  pthread_mutex_t mutex;
  int status; /* 0: not tried, 1: loaded, negative: failed */
  char reason[512];
  char variant[96];
  sgemm_fn *sgemm;
} blas = {.mutex = PTHREAD_MUTEX_INITIALIZER};

static const char *core_type(enum pen_isa isa)
{
  return isa >= PEN_ISA_AVX512 ? "SkylakeX"
         : isa == PEN_ISA_AVX2 ? "Haswell"
                               : NULL;
}

/* Loads with `name` set to `value` unless the user has set it; the environment
 * is as before when this returns. */
static void *load(void)
{
  const char *core = core_type(pen_isa_detect());
  static const char type[] = "OPENBLAS_CORETYPE", threads[] =
                                                     "OPENBLAS_NUM_THREADS";
  bool set_type = core && !getenv(type);
  bool set_threads = !getenv(threads);
  if (set_type)
    setenv(type, core, 1);
  if (set_threads)
    setenv(threads, "1", 1);
  void *library = dlopen("libopenblas.so.0", RTLD_NOW | RTLD_LOCAL);
  if (set_type)
    unsetenv(type);
  if (set_threads)
    unsetenv(threads);
  return library;
}

/* POSIX lets dlsym's object pointer be a function pointer. */
static void find(void *library, const char *name, void *ret_function)
{
  void *symbol = dlsym(library, name);
  memcpy(ret_function, &symbol, sizeof symbol);
}

static int try_load(void)
{
  void *library = load();
  if (!library) {
    snprintf(blas.reason, sizeof blas.reason, "%s", dlerror());
    return -PEN_EUNSUPPORTED;
  }
  void (*set_threads)(int);
  char *(*core_name)(void), *(*config)(void);
  find(library, "cblas_sgemm", &blas.sgemm);
  find(library, "openblas_set_num_threads", &set_threads);
  find(library, "openblas_get_corename", &core_name);
  find(library, "openblas_get_config", &config);
  if (!blas.sgemm || !set_threads || !core_name || !config) {
    snprintf(blas.reason, sizeof blas.reason,
             "libopenblas.so.0 lacks a function we need");
    return -PEN_EUNSUPPORTED;
  }
  set_threads(1);
  char version[32] = "";
  sscanf(config(), "OpenBLAS %31s", version);
  snprintf(blas.variant, sizeof blas.variant, "%s %s", version, core_name());
  return 1;
}

static int openblas_open(enum pen_elem ab_elem)
{
  pthread_mutex_lock(&blas.mutex);
  if (!blas.status)
    blas.status = try_load();
  int status = blas.status;
  pthread_mutex_unlock(&blas.mutex);
  if (status > 0)
    return 0;
  return pen_error_set(status,
                       "OpenBLAS cannot be used (%s): install libopenblas0 or "
                       "choose another product library",
                       blas.reason);
}

static const char *openblas_variant(void)
{
  return blas.variant;
}

static int tile_f32(const struct pen_gemm *g)
{
  blas.sgemm(ROW_MAJOR, g->a_trans ? TRANS : NO_TRANS,
             g->b_trans ? TRANS : NO_TRANS, (int)g->m, (int)g->n, (int)g->k, 1,
             g->a, (int)g->lda, g->b, (int)g->ldb, g->accumulate ? 1 : 0, g->c,
             (int)g->ldc);
  return 0;
}

/* ---- bf16 ---- */

#define TILE_ROWS ((size_t)256)
#define TILE_COLS ((size_t)512)
#define TILE_K ((size_t)512)

/* out [rows, cols] packed = fp32 of x [rows, cols] at row stride ld. */
static void widen(enum pen_isa isa, float *out, const uint16_t *x, size_t ld,
                  size_t rows, size_t cols)
{
  for (size_t i = 0; i < rows; i++)
    pen_cast_bf16_to_f32(isa, cols, x + i * ld, out + i * cols);
}

static int tile_bf16(enum pen_isa isa, const struct pen_gemm *g, float *scratch)
{
  float *a = scratch, *b = a + TILE_ROWS * TILE_K, *c = b + TILE_K * TILE_COLS;
  const uint16_t *wide_a = g->a, *wide_b = g->b;
  bool to_f32 = g->c_elem == PEN_ELEM_F32;
  for (size_t k = 0; k < g->k; k += TILE_K) {
    size_t n_k = g->k - k < TILE_K ? g->k - k : TILE_K;
    struct pen_gemm part = *g;
    part.k = n_k;
    part.a = a;
    part.lda = g->a_trans ? g->m : n_k;
    part.b = b;
    part.ldb = g->b_trans ? n_k : g->n;
    part.accumulate = k || g->accumulate;
    if (!to_f32) {
      part.c = c;
      part.ldc = g->n;
    }
    if (g->a_trans)
      widen(isa, a, wide_a + k * g->lda, g->lda, n_k, g->m);
    else
      widen(isa, a, wide_a + k, g->lda, g->m, n_k);
    if (g->b_trans)
      widen(isa, b, wide_b + k, g->ldb, g->n, n_k);
    else
      widen(isa, b, wide_b + k * g->ldb, g->ldb, n_k, g->n);
    tile_f32(&part);
  }
  for (size_t i = 0; !to_f32 && i < g->m; i++)
    pen_cast_f32_to_bf16(isa, g->n, c + i * g->n,
                         (uint16_t *)g->c + i * g->ldc);
  return 0;
}

static int openblas_tile(enum pen_isa isa, const struct pen_gemm *tile,
                         void *scratch)
{
  if (tile->ab_elem == PEN_ELEM_F32 && tile->c_elem == PEN_ELEM_F32)
    return tile_f32(tile);
  if (tile->ab_elem == PEN_ELEM_BF16)
    return tile_bf16(isa, tile, scratch);
  return -PEN_EUNSUPPORTED;
}

const struct pen_gemm_library pen_gemm_openblas = {
    .name = "openblas",
    .open = openblas_open,
    .variant = openblas_variant,
    .tile = openblas_tile,
    .tile_rows = TILE_ROWS,
    .tile_cols = TILE_COLS,
};
