/* elem.h: the two precisions that weights and activations can have. */
#ifndef PEN_KERNELS_ELEM_H
#define PEN_KERNELS_ELEM_H

#include <stddef.h>

enum pen_elem {
  PEN_ELEM_BF16, /* uint16_t: the upper half of an IEEE binary32 */
  PEN_ELEM_F32,
};

static inline size_t pen_elem_bytes(enum pen_elem elem)
{
  return elem == PEN_ELEM_BF16 ? 2 : 4;
}

static inline const char *pen_elem_name(enum pen_elem elem)
{
  return elem == PEN_ELEM_BF16 ? "bf16" : "fp32";
}

#endif
