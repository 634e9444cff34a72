/* blas.c: cuBLASLt's product in loops, put into the stream.
 *
 * Three algorithms that differ in the order of a sum, all in fp32: k ascending;
 * two halves, one after the other; descending, which takes an even number of
 * columns alone.  Beta 0 does not read C.  A bias is added, where fake.h's settings
 * do not forbid it.  Which the heuristic names first, and
 * which is not offered at all, fake.h's settings say.  Disadvantage: a few GFLOP/s,
 * for small shapes. */
#include <stdlib.h>
#include <string.h>

#include "kernels/bf16.h"
#include "tests/gpu/fake/fake.h"
#include "tests/gpu/fake/include/cublasLt.h"

#define MARK ((uint64_t)0xb1a5 << 32) /* of an algorithm's first word */
enum { ASCENDING, HALVES, DESCENDING, ALGORITHMS };

struct cublasLtContext {
  char opened;
};

struct matrix {
  cudaDataType_t type;
  int64_t rows, cols, ld;
};

struct product {
  bool ta, tb, tf32;
  struct matrix a, b, c;
  int64_t m, n, k;
  const void *from_a, *from_b, *from_c, *bias;
  void *to;
  float beta;
  int algorithm;
};

const char *cublasLtGetStatusString(cublasStatus_t status)
{
  switch (status) {
  case CUBLAS_STATUS_SUCCESS:
    return "CUBLAS_STATUS_SUCCESS";
  case CUBLAS_STATUS_ALLOC_FAILED:
    return "CUBLAS_STATUS_ALLOC_FAILED";
  case CUBLAS_STATUS_INVALID_VALUE:
    return "CUBLAS_STATUS_INVALID_VALUE";
  case CUBLAS_STATUS_EXECUTION_FAILED:
    return "CUBLAS_STATUS_EXECUTION_FAILED";
  case CUBLAS_STATUS_NOT_SUPPORTED:
    return "CUBLAS_STATUS_NOT_SUPPORTED";
  }
  return "unknown status";
}

cublasStatus_t cublasLtCreate(cublasLtHandle_t *ret_handle)
{
  if (fake_count_allocation())
    return CUBLAS_STATUS_ALLOC_FAILED;
  *ret_handle = calloc(1, sizeof **ret_handle);
  return *ret_handle ? CUBLAS_STATUS_SUCCESS : CUBLAS_STATUS_ALLOC_FAILED;
}

cublasStatus_t cublasLtDestroy(cublasLtHandle_t handle)
{
  free(handle);
  return CUBLAS_STATUS_SUCCESS;
}

size_t cublasLtGetVersion(void)
{
  return 130000;
}

/* ---- descriptors: data[0..] in the order of use here ---- */

cublasStatus_t cublasLtMatmulDescInit(cublasLtMatmulDesc_t desc,
                                      cublasComputeType_t compute,
                                      cudaDataType_t scale)
{
  memset(desc, 0, sizeof *desc);
  desc->data[0] = compute;
  return (compute == CUBLAS_COMPUTE_32F ||
          compute == CUBLAS_COMPUTE_32F_FAST_TF32) && scale == CUDA_R_32F
             ? CUBLAS_STATUS_SUCCESS
             : CUBLAS_STATUS_NOT_SUPPORTED;
}

cublasStatus_t
cublasLtMatmulDescSetAttribute(cublasLtMatmulDesc_t desc,
                               cublasLtMatmulDescAttributes_t what,
                               const void *value, size_t bytes)
{
  bool is_pointer = what == CUBLASLT_MATMUL_DESC_BIAS_POINTER;
  if (bytes != (is_pointer ? sizeof(void *) : sizeof(int32_t)))
    return CUBLAS_STATUS_INVALID_VALUE;
  memcpy(&desc->data[what], value, bytes);
  return CUBLAS_STATUS_SUCCESS;
}

cublasStatus_t cublasLtMatrixLayoutInit(cublasLtMatrixLayout_t layout,
                                        cudaDataType_t type, uint64_t rows,
                                        uint64_t cols, int64_t ld)
{
  *layout = (cublasLtMatrixLayoutOpaque_t){
      {(uint64_t)type, rows, cols, (uint64_t)ld}};
  return CUBLAS_STATUS_SUCCESS;
}

