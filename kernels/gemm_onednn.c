/* gemm_onednn.c: bf16 and fp32 products by oneDNN's matmul primitive.
 *
 * A primitive is code made for one shape.  So that batches of any number of
 * tokens need few of them, the token dimension of a tile (rows of A, or k where
 * A is transposed) is cut into powers of two; primitives are kept for ever in a
 * table under a mutex, found again by shape.  OpenMP is held to one thread on
 * every calling thread.  Disadvantage: the first step makes code, and short
 * remainders of tokens are multiplied slowly. */
#include <dlfcn.h>
#include <errno.h>
#include <oneapi/dnnl/dnnl.h>
#include <pthread.h>
#include <stdio.h>
#include <string.h>

#include "base/error.h"
#include "kernels/gemm.h"
#include "kernels/stream.h"

#define N_PRIMITIVES_MAX 1024

/* What a primitive was made for. */
struct shape {
  size_t m, n, k, lda, ldb, ldc;
  enum pen_elem ab_elem, c_elem;
  unsigned a_trans, b_trans, accumulate;
};

struct product {
  struct shape shape;
  dnnl_primitive_t primitive;
  dnnl_memory_desc_t a, b, c, scratch;
};

static struct {
  pthread_mutex_t mutex;
  dnnl_engine_t engine;
  void (*set_num_threads)(int); /* of the OpenMP that oneDNN brought along */
  char variant[64];
  size_t n;
  struct product table[N_PRIMITIVES_MAX]; /* entries below n never change */
} one = {.mutex = PTHREAD_MUTEX_INITIALIZER};

static int open_engine(void)
{
  if (one.engine)
    return 0;
  void *symbol = dlsym(RTLD_DEFAULT, "omp_set_num_threads");
  memcpy(&one.set_num_threads, &symbol, sizeof symbol);
  if (!one.set_num_threads ||
      dnnl_engine_create(&one.engine, dnnl_cpu, 0) != dnnl_success)
    return -PEN_EUNSUPPORTED;
  const dnnl_version_t *v = dnnl_version();
  snprintf(one.variant, sizeof one.variant, "%d.%d.%d isa %#x", v->major,
           v->minor, v->patch, (unsigned)dnnl_get_effective_cpu_isa());
  return 0;
}

static int onednn_open(enum pen_elem ab_elem)
{
  if (ab_elem == PEN_ELEM_BF16 && pen_isa_detect() < PEN_ISA_AVX512BF16)
    return pen_error_set(PEN_EUNSUPPORTED,
                         "oneDNN is not used for bf16: this CPU has no "
                         "AVX512_BF16; choose openblas");
  pthread_mutex_lock(&one.mutex);
  int r = open_engine();
  pthread_mutex_unlock(&one.mutex);
  if (r)
    return pen_error_set(r, "oneDNN has no engine for this CPU, or no OpenMP");
  return 0;
}

static const char *onednn_variant(void)
{
  return one.variant;
}

static dnnl_status_t describe(dnnl_memory_desc_t *md, size_t rows, size_t cols,
                              size_t ld, bool trans, enum pen_elem elem)
{
  dnnl_dims_t dims = {(dnnl_dim_t)rows, (dnnl_dim_t)cols};
  dnnl_dims_t strides = {trans ? 1 : (dnnl_dim_t)ld,
                         trans ? (dnnl_dim_t)ld : 1};
  return dnnl_memory_desc_init_by_strides(
      md, 2, dims, elem == PEN_ELEM_BF16 ? dnnl_bf16 : dnnl_f32, strides);
}

static dnnl_status_t make_primitive(struct product *p,
                                    dnnl_primitive_attr_t attr)
{
  dnnl_matmul_desc_t desc;
  dnnl_primitive_desc_t pd;
  dnnl_status_t st = dnnl_matmul_desc_init(&desc, &p->a, &p->b, NULL, &p->c);
  if (st == dnnl_success)
    st = dnnl_primitive_desc_create(&pd, (const_dnnl_op_desc_t)&desc, attr,
                                    one.engine, NULL);
  if (st != dnnl_success)
    return st;
  p->scratch = *dnnl_primitive_desc_query_md(pd, dnnl_query_scratchpad_md, 0);
  st = dnnl_primitive_create(&p->primitive, pd);
  dnnl_primitive_desc_destroy(pd);
  if (st == dnnl_success &&
      dnnl_memory_desc_get_size(&p->scratch) > PEN_STREAM_SCRATCH_BYTES) {
    dnnl_primitive_destroy(p->primitive);
    st = dnnl_out_of_memory;
  }
  return st;
}

