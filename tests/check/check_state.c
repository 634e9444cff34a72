/* check_state.c: the compact formats of kernels/state.h, for check.c.
 *
 * Operands are the format's arrays in their order, then halves, gradients, p, m
 * and v; here they need not follow each other in memory, so rows are called. */
#include "kernels/cpu/rows.h"
#include "kernels/fpmode.h"
#include "tests/check/check.h"

#define GROUP PEN_STATE_GROUP_ELEMS

static const struct pen_adamw_params constants[] = {
  {.factor = 1, .one_minus_beta1 = 0.1f, .beta2 = 0.999f,
   .one_minus_beta2 = 0.001f, .decay = 0.95f, .step_size = 0.03f, .eps = 1e-8f},
  {.factor = 0.37f, .one_minus_beta1 = 0.1f, .beta2 = 0.95f,
   .one_minus_beta2 = 0.05f, .decay = 1, .step_size = 0.1f, .eps = 1e-9f},
  {.factor = 1e-30f, .one_minus_beta1 = 0.1f, .beta2 = 0.999f,
   .one_minus_beta2 = 0.001f, .decay = 0.5f, .step_size = 1e-3f, .eps = 1e-8f},
  {.factor = 1e30f, .one_minus_beta1 = 0.5f, .beta2 = 0.5f,
   .one_minus_beta2 = 0.5f, .decay = 0.99f, .step_size = 1, .eps = 1e-20f},
};

/* Without a key and a place of their own random numbers would differ where a
 * range is cut: `first` is what the harness cannot say. */
static void call_update(const struct pen_state_format *format,
                        enum pen_isa isa, size_t n, void *const *data,
                        unsigned variant)
{
  struct pen_state_update u = {
      .isa = isa,
      .params = &constants[variant % 4],
      .part = {.elems = n, .n = n},
      .decay_begin = variant % 4 == 2 ? n / 3 : 0, /* inside a group */
      .decay_end = variant % 4 == 2 ? n / 2 : n,
      .key = UINT64_C(0x123456789abcdef) * (variant + 1),
      .first = UINT64_C(0xffffffe0) * (variant % 2),
      .weight = data[format->n_arrays],
      .grad = data[format->n_arrays + 1]};
  uint64_t outer = pen_fpmode_begin();
  format->rows[isa]->update(&u, data);
  pen_fpmode_set(outer);
}

static void call_pack(const struct pen_state_format *format, enum pen_isa isa,
                      size_t n, void *const *data)
{
  size_t k = format->n_arrays;
  uint64_t outer = pen_fpmode_begin();
  format->rows[isa]->pack(n, data, data[k], data[k + 1], data[k + 2],
                          data[k + 3]);
  pen_fpmode_set(outer);
}

static void call_unpack(const struct pen_state_format *format,
                        enum pen_isa isa, size_t n, void *const *data)
{
  size_t k = format->n_arrays;
  uint64_t outer = pen_fpmode_begin();
  format->rows[isa]->unpack(n, data, data[k], data[k + 1], data[k + 2],
                            data[k + 3]);
  pen_fpmode_set(outer);
}

#define CALLS(format)                                                         \
  static void update_##format(enum pen_isa isa, size_t n, void *const *data,  \
                              unsigned variant)                               \
  {                                                                           \
    call_update(&pen_state_##format, isa, n, data, variant);                  \
  }                                                                           \
  static void pack_##format(enum pen_isa isa, size_t n, void *const *data,    \
                            unsigned variant)                                 \
  {                                                                           \
    call_pack(&pen_state_##format, isa, n, data);                             \
  }                                                                           \
  static void unpack_##format(enum pen_isa isa, size_t n, void *const *data,  \
                              unsigned variant)                               \
  {                                                                           \
    call_unpack(&pen_state_##format, isa, n, data);                           \
  }
CALLS(split32)
CALLS(bf16)
CALLS(int8)

#define SPLIT32(fill_u16, fill_f32)                                           \
  CHECK_ELEMS("low", 2, fill_u16), CHECK_ELEMS("m", 4, fill_f32),             \
      CHECK_ELEMS("v", 4, fill_f32)
#define BF16(fill)                                                            \
  CHECK_ELEMS("low", 2, fill), CHECK_ELEMS("m", 2, fill),                     \
      CHECK_ELEMS("v", 2, fill)
#define INT8(fill, fill_f32)                                                  \
  CHECK_ELEMS("low", 1, fill), CHECK_ELEMS("m", 1, fill),                     \
      CHECK_ELEMS("v", 1, fill), CHECK_GROUPS("m scale", 4, GROUP, fill_f32), \
      CHECK_GROUPS("v scale", 4, GROUP, fill_f32)
#define PMV(fill)                                                             \
  CHECK_ELEMS("p", 4, fill), CHECK_ELEMS("m", 4, fill),                       \
      CHECK_ELEMS("v", 4, fill)
#define HALF(fill) CHECK_ELEMS("half", 2, fill)

#define ROW(call_, cuts, ...)                                                 \
  {.name = "state." #call_, .call = call_, .elementwise = cuts, .group = GROUP,\
   .operands = {__VA_ARGS__}}

const struct check_kernel check_state[] = {
  ROW(update_split32, false, SPLIT32(CHECK_U16, CHECK_F32), HALF(CHECK_U16),
      CHECK_ELEMS("grad", 2, CHECK_U16)),
  ROW(pack_split32, true, SPLIT32(CHECK_OUTPUT, CHECK_OUTPUT),
      HALF(CHECK_OUTPUT), PMV(CHECK_F32)),
  ROW(unpack_split32, true, SPLIT32(CHECK_U16, CHECK_F32), HALF(CHECK_U16),
      PMV(CHECK_OUTPUT)),
  ROW(update_bf16, false, BF16(CHECK_U16), HALF(CHECK_U16),
      CHECK_ELEMS("grad", 2, CHECK_U16)),
  ROW(pack_bf16, true, BF16(CHECK_OUTPUT), HALF(CHECK_OUTPUT), PMV(CHECK_F32)),
  ROW(unpack_bf16, true, BF16(CHECK_U16), HALF(CHECK_U16), PMV(CHECK_OUTPUT)),
  ROW(update_int8, false, INT8(CHECK_U16, CHECK_F32), HALF(CHECK_U16),
      CHECK_ELEMS("grad", 2, CHECK_U16)),
  ROW(pack_int8, true, INT8(CHECK_OUTPUT, CHECK_OUTPUT), HALF(CHECK_OUTPUT),
      PMV(CHECK_F32)),
  ROW(unpack_int8, true, INT8(CHECK_U16, CHECK_F32), HALF(CHECK_U16),
      PMV(CHECK_OUTPUT)),
  {.name = NULL},
};
