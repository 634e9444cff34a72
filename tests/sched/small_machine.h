/* small_machine.h: a machine to do sums on. */
#ifndef PEN_TESTS_SCHED_SMALL_MACHINE_H
#define PEN_TESTS_SCHED_SMALL_MACHINE_H

#include "offload/machine.h"

/* Round numbers: 10 FLOP/s on one core, 20 on both; 100 bytes/s of everything
 * but the drive's 50 read, 40 written. */
static inline struct pen_machine small_machine(void)
{
  return (struct pen_machine){
      .cores = 2,
      .products = {{10, 20, 10, 20}},
      .dram_read = 100, .dram_write = 100, .dram_update = 100,
      .upload = 100, .download = 100, .adam_core = {5},
      .n_drives = 1,
      .drives = {{.read = 50, .write = 40, .mixed = 0}}};
}

#endif
