/* tiers.c: pointer chases and plain reads over buffers that fit each level.
 *
 * A chase visits every line of a buffer once, in random order, each load's
 * address being the last one's value: what is measured is the wait for one
 * load.  One thread.  Disadvantage: in the larger buffers part of the wait is
 * for the page table, as it is for every program without huge pages. */
#include "src/bench/tiers.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "base/error.h"
#include "base/rng.h"

#define LINE 64
#define LOADS ((size_t)1 << 20)
#define CHAIN ((size_t)1 << 24)
#define CACHES_MAX 4

struct line {
  struct line *next;
  char rest[LINE - sizeof(struct line *)];
};

/* ---- what there is ---- */

static bool read_word(const char *file, size_t index, char *ret_text,
                      size_t bytes)
{
  char path[96];
  snprintf(path, sizeof path, "/sys/devices/system/cpu/cpu0/cache/index%zu/%s",
           index, file);
  FILE *f = fopen(path, "re");
  bool good = f && fgets(ret_text, (int)bytes, f) != NULL;
  if (f)
    fclose(f);
  if (good)
    ret_text[strcspn(ret_text, "\n")] = '\0';
  return good;
}

/* Data caches by level; *ret_n 0 where the kernel does not tell. */
static void find_caches(struct pen_bench_tier *rows, size_t *ret_n)
{
  char type[32], level[16], size[32];
  size_t n = 0;
  for (size_t i = 0; n < CACHES_MAX && read_word("type", i, type, sizeof type);
       i++) {
    if (strcmp(type, "Instruction") == 0 ||
        !read_word("level", i, level, sizeof level) ||
        !read_word("size", i, size, sizeof size))
      continue;
    rows[n] = (struct pen_bench_tier){.bytes = strtoull(size, NULL, 10) << 10};
    snprintf(rows[n++].name, sizeof rows->name, "L%s cache", level);
  }
  *ret_n = n;
}

/* ---- measuring ---- */

/* A chain of dependent additions, one a cycle on every core built since the
 * eighties. */
static double measure_cycle(void)
{
  double best = 1;
  for (int run = 0; run < 5; run++) {
    uint64_t begin = pen_clock_ns();
    for (size_t i = 0, x = 1; i < CHAIN / 16; i++) {
#define ADD __asm__ volatile("" : "+r"(x)); x += i;
      ADD ADD ADD ADD ADD ADD ADD ADD ADD ADD ADD ADD ADD ADD ADD ADD
#undef ADD
    }
    double s = (double)(pen_clock_ns() - begin) * 1e-9 / (double)CHAIN;
    best = s < best ? s : best;
  }
  return best;
}

/* One cycle through all lines: Sattolo's shuffle. */
static void link_lines(struct line *lines, size_t n)
{
  for (size_t i = 0; i < n; i++)
    lines[i].next = &lines[i];
  for (size_t i = n - 1; i > 0; i--) {
    size_t j = pen_rng_below(1, 0, i, i);
    struct line *kept = lines[i].next;
    lines[i].next = lines[j].next;
    lines[j].next = kept;
  }
}

static double chase(const struct line *lines, size_t n_loads)
{
  const struct line *at = lines;
  uint64_t begin = pen_clock_ns();
  for (size_t i = 0; i < n_loads; i++)
    at = at->next;
  __asm__ volatile("" : : "r"(at));
  return (double)(pen_clock_ns() - begin) * 1e-9 / (double)n_loads;
}

/* Bits summed in 64 lanes, whose order does not matter. */
static double read_rate(const void *memory, size_t bytes)
{
  const uint32_t *words = memory;
  size_t n = bytes / sizeof *words / 64 * 64, passes = 1 + ((size_t)1 << 28) / bytes;
  uint32_t sums[64] = {0}, all = 0;
  uint64_t begin = pen_clock_ns();
  for (size_t pass = 0; pass < passes; pass++)
    for (size_t i = 0; i < n; i += 64)
      for (size_t lane = 0; lane < 64; lane++)
        sums[lane] += words[i + lane];
  double s = (double)(pen_clock_ns() - begin) * 1e-9;
  for (size_t lane = 0; lane < 64; lane++)
    all += sums[lane];
  __asm__ volatile("" : : "r"(all));
  return (double)(n * sizeof *words) * (double)passes / s;
}

/* On `bytes`, which the level holds and the one above it does not. */
static int measure(const struct pen_bench_options *o, size_t bytes,
                   struct pen_bench_tier *tier)
{
  double latency[PEN_BENCH_RUNS_MAX], rate[PEN_BENCH_RUNS_MAX];
  void *memory = NULL;
  int rc = pen_bench_map(bytes, &memory);
  if (rc < 0)
    return rc;
  size_t n = bytes / LINE;
  link_lines(memory, n);
  chase(memory, n < LOADS ? n : LOADS);
  for (size_t i = 0; i < o->n_runs; i++) {
    latency[i] = chase(memory, LOADS);
    rate[i] = read_rate(memory, bytes);
  }
  tier->latency_s = pen_bench_median(latency, o->n_runs);
  tier->least_s = latency[0];
  tier->most_s = latency[o->n_runs - 1];
  tier->read = pen_bench_median(rate, o->n_runs);
  pen_bench_unmap(&memory, bytes);
  return 0;
}

static void add_drives(const struct pen_machine *m, struct pen_bench_tiers *t)
{
  for (size_t i = 0; i < m->n_drives; i++) {
    const struct pen_machine_drive *d = &m->drives[i];
    struct pen_bench_tier *row = &t->rows[t->n_rows++];
    *row = (struct pen_bench_tier){.latency_s = d->latency_s,
                                   .least_s = d->latency_s,
                                   .most_s = d->latency_s,
                                   .read = d->read};
    snprintf(row->name, sizeof row->name, "%s", d->path[0] ? d->path : "drive");
  }
}

int pen_bench_tiers(const struct pen_bench_options *options,
                    const struct pen_machine *machine,
                    struct pen_bench_tiers *ret_tiers)
{
  struct pen_bench_tiers t = {.cycle_s = measure_cycle()};
  size_t bytes = (size_t)options->bytes / 4096 * 4096;
  int rc = 0;
  find_caches(t.rows, &t.n_rows);
  for (size_t i = 0; rc == 0 && i < t.n_rows; i++) {
    /* Half of it: the rest holds what else the core touches. */
    size_t half = (size_t)t.rows[i].bytes / 2;
    rc = measure(options, half < bytes ? half : bytes, &t.rows[i]);
  }
  struct pen_bench_tier *ram = &t.rows[t.n_rows++];
  *ram = (struct pen_bench_tier){.name = "RAM"};
  if (rc == 0)
    rc = measure(options, bytes, ram);
  if (rc < 0)
    return rc;
  add_drives(machine, &t);
  *ret_tiers = t;
  return 0;
}
