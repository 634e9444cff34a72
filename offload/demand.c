/* demand.c: from a task's cost to parts of a machine.
 *
 * A task lasts as long as its slowest resource (a roofline); threads bound it
 * from above, and hold their cores while they wait for memory.  Pure; any
 * thread.  Disadvantage: checksums and the kernel's share of I/O are not
 * counted. */
#include "offload/demand.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

#include "base/error.h"

/* Seconds of each resource a task needs, alone. */
struct needs {
  double s[PEN_SHARE_RESOURCES_MAX];
  double at_least; /* seconds, for want of threads */
  size_t threads;  /* of cores that it holds; 0: an engine does it */
};

static size_t least(size_t a, size_t b) { return a < b ? a : b; }

/* bench NULL: nothing measures it. */
static int unknown(const char *rate, const char *bench)
{
  if (!bench)
    return pen_error_set(PEN_EUSAGE,
                         "the machine profile does not say how fast its %s is; "
                         "add it", rate);
  return pen_error_set(PEN_EUSAGE,
                       "the machine profile does not say how fast its %s is; "
                       "run penstock bench %s, or add it",
                       rate, bench);
}

static int add(double amount, double rate, const char *name,
               const char *bench, double *seconds)
{
  if (amount <= 0)
    return 0;
  if (rate <= 0)
    return unknown(name, bench);
  *seconds += amount / rate;
  return 0;
}

/* A device's own arithmetic, one kind after the other; what passes over elements
 * is bound by its memory. */
static int add_device_work(const struct pen_demand_options *o,
                           const struct pen_cost *cost, struct needs *n)
{
  const struct pen_machine *m = o->machine;
  bool bf16 = o->elem_bytes == 2;
  double passes = cost->pass_elems * 2 * (double)o->elem_bytes;
  int rc = add(cost->flops + cost->vector_flops,
               bf16 ? m->device_bf16 : m->device_fp32,
               bf16 ? "device, in bf16," : "device, in fp32,", NULL,
               &n->s[PEN_RESOURCE_DEVICE]);
  if (rc == 0)
    rc = add(passes, m->device_memory, "device's memory", NULL,
             &n->s[PEN_RESOURCE_DEVICE_MEMORY]);
  n->at_least = n->s[PEN_RESOURCE_DEVICE] + n->s[PEN_RESOURCE_DEVICE_MEMORY];
  return rc;
}

/* What one product costs beside its operations is the same for any rows, so time
 * per row falls as 1 / rows: between two sizes that were measured the inverse of
 * the rate is linear in that.  Outside of them it is that of the nearest. */
static double inverse_between(double less, double more, double at,
                              double less_rate, double more_rate)
{
  double part = (1 / less - 1 / at) / (1 / less - 1 / more);
  return (1 - part) / less_rate + part / more_rate;
}

static double at_rows(const struct pen_machine *m, size_t member, double rows)
{
  double rate = 0, above = 0;
  for (size_t i = 0; i < PEN_MACHINE_ROWS; i++) {
    double here = *(const double *)((const char *)&m->products[i] + member);
    double size = (double)pen_machine_rows[i];
    if (here <= 0)
      continue;
    if (rate > 0 && rows < above && rows > size)
      return 1 / inverse_between(size, above, rows, here, rate);
    if (rate > 0 && rows >= above)
      break;
    rate = here;
    above = size;
  }
  return rate;
}

/* The rate of as many cores as there are threads for. */
static double rate_of(double core, double all, size_t threads)
{
  return fmin(core * (double)threads, all);
}

/* Products, and what lies between them. */
static int add_work(const struct pen_demand_options *o,
                    const struct pen_cost *cost, struct needs *n)
{
  const struct pen_machine *m = o->machine;
  bool bf16 = o->elem_bytes == 2;
  double core = at_rows(m, bf16 ? offsetof(struct pen_machine_products, bf16_core)
                                : offsetof(struct pen_machine_products, fp32_core),
                        cost->rows);
  double all = at_rows(m, bf16 ? offsetof(struct pen_machine_products, bf16_all)
                               : offsetof(struct pen_machine_products, fp32_all),
                       cost->rows);
  size_t threads = least(o->threads, m->cores);
  if (cost->flops > 0 && (core <= 0 || all <= 0))
    return unknown(bf16 ? "bf16 product" : "fp32 product", "gemm");
  if (cost->flops > 0)
    n->at_least += cost->flops / rate_of(core, all, threads);
  if (m->vector_core > 0 && m->vector_all > 0)
    n->at_least +=
        cost->vector_flops / rate_of(m->vector_core, m->vector_all, threads);
  if (m->pass_core > 0 && m->pass_all > 0)
    n->at_least += cost->pass_elems / rate_of(m->pass_core, m->pass_all, threads);
  return 0;
}

static int add_update(const struct pen_demand_options *o, double elems,
                      struct needs *n)
{
  double core = o->machine->adam_core[o->state];
  if (elems <= 0)
    return 0;
  if (core <= 0)
    return unknown(o->state ? "AdamW, on this format of state," : "AdamW",
                   "adam");
  n->at_least +=
      elems / (core * (double)least(o->update_threads, o->machine->cores));
  return 0;
}