static dnnl_status_t make_product(struct product *p, const struct shape *s)
{
  dnnl_primitive_attr_t attr;
  dnnl_post_ops_t ops;
  p->shape = *s;
  dnnl_status_t st =
      describe(&p->a, s->m, s->k, s->lda, s->a_trans, s->ab_elem);
  if (st == dnnl_success)
    st = describe(&p->b, s->k, s->n, s->ldb, s->b_trans, s->ab_elem);
  if (st == dnnl_success)
    st = describe(&p->c, s->m, s->n, s->ldc, false, s->c_elem);
  if (st != dnnl_success || (st = dnnl_primitive_attr_create(&attr)))
    return st;
  st = dnnl_post_ops_create(&ops);
  if (st == dnnl_success) {
    if (s->accumulate)
      st = dnnl_post_ops_append_sum(ops, 1);
    if (st == dnnl_success)
      st = dnnl_primitive_attr_set_post_ops(attr, ops);
    dnnl_post_ops_destroy(ops);
  }
  if (st == dnnl_success)
    st = dnnl_primitive_attr_set_scratchpad_mode(attr,
                                                 dnnl_scratchpad_mode_user);
  if (st == dnnl_success)
    st = make_primitive(p, attr);
  dnnl_primitive_attr_destroy(attr);
  return st;
}

/* The kept product for a shape, made at first use; NULL where that fails or
 * the table is full. */
static const struct product *find_product(const struct shape *s)
{
  pthread_mutex_lock(&one.mutex);
  size_t i = 0;
  while (i < one.n && memcmp(&one.table[i].shape, s, sizeof *s))
    i++;
  if (i == one.n && (i == N_PRIMITIVES_MAX ||
                     make_product(&one.table[i], s) != dnnl_success))
    i = SIZE_MAX;
  else if (i == one.n)
    one.n++;
  pthread_mutex_unlock(&one.mutex);
  return i == SIZE_MAX ? NULL : &one.table[i];
}

static dnnl_status_t execute(const struct product *p, const struct pen_gemm *g,
                             void *scratch)
{
  const dnnl_memory_desc_t *md[] = {&p->a, &p->b, &p->c, &p->scratch};
  void *data[] = {(void *)(uintptr_t)g->a, (void *)(uintptr_t)g->b, g->c,
                  scratch};
  dnnl_exec_arg_t args[] = {{DNNL_ARG_SRC, NULL},
                            {DNNL_ARG_WEIGHTS, NULL},
                            {DNNL_ARG_DST, NULL},
                            {DNNL_ARG_SCRATCHPAD, NULL}};
  dnnl_stream_t stream;
  dnnl_status_t st =
      dnnl_stream_create(&stream, one.engine, dnnl_stream_default_flags);
  if (st != dnnl_success)
    return st;
  for (int i = 0; i < 4 && st == dnnl_success; i++)
    st = dnnl_memory_create(&args[i].memory, md[i], one.engine, data[i]);
  if (st == dnnl_success)
    st = dnnl_primitive_execute(p->primitive, stream, 4, args);
  if (st == dnnl_success)
    st = dnnl_stream_wait(stream);
  for (int i = 0; i < 4; i++)
    if (args[i].memory)
      dnnl_memory_destroy(args[i].memory);
  dnnl_stream_destroy(stream);
  return st;
}

static int run_piece(const struct pen_gemm *g, void *scratch)
{
  struct shape s;
  memset(&s, 0, sizeof s); /* compared as bytes */
  s.m = g->m, s.n = g->n, s.k = g->k;
  s.lda = g->lda, s.ldb = g->ldb, s.ldc = g->ldc;
  s.ab_elem = g->ab_elem, s.c_elem = g->c_elem;
  s.a_trans = g->a_trans, s.b_trans = g->b_trans, s.accumulate = g->accumulate;
  const struct product *p = find_product(&s);
  return p && execute(p, g, scratch) == dnnl_success ? 0 : -ENOMEM;
}

/* Greatest power of two that is no more than n and no more than max. */
static size_t power_below(size_t n, size_t max)
{
  while (max > n)
    max /= 2;
  return max;
}

#define TILE_ROWS ((size_t)256)
#define TILE_COLS ((size_t)1024)
#define TILE_K ((size_t)4096)

static const char *move(const void *x, size_t elems, enum pen_elem elem)
{
  return (const char *)x + elems * pen_elem_bytes(elem);
}

static int onednn_tile(enum pen_isa isa, const struct pen_gemm *tile,
                       void *scratch)
{
  one.set_num_threads(1);
  bool by_k = tile->a_trans && tile->c_elem == PEN_ELEM_F32;
  size_t total = by_k ? tile->k : tile->m;
  for (size_t done = 0, n; done < total; done += n) {
    struct pen_gemm piece = *tile;
    piece.a = move(tile->a, done * tile->lda, tile->ab_elem);
    if (by_k) {
      piece.k = n = power_below(total - done, TILE_K);
      piece.b = move(tile->b, tile->b_trans ? done : done * tile->ldb,
                     tile->ab_elem);
      piece.accumulate = tile->accumulate || done;
    } else if (tile->a_trans) {
      n = total;
    } else {
      piece.m = n = power_below(total - done, TILE_ROWS);
      piece.c = (char *)move(tile->c, done * tile->ldc, tile->c_elem);
    }
    int r = run_piece(&piece, scratch);
    if (r)
      return r;
  }
  return 0;
}

const struct pen_gemm_library pen_gemm_onednn = {
    .name = "onednn",
    .open = onednn_open,
    .variant = onednn_variant,
    .tile = onednn_tile,
    .tile_rows = TILE_ROWS,
    .tile_cols = TILE_COLS,
};
