/* blas.c: cuBLAS's product in loops, put into the handle's stream.
 *
 * Sums are fp32, in the order of k; beta 0 does not read C.  Disadvantage: a few
 * GFLOP/s, for small shapes. */
#include <stdlib.h>
#include <string.h>

#include "kernels/bf16.h"
#include "tests/gpu/fake/fake.h"
#include "tests/gpu/fake/include/cublas_v2.h"

struct cublasContext {
  cudaStream_t stream;
  void *workspace;
};

struct product {
  cublasOperation_t ta, tb;
  int64_t m, n, k;
  const void *a, *b;
  cudaDataType_t ab_type, c_type;
  int64_t lda, ldb, ldc;
  float beta;
  void *c;
};

const char *cublasGetStatusString(cublasStatus_t status)
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

cublasStatus_t cublasCreate(cublasHandle_t *ret_handle)
{
  if (fake_count_allocation())
    return CUBLAS_STATUS_ALLOC_FAILED;
  *ret_handle = calloc(1, sizeof **ret_handle);
  return *ret_handle ? CUBLAS_STATUS_SUCCESS : CUBLAS_STATUS_ALLOC_FAILED;
}

cublasStatus_t cublasDestroy(cublasHandle_t handle)
{
  free(handle);
  return CUBLAS_STATUS_SUCCESS;
}

cublasStatus_t cublasGetVersion(cublasHandle_t handle, int *version)
{
  (void)handle;
  *version = 130000;
  return CUBLAS_STATUS_SUCCESS;
}

cublasStatus_t cublasSetStream(cublasHandle_t handle, cudaStream_t stream)
{
  handle->stream = stream;
  return CUBLAS_STATUS_SUCCESS;
}

cublasStatus_t cublasSetMathMode(cublasHandle_t handle, cublasMath_t mode)
{
  (void)handle;
  return mode == CUBLAS_MATH_DISALLOW_REDUCED_PRECISION_REDUCTION
             ? CUBLAS_STATUS_SUCCESS
             : CUBLAS_STATUS_NOT_SUPPORTED;
}

cublasStatus_t cublasSetWorkspace(cublasHandle_t handle, void *workspace,
                                  size_t bytes)
{
  if ((uintptr_t)workspace % 256 || !fake_is_device(workspace, bytes))
    return CUBLAS_STATUS_INVALID_VALUE;
  handle->workspace = workspace;
  return CUBLAS_STATUS_SUCCESS;
}

static float load(const void *x, cudaDataType_t type, int64_t i)
{
  return type == CUDA_R_32F ? ((const float *)x)[i]
                            : pen_bf16_to_f32(((const uint16_t *)x)[i]);
}

static void run(void *record)
{
  struct product *p = record;
  for (int64_t j = 0; j < p->n; j++)
    for (int64_t i = 0; i < p->m; i++) {
      float sum = 0;
      for (int64_t l = 0; l < p->k; l++)
        sum += load(p->a, p->ab_type,
                    p->ta == CUBLAS_OP_T ? l + i * p->lda : i + l * p->lda) *
               load(p->b, p->ab_type,
                    p->tb == CUBLAS_OP_T ? j + l * p->ldb : l + j * p->ldb);
      int64_t at = i + j * p->ldc;
      if (p->beta != 0)
        sum += p->beta * load(p->c, p->c_type, at);
      if (p->c_type == CUDA_R_32F)
        ((float *)p->c)[at] = sum;
      else
        ((uint16_t *)p->c)[at] = pen_bf16_from_f32(sum);
    }
  free(p);
}

static size_t bytes_of(cudaDataType_t type)
{
  return type == CUDA_R_32F ? 4 : 2;
}

/* Rows by columns at leading dimension ld, all of it on the device. */
static bool is_matrix(const void *x, cudaDataType_t type, int64_t rows,
                      int64_t cols, int64_t ld)
{
  size_t bytes = (size_t)((cols - 1) * ld + rows) * bytes_of(type);
  return ld >= rows && rows > 0 && cols > 0 && fake_is_device(x, bytes) &&
         (uintptr_t)x % bytes_of(type) == 0;
}

cublasStatus_t cublasGemmEx_64(cublasHandle_t handle, cublasOperation_t ta,
                               cublasOperation_t tb, int64_t m, int64_t n,
                               int64_t k, const void *alpha, const void *a,
                               cudaDataType_t a_type, int64_t lda,
                               const void *b, cudaDataType_t b_type,
                               int64_t ldb, const void *beta, void *c,
                               cudaDataType_t c_type, int64_t ldc,
                               cublasComputeType_t compute,
                               cublasGemmAlgo_t algorithm)
{
  (void)algorithm;
  bool typed = a_type == b_type && (c_type == a_type || c_type == CUDA_R_32F) &&
               compute == CUBLAS_COMPUTE_32F;
  bool ta_t = ta == CUBLAS_OP_T, tb_t = tb == CUBLAS_OP_T;
  if (!typed)
    return CUBLAS_STATUS_NOT_SUPPORTED;
  if (!handle->workspace || *(const float *)alpha != 1 ||
      !is_matrix(a, a_type, ta_t ? k : m, ta_t ? m : k, lda) ||
      !is_matrix(b, b_type, tb_t ? n : k, tb_t ? k : n, ldb) ||
      !is_matrix(c, c_type, m, n, ldc))
    return CUBLAS_STATUS_INVALID_VALUE;
  struct product *p = malloc(sizeof *p);
  if (!p)
    return CUBLAS_STATUS_ALLOC_FAILED;
  *p = (struct product){ta,     tb,  m,   n,   k,
                        a,      b,   a_type, c_type, lda,
                        ldb,    ldc, *(const float *)beta, c};
  if (fake_launch(handle->stream, run, p) == 0)
    return CUBLAS_STATUS_SUCCESS;
  free(p);
  return CUBLAS_STATUS_EXECUTION_FAILED;
}
