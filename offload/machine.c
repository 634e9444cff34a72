/* machine.c: profiles as JSON, through one table of their numbers.
 *
 * Main thread.  Invariant: every rate in the struct is a row here, so what is
 * written is what is read.  Disadvantage: an unknown key is an error, so a
 * newer penstock's profile needs a new version number. */
#include "offload/machine.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

#include "base/error.h"
#include "io/files.h"

struct rate {
  const char *key;
  size_t offset;
};

const size_t pen_machine_rows[PEN_MACHINE_ROWS] = {2048, 512, 128};

#define PRODUCTS_AT(rows, member) \
  offsetof(struct pen_machine, products[rows].member)
#define PRODUCTS(rows, suffix)                                      \
  {"fp32_flops_per_core" suffix, PRODUCTS_AT(rows, fp32_core)},     \
      {"fp32_flops" suffix, PRODUCTS_AT(rows, fp32_all)},           \
      {"bf16_flops_per_core" suffix, PRODUCTS_AT(rows, bf16_core)}, \
      {"bf16_flops" suffix, PRODUCTS_AT(rows, bf16_all)}

static const struct rate machine_rates[] = {
    PRODUCTS(0, ""),
    PRODUCTS(1, "_512_rows"),
    PRODUCTS(2, "_128_rows"),
    {"vector_flops_per_core", offsetof(struct pen_machine, vector_core)},
    {"vector_flops", offsetof(struct pen_machine, vector_all)},
    {"pass_elements_per_s_per_core", offsetof(struct pen_machine, pass_core)},
    {"pass_elements_per_s", offsetof(struct pen_machine, pass_all)},
    {"dram_read_bytes_per_s", offsetof(struct pen_machine, dram_read)},
    {"dram_write_bytes_per_s", offsetof(struct pen_machine, dram_write)},
    {"dram_update_bytes_per_s", offsetof(struct pen_machine, dram_update)},
    {"upload_bytes_per_s", offsetof(struct pen_machine, upload)},
    {"download_bytes_per_s", offsetof(struct pen_machine, download)},
    {"adam_parameters_per_s_per_core",
     offsetof(struct pen_machine, adam_core[0])},
    {"adam_split32_parameters_per_s_per_core",
     offsetof(struct pen_machine, adam_core[1])},
    {"adam_bf16_parameters_per_s_per_core",
     offsetof(struct pen_machine, adam_core[2])},
    {"adam_int8_parameters_per_s_per_core",
     offsetof(struct pen_machine, adam_core[3])},
    {"ram_bytes", offsetof(struct pen_machine, ram_bytes)},
    {"device_fp32_flops", offsetof(struct pen_machine, device_fp32)},
    {"device_bf16_flops", offsetof(struct pen_machine, device_bf16)},
    {"device_memory_bytes_per_s", offsetof(struct pen_machine, device_memory)},
    {"device_bytes", offsetof(struct pen_machine, device_bytes)},
};

static const struct rate drive_rates[] = {
    {"read_bytes_per_s", offsetof(struct pen_machine_drive, read)},
    {"write_bytes_per_s", offsetof(struct pen_machine_drive, write)},
    {"mixed_bytes_per_s", offsetof(struct pen_machine_drive, mixed)},
    {"latency_s", offsetof(struct pen_machine_drive, latency_s)},
    {"sync_s", offsetof(struct pen_machine_drive, sync_s)},
};

#define SYSTEM_SHARE 16 /* of RAM is the system's */
#define DEVICE_KEPT_BYTES ((double)(1 << 30))

uint64_t pen_machine_free_ram(const struct pen_machine *machine)
{
  uint64_t ram = (uint64_t)machine->ram_bytes;
  return ram - ram / SYSTEM_SHARE;
}

uint64_t pen_machine_free_device(const struct pen_machine *machine)
{
  return machine->device_bytes > DEVICE_KEPT_BYTES
             ? (uint64_t)(machine->device_bytes - DEVICE_KEPT_BYTES)
             : 0;
}

void pen_machine_multiply_cores(struct pen_machine *m, size_t n_cores)
{
  double factor = (double)n_cores / (double)m->cores;
  for (size_t i = 0; i < PEN_MACHINE_ROWS; i++) {
    m->products[i].fp32_all *= factor;
    m->products[i].bf16_all *= factor;
  }
  m->vector_all *= factor;
  m->pass_all *= factor;
  m->cores = n_cores;
}

#define N(table) (sizeof table / sizeof *table)

static bool is_among(const char *key, const struct rate *rates, size_t n,
                     const char *const *others)
{
  for (size_t i = 0; i < n; i++)
    if (strcmp(key, rates[i].key) == 0)
      return true;
  for (; *others; others++)
    if (strcmp(key, *others) == 0)
      return true;
  return false;
}

static int check_keys(const struct pen_json *json,
                      const struct pen_json_node *object,
                      const struct rate *rates, size_t n,
                      const char *const *others)
{
  void *iter = NULL;
  const char *key;
  const struct pen_json_node *node;
  while (pen_json_next(object, &iter, &key, &node))
    if (!is_among(key, rates, n, others))
      return pen_json_error(json, node, PEN_EFORMAT,
                            "not a key of a machine profile");
  return 0;
}

static int read_rates(const struct pen_json *json,
                      const struct pen_json_node *object,
                      const struct rate *rates, size_t n, void *base)
{
  int rc = 0;
  for (size_t i = 0; rc == 0 && i < n; i++) {
    double *value = (double *)((char *)base + rates[i].offset);
    rc = pen_json_opt_double(json, object, rates[i].key, value);
    if (rc == 0 && !(*value >= 0 && isfinite(*value)))
      rc = pen_json_error(json, pen_json_member(object, rates[i].key),
                          PEN_EFORMAT, "%g is no rate", *value);
  }
  return rc;
}

