/* gpus.h: what GPUs are sold to do, by their makers' data sheets. */
#ifndef PEN_OFFLOAD_GPUS_H
#define PEN_OFFLOAD_GPUS_H

#include <stddef.h>

struct pen_gpu {
  const char *name; /* as people write it: "rtx4090" */
  const char *label;
  double bf16; /* dense products with fp32 sums, FLOP/s */
  double fp32; /* without tensor cores */
  double memory; /* bytes/s */
  double bytes;
  unsigned pcie_generation, pcie_lanes;
};

/* NULL: not in the catalogue.  Case, spaces, dashes and underscores do not
 * count. */
const struct pen_gpu *pen_gpu_find(const char *name);
/* The i-th; NULL behind the last. */
const struct pen_gpu *pen_gpu_at(size_t i);

#endif
