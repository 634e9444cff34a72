/* gemm.h: matrix products behind one small table, cut into fixed tiles so that
 * results depend neither on the number of threads nor on who is idle. */
#ifndef PEN_KERNELS_GEMM_H
#define PEN_KERNELS_GEMM_H

#include <stdbool.h>
#include <stddef.h>

#include "kernels/elem.h"
#include "kernels/isa.h"

struct pen_stream;

/* C [m, n] = A [m, k] B [k, n], or C += A B with `accumulate`; sums in fp32, C
 * rounded once.  Then + bias, to each row, and + addend, each where it is not
 * NULL: on the host rounded after each, on a device once, after all.  Strides in
 * elements.  a_trans: A is stored as [k, m], row
 * stride lda; b_trans: B is stored as [n, k], as weights [out, in] are.  C
 * overlaps neither A nor B, and is not read unless accumulated to.
 * c_elem is ab_elem or F32; accumulate requires F32.  An addend requires
 * ldc == n and overlaps C nowhere.  k > 0. */
struct pen_gemm {
  size_t m, n, k;
  const void *a;
  size_t lda;
  bool a_trans;
  const void *b;
  size_t ldb;
  bool b_trans;
  enum pen_elem ab_elem;
  void *c;
  size_t ldc;
  enum pen_elem c_elem;
  bool accumulate;
  const void *bias;   /* [n] of c_elem, or NULL; not with accumulate */
  const void *addend; /* [m, n] of c_elem, or NULL; not with accumulate */
};

/* A product library.  Tables are const; what they load or cache at run time is
 * theirs and shared by all threads. */
struct pen_gemm_library {
  const char *name;
  /* Loads what it needs and says whether it can multiply this precision here.
   * 0, or -PEN_EUNSUPPORTED with the reason as the standing text.  May change
   * the environment for a moment: call it before threads are started. */
  int (*open)(enum pen_elem ab_elem);
  /* What else decides its bits (version, kernel set), static text; after
   * open. */
  const char *(*variant)(void);
  /* One tile on the calling thread alone; scratch has
   * PEN_STREAM_SCRATCH_BYTES.  0, or a negative code without text. */
  int (*tile)(enum pen_isa isa, const struct pen_gemm *tile, void *scratch);
  /* Greatest tile of C; smaller at the edges, and where C has few elements.
   * Part of a run's numerics. */
  size_t tile_rows, tile_cols;
  /* Results do not depend on how C is cut, so that may follow the threads. */
  bool any_cut;
};

extern const struct pen_gemm_library pen_gemm_reference; /* never fails */
extern const struct pen_gemm_library pen_gemm_openblas;
extern const struct pen_gemm_library pen_gemm_onednn;
extern const struct pen_gemm_library pen_gemm_panels; /* our own, bf16 */

/* Opens the library called `name`, or for "auto" the best for this precision
 * on this machine.  -PEN_EUNSUPPORTED with the reason where it cannot be used,
 * -PEN_EUSAGE for an unknown name.  Before threads are started. */
int pen_gemm_find(const char *name, enum pen_elem elem,
                  const struct pen_gemm_library **ret_library);

/* Runs a product on the stream's pool with the stream's library. */
void pen_gemm_run(struct pen_stream *s, const struct pen_gemm *g);

#endif
