/* cublas_v2.h (stand-in): as much of cuBLAS as the plugin uses. */
#ifndef PEN_TESTS_GPU_FAKE_INCLUDE_CUBLAS_V2_H
#define PEN_TESTS_GPU_FAKE_INCLUDE_CUBLAS_V2_H

#include <stdint.h>

#include "tests/gpu/fake/include/cuda_runtime_api.h"

typedef struct cublasContext *cublasHandle_t;

typedef enum {
  CUBLAS_STATUS_SUCCESS = 0,
  CUBLAS_STATUS_ALLOC_FAILED = 3,
  CUBLAS_STATUS_INVALID_VALUE = 7,
  CUBLAS_STATUS_EXECUTION_FAILED = 13,
  CUBLAS_STATUS_NOT_SUPPORTED = 15,
} cublasStatus_t;
typedef enum { CUBLAS_OP_N = 0, CUBLAS_OP_T = 1 } cublasOperation_t;
typedef enum { CUDA_R_32F = 0, CUDA_R_16BF = 14 } cudaDataType_t;
typedef enum { CUBLAS_COMPUTE_32F = 68 } cublasComputeType_t;
typedef enum { CUBLAS_GEMM_DEFAULT = -1 } cublasGemmAlgo_t;
typedef enum {
  CUBLAS_DEFAULT_MATH = 0,
  CUBLAS_MATH_DISALLOW_REDUCED_PRECISION_REDUCTION = 16,
} cublasMath_t;

const char *cublasGetStatusString(cublasStatus_t status);
cublasStatus_t cublasCreate(cublasHandle_t *handle);
cublasStatus_t cublasDestroy(cublasHandle_t handle);
cublasStatus_t cublasGetVersion(cublasHandle_t handle, int *version);
cublasStatus_t cublasSetStream(cublasHandle_t handle, cudaStream_t stream);
cublasStatus_t cublasSetMathMode(cublasHandle_t handle, cublasMath_t mode);
cublasStatus_t cublasSetWorkspace(cublasHandle_t handle, void *workspace,
                                  size_t bytes);
cublasStatus_t cublasGemmEx_64(cublasHandle_t handle, cublasOperation_t ta,
                               cublasOperation_t tb, int64_t m, int64_t n,
                               int64_t k, const void *alpha, const void *a,
                               cudaDataType_t a_type, int64_t lda,
                               const void *b, cudaDataType_t b_type,
                               int64_t ldb, const void *beta, void *c,
                               cudaDataType_t c_type, int64_t ldc,
                               cublasComputeType_t compute,
                               cublasGemmAlgo_t algorithm);

#endif
