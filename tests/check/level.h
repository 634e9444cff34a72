/* level.h: the level the test programs of this folder run at: PEN_ISA, or the
 * machine's highest.  A level the machine lacks skips the program. */
#ifndef PEN_TESTS_CHECK_LEVEL_H
#define PEN_TESTS_CHECK_LEVEL_H

#include "kernels/isa.h"
#include "tests/test.h"

static inline enum pen_isa test_level(void)
{
  enum pen_isa isa = PEN_ISA_SCALAR;
  if (pen_isa_choose(NULL, &isa) < 0) {
    printf("1..0 # SKIP %s\n", pen_error_text());
    exit(0);
  }
  printf("# level %s\n", pen_isa_name(isa));
  return isa;
}

#endif
