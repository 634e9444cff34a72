/* memory.c: the table of bytes by purpose and tier, and what the machine has.
 *
 * Main thread, at start.  Disadvantage: what a library allocates inside is one
 * stated constant, not a list. */
#include "src/train/memory.h"

#include <inttypes.h>
#include <stdbool.h>
#include <string.h>
#include <sys/resource.h>
#include <unistd.h>

#include "base/error.h"
#include "base/size.h"

/* Addresses that no row of the table has: stacks, the C library's arenas, the
 * buffers of OpenBLAS, 32 MiB for each thread that calls it, which it tries to map
 * for ever where it may not. */
#define ADDRESSES_BYTES ((uint64_t)192 << 20)
#define ADDRESSES_CPU_BYTES ((uint64_t)128 << 20)

void pen_memory_add(struct pen_memory *memory, const char *purpose,
                    enum pen_tier tier, uint64_t bytes)
{
  if (bytes == 0)
    return;
  memory->total[tier] += bytes;
  for (size_t i = 0; i < memory->n_rows; i++)
    if (memory->rows[i].tier == tier &&
        strcmp(memory->rows[i].purpose, purpose) == 0) {
      memory->rows[i].bytes += bytes;
      return;
    }
  if (memory->n_rows < PEN_MEMORY_ROWS_MAX)
    memory->rows[memory->n_rows++] =
        (struct pen_memory_row){purpose, tier, bytes};
}

void pen_memory_set(struct pen_memory *memory, const char *purpose,
                    enum pen_tier tier, uint64_t bytes)
{
  for (size_t i = 0; i < memory->n_rows; i++)
    if (memory->rows[i].tier == tier &&
        strcmp(memory->rows[i].purpose, purpose) == 0) {
      memory->total[tier] -= memory->rows[i].bytes;
      memory->total[tier] += bytes;
      memory->rows[i].bytes = bytes;
      return;
    }
  pen_memory_add(memory, purpose, tier, bytes);
}

void pen_memory_add_layout(struct pen_memory *memory,
                           const struct pen_layout *layout)
{
  for (size_t i = 0; i < layout->n_slots; i++)
    pen_memory_add(memory, layout->slots[i].purpose, layout->slots[i].tier,
                   layout->slots[i].bytes);
}

void pen_memory_print(const struct pen_memory *memory, FILE *f)
{
  char text[PEN_SIZE_TEXT_BYTES];
  for (int tier = 0; tier < PEN_TIERS; tier++) {
    if (!memory->total[tier])
      continue;
    pen_size_format(memory->total[tier], text);
    fprintf(f, "%-8s %10s  (%" PRIu64 " bytes)\n", pen_tier_name(tier), text,
            memory->total[tier]);
    for (size_t i = 0; i < memory->n_rows; i++)
      if ((int)memory->rows[i].tier == tier) {
        pen_size_format(memory->rows[i].bytes, text);
        fprintf(f, "         %10s  %s\n", text, memory->rows[i].purpose);
      }
  }
}

void pen_memory_write(const struct pen_memory *memory,
                      struct pen_json_writer *writer, const char *key)
{
  pen_json_begin_array(writer, key);
  for (size_t i = 0; i < memory->n_rows; i++) {
    pen_json_begin_object(writer, NULL);
    pen_json_put_string(writer, "tier", pen_tier_name(memory->rows[i].tier));
    pen_json_put_string(writer, "purpose", memory->rows[i].purpose);
    pen_json_put_u64(writer, "bytes", memory->rows[i].bytes);
    pen_json_end_object(writer);
  }
  pen_json_end_array(writer);
}

/* The first number after `key` in a file; UINT64_MAX where there is none. */
static uint64_t number_in(const char *path, const char *key)
{
  char line[256];
  uint64_t value = UINT64_MAX;
  FILE *f = fopen(path, "re");
  while (f && value == UINT64_MAX && fgets(line, sizeof line, f))
    if (strncmp(line, key, strlen(key)) == 0 &&
        sscanf(line + strlen(key), "%" SCNu64, &value) != 1)
      value = UINT64_MAX;
  if (f)
    fclose(f);
  return value;
}

/* ---- what there is ---- */

/* Where version 1 and 2 of control groups say what. */
struct cgroup_files {
  const char *root, *limit, *used, *cache; /* cache: a key of memory.stat */
};

