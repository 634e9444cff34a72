/* check.h: holds every instruction-set level of a kernel against the plain C
 * level, bit for bit.
 *
 * A kernel is described by its operands and one call; check.c does the rest:
 * every length from 0 to 130 and some large ones, operands that end at a guard
 * page, that begin at one, and that are misaligned; numbers of all kinds; and
 * a floating-point mode that some library left behind.  What lies around an
 * operand must survive, and inputs must, too. */
#ifndef PEN_TESTS_CHECK_CHECK_H
#define PEN_TESTS_CHECK_CHECK_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "kernels/isa.h"

#define CHECK_OPERANDS_MAX 10
#define CHECK_CHUNK_ELEMS 100 /* what an operand per chunk counts by */

enum check_fill {
  CHECK_OUTPUT, /* filled with one byte, to be written by the kernel */
  CHECK_U16,    /* any 16 bits */
  CHECK_F32,
  CHECK_F64,
};

struct check_operand {
  const char *name; /* NULL ends the list */
  size_t elem_bytes;
  enum check_fill fill; /* what is there before the call */
  size_t per;           /* it has one element for so many */
};

#define CHECK_ELEMS(name, bytes, fill) {name, bytes, fill, 1}
#define CHECK_CHUNKS(name, bytes) {name, bytes, CHECK_OUTPUT, CHECK_CHUNK_ELEMS}
#define CHECK_GROUPS(name, bytes, per, fill) {name, bytes, fill, per}

struct check_kernel {
  const char *name; /* topic.function */
  struct check_operand operands[CHECK_OPERANDS_MAX];
  /* data[i] is operand i; `variant` is 0, 1, 2 ... and picks constants. */
  void (*call)(enum pen_isa isa, size_t n, void *const *data,
               unsigned variant);
  bool elementwise; /* a range cut anywhere gives the whole's bits */
  size_t group;     /* ... anywhere at multiples of this, which lengths are, too;
                       0: of 1 */
};

/* The topics' tables, each ended by a NULL name. */
extern const struct check_kernel check_adamw[], check_cast[], check_gradient[],
    check_state[];

#endif