cublasStatus_t
cublasLtMatmulPreferenceInit(cublasLtMatmulPreference_t preference)
{
  memset(preference, 0, sizeof *preference);
  return CUBLAS_STATUS_SUCCESS;
}

cublasStatus_t cublasLtMatmulPreferenceSetAttribute(
    cublasLtMatmulPreference_t preference,
    cublasLtMatmulPreferenceAttributes_t what, const void *value, size_t bytes)
{
  /* Bytes of workspace and kinds of sums, then the alignments of A, B, C, D. */
  size_t at = what == CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES     ? 0
              : what == CUBLASLT_MATMUL_PREF_REDUCTION_SCHEME_MASK ? 1
                                                                   : what - 3;
  if (bytes != (at ? sizeof(uint32_t) : sizeof(uint64_t)))
    return CUBLAS_STATUS_INVALID_VALUE;
  memcpy(&preference->data[at], value, bytes);
  return CUBLAS_STATUS_SUCCESS;
}

static struct matrix matrix_of(const cublasLtMatrixLayoutOpaque_t *layout)
{
  const uint64_t *d = layout->data;
  return (struct matrix){(cudaDataType_t)d[0], (int64_t)d[1], (int64_t)d[2],
                         (int64_t)d[3]};
}

/* Do the matrices fit together? */
static cublasStatus_t read_product(const cublasLtMatmulDescOpaque_t *desc,
                                   const cublasLtMatrixLayoutOpaque_t *a,
                                   const cublasLtMatrixLayoutOpaque_t *b,
                                   const cublasLtMatrixLayoutOpaque_t *c,
                                   struct product *p)
{
  *p = (struct product){.ta = desc->data[CUBLASLT_MATMUL_DESC_TRANSA],
                        .tb = desc->data[CUBLASLT_MATMUL_DESC_TRANSB],
                        .tf32 = desc->data[0] == CUBLAS_COMPUTE_32F_FAST_TF32,
                        .a = matrix_of(a), .b = matrix_of(b),
                        .c = matrix_of(c)};
  p->m = p->c.rows;
  p->n = p->c.cols;
  p->k = p->ta ? p->a.rows : p->a.cols;
  if (p->m != (p->ta ? p->a.cols : p->a.rows) ||
      p->k != (p->tb ? p->b.cols : p->b.rows) ||
      p->n != (p->tb ? p->b.rows : p->b.cols) || p->m < 1 || p->n < 1 ||
      p->k < 1 || p->a.ld < p->a.rows || p->b.ld < p->b.rows ||
      p->c.ld < p->c.rows)
    return CUBLAS_STATUS_INVALID_VALUE;
  p->bias = (const void *)(uintptr_t)desc->data[CUBLASLT_MATMUL_DESC_BIAS_POINTER];
  if ((p->bias != NULL) !=
      (desc->data[CUBLASLT_MATMUL_DESC_EPILOGUE] == CUBLASLT_EPILOGUE_BIAS))
    return CUBLAS_STATUS_INVALID_VALUE;
  if (p->bias && !fake_settings()->epilogues)
    return CUBLAS_STATUS_NOT_SUPPORTED;
  if (p->tf32 && p->a.type != CUDA_R_32F)
    return CUBLAS_STATUS_NOT_SUPPORTED;
  return p->a.type == p->b.type &&
                 (p->c.type == p->a.type || p->c.type == CUDA_R_32F)
             ? CUBLAS_STATUS_SUCCESS
             : CUBLAS_STATUS_NOT_SUPPORTED;
}

/* ---- algorithms: number and mark, then the alignments it was asked for ---- */

static bool is_offered(int algorithm, const struct product *p)
{
  return algorithm != fake_settings()->without &&
         (algorithm != DESCENDING || p->n % 2 == 0);
}

/* A step has no time to ask again for what there is not: once as a sum that is
 * added to, once as one that is not, which look the same here. */
