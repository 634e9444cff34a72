/* describe.h: a machine that is not there, or this one with other parts. */
#ifndef PEN_OFFLOAD_DESCRIBE_H
#define PEN_OFFLOAD_DESCRIBE_H

#include <stdint.h>

#include "offload/machine.h"

/* Zeroes and NULL keep what the machine has. */
struct pen_machine_parts {
  const char *gpu;      /* of the catalogue (gpus.h); "none" takes it out */
  double gpu_flops;     /* bf16 products; instead of the catalogue's */
  const char *pcie;     /* "4x16": generation and lanes, of the GPU's link */
  uint64_t ram_bytes;
  size_t cores;
  double memory_rate;   /* bytes/s, reads and writes together */
  size_t n_drives;      /* all alike, free of directories */
  double drive_read, drive_write; /* bytes/s of one */
};

bool pen_machine_parts_given(const struct pen_machine_parts *parts);

/* A desktop of 16 cores with 64 GiB, for descriptions that begin from nothing;
 * it has neither GPU nor drives. */
void pen_machine_desktop(struct pen_machine *ret_machine);

/* Puts the parts in.  Cores keep their rate each; memory takes its rate in
 * every mix; a link moves PEN_PCIE_SHARE of what its lanes carry.
 * -PEN_EUSAGE: a GPU that the catalogue does not have (it is listed), a link
 * that cannot be, drives without rates. */
int pen_machine_describe(const struct pen_machine_parts *parts,
                         struct pen_machine *machine);

/* Of 128b/130b lanes' bytes, what large copies from pinned memory reach: 25 of
 * 31.5 GB/s on 16 lanes of the fourth generation. */
#define PEN_PCIE_SHARE 0.8

#endif
