/* products.c: matrix products by cuBLAS, on the compute queue.
 *
 * bf16 operands are multiplied with sums in fp32 and without reduced-precision
 * reductions; fp32 ones without TF32.  The algorithm is cuBLAS's own choice for
 * shape, types, strides, alignment and workspace, which for one version on one
 * device is always the same: operands lie where slots and tensors begin, on
 * 64-byte lines at least wherever a slot is.  One thread at a time.
 * Disadvantage: nothing is fused into a product. */
#include <cublas_v2.h>
#include <stdio.h>
#include <string.h>

#include "base/error.h"
#include "kernels/cuda/state.h"

static int check(cublasStatus_t status, const char *what)
{
  if (status == CUBLAS_STATUS_SUCCESS)
    return 0;
  return pen_cuda_error_set(status == CUBLAS_STATUS_ALLOC_FAILED ? PEN_ENOFIT
                                                                 : PEN_EDEVICE,
                            "cuBLAS: %s: %s", what,
                            cublasGetStatusString(status));
}

int pen_cuda_products_open(struct pen_cuda *cuda)
{
  int version = 0;
  char device[64];
  struct pen_backend *b = &cuda->backend;
  int rc = check(cublasCreate(&cuda->blas), "opening");
  if (rc == 0)
    rc = check(cublasSetStream(cuda->blas, cuda->queues[PEN_DEVICE_COMPUTE]),
               "choosing the stream");
  if (rc == 0)
    rc = check(cublasSetMathMode(
                   cuda->blas,
                   (cublasMath_t)(CUBLAS_DEFAULT_MATH |
                                  CUBLAS_MATH_DISALLOW_REDUCED_PRECISION_REDUCTION)),
               "choosing the arithmetic");
  if (rc == 0)
    rc = check(cublasGetVersion(cuda->blas, &version), "asking for its version");
  if (rc < 0)
    return rc;
  snprintf(device, sizeof device, "%.40s", b->products_variant);
  snprintf(b->products, sizeof b->products, "cublas");
  snprintf(b->products_variant, sizeof b->products_variant, "%d on %.40s",
           version, device);
  return 0;
}

void pen_cuda_products_close(struct pen_cuda *cuda)
{
  if (cuda->blas)
    cublasDestroy(cuda->blas);
  cuda->blas = NULL;
}

int pen_cuda_products_set_workspace(struct pen_cuda *cuda, void *workspace)
{
  return check(cublasSetWorkspace(cuda->blas, workspace,
                                  PEN_CUDA_WORKSPACE_BYTES),
               "giving it the workspace");
}

static cudaDataType_t type_of(enum pen_elem elem)
{
  return elem == PEN_ELEM_BF16 ? CUDA_R_16BF : CUDA_R_32F;
}

/* Rows here are columns there: C^T = B^T A^T. */
void pen_cuda_gemm(struct pen_stream *s, const struct pen_gemm *g)
{
  const struct pen_cuda *cuda = s->device;
  const float one = 1, zero = 0;
  if (s->error.code || !g->m || !g->n)
    return;
  cublasStatus_t status = cublasGemmEx_64(
      cuda->blas, g->b_trans ? CUBLAS_OP_T : CUBLAS_OP_N,
      g->a_trans ? CUBLAS_OP_T : CUBLAS_OP_N, (int64_t)g->n, (int64_t)g->m,
      (int64_t)g->k, &one, g->b, type_of(g->ab_elem), (int64_t)g->ldb, g->a,
      type_of(g->ab_elem), (int64_t)g->lda, g->accumulate ? &one : &zero, g->c,
      type_of(g->c_elem), (int64_t)g->ldc, CUBLAS_COMPUTE_32F,
      CUBLAS_GEMM_DEFAULT);
  if (status != CUBLAS_STATUS_SUCCESS)
    pen_cuda_stream_fail(s, "a product", cublasGetStatusString(status));
}