static void count_refusal(const struct product *p, const uint64_t *asked)
{
  enum { REFUSALS = 512, MOST = 2 };
  static struct {
    uint64_t what[11];
    int n;
  } all[REFUSALS];
  const uint64_t what[11] = {
      p->ta, p->tb, p->a.type, p->c.type, (uint64_t)p->m, (uint64_t)p->n,
      (uint64_t)p->k, p->bias != NULL, asked[2], asked[3], asked[4]};
  int i = 0;
  while (i < REFUSALS && all[i].n && memcmp(all[i].what, what, sizeof what) != 0)
    i++;
  if (i == REFUSALS)
    return;
  memcpy(all[i].what, what, sizeof what);
  if (++all[i].n > MOST && fake_settings()->strict)
    fake_end("a product of %lld x %lld x %lld was refused %d times and is asked "
             "for again", (long long)p->m, (long long)p->n, (long long)p->k, MOST);
}

cublasStatus_t cublasLtMatmulAlgoGetHeuristic(
    cublasLtHandle_t handle, cublasLtMatmulDesc_t desc,
    cublasLtMatrixLayout_t a, cublasLtMatrixLayout_t b, cublasLtMatrixLayout_t c,
    cublasLtMatrixLayout_t d, cublasLtMatmulPreference_t preference, int wanted,
    cublasLtMatmulHeuristicResult_t *ret_results, int *ret_n)
{
  struct product p;
  (void)handle;
  *ret_n = 0;
  cublasStatus_t status = read_product(desc, a, b, c, &p);
  const uint64_t *asked = preference->data;
  if (status != CUBLAS_STATUS_SUCCESS) {
    count_refusal(&p, asked);
    return status;
  }
  if (memcmp(c, d, sizeof *c) != 0 || wanted != 1 ||
      asked[1] != CUBLASLT_REDUCTION_SCHEME_COMPUTE_TYPE || !asked[0])
    return CUBLAS_STATUS_INVALID_VALUE;
  for (int i = 0; i < ALGORITHMS && !*ret_n; i++) {
    int algorithm = (fake_settings()->algorithm + i) % ALGORITHMS;
    if (!is_offered(algorithm, &p))
      continue;
    ret_results[0] = (cublasLtMatmulHeuristicResult_t){
        .algo = {{MARK | (uint64_t)algorithm, asked[2], asked[3], asked[4],
                  asked[5]}},
        .workspaceSize = asked[0]};
    *ret_n = 1;
  }
  return CUBLAS_STATUS_SUCCESS;
}

cublasStatus_t cublasLtMatmulAlgoCheck(
    cublasLtHandle_t handle, cublasLtMatmulDesc_t desc,
    cublasLtMatrixLayout_t a, cublasLtMatrixLayout_t b, cublasLtMatrixLayout_t c,
    cublasLtMatrixLayout_t d, const cublasLtMatmulAlgo_t *algorithm,
    cublasLtMatmulHeuristicResult_t *ret_result)
{
  struct product p;
  uint64_t number = algorithm->data[0] ^ MARK;
  (void)handle;
  (void)d;
  cublasStatus_t status = read_product(desc, a, b, c, &p);
  if (status == CUBLAS_STATUS_SUCCESS &&
      (number >= ALGORITHMS || !is_offered((int)number, &p)))
    status = CUBLAS_STATUS_NOT_SUPPORTED;
  *ret_result = (cublasLtMatmulHeuristicResult_t){.algo = *algorithm,
                                                  .state = status};
  return status;
}

/* ---- the product ---- */

static float load(const void *x, cudaDataType_t type, int64_t i)
{
  return type == CUDA_R_32F ? ((const float *)x)[i]
                            : pen_bf16_to_f32(((const uint16_t *)x)[i]);
}

/* To ten bits, to the even one of two as near: TF32. */
static float tf32_of(float x)
{
  uint32_t bits;
  memcpy(&bits, &x, sizeof bits);
  if ((bits & 0x7f800000u) != 0x7f800000u)
    bits = (bits + 0xfffu + (bits >> 13 & 1)) & ~0x1fffu;
  memcpy(&x, &bits, sizeof x);
  return x;
}