/* A device that is played by the cores has its memory in this machine's RAM. */
static int add_memory(const struct pen_demand_options *o,
                      const struct pen_cost *cost, struct needs *n)
{
  const struct pen_machine *m = o->machine;
  double read = (double)cost->dram_read_bytes;
  double written = (double)cost->dram_written_bytes;
  double device =
      (double)(cost->device_read_bytes + cost->device_written_bytes);
  double *s = &n->s[PEN_RESOURCE_DRAM];
  int rc = 0;
  if (pen_machine_has_device(m)) {
    rc = add(device, m->device_memory, "device's memory", NULL,
             &n->s[PEN_RESOURCE_DEVICE_MEMORY]);
  } else {
    read += (double)cost->device_read_bytes;
    written += (double)cost->device_written_bytes;
  }
  if (rc == 0 && cost->update_elems)
    return add(read + written, m->dram_update, "memory in AdamW's mix",
               "memory", s);
  if (rc == 0)
    rc = add(read, m->dram_read, "memory, read,", "memory", s);
  return rc < 0 ? rc : add(written, m->dram_write, "memory, written,",
                           "memory", s);
}

/* Cores that a task holds, unless an engine of a device or a drive does it. */
static size_t cores_of(const struct pen_demand_options *o,
                       const struct pen_task *t)
{
  const struct pen_machine *m = o->machine;
  bool on_device = t->lane == PEN_LANE_COMPUTE || t->lane == PEN_LANE_UPLOAD ||
                   t->lane == PEN_LANE_DOWNLOAD;
  if (t->cost.nvme_bytes || (pen_machine_has_device(m) && on_device))
    return 0;
  return least(t->lane == PEN_LANE_COMPUTE  ? o->threads
               : t->lane == PEN_LANE_UPDATE ? o->update_threads
                                            : 1,
               m->cores);
}

static int add_drives(const struct pen_machine *m, const struct pen_task *t,
                      struct needs *n, double *delay_s)
{
  bool writes = t->lane == PEN_LANE_WRITE;
  if (!t->cost.nvme_bytes && t->kind != PEN_TASK_COMMIT)
    return 0;
  if (!m->n_drives)
    return unknown("drive", "nvme --nvme-path DIR");
  double part = (double)t->cost.nvme_bytes / (double)m->n_drives;
  int rc = 0;
  for (size_t d = 0; rc == 0 && d < m->n_drives; d++) {
    const struct pen_machine_drive *drive = &m->drives[d];
    double *s = &n->s[PEN_RESOURCE_DRIVES + d * PEN_DRIVE_RESOURCES];
    double *one = &s[writes ? PEN_DRIVE_WRITE : PEN_DRIVE_READ];
    rc = add(part, writes ? drive->write : drive->read, "drive", "nvme --nvme-path DIR",
             one);
    s[PEN_DRIVE_BOTH] = *one * fmin(1, pen_demand_mixing(drive));
    /* A commit syncs the data, then the manifest. */
    double delay = t->kind == PEN_TASK_COMMIT ? 2 * drive->sync_s
                                              : drive->latency_s;
    *delay_s = fmax(*delay_s, delay);
  }
  return rc;
}

int pen_demand_of(const struct pen_demand_options *options,
                  const struct pen_task *task, struct pen_demand *ret_demand)
{
  const struct pen_machine *m = options->machine;
  size_t n_resources = pen_demand_n_resources(m);
  struct pen_demand d = {0};
  struct needs n = {.threads = cores_of(options, task)};
  bool uploads = task->lane == PEN_LANE_UPLOAD;
  int rc = pen_machine_has_device(m)
               ? add_device_work(options, &task->cost, &n)
               : add_work(options, &task->cost, &n);
  if (rc == 0)
    rc = add_update(options, (double)task->cost.update_elems, &n);
  if (rc == 0)
    rc = add_memory(options, &task->cost, &n);
  if (rc == 0)
    rc = add((double)task->cost.link_bytes, uploads ? m->upload : m->download,
             uploads ? "upload" : "download", "memory",
             &n.s[uploads ? PEN_RESOURCE_UPLOAD : PEN_RESOURCE_DOWNLOAD]);
  if (rc == 0)
    rc = add_drives(m, task, &n, &d.delay_s);
  if (rc < 0)
    return rc;
  d.seconds = n.at_least;
  for (size_t r = 0; r < n_resources; r++)
    d.seconds = fmax(d.seconds, n.s[r]);
  n.s[PEN_RESOURCE_CORES] = d.seconds * (double)n.threads / (double)m->cores;
  for (size_t r = 0; d.seconds > 0 && r < n_resources; r++)
    d.share.part[r] = n.s[r] / d.seconds;
  *ret_demand = d;
  return 0;
}

size_t pen_demand_n_resources(const struct pen_machine *machine)
{
  return PEN_RESOURCE_DRIVES + machine->n_drives * PEN_DRIVE_RESOURCES;
}

double pen_demand_mixing(const struct pen_machine_drive *drive)
{
  if (drive->mixed <= 0 || drive->read <= 0 || drive->write <= 0)
    return 1;
  return 2 / (drive->mixed * (1 / drive->read + 1 / drive->write));
}

void pen_resource_name(size_t resource, char ret_text[PEN_RESOURCE_TEXT_BYTES])
{
  static const char *const names[] = {"cores",         "memory",
                                      "upload link",   "download link",
                                      "device",        "device memory"};
  static const char *const uses[] = {"reads", "writes", "reads and writes"};
  if (resource < PEN_RESOURCE_DRIVES) {
    snprintf(ret_text, PEN_RESOURCE_TEXT_BYTES, "%s", names[resource]);
    return;
  }
  resource -= PEN_RESOURCE_DRIVES;
  snprintf(ret_text, PEN_RESOURCE_TEXT_BYTES, "drive %zu %s",
           resource / PEN_DRIVE_RESOURCES + 1,
           uses[resource % PEN_DRIVE_RESOURCES]);
}
