/* products.c: matrix products by cuBLASLt, on the compute queue.
 *
 * bf16 operands are multiplied with sums in fp32, partial sums too; fp32 ones
 * without TF32 unless asked (--tf32).  The first product of a shape takes what the library thinks the
 * fastest for it, all later ones the same (choices.c).  A shape knows the least
 * alignment of its operands, which follows from the model alone, since slots
 * begin on pages and tensors on 64-byte lines: so neither where bytes lie nor
 * which product comes first changes a bit.  A bias and an addend come in as the
 * product is written, in fp32; where the library has no algorithm for that, the
 * bias in a pass of its own.  One thread at a time.  Disadvantage: the library's
 * opinion is believed, not measured. */
#include <cublasLt.h>
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "base/error.h"
#include "kernels/cuda/state.h"

#define ALIGN_MAX ((uintptr_t)16)

static const struct pen_backend_choices backend_choices;

static void allow_tf32(struct pen_backend *backend)
{
  struct pen_cuda *cuda = backend->stream_device;
  size_t used = strlen(backend->products_variant);
  cuda->tf32 = true;
  snprintf(backend->products_variant + used,
           sizeof backend->products_variant - used, ", TF32");
}

int pen_cuda_products_open(struct pen_cuda *cuda)
{
  char device[64];
  struct pen_backend *b = &cuda->backend;
  cublasStatus_t status = cublasLtCreate(&cuda->blas);
  if (status != CUBLAS_STATUS_SUCCESS)
    return pen_cuda_error_set(status == CUBLAS_STATUS_ALLOC_FAILED
                                  ? PEN_ENOFIT : PEN_EDEVICE,
                              "cuBLAS: opening: %s",
                              cublasLtGetStatusString(status));
  snprintf(device, sizeof device, "%.40s", b->products_variant);
  snprintf(b->products, sizeof b->products, "cublas");
  snprintf(b->products_variant, sizeof b->products_variant, "Lt %zu on %.40s",
           cublasLtGetVersion(), device);
  b->choices = &backend_choices;
  b->allow_tf32 = allow_tf32;
  return 0;
}

void pen_cuda_products_close(struct pen_cuda *cuda)
{
  if (cuda->blas)
    cublasLtDestroy(cuda->blas);
  cuda->blas = NULL;
}

/* ---- shapes ---- */

static uint64_t power_from(uint64_t n)
{
  uint64_t power = 1;
  while (power < n)
    power *= 2;
  return power;
}

static uint8_t align_of(const void *at)
{
  uintptr_t bits = (uintptr_t)at | ALIGN_MAX;
  return (uint8_t)(bits & (~bits + 1));
}

/* Rows of a weight's gradient are columns of two inputs: tokens are what is
 * summed over.  Elsewhere they are the rows of the result. */
static uint64_t *tokens_of(struct pen_cuda_shape *shape)
{
  return shape->a_trans ? &shape->k : &shape->m;
}

static struct pen_cuda_shape shape_of(const struct pen_gemm *g)
{
  struct pen_cuda_shape s;
  memset(&s, 0, sizeof s); /* compared by bytes */
  s.m = g->m;
  s.n = g->n;
  s.k = g->k;
  s.lda = g->lda;
  s.ldb = g->ldb;
  s.ldc = g->ldc;
  s.ab_elem = (uint8_t)g->ab_elem;
  s.c_elem = (uint8_t)g->c_elem;
  s.a_trans = g->a_trans;
  s.b_trans = g->b_trans;
  s.accumulate = g->accumulate || g->addend; /* the same to the library */
  s.bias = g->bias != NULL;
  s.a_align = align_of(g->a);
  s.b_align = align_of(g->b);
  s.c_align = align_of((const void *)((uintptr_t)g->c | (uintptr_t)g->addend));
  return s;
}

/* ---- in cuBLAS's words: rows here are columns there, C^T = B^T A^T ---- */

