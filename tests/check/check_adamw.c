/* check_adamw.c: the kernels of kernels/adamw.h, for check.c. */
#include <stdio.h>
#include <stdlib.h>

#include "base/error.h"
#include "kernels/adamw.h"
#include "tests/check/check.h"

enum { P, M, V, GRAD, WEIGHT };

/* Four settings: strong, first step, a factor that makes denormals, and a
 * late step with tiny rates. */
static struct pen_adamw_params params_of(unsigned variant)
{
  static const struct {
    struct pen_adamw_hyper hyper;
    uint64_t step;
    float factor;
  } settings[] = {
    {{0.1, 0.9, 0.999, 1e-8, 0.5}, 5, 1.0f},
    {{0.1, 0.9, 0.95, 1e-8, 0.5}, 1, 0.37f},
    {{1e-3, 0.9, 0.999, 1e-8, 0.01}, 3, 1e-30f},
    {{1e-5, 0.8, 0.999, 1e-6, 0.1}, 100000, 0.01f},
  };
  struct pen_adamw_params params;
  const size_t i = variant % 4;
  if (pen_adamw_params_init(&settings[i].hyper, settings[i].step,
                            settings[i].factor, &params) < 0) {
    printf("%s\n", pen_error_text());
    exit(1);
  }
  return params;
}

static void call_bf16(enum pen_isa isa, size_t n, void *const *data,
                      unsigned variant)
{
  struct pen_adamw_params params = params_of(variant);
  pen_adamw_update_bf16(isa, &params, variant != 1, n, data[P], data[M],
                        data[V], data[GRAD], data[WEIGHT]);
}

static void call_bf16_f32grad(enum pen_isa isa, size_t n, void *const *data,
                              unsigned variant)
{
  struct pen_adamw_params params = params_of(variant);
  pen_adamw_update_bf16_f32grad(isa, &params, variant != 1, n, data[P],
                                data[M], data[V], data[GRAD], data[WEIGHT]);
}

static void call_f32(enum pen_isa isa, size_t n, void *const *data,
                     unsigned variant)
{
  struct pen_adamw_params params = params_of(variant);
  pen_adamw_update_f32(isa, &params, variant != 1, n, data[P], data[M],
                       data[V], data[GRAD], data[WEIGHT]);
}

#define STATE                                                                 \
  CHECK_ELEMS("p", 4, CHECK_F32), CHECK_ELEMS("m", 4, CHECK_F32),             \
      CHECK_ELEMS("v", 4, CHECK_F32)
#define ROW(name_, call_, grad_bytes, grad_fill, weight_bytes)                \
  {.name = name_, .call = call_, .elementwise = true,                         \
   .operands = {STATE, CHECK_ELEMS("grad", grad_bytes, grad_fill),            \
                CHECK_ELEMS("weight", weight_bytes, CHECK_OUTPUT)}}

const struct check_kernel check_adamw[] = {
  ROW("adamw.bf16", call_bf16, 2, CHECK_U16, 2),
  ROW("adamw.bf16_f32grad", call_bf16_f32grad, 4, CHECK_F32, 2),
  ROW("adamw.f32", call_f32, 4, CHECK_F32, 4),
  {.name = NULL},
};
