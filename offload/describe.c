/* describe.c: parts put into a machine.
 *
 * Pure but for the error's text; main thread.  Disadvantage: one rate of memory
 * stands for reads, writes and their mix, which on real machines differ by a
 * quarter. */
#include "offload/describe.h"

#include <stdio.h>
#include <string.h>

#include "base/error.h"
#include "offload/gpus.h"


bool pen_machine_parts_given(const struct pen_machine_parts *p)
{
  return p->gpu || p->gpu_flops > 0 || p->pcie || p->ram_bytes || p->cores ||
         p->memory_rate > 0 || p->n_drives || p->drive_read > 0 ||
         p->drive_write > 0;
}

void pen_machine_desktop(struct pen_machine *ret_machine)
{
  *ret_machine = (struct pen_machine){
      .name = "a desktop",
      .cores = 16,
      .products = {{.fp32_core = 60e9, .fp32_all = 16 * 60e9,
                    .bf16_core = 120e9, .bf16_all = 16 * 120e9}},
      .vector_core = 40e9, .vector_all = 16 * 40e9,
      .pass_core = 1.5e9, .pass_all = 16 * 1.5e9,
      .dram_read = 60e9, .dram_write = 60e9, .dram_update = 60e9,
      .upload = 10e9, .download = 10e9, /* copies by a core */
      .adam_core = {1e9, 0.7e9, 0.5e9, 0.25e9},
      .ram_bytes = 64.0 * (1 << 30)};
}

/* Bytes a second of one direction of one lane, by generation: 8, 16, 32, 64
 * GT/s with 128b/130b (PCI-SIG; the sixth's PAM4 flits lose about as much). */
static int set_link(const char *pcie, struct pen_machine *m)
{
  static const double lane[] = {[3] = 0.985e9, 1.969e9, 3.938e9, 7.563e9};
  unsigned generation = 0, lanes = 0;
  char rest = 0;
  int n = sscanf(pcie, "%ux%u%c", &generation, &lanes, &rest);
  bool power = lanes == 1 || lanes == 2 || lanes == 4 || lanes == 8 ||
               lanes == 16;
  if (n != 2 || generation < 3 || generation > 6 || !power)
    return pen_error_set(PEN_EUSAGE,
                         "--pcie %s is no link; write generation (3 to 6) and "
                         "lanes (1, 2, 4, 8 or 16), such as 4x16", pcie);
  m->upload = m->download = PEN_PCIE_SHARE * lane[generation] * lanes;
  return 0;
}

static int unknown_gpu(const char *name)
{
  char list[1024] = "";
  size_t used = 0;
  const struct pen_gpu *gpu;
  for (size_t i = 0; (gpu = pen_gpu_at(i)) && used < sizeof list; i++)
    used += (size_t)snprintf(list + used, sizeof list - used, "%s%s",
                             i ? ", " : "", gpu->name);
  return pen_error_set(PEN_EUSAGE,
                       "--gpu %s is not in the catalogue (%s); describe it in a "
                       "profile and give --profile FILE", name, list);
}

static int set_gpu(const char *name, struct pen_machine *m)
{
  char pcie[16];
  const struct pen_gpu *gpu = pen_gpu_find(name);
  if (strcmp(name, "none") == 0) {
    pen_machine_without_device(m);
    return 0;
  }
  if (!gpu)
    return unknown_gpu(name);
  snprintf(m->device, sizeof m->device, "%s", gpu->label);
  m->device_bf16 = gpu->bf16;
  m->device_fp32 = gpu->fp32;
  m->device_memory = gpu->memory;
  m->device_bytes = gpu->bytes;
  snprintf(pcie, sizeof pcie, "%ux%u", gpu->pcie_generation, gpu->pcie_lanes);
  return set_link(pcie, m);
}

static int set_drives(const struct pen_machine_parts *p, struct pen_machine *m)
{
  struct pen_machine_drive one = {.read = p->drive_read,
                                  .write = p->drive_write,
                                  .latency_s = 80e-6,
                                  .sync_s = 1e-3};
  if (m->n_drives) {
    one = m->drives[0];
    one.path[0] = '\0';
    if (p->drive_read > 0 || p->drive_write > 0)
      one.mixed = 0;
  }
  one.read = p->drive_read > 0 ? p->drive_read : one.read;
  one.write = p->drive_write > 0 ? p->drive_write : one.write;
  if (one.read <= 0 || one.write <= 0)
    return pen_error_set(PEN_EUSAGE, "a described drive needs --drive-read and "
                         "--drive-write, such as 7GB/s");
  if (p->n_drives > PEN_MACHINE_DRIVES_MAX)
    return pen_error_set(PEN_EUSAGE, "--drives %zu: at most %d can be "
                         "simulated", p->n_drives, PEN_MACHINE_DRIVES_MAX);
  m->n_drives = p->n_drives ? p->n_drives : m->n_drives ? m->n_drives : 1;
  for (size_t d = 0; d < m->n_drives; d++)
    m->drives[d] = one;
  return 0;
}

int pen_machine_describe(const struct pen_machine_parts *p,
                         struct pen_machine *m)
{
  int rc = p->gpu ? set_gpu(p->gpu, m) : 0;
  if (rc == 0 && (p->gpu_flops > 0 || p->pcie) && !pen_machine_has_device(m))
    rc = pen_error_set(PEN_EUSAGE, "--%s says something of a GPU, but there is "
                       "none; give --gpu NAME",
                       p->pcie ? "pcie" : "gpu-flops");
  if (rc == 0 && p->gpu_flops > 0)
    m->device_bf16 = p->gpu_flops;
  if (rc == 0 && p->pcie)
    rc = set_link(p->pcie, m);
  if (rc == 0 && p->cores)
    pen_machine_multiply_cores(m, p->cores);
  if (rc == 0 && p->memory_rate > 0)
    m->dram_read = m->dram_write = m->dram_update = p->memory_rate;
  if (rc == 0 && p->ram_bytes)
    m->ram_bytes = (double)p->ram_bytes;
  if (rc == 0 && (p->n_drives || p->drive_read > 0 || p->drive_write > 0))
    rc = set_drives(p, m);
  return rc;
}