struct problem {
  cublasLtMatmulDescOpaque_t product;
  cublasLtMatrixLayoutOpaque_t a, b, c; /* our B, A and C */
};

static cudaDataType_t type_of(uint8_t elem)
{
  return elem == PEN_ELEM_BF16 ? CUDA_R_16BF : CUDA_R_32F;
}

static void keep(cublasStatus_t *status, cublasStatus_t next)
{
  if (*status == CUBLAS_STATUS_SUCCESS)
    *status = next;
}

/* Of a bias that only the shape is known of: the library may look how it is
 * aligned. */
static const void *const some_bias = (const void *)256;

static cublasStatus_t describe_bias(struct problem *p, const void *bias)
{
  int32_t epilogue = CUBLASLT_EPILOGUE_BIAS;
  cublasStatus_t status = cublasLtMatmulDescSetAttribute(
      &p->product, CUBLASLT_MATMUL_DESC_EPILOGUE, &epilogue, sizeof epilogue);
  keep(&status, cublasLtMatmulDescSetAttribute(
                    &p->product, CUBLASLT_MATMUL_DESC_BIAS_POINTER, &bias,
                    sizeof bias));
  return status;
}

static cublasStatus_t describe(const struct pen_cuda *cuda,
                               const struct pen_cuda_shape *s,
                               const void *bias, struct problem *ret_problem)
{
  struct problem *p = ret_problem;
  int32_t a_op = s->b_trans ? CUBLAS_OP_T : CUBLAS_OP_N;
  int32_t b_op = s->a_trans ? CUBLAS_OP_T : CUBLAS_OP_N;
  cudaDataType_t type = type_of(s->ab_elem);
  cublasComputeType_t compute = cuda->tf32 && type == CUDA_R_32F
                                    ? CUBLAS_COMPUTE_32F_FAST_TF32
                                    : CUBLAS_COMPUTE_32F;
  cublasStatus_t status =
      cublasLtMatmulDescInit(&p->product, compute, CUDA_R_32F);
  keep(&status, cublasLtMatmulDescSetAttribute(
                    &p->product, CUBLASLT_MATMUL_DESC_TRANSA, &a_op,
                    sizeof a_op));
  keep(&status, cublasLtMatmulDescSetAttribute(
                    &p->product, CUBLASLT_MATMUL_DESC_TRANSB, &b_op,
                    sizeof b_op));
  if (s->bias)
    keep(&status, describe_bias(p, bias));
  keep(&status, cublasLtMatrixLayoutInit(&p->a, type, s->b_trans ? s->k : s->n,
                                         s->b_trans ? s->n : s->k,
                                         (int64_t)s->ldb));
  keep(&status, cublasLtMatrixLayoutInit(&p->b, type, s->a_trans ? s->m : s->k,
                                         s->a_trans ? s->k : s->m,
                                         (int64_t)s->lda));
  keep(&status, cublasLtMatrixLayoutInit(&p->c, type_of(s->c_elem), s->n, s->m,
                                         (int64_t)s->ldc));
  return status;
}

static cublasStatus_t prefer(const struct pen_cuda_shape *s,
                             cublasLtMatmulPreferenceOpaque_t *ret_preference)
{
  uint64_t workspace = PEN_CUDA_WORKSPACE_BYTES;
  uint32_t sums = CUBLASLT_REDUCTION_SCHEME_COMPUTE_TYPE; /* else in one go */
  const struct {
    cublasLtMatmulPreferenceAttributes_t what;
    uint32_t bytes;
  } aligned[] = {{CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_A_BYTES, s->b_align},
                 {CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_B_BYTES, s->a_align},
                 {CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_C_BYTES, s->c_align},
                 {CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_D_BYTES, s->c_align}};
  cublasStatus_t status = cublasLtMatmulPreferenceInit(ret_preference);
  keep(&status, cublasLtMatmulPreferenceSetAttribute(
                    ret_preference, CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES,
                    &workspace, sizeof workspace));
  keep(&status, cublasLtMatmulPreferenceSetAttribute(
                    ret_preference, CUBLASLT_MATMUL_PREF_REDUCTION_SCHEME_MASK,
                    &sums, sizeof sums));
  for (size_t i = 0; i < sizeof aligned / sizeof *aligned; i++)
    keep(&status, cublasLtMatmulPreferenceSetAttribute(
                      ret_preference, aligned[i].what, &aligned[i].bytes,
                      sizeof aligned[i].bytes));
  return status;
}

