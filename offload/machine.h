/* machine.h: what a machine can do, as measured or described: the profile that
 * the simulator reads.
 *
 * As text it is JSON (docs/FORMATS.md, "Machine profile").  Rates are of what
 * can be sustained; 0: not known. */
#ifndef PEN_OFFLOAD_MACHINE_H
#define PEN_OFFLOAD_MACHINE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "io/json.h"
#include "io/json_write.h"

#define PEN_MACHINE_DRIVES_MAX 16
#define PEN_MACHINE_FORMATS 4
#define PEN_MACHINE_PATH_BYTES 256
#define PEN_MACHINE_VERSION 1

/* Bytes a second, both directions of a direct transfer. */
struct pen_machine_drive {
  char path[PEN_MACHINE_PATH_BYTES]; /* directory it was measured in */
  double read, write; /* alone */
  double mixed;       /* sum of both, reading and writing as many bytes */
  double latency_s;   /* of one small read */
  double sync_s;      /* of one fdatasync after a write */
};

/* FLOP/s of products of one size: one core, all cores. */
struct pen_machine_products {
  double fp32_core, fp32_all;
  double bf16_core, bf16_all;
};

/* Products of how many rows: of as many tokens at once.  Where a rate with few
 * is not known, it is that of the next more. */
#define PEN_MACHINE_ROWS 3
extern const size_t pen_machine_rows[PEN_MACHINE_ROWS]; /* 2,048, 512, 128 */

struct pen_machine {
  char name[64];
  size_t cores;
  struct pen_machine_products products[PEN_MACHINE_ROWS]; /* by pen_machine_rows */
  /* What lies between products, in bf16, by our own kernels: FLOP/s of
   * attention's multiply-adds, and elements/s of operations that pass over each
   * element once; one core, all cores.  Not known: it is not counted. */
  double vector_core, vector_all, pass_core, pass_all;
  double dram_read, dram_write; /* bytes/s, all cores, one direction alone */
  double dram_update; /* bytes/s, read and written in AdamW's mix */
  double upload, download; /* bytes/s to and from the device */
  /* Parameters/s of one thread of AdamW, bf16 weights, by the number of the state's
   * format (kernels/state.h). */
  double adam_core[PEN_MACHINE_FORMATS];
  double ram_bytes;
  /* A device that computes instead of the cores, with memory of its own; no
   * rate of products: there is none. */
  char device[64];
  double device_fp32, device_bf16; /* products, FLOP/s */
  double device_memory;            /* bytes/s */
  double device_bytes;
  size_t n_drives;
  struct pen_machine_drive drives[PEN_MACHINE_DRIVES_MAX];
};

static inline bool pen_machine_has_device(const struct pen_machine *machine)
{
  return machine->device_bf16 > 0 || machine->device_fp32 > 0;
}

/* Bytes of RAM and of the device that a run may take, less what the system and
 * a device's driver and libraries keep; 0: not known. */
uint64_t pen_machine_free_ram(const struct pen_machine *machine);
uint64_t pen_machine_free_device(const struct pen_machine *machine);

/* As if it had `n_cores` cores, each as fast as they are. */
void pen_machine_multiply_cores(struct pen_machine *machine, size_t n_cores);

/* Its cores compute. */
static inline void pen_machine_without_device(struct pen_machine *machine)
{
  machine->device_bf16 = machine->device_fp32 = 0;
  machine->device_memory = machine->device_bytes = 0;
  machine->device[0] = '\0';
}

/* Reads a profile.  -PEN_EFORMAT names the key: unknown ones, negative or
 * non-finite rates, no cores, more drives than fit, another version.  Keys left
 * out are not known. */
int pen_machine_parse(const struct pen_json *json,
                      struct pen_machine *ret_machine);
int pen_machine_load(const char *path, struct pen_machine *ret_machine);

/* Writes it as a member `key` (NULL: the document itself); reading it back
 * gives the same numbers to the bit.  What is not known is left out. */
void pen_machine_write(const struct pen_machine *machine,
                       struct pen_json_writer *writer, const char *key);
/* As a file: whole or not at all. */
int pen_machine_save(const struct pen_machine *machine, const char *path);

#endif
