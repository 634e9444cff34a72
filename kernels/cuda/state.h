/* state.h: what the plugin's files share, free of CUDA's headers. */
#ifndef PEN_KERNELS_CUDA_STATE_H
#define PEN_KERNELS_CUDA_STATE_H

#include "kernels/backend.h"
#include "kernels/cuda/launch.h"

struct CUevent_st;
struct cublasLtContext;

/* Workspace of all products: what cuBLAS asks for on Hopper and newer. */
#define PEN_CUDA_WORKSPACE_BYTES ((size_t)32 << 20)
/* Host memory is pinned in pieces of at most this, and no copy crosses from one
 * into the next. */
#define PEN_CUDA_PIECE_BYTES ((size_t)1 << 30)

/* A product as far as its algorithm depends on it.  Of tokens, of which there
 * may be any number, it has the next power of two. */
struct pen_cuda_shape {
  uint64_t m, n, k, lda, ldb, ldc;
  uint8_t ab_elem, c_elem, a_trans, b_trans, accumulate;
  uint8_t a_align, b_align, c_align; /* bytes, at most 16 */
  uint8_t bias;                      /* added to each row by the product itself */
};

struct pen_cuda_choice {
  struct pen_cuda_shape shape;
  uint64_t algorithm[8]; /* cublasLtMatmulAlgo_t */
};

struct pen_cuda {
  struct pen_backend backend;
  struct pen_device device; /* its state is this struct */
  int number;
  pen_cuda_stream queues[PEN_DEVICE_QUEUES];
  /* Around a task; sync takes the time between them. */
  struct CUevent_st *begun[PEN_DEVICE_QUEUES][PEN_DEVICE_MARKS];
  struct CUevent_st *done[PEN_DEVICE_QUEUES][PEN_DEVICE_MARKS];
  struct cublasLtContext *blas;
  bool tf32; /* products of fp32 operands take tensor cores */
  void *workspace; /* PEN_CUDA_WORKSPACE_BYTES */
  struct pen_cuda_choice *choices; /* [n_choices], in the order they were met */
  size_t n_choices;
  struct pen_cuda_shape *refused; /* [n_refused], of which the library has none */
  size_t n_refused;
  char *pinned;         /* host memory, from here */
  size_t *piece_ends;   /* [n_pieces] bytes from there, ascending */
  size_t n_pieces;
};

/* error.c: the host's pen_error_set; to be set before all else. */
extern int (*pen_cuda_error_set)(int code, const char *format, ...)
    __attribute__((format(printf, 2, 3)));
/* Keeps a failure with the stream, if it is the first. */
void pen_cuda_stream_fail(struct pen_stream *s, const char *what,
                          const char *why);

/* CUDA's words for its error. */
const char *pen_cuda_error_text(int cuda_error);
/* device.c: fills the row, and makes queues and marks on device `number`. */
int pen_cuda_device_open(struct pen_cuda *cuda, uint64_t number);
/* What the device is and how much of its memory is free: after all else was
 * opened that takes some. */
int pen_cuda_device_describe(struct pen_cuda *cuda);
void pen_cuda_device_close(struct pen_cuda *cuda);
/* Makes the calling thread's calls go to the device. */
int pen_cuda_enter(const struct pen_cuda *cuda);

/* choices.c: the table of algorithms, and its lines of text. */
int pen_cuda_choices_open(struct pen_cuda *cuda);
void pen_cuda_choices_close(struct pen_cuda *cuda);
/* NULL: none for this shape. */
const struct pen_cuda_choice *
pen_cuda_choices_find(const struct pen_cuda *cuda,
                      const struct pen_cuda_shape *shape);
/* NULL: the table is full.  Borrowed until close. */
const struct pen_cuda_choice *
pen_cuda_choices_add(struct pen_cuda *cuda,
                     const struct pen_cuda_choice *choice);
/* Is it known that the library has no algorithm for this shape?  In memory alone;
 * what the table has no place for is asked for again. */
bool pen_cuda_choices_is_refused(const struct pen_cuda *cuda,
                                 const struct pen_cuda_shape *shape);
void pen_cuda_choices_refuse(struct pen_cuda *cuda,
                             const struct pen_cuda_shape *shape);

/* A line as backend->choices writes it. */
int pen_cuda_choices_parse(const char *line, struct pen_cuda_choice *ret_choice);
void pen_cuda_choices_write(const struct pen_cuda_choice *choice,
                            char ret_line[PEN_BACKEND_CHOICE_BYTES]);

/* products.c: cuBLASLt on the compute queue, by the algorithms of choices.c. */
int pen_cuda_products_open(struct pen_cuda *cuda);
void pen_cuda_products_close(struct pen_cuda *cuda);
void pen_cuda_gemm(struct pen_stream *s, const struct pen_gemm *g);

/* ops.c */
extern const struct pen_ops pen_cuda_ops_bf16, pen_cuda_ops_f32;

#endif