/* ---- algorithms ---- */

static cublasStatus_t choose(const struct pen_cuda *cuda,
                             struct pen_cuda_choice *choice)
{
  struct problem p;
  cublasLtMatmulPreferenceOpaque_t preference;
  cublasLtMatmulHeuristicResult_t found;
  int n = 0;
  cublasStatus_t status = describe(cuda, &choice->shape, some_bias, &p);
  keep(&status, prefer(&choice->shape, &preference));
  if (status == CUBLAS_STATUS_SUCCESS)
    status = cublasLtMatmulAlgoGetHeuristic(cuda->blas, &p.product, &p.a, &p.b,
                                            &p.c, &p.c, &preference, 1, &found,
                                            &n);
  if (status == CUBLAS_STATUS_SUCCESS)
    status = n ? found.state : CUBLAS_STATUS_NOT_SUPPORTED;
  if (status == CUBLAS_STATUS_SUCCESS)
    memcpy(choice->algorithm, &found.algo, sizeof choice->algorithm);
  return status;
}

/* Does the library, on this device, offer that algorithm for the shape? */
static bool is_offered(const struct pen_cuda *cuda,
                       const struct pen_cuda_choice *choice)
{
  struct problem p;
  cublasLtMatmulAlgo_t algorithm;
  cublasLtMatmulHeuristicResult_t told;
  memcpy(&algorithm, choice->algorithm, sizeof algorithm);
  cublasStatus_t status = describe(cuda, &choice->shape, some_bias, &p);
  keep(&status, cublasLtMatmulAlgoCheck(cuda->blas, &p.product, &p.a, &p.b,
                                        &p.c, &p.c, &algorithm, &told));
  return status == CUBLAS_STATUS_SUCCESS &&
         told.workspaceSize <= PEN_CUDA_WORKSPACE_BYTES;
}

static bool is_refused(cublasStatus_t status)
{
  return status == CUBLAS_STATUS_NOT_SUPPORTED ||
         status == CUBLAS_STATUS_INVALID_VALUE;
}

static cublasStatus_t choice_for(struct pen_cuda *cuda,
                                 const struct pen_cuda_shape *shape,
                                 const struct pen_cuda_choice **ret_choice)
{
  struct pen_cuda_choice made;
  *ret_choice = pen_cuda_choices_find(cuda, shape);
  if (*ret_choice)
    return CUBLAS_STATUS_SUCCESS;
  if (pen_cuda_choices_is_refused(cuda, shape))
    return CUBLAS_STATUS_NOT_SUPPORTED;
  memset(&made, 0, sizeof made);
  made.shape = *shape;
  cublasStatus_t status = choose(cuda, &made);
  if (is_refused(status))
    pen_cuda_choices_refuse(cuda, shape);
  if (status != CUBLAS_STATUS_SUCCESS)
    return status;
  *ret_choice = pen_cuda_choices_add(cuda, &made);
  return *ret_choice ? CUBLAS_STATUS_SUCCESS : CUBLAS_STATUS_ALLOC_FAILED;
}

/* ---- as a run keeps them ---- */

static size_t count_choices(const struct pen_backend *backend)
{
  const struct pen_cuda *cuda = backend->stream_device;
  return cuda->n_choices;
}

