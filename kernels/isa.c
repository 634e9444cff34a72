/* isa.c: finds the instruction-set level.
 *
 * Holds no state: whoever needs the level chooses it once at start and passes
 * it on, so that a test can run every level in one process.  Any thread.
 * Disadvantage: four x86 levels; a CPU with AVX alone runs plain C. */
#include "kernels/isa.h"

#include <stdlib.h>
#include <string.h>

#include "base/error.h"

static const char *const names[PEN_ISA_COUNT] = {
  [PEN_ISA_SCALAR] = "scalar",
  [PEN_ISA_NEON] = "neon",
  [PEN_ISA_AVX2] = "avx2",
  [PEN_ISA_AVX512] = "avx512",
  [PEN_ISA_AVX512BF16] = "avx512bf16",
};

#if defined(__x86_64__)
#include <cpuid.h>

/* Register state the operating system saves at a task switch (XCR0). */
static unsigned saved_state(void)
{
  unsigned low, high;
  __asm__ volatile("xgetbv" : "=a"(low), "=d"(high) : "c"(0));
  return low;
}

enum pen_isa pen_isa_detect(void)
{
  const unsigned state_ymm = 0x06, state_zmm = 0xe6;
  const unsigned need1 = bit_OSXSAVE | bit_AVX | bit_F16C | bit_FMA;
  const unsigned need512 =
      bit_AVX512F | bit_AVX512BW | bit_AVX512VL | bit_AVX512DQ;
  unsigned a, b, c, d;
  if (!__get_cpuid(1, &a, &b, &c, &d) || (c & need1) != need1)
    return PEN_ISA_SCALAR;
  unsigned state = saved_state();
  if ((state & state_ymm) != state_ymm ||
      !__get_cpuid_count(7, 0, &a, &b, &c, &d) || !(b & bit_AVX2))
    return PEN_ISA_SCALAR;
  if ((state & state_zmm) != state_zmm || (b & need512) != need512)
    return PEN_ISA_AVX2;
  if (!__get_cpuid_count(7, 1, &a, &b, &c, &d) || !(a & bit_AVX512BF16))
    return PEN_ISA_AVX512;
  return PEN_ISA_AVX512BF16;
}

bool pen_isa_is_available(enum pen_isa isa)
{
  return isa != PEN_ISA_NEON && isa <= pen_isa_detect();
}

bool pen_isa_has_bf16_tiles(void)
{
  const unsigned amx_bf16 = 1u << 22;
  unsigned a, b, c, d;
  return __get_cpuid_count(7, 0, &a, &b, &c, &d) && (d & amx_bf16);
}

#else

enum pen_isa pen_isa_detect(void)
{
#if defined(__aarch64__)
  return PEN_ISA_NEON; /* part of the base architecture */
#else
  return PEN_ISA_SCALAR;
#endif
}

bool pen_isa_is_available(enum pen_isa isa)
{
  return isa <= pen_isa_detect();
}

bool pen_isa_has_bf16_tiles(void)
{
  return false;
}

#endif

const char *pen_isa_name(enum pen_isa isa)
{
  return names[isa];
}

int pen_isa_choose(const char *wish, enum pen_isa *ret_isa)
{
  const char *source = "the option";
  if (!wish) {
    wish = getenv("PEN_ISA");
    source = "PEN_ISA";
  }
  if (!wish || !*wish || strcmp(wish, "auto") == 0) {
    *ret_isa = pen_isa_detect();
    return 0;
  }
  for (enum pen_isa isa = PEN_ISA_SCALAR; isa < PEN_ISA_COUNT; isa++) {
    if (strcmp(wish, names[isa]) != 0)
      continue;
    if (!pen_isa_is_available(isa))
      return pen_error_set(-PEN_EUNSUPPORTED,
                           "%s asks for instruction set %s, but this machine "
                           "runs %s; use that, a lower one or auto",
                           source, wish, names[pen_isa_detect()]);
    *ret_isa = isa;
    return 0;
  }
  return pen_error_set(-PEN_EUSAGE,
                       "%s names the unknown instruction set '%s'; known are "
                       "auto, scalar, neon, avx2, avx512 and avx512bf16", source, wish);
}