static int read_text(const struct pen_json *json,
                     const struct pen_json_node *object, const char *key,
                     char *ret_text, size_t bytes)
{
  const char *text = "";
  int rc = pen_json_opt_string(json, object, key, &text);
  if (rc == 0 && strlen(text) >= bytes)
    rc = pen_json_error(json, pen_json_member(object, key), PEN_EFORMAT,
                        "longer than %zu bytes", bytes - 1);
  if (rc == 0)
    snprintf(ret_text, bytes, "%s", text);
  return rc;
}

static int read_drive(const struct pen_json *json,
                      const struct pen_json_node *drive,
                      struct pen_machine_drive *d)
{
  static const char *const others[] = {"path", NULL};
  void *iter = NULL;
  const char *key;
  const struct pen_json_node *node;
  if (!pen_json_next(drive, &iter, &key, &node))
    return pen_json_error(json, drive, PEN_EFORMAT,
                          "a drive is an object with its rates");
  int rc = check_keys(json, drive, drive_rates, N(drive_rates), others);
  if (rc == 0)
    rc = read_text(json, drive, "path", d->path, sizeof d->path);
  return rc < 0 ? rc : read_rates(json, drive, drive_rates, N(drive_rates), d);
}

static int read_drives(const struct pen_json *json,
                       const struct pen_json_node *root,
                       struct pen_machine *m)
{
  const struct pen_json_node *drives = NULL;
  if (!pen_json_has(root, "drives"))
    return 0;
  int rc = pen_json_get_array(json, root, "drives", &drives);
  if (rc == 0 && pen_json_size(drives) > PEN_MACHINE_DRIVES_MAX)
    rc = pen_json_error(json, drives, PEN_EFORMAT, "more than %d drives",
                        PEN_MACHINE_DRIVES_MAX);
  for (size_t i = 0; rc == 0 && i < pen_json_size(drives); i++)
    rc = read_drive(json, pen_json_item(drives, i), &m->drives[m->n_drives++]);
  return rc;
}

int pen_machine_parse(const struct pen_json *json,
                      struct pen_machine *ret_machine)
{
  static const char *const others[] = {"version", "name", "cores", "drives",
                                       "device", NULL};
  const struct pen_json_node *root = pen_json_root(json);
  struct pen_machine m = {0};
  int64_t version = 0;
  int rc = pen_json_get_i64(json, root, "version", &version);
  if (rc == 0 && version != PEN_MACHINE_VERSION)
    rc = pen_json_error(json, pen_json_member(root, "version"), PEN_EFORMAT,
                        "this penstock reads version %d; run penstock bench "
                        "again",
                        PEN_MACHINE_VERSION);
  if (rc == 0)
    rc = check_keys(json, root, machine_rates, N(machine_rates), others);
  if (rc == 0)
    rc = read_text(json, root, "name", m.name, sizeof m.name);
  if (rc == 0)
    rc = read_text(json, root, "device", m.device, sizeof m.device);
  if (rc == 0)
    rc = pen_json_get_size(json, root, "cores", &m.cores);
  if (rc == 0 && (m.cores == 0 || m.cores > 65536))
    rc = pen_json_error(json, pen_json_member(root, "cores"), PEN_EFORMAT,
                        "a machine of %zu cores", m.cores);
  if (rc == 0)
    rc = read_rates(json, root, machine_rates, N(machine_rates), &m);
  if (rc == 0)
    rc = read_drives(json, root, &m);
  if (rc == 0)
    *ret_machine = m;
  return rc;
}

int pen_machine_load(const char *path, struct pen_machine *ret_machine)
{
  struct pen_json *json = NULL;
  int rc = pen_json_load(path, &json);
  if (rc == 0)
    rc = pen_machine_parse(json, ret_machine);
  pen_json_free(&json);
  return rc;
}

static void write_rates(struct pen_json_writer *writer,
                        const struct rate *rates, size_t n, const void *base)
{
  for (size_t i = 0; i < n; i++) {
    double value = *(const double *)((const char *)base + rates[i].offset);
    if (value > 0)
      pen_json_put_double(writer, rates[i].key, value);
  }
}

void pen_machine_write(const struct pen_machine *machine,
                       struct pen_json_writer *writer, const char *key)
{
  pen_json_begin_object(writer, key);
  pen_json_put_u64(writer, "version", PEN_MACHINE_VERSION);
  if (machine->name[0])
    pen_json_put_string(writer, "name", machine->name);
  if (machine->device[0])
    pen_json_put_string(writer, "device", machine->device);
  pen_json_put_u64(writer, "cores", machine->cores);
  write_rates(writer, machine_rates, N(machine_rates), machine);
  pen_json_begin_array(writer, "drives");
  for (size_t i = 0; i < machine->n_drives; i++) {
    pen_json_begin_object(writer, NULL);
    if (machine->drives[i].path[0])
      pen_json_put_string(writer, "path", machine->drives[i].path);
    write_rates(writer, drive_rates, N(drive_rates), &machine->drives[i]);
    pen_json_end_object(writer);
  }
  pen_json_end_array(writer);
  pen_json_end_object(writer);
}

int pen_machine_save(const struct pen_machine *machine, const char *path)
{
  struct pen_json_writer writer;
  const char *text;
  size_t bytes;
  pen_json_writer_init(&writer, NULL, 0, true);
  pen_machine_write(machine, &writer, NULL);
  int rc = pen_json_finish(&writer, &text, &bytes);
  if (rc == 0)
    rc = pen_files_write_whole(path, text, bytes);
  pen_json_writer_done(&writer);
  return rc;
}