static float sum_of(const struct product *p, int64_t i, int64_t j,
                    int64_t begin, int64_t end)
{
  float sum = 0;
  for (int64_t at = begin; at < end; at++) {
    int64_t l = p->algorithm == DESCENDING ? p->k - 1 - at : at;
    float a = load(p->from_a, p->a.type, p->ta ? l + i * p->a.ld
                                               : i + l * p->a.ld);
    float b = load(p->from_b, p->b.type, p->tb ? j + l * p->b.ld
                                               : l + j * p->b.ld);
    sum += p->tf32 ? tf32_of(a) * tf32_of(b) : a * b;
  }
  return sum;
}

static void run(void *record)
{
  struct product *p = record;
  int64_t middle = p->algorithm == HALVES ? p->k / 2 : p->k;
  for (int64_t j = 0; j < p->n; j++)
    for (int64_t i = 0; i < p->m; i++) {
      float sum = sum_of(p, i, j, 0, middle);
      if (middle < p->k)
        sum += sum_of(p, i, j, middle, p->k);
      int64_t at = i + j * p->c.ld;
      if (p->beta != 0)
        sum += p->beta * load(p->from_c, p->c.type, at);
      if (p->bias)
        sum += load(p->bias, p->c.type, i);
      if (p->c.type == CUDA_R_32F)
        ((float *)p->to)[at] = sum;
      else
        ((uint16_t *)p->to)[at] = pen_bf16_from_f32(sum);
    }
  free(p);
}

/* All of it on the device, at least as aligned as was said. */
static bool is_there(const void *x, const struct matrix *m, uint64_t align)
{
  size_t each = m->type == CUDA_R_32F ? 4 : 2;
  size_t bytes = (size_t)((m->cols - 1) * m->ld + m->rows) * each;
  return fake_is_device(x, bytes) && align >= each &&
         (uintptr_t)x % align == 0;
}

cublasStatus_t cublasLtMatmul(
    cublasLtHandle_t handle, cublasLtMatmulDesc_t desc, const void *alpha,
    const void *a, cublasLtMatrixLayout_t a_layout, const void *b,
    cublasLtMatrixLayout_t b_layout, const void *beta, const void *c,
    cublasLtMatrixLayout_t c_layout, void *d, cublasLtMatrixLayout_t d_layout,
    const cublasLtMatmulAlgo_t *algorithm, void *workspace,
    size_t workspace_bytes, cudaStream_t stream)
{
  struct product p;
  cublasLtMatmulHeuristicResult_t told;
  cublasStatus_t status = cublasLtMatmulAlgoCheck(
      handle, desc, a_layout, b_layout, c_layout, d_layout, algorithm, &told);
  if (status != CUBLAS_STATUS_SUCCESS)
    return status;
  read_product(desc, a_layout, b_layout, c_layout, &p);
  struct matrix bias = {p.c.type, p.m, 1, p.m};
  if (*(const float *)alpha != 1 ||
      (uintptr_t)workspace % 256 || !fake_is_device(workspace, workspace_bytes) ||
      !is_there(a, &p.a, algorithm->data[1]) ||
      !is_there(b, &p.b, algorithm->data[2]) ||
      !is_there(c, &p.c, algorithm->data[3]) ||
      !is_there(d, &p.c, algorithm->data[4]) ||
      (p.bias && !is_there(p.bias, &bias, p.c.type == CUDA_R_32F ? 4 : 2)))
    fake_end("a product of %lld x %lld x %lld with operands that are not the "
             "device's, or not aligned as was said",
             (long long)p.m, (long long)p.n, (long long)p.k);
  p.from_a = a;
  p.from_b = b;
  p.from_c = c;
  p.to = d;
  p.beta = *(const float *)beta;
  p.algorithm = (int)(algorithm->data[0] ^ MARK);
  struct product *record = malloc(sizeof *record);
  if (!record)
    return CUBLAS_STATUS_ALLOC_FAILED;
  *record = p;
  if (fake_launch(stream, run, record) == 0)
    return CUBLAS_STATUS_SUCCESS;
  free(record);
  return CUBLAS_STATUS_EXECUTION_FAILED;
}
