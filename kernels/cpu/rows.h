/* rows.h: what each level must provide for a topic, and which levels a target
 * has.  A topic's row is one const struct per level, named pen_TOPIC_LEVEL. */
#ifndef PEN_KERNELS_CPU_ROWS_H
#define PEN_KERNELS_CPU_ROWS_H

#include <stddef.h>
#include <stdint.h>

#include "kernels/adamw.h"
#include "kernels/isa.h"
#include "kernels/state.h"

/* Declares the rows of a topic; with PEN_ISA_ROWS the one place that knows
 * which levels exist where (the build's list of files must agree). */
#define PEN_ISA_DECLARE(topic)                                                \
  extern const struct pen_##topic##_row pen_##topic##_scalar,                 \
      pen_##topic##_neon, pen_##topic##_avx2, pen_##topic##_avx512

#if defined(__x86_64__)
#define PEN_ISA_ROWS(topic)                                                   \
  {                                                                           \
    [PEN_ISA_SCALAR] = &pen_##topic##_scalar,                                 \
    [PEN_ISA_AVX2] = &pen_##topic##_avx2,                                     \
    [PEN_ISA_AVX512] = &pen_##topic##_avx512,                                 \
    [PEN_ISA_AVX512BF16] = &pen_##topic##_avx512,                             \
  }
#elif defined(__aarch64__)
#define PEN_ISA_ROWS(topic)                                                   \
  {                                                                           \
    [PEN_ISA_SCALAR] = &pen_##topic##_scalar,                                 \
    [PEN_ISA_NEON] = &pen_##topic##_neon,                                     \
  }
#else
#define PEN_ISA_ROWS(topic)                                                   \
  {                                                                           \
    [PEN_ISA_SCALAR] = &pen_##topic##_scalar,                                 \
  }
#endif

/* All functions run in the default floating-point mode (kernels/fpmode.h). */

struct pen_adamw_row {
  void (*bf16)(const struct pen_adamw_params *c, float decay, size_t n,
               float *p, float *m, float *v, const uint16_t *grad,
               uint16_t *weight);
  void (*bf16_f32grad)(const struct pen_adamw_params *c, float decay, size_t n,
                       float *p, float *m, float *v, const float *grad,
                       uint16_t *weight);
  void (*f32)(const struct pen_adamw_params *c, float decay, size_t n,
              float *p, float *m, float *v, const float *grad, float *weight);
};
PEN_ISA_DECLARE(adamw);

/* State formats (kernels/state.h): the same source at every level. */
#define PEN_STATE_DECLARE(format)                                             \
  extern const struct pen_state_row pen_state_##format##_scalar,              \
      pen_state_##format##_neon, pen_state_##format##_avx2,                   \
      pen_state_##format##_avx512
PEN_STATE_DECLARE(split32);
PEN_STATE_DECLARE(bf16);
PEN_STATE_DECLARE(int8);
extern const struct pen_state_row pen_state_fp32_row; /* of every level */

struct pen_cast_row {
  void (*f32_to_bf16)(size_t n, const float *src, uint16_t *dst);
  void (*f32_to_bf16_away)(size_t n, const float *src, uint16_t *dst);
  void (*bf16_to_f32)(size_t n, const uint16_t *src, float *dst);
  void (*f32_to_f16)(size_t n, const float *src, uint16_t *dst);
  void (*f16_to_f32)(size_t n, const uint16_t *src, float *dst);
  void (*f64_to_f32)(size_t n, const double *src, float *dst);
};
PEN_ISA_DECLARE(cast);

/* The lanes a chunk's squares are summed in: element i of the chunk in lane
 * i % 16, lanes then added as a tree, halves onto halves. */
#define PEN_SUM_LANES 16

struct pen_gradient_row {
  void (*accumulate)(size_t n, float *sum, const float *add);
  void (*scale)(size_t n, float *x, float factor);
  /* One chunk; adds its count to *nonfinite, leaves its sum in *sumsq.  grad
   * NULL: stored is measured as it stands. */
  void (*finish_bf16)(size_t n, const float *grad, uint16_t *stored,
                      double *sumsq, uint64_t *nonfinite);
  void (*finish_f32)(size_t n, const float *grad, float *stored, double *sumsq,
                     uint64_t *nonfinite);
};
PEN_ISA_DECLARE(gradient);

#endif
