/* isa.h: which instruction-set level the CPU kernels run at.  All levels give
 * the same bits; the choice is speed alone. */
#ifndef PEN_KERNELS_ISA_H
#define PEN_KERNELS_ISA_H

#include <stdbool.h>

/* AVX2 means AVX2 with F16C and FMA; AVX512 means F, BW, VL and DQ on top, and
 * AVX512BF16 the products of bf16 pairs; each counts only where the operating
 * system saves its registers. */
enum pen_isa {
  PEN_ISA_SCALAR, /* plain C: every machine, and the reference */
  PEN_ISA_NEON,   /* 64-bit Arm */
  PEN_ISA_AVX2,   /* x86-64 */
  PEN_ISA_AVX512, /* x86-64 */
  PEN_ISA_AVX512BF16, /* x86-64 */
  PEN_ISA_COUNT
};

/* Static lower-case name. */
const char *pen_isa_name(enum pen_isa isa);

/* The highest level this machine runs.  Asks the CPU anew on each call, which
 * a virtual machine may trap: call it at start, not per step. */
enum pen_isa pen_isa_detect(void);

/* Whether kernels of this level may be called on this machine. */
bool pen_isa_is_available(enum pen_isa isa);

/* Whether the CPU has tiles of bf16 (AMX), on which oneDNN is several times as
 * fast as on vectors. */
bool pen_isa_has_bf16_tiles(void);

/* The level a run uses.  wish: a level's name or "auto"; NULL asks the
 * environment variable PEN_ISA, and takes "auto" where that is unset.  A level
 * this machine lacks is -PEN_EUNSUPPORTED, never a silent lower one; an
 * unknown name is -PEN_EUSAGE. */
int pen_isa_choose(const char *wish, enum pen_isa *ret_isa);

#endif