static const struct cgroup_files cgroup_v1 = {
    "/sys/fs/cgroup/memory", "memory.limit_in_bytes", "memory.usage_in_bytes",
    "total_inactive_file "};
static const struct cgroup_files cgroup_v2 = {
    "/sys/fs/cgroup", "memory.max", "memory.current", "inactive_file "};

static uint64_t number_of(const struct cgroup_files *files, const char *group,
                          const char *name, const char *key)
{
  char path[4096];
  int n = snprintf(path, sizeof path, "%s%s/%s", files->root, group, name);
  return n < 0 || (size_t)n >= sizeof path ? UINT64_MAX : number_in(path, key);
}

/* File pages that can go at once are not in the way. */
static uint64_t group_left(const struct cgroup_files *files, const char *group)
{
  uint64_t limit = number_of(files, group, files->limit, "");
  uint64_t used = number_of(files, group, files->used, "");
  uint64_t cache = number_of(files, group, "memory.stat", files->cache);
  if (limit == UINT64_MAX || used == UINT64_MAX || limit > (uint64_t)1 << 60)
    return UINT64_MAX;
  if (cache < used)
    used -= cache;
  return limit > used ? limit - used : 0;
}

/* The least of a group and all above it; `group` is used up. */
static uint64_t groups_left(const struct cgroup_files *files, char *group)
{
  uint64_t least = UINT64_MAX;
  for (char *end = group;; *end = '\0') {
    uint64_t left = group_left(files, strcmp(group, "/") ? group : "");
    least = left < least ? left : least;
    end = strrchr(group, '/');
    if (!end)
      return least;
  }
}

static bool is_of_memory(const char *controllers)
{
  const char *at = strstr(controllers, "memory");
  char before = at && at > controllers ? at[-1] : ',';
  return at && before == ',' && (at[6] == ',' || at[6] == '\0');
}

/* What the limits of this process's control groups leave. */
static uint64_t cgroups_left(void)
{
  char line[4096];
  uint64_t least = UINT64_MAX;
  FILE *f = fopen("/proc/self/cgroup", "re");
  while (f && fgets(line, sizeof line, f)) {
    line[strcspn(line, "\n")] = '\0';
    char *controllers = strchr(line, ':');
    char *group = controllers ? strchr(controllers + 1, ':') : NULL;
    if (!group)
      continue;
    *group++ = '\0';
    controllers++;
    const struct cgroup_files *files = !*controllers ? &cgroup_v2
                                       : is_of_memory(controllers) ? &cgroup_v1
                                                                   : NULL;
    uint64_t left = files ? groups_left(files, group) : UINT64_MAX;
    least = left < least ? left : least;
  }
  if (f)
    fclose(f);
  return least;
}

uint64_t pen_memory_addresses(void)
{
  struct rlimit limit;
  if (getrlimit(RLIMIT_AS, &limit) < 0 || limit.rlim_cur == RLIM_INFINITY)
    return UINT64_MAX;
  uint64_t pages = number_in("/proc/self/statm", "");
  uint64_t used = pages == UINT64_MAX ? 0 : pages * (uint64_t)sysconf(_SC_PAGESIZE);
  used += ADDRESSES_BYTES +
          (uint64_t)sysconf(_SC_NPROCESSORS_ONLN) * ADDRESSES_CPU_BYTES;
  return limit.rlim_cur > used ? limit.rlim_cur - used : 0;
}

uint64_t pen_memory_available(void)
{
  uint64_t kib = number_in("/proc/meminfo", "MemAvailable:");
  uint64_t least = kib == UINT64_MAX ? kib : kib * 1024;
  uint64_t left = cgroups_left(), addresses = pen_memory_addresses();
  least = left < least ? left : least;
  return addresses < least ? addresses : least;
}

int pen_memory_check(const struct pen_memory *memory, uint64_t limit,
                     const char *limit_name)
{
  uint64_t need = memory->total[PEN_TIER_HOST];
  if (need <= limit)
    return 0;
  char need_text[PEN_SIZE_TEXT_BYTES], limit_text[PEN_SIZE_TEXT_BYTES];
  pen_size_format(need, need_text);
  pen_size_format(limit, limit_text);
  return pen_error_set(PEN_ENOFIT,
                       "does not fit: %s of RAM are needed, %s is %s: %" PRIu64
                       " bytes too few; give a drive with --nvme-path DIR, or "
                       "lower --per-device-train-batch-size or --max-length",
                       need_text, limit_name, limit_text, need - limit);
}