static void write_choice(const struct pen_backend *backend, size_t number,
                         char ret_line[PEN_BACKEND_CHOICE_BYTES])
{
  const struct pen_cuda *cuda = backend->stream_device;
  pen_cuda_choices_write(&cuda->choices[number], ret_line);
}

static int read_choice(struct pen_backend *backend, const char *line)
{
  struct pen_cuda *cuda = backend->stream_device;
  struct pen_cuda_choice c;
  int rc = pen_cuda_choices_parse(line, &c);
  if (rc < 0)
    return rc;
  if (!is_offered(cuda, &c))
    return pen_cuda_error_set(
        PEN_EMISMATCH,
        "%s on this device does not offer the algorithm that the run took for "
        "products of %" PRIu64 " x %" PRIu64 " x %" PRIu64 " and would change "
        "its numbers; resume it where it was started, or start another run",
        backend->products, c.shape.m, c.shape.n, c.shape.k);
  if (!pen_cuda_choices_find(cuda, &c.shape) && !pen_cuda_choices_add(cuda, &c))
    return pen_cuda_error_set(PEN_EFORMAT, "more than %zu shapes of products",
                              cuda->n_choices);
  return 0;
}

static const struct pen_backend_choices backend_choices = {
    count_choices, write_choice, read_choice};

/* ---- the product ---- */

/* The product, by what was chosen for `shape`. */
static cublasStatus_t multiply(struct pen_cuda *cuda, const struct pen_gemm *g,
                               const struct pen_cuda_shape *shape)
{
  const float one = 1, zero = 0;
  const struct pen_cuda_choice *choice;
  const struct pen_cuda_shape own = shape_of(g);
  struct problem p;
  cublasLtMatmulAlgo_t algorithm;
  cublasStatus_t status = choice_for(cuda, shape, &choice);
  keep(&status, describe(cuda, &own, g->bias, &p));
  if (status != CUBLAS_STATUS_SUCCESS)
    return status;
  memcpy(&algorithm, choice->algorithm, sizeof algorithm);
  return cublasLtMatmul(cuda->blas, &p.product, &one, g->b, &p.a, g->a, &p.b,
                        own.accumulate ? &one : &zero,
                        g->addend ? g->addend : g->c, &p.c, g->c, &p.c, &algorithm, cuda->workspace, PEN_CUDA_WORKSPACE_BYTES,
                        cuda->queues[PEN_DEVICE_COMPUTE]);
}

/* An algorithm that does not take a number of tokens leaves it one of its own. */
static cublasStatus_t multiply_any(struct pen_cuda *cuda,
                                   const struct pen_gemm *g)
{
  struct pen_cuda_shape exact = shape_of(g), shape = exact;
  *tokens_of(&shape) = power_from(*tokens_of(&shape));
  cublasStatus_t status = multiply(cuda, g, &shape);
  return is_refused(status) ? multiply(cuda, g, &exact) : status;
}

/* Without the library's help: rounded once more. */
static cublasStatus_t multiply_then_add(struct pen_cuda *cuda,
                                        const struct pen_gemm *g)
{
  struct pen_gemm bare = *g;
  bare.bias = NULL;
  cublasStatus_t status = multiply_any(cuda, &bare);
  if (status == CUBLAS_STATUS_SUCCESS &&
      pen_cuda_bias(cuda->queues[PEN_DEVICE_COMPUTE], g->c_elem, g->m, g->n,
                    g->c, g->ldc, g->bias))
    status = CUBLAS_STATUS_EXECUTION_FAILED;
  return status;
}

void pen_cuda_gemm(struct pen_stream *s, const struct pen_gemm *g)
{
  struct pen_cuda *cuda = s->device;
  if (s->error.code || !g->m || !g->n)
    return;
  cublasStatus_t status = multiply_any(cuda, g);
  if (is_refused(status) && g->bias)
    status = multiply_then_add(cuda, g);
  if (status != CUBLAS_STATUS_SUCCESS)
    pen_cuda_stream_fail(s, "a product", cublasLtGetStatusString(status));
}
