/* demand.h: what a task takes of each of a machine's resources, and how long it
 * would last alone. */
#ifndef PEN_OFFLOAD_DEMAND_H
#define PEN_OFFLOAD_DEMAND_H

#include <stdbool.h>

#include "offload/machine.h"
#include "offload/schedule.h"
#include "offload/share.h"

/* Resources 0 .. 5, then per drive: reads, writes, both together. */
enum pen_resource {
  PEN_RESOURCE_CORES,
  PEN_RESOURCE_DRAM,
  PEN_RESOURCE_UPLOAD,
  PEN_RESOURCE_DOWNLOAD,
  PEN_RESOURCE_DEVICE,        /* products of a device of its own */
  PEN_RESOURCE_DEVICE_MEMORY,
  PEN_RESOURCE_DRIVES, /* the first drive's first */
};
enum { PEN_DRIVE_READ, PEN_DRIVE_WRITE, PEN_DRIVE_BOTH, PEN_DRIVE_RESOURCES };

_Static_assert(PEN_RESOURCE_DRIVES +
                       PEN_MACHINE_DRIVES_MAX * PEN_DRIVE_RESOURCES <=
                   PEN_SHARE_RESOURCES_MAX,
               "resources");

struct pen_demand_options {
  const struct pen_machine *machine; /* borrowed */
  size_t elem_bytes; /* of weights: 2 multiplies in bf16, 4 in fp32 */
  size_t state; /* number of its format */
  size_t threads, update_threads;
};

/* A task alone on the machine. */
struct pen_demand {
  double delay_s; /* latency, before it takes anything */
  double seconds; /* after that, at full speed */
  struct pen_share_demand share; /* at full speed */
};

/* Transfers are striped over all drives alike, as stores are.  -PEN_EUSAGE,
 * naming it and the bench that measures it, where a rate is not known. */
int pen_demand_of(const struct pen_demand_options *options,
                  const struct pen_task *task, struct pen_demand *ret_demand);

size_t pen_demand_n_resources(const struct pen_machine *machine);
/* A drive takes `factor` times as long for bytes that go both ways at once; 1
 * where that was not measured.  Below 1 it can do both together. */
double pen_demand_mixing(const struct pen_machine_drive *drive);

#define PEN_RESOURCE_TEXT_BYTES 48
/* "cores", "memory" ... "drive 1 reads". */
void pen_resource_name(size_t resource, char ret_text[PEN_RESOURCE_TEXT_BYTES]);

#endif
