/* state.c: the table of state formats, and where their arrays lie.
 *
 * Pure functions, any thread.  Disadvantage: arrays follow one another without
 * padding, so those of a short tile share cache lines. */
#include "kernels/state.h"

#include <assert.h>
#include <string.h>

#include "base/error.h"
#include "kernels/cpu/rows.h"
#include "kernels/fpmode.h"

/* `bytes` of each element. */
#define EACH(bytes) (PEN_STATE_GROUP_ELEMS * (bytes))

#define SAME_ROW(row)                                                         \
  {                                                                           \
    [0 ... PEN_ISA_COUNT - 1] = &row                                          \
  }

const struct pen_state_format pen_state_fp32 = {
  .kind = PEN_STATE_FP32,
  .name = "fp32",
  .exact = true,
  .is_plain = true,
  .n_arrays = 3,
  .arrays = {{"p", EACH(4)}, {"m", EACH(4)}, {"v", EACH(4)}},
  .rows = SAME_ROW(pen_state_fp32_row),
};

const struct pen_state_format pen_state_split32 = {
  .kind = PEN_STATE_SPLIT32,
  .name = "split32",
  .exact = true,
  .has_half = true,
  .n_arrays = 3,
  .arrays = {{"low", EACH(2)}, {"m", EACH(4)}, {"v", EACH(4)}},
  .rows = PEN_ISA_ROWS(state_split32),
};

const struct pen_state_format pen_state_bf16 = {
  .kind = PEN_STATE_BF16,
  .name = "bf16",
  .rounds = "moments to bf16",
  .has_half = true,
  .n_arrays = 3,
  .arrays = {{"low", EACH(2)}, {"m", EACH(2)}, {"v", EACH(2)}},
  .rows = PEN_ISA_ROWS(state_bf16),
};

const struct pen_state_format pen_state_int8 = {
  .kind = PEN_STATE_INT8,
  .name = "int8",
  .rounds = "moments to 8-bit codes and master weights to 24 bits",
  .has_half = true,
  .n_arrays = 5,
  .arrays = {{"low", EACH(1)}, {"m", EACH(1)}, {"v", EACH(1)},
             {"m scale", 4}, {"v scale", 4}},
  .rows = PEN_ISA_ROWS(state_int8),
};

static const struct pen_state_format *const formats[] = {
  [PEN_STATE_FP32] = &pen_state_fp32, [PEN_STATE_SPLIT32] = &pen_state_split32,
  [PEN_STATE_BF16] = &pen_state_bf16, [PEN_STATE_INT8] = &pen_state_int8};

#define N_FORMATS (sizeof formats / sizeof *formats)

const struct pen_state_format *pen_state_numbered(size_t number)
{
  return number < N_FORMATS ? formats[number] : NULL;
}

size_t pen_state_number(const struct pen_state_format *format)
{
  return (size_t)format->kind;
}

int pen_state_find(const char *name, const struct pen_state_format **ret_format)
{
  char names[128] = "";
  for (size_t i = 0; i < N_FORMATS; i++) {
    if (strcmp(formats[i]->name, name) == 0) {
      *ret_format = formats[i];
      return 0;
    }
    strcat(strcat(names, i ? ", " : ""), formats[i]->name);
  }
  return pen_error_set(PEN_EUSAGE, "there is no state format \"%.64s\"; there "
                       "are: %s", name, names);
}

static size_t array_bytes(const struct pen_state_format *format, size_t i,
                          size_t elems)
{
  assert(elems % PEN_STATE_GROUP_ELEMS == 0);
  return elems / PEN_STATE_GROUP_ELEMS * format->arrays[i].group_bytes;
}

size_t pen_state_bytes(const struct pen_state_format *format, size_t elems)
{
  size_t bytes = 0;
  for (size_t i = 0; i < format->n_arrays; i++)
    bytes += array_bytes(format, i, elems);
  return bytes;
}

size_t pen_state_half_bytes(const struct pen_state_format *format,
                            size_t elems)
{
  return format->has_half ? elems * sizeof(uint16_t) : 0;
}

void pen_state_copy(const struct pen_state_format *format,
                    const struct pen_state_part *part, const void *from)
{
  size_t at = 0;
  for (size_t i = 0; i < format->n_arrays; i++) {
    size_t begin = at + array_bytes(format, i, part->begin);
    memcpy((char *)part->arrays + begin, (const char *)from + begin,
           array_bytes(format, i, part->n));
    at += array_bytes(format, i, part->elems);
  }
}

void pen_state_update(const struct pen_state_format *format,
                      const struct pen_state_update *update)
{
  void *arrays[PEN_STATE_ARRAYS_MAX];
  assert(update->part.n % PEN_STATE_GROUP_ELEMS == 0);
  pen_state_find_arrays(format, &update->part, arrays);
  uint64_t outer = pen_fpmode_begin();
  format->rows[update->isa]->update(update, arrays);
  pen_fpmode_set(outer);
}

void pen_state_pack(const struct pen_state_format *format, enum pen_isa isa,
                    const struct pen_state_part *part, uint16_t *half,
                    const float *p, const float *m, const float *v)
{
  void *arrays[PEN_STATE_ARRAYS_MAX];
  pen_state_find_arrays(format, part, arrays);
  uint64_t outer = pen_fpmode_begin();
  format->rows[isa]->pack(part->n, arrays, half, p, m, v);
  pen_fpmode_set(outer);
}

void pen_state_unpack(const struct pen_state_format *format, enum pen_isa isa,
                      const struct pen_state_part *part, const uint16_t *half,
                      float *p, float *m, float *v)
{
  void *arrays[PEN_STATE_ARRAYS_MAX];
  pen_state_find_arrays(format, part, arrays);
  uint64_t outer = pen_fpmode_begin();
  format->rows[isa]->unpack(part->n, arrays, half, p, m, v);
  pen_fpmode_set(outer);
}
